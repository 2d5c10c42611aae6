//! Which models answer, which is on its way, and what is wrong.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::load::{Load, LoadOrigin};
use super::open::{KnownModel, ModelOpener};
use super::options::LoadOptions;
use super::served::{Closing, ServedModel};
use super::successor::{LegacyModel, Replace};
use crate::wire::error::{ApiError, Code};

/// How long a list of models is believed.
const LISTING_AGE: Duration = Duration::from_secs(5);

/// What is known of the model that answers requests without a name.
#[derive(Clone, Default)]
pub enum Slot {
    /// There is none.
    #[default]
    Empty,
    /// One is being opened.
    Loading {
        /// Its name.
        id: String,
    },
    /// It answers.
    Loaded(Arc<ServedModel>),
    /// Its engine failed, and it is being opened again.
    Restarting {
        /// Its name.
        id: String,
    },
    /// It could not be opened.
    Failed {
        /// Its name.
        id: String,
    },
}

/// A model that answers.
pub struct Resident {
    /// The model.
    pub model: Arc<ServedModel>,
    /// How it was opened.
    pub options: LoadOptions,
    /// When it was last used.
    pub used: Instant,
    /// It is on its way out: new requests are refused.
    pub leaving: bool,
}

impl Resident {
    /// How to open it again as it is now.
    pub fn options_now(&self) -> LoadOptions {
        LoadOptions { adapters: Some(self.model.adapters.loads()), ..self.options.clone() }
    }

    /// Whether it is as a load wants it.
    pub fn is_as(&self, id: &str, options: &LoadOptions) -> bool {
        let now = self.options_now();
        let adapters = now.adapters.filter(|_| options.adapters.is_some());
        self.model.parts.id == id && LoadOptions { adapters, ..now } == *options
    }
}

/// Something that went wrong and is not resolved.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// The model.
    pub id: String,
    /// What happened, for people.
    pub description: String,
    /// When.
    pub since: SystemTime,
    /// The model is being brought back.
    pub restarting: bool,
    /// The server does not do what it was started for. Without it, someone's load failed.
    pub fatal: bool,
}

/// A model that was given up because nobody used it.
#[derive(Clone, Debug)]
pub struct Remembered {
    /// Its name.
    pub id: String,
    /// How it was opened.
    pub options: LoadOptions,
}

#[derive(Default)]
pub(super) struct State {
    /// Those that answer. The last one is current: it answers requests without a name.
    pub resident: Vec<Resident>,
    /// The one that is being opened.
    pub load: Option<Arc<Load>>,
    /// What is wrong.
    pub trouble: Option<Trouble>,
    /// Given up; the next request brings them back. The last one was current.
    pub idle: Vec<Remembered>,
    /// When engines were restarted.
    pub restarts: VecDeque<Instant>,
    /// Models whose device this process has lost.
    pub lost: Vec<LegacyModel>,
}

impl State {
    /// The place of a model among those that answer.
    pub fn position(&self, model: &Arc<ServedModel>) -> Option<usize> {
        self.resident.iter().position(|resident| Arc::ptr_eq(&resident.model, model))
    }

    /// Refuses new requests to a model.
    pub fn leave(&mut self, model: &Arc<ServedModel>) {
        if let Some(idx) = self.position(model) {
            self.resident[idx].leaving = true;
        }
    }

    /// The model of that name, or else the one with an adapter of that name.
    pub fn resident_called(&mut self, name: &str) -> Option<&mut Resident> {
        let of_model = self.resident.iter().rposition(|resident| resident.model.is_called(name));
        let of_adapter = || {
            let has = |resident: &Resident| resident.model.adapter_called(name).is_some();
            self.resident.iter().rposition(has)
        };
        let idx = of_model.or_else(of_adapter)?;
        self.resident.get_mut(idx)
    }

    /// The model that answers requests without a name, among those that `sees` accepts.
    pub fn current(&self, sees: impl Fn(&str) -> bool) -> Option<&Resident> {
        let mut staying = self.resident.iter().rev().filter(|resident| !resident.leaving);
        staying.find(|resident| sees(&resident.model.parts.id))
    }
}

/// All models of a server.
#[derive(Default)]
pub struct Models {
    state: Mutex<State>,
    opener: OnceLock<Arc<dyn ModelOpener>>,
    replacer: OnceLock<Box<Replace>>,
    listing: Mutex<Option<(Instant, Arc<[KnownModel]>)>>,
}

impl Models {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says who opens models. The first one stays.
    pub fn set_opener(&self, opener: Arc<dyn ModelOpener>) {
        let _ = self.opener.set(opener);
    }

    /// Who opens models.
    pub fn opener(&self) -> Result<&Arc<dyn ModelOpener>, ApiError> {
        self.opener.get().ok_or_else(|| {
            let message = "this server cannot load models: start it with a folder of them";
            ApiError::new(Code::FeatureDisabled, message)
        })
    }

    /// Says how this process is replaced by a new one. The first one stays.
    pub fn set_replacer(&self, replace: Box<Replace>) {
        let _ = self.replacer.set(replace);
    }

    pub(super) fn replacer(&self) -> Option<&Replace> {
        self.replacer.get().map(|replace| &**replace)
    }

    /// Whether whatever models run on is lost for this process.
    pub(super) fn device_is_lost(&self, id: &str, options: &LoadOptions) -> bool {
        self.opener.get().is_some_and(|opener| opener.device_is_lost(id, options))
    }

    /// Models that could be opened, as of the last few seconds. Looks at the disk.
    pub fn known(&self) -> Arc<[KnownModel]> {
        let Some(opener) = self.opener.get() else { return Arc::new([]) };
        let mut listing = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        match &*listing {
            Some((at, models)) if at.elapsed() < LISTING_AGE => models.clone(),
            _ => {
                let models: Arc<[KnownModel]> = opener.list().into();
                *listing = Some((Instant::now(), models.clone()));
                models
            }
        }
    }

    /// What is there now, for requests without a name.
    pub fn now(&self) -> Slot {
        let state = self.lock();
        if let Some(resident) = state.current(|_| true) {
            return Slot::Loaded(resident.model.clone());
        }
        match (&state.trouble, &state.load) {
            (Some(trouble), _) if trouble.restarting => Slot::Restarting { id: trouble.id.clone() },
            (_, Some(load)) => Slot::Loading { id: load.id.clone() },
            (Some(trouble), None) => Slot::Failed { id: trouble.id.clone() },
            (None, None) => Slot::Empty,
        }
    }

    /// All models that answer, the current one last.
    pub fn residents(&self) -> Vec<Arc<ServedModel>> {
        self.lock().resident.iter().map(|resident| resident.model.clone()).collect()
    }

    /// How many jobs the models compute at once, all of them together.
    pub fn batch_max(&self) -> usize {
        let state = self.lock();
        let staying = state.resident.iter().filter(|resident| !resident.leaving);
        staying.map(|resident| resident.model.parts.worker.batch_max()).sum()
    }

    /// The names of models that the next request brings back, the current one last.
    pub fn idle(&self) -> Vec<String> {
        self.lock().idle.iter().map(|model| model.id.clone()).collect()
    }

    /// The model that is being opened.
    pub fn load(&self) -> Option<Arc<Load>> {
        self.lock().load.clone()
    }

    /// What is wrong.
    pub fn trouble(&self) -> Option<Trouble> {
        self.lock().trouble.clone()
    }

    /// The current model, if one answers.
    pub fn loaded(&self) -> Option<Arc<ServedModel>> {
        match self.now() {
            Slot::Loaded(model) => Some(model),
            _ => None,
        }
    }

    /// The current model, or why there is none.
    pub fn need(&self) -> Result<Arc<ServedModel>, ApiError> {
        let state = self.lock();
        state.current(|_| true).map_or_else(|| Err(none(&state)), |found| Ok(found.model.clone()))
    }

    /// Stops the load that runs, if any.
    pub fn cancel_load(&self) {
        if let Some(load) = self.load() {
            load.cancel();
        }
    }
}

/// Why nobody answers requests without a name.
pub(super) fn none(state: &State) -> ApiError {
    let unavailable = |message: &str| ApiError::new(Code::NoModelLoaded, message);
    if state.trouble.as_ref().is_some_and(|trouble| trouble.restarting) {
        return Closing::Restarting.error().retry_after(Duration::from_secs(2));
    }
    if state.load.as_ref().is_some_and(|load| load.origin != LoadOrigin::Restart) {
        let message = "the model is being loaded: try again in a moment";
        return ApiError::new(Code::ModelLoading, message).retry_after(Duration::from_secs(2));
    }
    if state.resident.iter().any(|resident| resident.leaving) {
        return Closing::Unloading.error().retry_after(Duration::from_secs(2));
    }
    match &state.trouble {
        Some(_) => unavailable("the model could not be loaded: see the server's log"),
        None => unavailable("no model is loaded: ask who runs the server to load one"),
    }
}
