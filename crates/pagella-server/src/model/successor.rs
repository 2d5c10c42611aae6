//! A process that takes another's place. A CUDA context that failed takes all of CUDA in its process
//! with it: whatever is opened afterwards fails with the same error, until the program is started
//! again. So that is done, and what the new process must know is handed over.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::change::{LoadAsk, load_here};
use super::options::LoadOptions;
use super::registry::Trouble;
use super::restart::may_restart;
use crate::app::App;

/// How long answers may take to hear of their end before the process goes.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How often it is looked whether they have.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// What a process hands over.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Legacy {
    /// Where it listened: a port that the system chose stays the same.
    pub port: u16,
    /// Its models, the current one last.
    pub models: Vec<LegacyModel>,
    /// When engines were restarted lately, in seconds since 1970.
    pub restarts: Vec<u64>,
    /// How often in all.
    pub restarts_total: u64,
    /// What happened, for people.
    pub description: String,
}

/// A model that is to come back.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct LegacyModel {
    /// Its name.
    pub id: String,
    /// How it was opened.
    pub options: LoadOptions,
}

/// Ends this process in favour of a new one; comes back only with the reason why not.
pub type Replace = dyn Fn(&Legacy) -> String + Send + Sync;

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Replaces the process after the device of `lost` is gone. Comes back when that cannot be done; then
/// the model is given up.
pub(super) fn replace_process(app: &Arc<App>, lost: LegacyModel) {
    let id = lost.id.clone();
    {
        let mut state = app.model.lock();
        state.lost.push(lost);
        if state.lost.len() > 1 {
            // Whoever came first sees to it for all.
            return;
        }
    }
    if !may_restart(app, &id) {
        app.model.lock().lost.clear();
        return;
    }
    app.metrics.note_restart();
    app.issue("engine", "the device is lost for this process, which makes room for a new one");
    let begun = Instant::now();
    while !app.requests.is_empty() && begun.elapsed() < LAST_WORDS {
        std::thread::sleep(LOOK_INTERVAL);
    }
    // What was written last is on its way out of the sockets.
    std::thread::sleep(LOOK_INTERVAL);
    let legacy = legacy(app);
    let problem = match app.model.replacer() {
        Some(replace) => replace(&legacy),
        None => "this program cannot start itself again".to_owned(),
    };
    let mut state = app.model.lock();
    state.lost.clear();
    if let Some(trouble) = &mut state.trouble {
        trouble.restarting = false;
        trouble.description = format!("the device of {id} failed: start the server again");
    }
    drop(state);
    app.issue("engine", &format!("the server has to be started again: {problem}"));
}

fn legacy(app: &App) -> Legacy {
    let state = app.model.lock();
    let staying = state.resident.iter().filter(|resident| !resident.leaving);
    let staying = staying.map(|resident| LegacyModel {
        id: resident.model.parts.id.clone(),
        options: resident.options_now(),
    });
    let mut models: Vec<LegacyModel> = staying.collect();
    // The first to fail was the one that was in use.
    for lost in state.lost.iter().rev() {
        models.retain(|model| model.id != lost.id);
        models.push(lost.clone());
    }
    let now = unix_now();
    let restarts = state.restarts.iter().map(|at| now.saturating_sub(at.elapsed().as_secs()));
    Legacy {
        port: app.bound.port(),
        models,
        restarts: restarts.collect(),
        restarts_total: app.metrics.restarts_total(),
        description: state
            .trouble
            .as_ref()
            .map_or(String::new(), |trouble| trouble.description.clone()),
    }
}

/// Goes on where another process ended: health says that models come back until they are there.
pub fn succeed(app: &Arc<App>, legacy: Legacy) -> std::io::Result<()> {
    let Some(current) = legacy.models.last().map(|model| model.id.clone()) else { return Ok(()) };
    let now = (unix_now(), Instant::now());
    let ago = |at: &u64| now.1.checked_sub(Duration::from_secs(now.0.saturating_sub(*at)));
    let mut state = app.model.lock();
    state.restarts = legacy.restarts.iter().filter_map(ago).collect::<VecDeque<_>>();
    state.trouble = Some(trouble(&current, legacy.description));
    drop(state);
    app.metrics.restarts_were(legacy.restarts_total);
    let app = app.clone();
    std::thread::Builder::new().name("pagella-restart".to_owned()).spawn(move || {
        for LegacyModel { id, options } in legacy.models {
            let ask = LoadAsk::again(&id, options);
            if load_here(&app, &ask) {
                continue;
            }
            while may_restart(&app, &id) {
                app.metrics.note_restart();
                if load_here(&app, &ask) {
                    break;
                }
            }
        }
    })?;
    Ok(())
}

fn trouble(id: &str, description: String) -> Trouble {
    Trouble {
        id: id.to_owned(),
        description,
        since: SystemTime::now(),
        restarting: true,
        fatal: true,
    }
}
