//! What a request is answered with: the adapters that it names, or the default set.

use blake2::digest::consts::U32;
use blake2::{Blake2b, Digest};
use pagella_engine::Adapter;

use super::loaded::LoadedAdapter;
use super::{Which, entries};
use crate::auth::Key;
use crate::call::Call;
use crate::fields::unsupported;
use crate::generate::fields::GenerationFields;
use crate::model::{ServedModel, meant};
use crate::wire::error::{ApiError, Code};

/// Most adapters of a request.
pub const ADAPTERS_MAX: usize = 4;

/// The adapters of a request.
#[derive(Clone, Debug, Default)]
pub struct ChosenAdapters {
    /// As a job has them.
    pub used: Vec<(Adapter, f32)>,
    /// What the answer says of them.
    pub signature: Signature,
}

/// What an answer says of what computed it.
#[derive(Clone, Debug, Default)]
pub struct Signature {
    /// Names of the adapters, with commas between them.
    pub names: Option<String>,
    /// The same, each with what tells its content apart: `name@hash`.
    pub adapter: Option<String>,
    /// Changes with everything that can change results.
    pub fingerprint: String,
}

impl ChosenAdapters {
    fn new(model: &ServedModel, chosen: &[(LoadedAdapter, f32)]) -> Self {
        let base = &model.parts.facts.fingerprint;
        let chosen = chosen.iter().filter(|(_, scale)| *scale != 0.0);
        let joined = |part: fn(&LoadedAdapter) -> &str| {
            let parts: Vec<&str> = chosen.clone().map(|(adapter, _)| part(adapter)).collect();
            (!parts.is_empty()).then(|| parts.join(","))
        };
        let names = joined(|adapter| &adapter.load.name);
        let adapter = joined(|adapter| &adapter.label);
        let fingerprint = match &adapter {
            None => base.clone(),
            Some(labels) => {
                let mut sum = Blake2b::<U32>::new();
                sum.update(format!("{base}\0{labels}"));
                chosen.clone().for_each(|(_, scale)| sum.update(scale.to_le_bytes()));
                let hex = sum
                    .finalize()
                    .iter()
                    .take(6)
                    .map(|byte| format!("{byte:02x}"))
                    .collect::<String>();
                format!("fp_{hex}")
            }
        };
        let used = chosen.map(|(adapter, scale)| (adapter.handle.clone(), *scale)).collect();
        ChosenAdapters { used, signature: Signature { names, adapter, fingerprint } }
    }
}

/// The adapters that a request asks for by `lora` or by the name of its model; without either, the
/// default set.
pub fn choose(
    call: &Call,
    fields: &GenerationFields,
    model: &ServedModel,
) -> Result<ChosenAdapters, ApiError> {
    let loaded = model.adapters.list();
    let asked = fields.lora.as_ref().map(|value| entries("lora", value, ADAPTERS_MAX));
    let asked = asked.transpose()?.flatten();
    let named = match &fields.model {
        Some(name) => named(call, model, name)?,
        None => None,
    };
    let key = &call.caller.key;
    let with_own_scale = |adapter: &LoadedAdapter| (adapter.clone(), adapter.load.scaling);
    let chosen = match (asked, named) {
        (None, None) => {
            loaded.iter().filter(|one| one.load.is_default).map(with_own_scale).collect()
        }
        (None, Some(adapter)) => vec![with_own_scale(&adapter)],
        (Some(list), None) => {
            let find = |which: &Which| {
                loaded.iter().find(|one| one.is(which) && one.is_seen_by(key, model))
            };
            let found = list.iter().map(|entry| {
                let adapter = find(&entry.which).ok_or_else(|| unknown(&entry.at))?;
                Ok((adapter.clone(), entry.scale.unwrap_or(adapter.load.scaling)))
            });
            found.collect::<Result<Vec<_>, ApiError>>()?
        }
        (Some(_), Some(_)) => {
            let message = "model names an adapter, and so does lora: leave one of them out";
            return Err(ApiError::field(Code::ConflictingParameters, "lora", message));
        }
    };
    Ok(ChosenAdapters::new(model, &chosen))
}

/// The adapter that the name of a model means, if it means one.
fn named(call: &Call, model: &ServedModel, name: &str) -> Result<Option<LoadedAdapter>, ApiError> {
    let Some(name) = meant(&call.app.settings.model, name) else { return Ok(None) };
    let seen = |adapter: &LoadedAdapter| adapter.is_seen_by(&call.caller.key, model);
    match model.adapter_called(name).filter(seen) {
        // It was there when the model was chosen.
        None if model.own_part(name).is_some() => Err(unknown("model")),
        found => Ok(found),
    }
}

impl LoadedAdapter {
    /// Whether a key may ask for it, by its name alone or behind that of the model.
    pub fn is_seen_by(&self, key: &Key, model: &ServedModel) -> bool {
        key.sees(&self.load.name) || key.sees(&self.id(model))
    }

    /// Its name among models.
    pub fn id(&self, model: &ServedModel) -> String {
        format!("{}:{}", model.parts.id, self.load.name)
    }
}

/// The error for an adapter that is not there.
pub fn unknown(field: &str) -> ApiError {
    let message = "there is no adapter of that name: see /v1/loras";
    ApiError::field(Code::LoraNotFound, field, message)
}

/// Refuses a name that means an adapter, where the model is asked alone.
pub fn refuse_named(call: &Call, model: &ServedModel, name: Option<&str>) -> Result<(), ApiError> {
    match name.map(|name| named(call, model, name)).transpose()?.flatten() {
        None => Ok(()),
        Some(_) => Err(unsupported(
            "model",
            "vectors are made with the default adapters, name the model alone",
        )),
    }
}
