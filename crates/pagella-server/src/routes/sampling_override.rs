//! Presets of sampling: which there are, and which one holds.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::auth::Role;
use crate::call::{Call, Reply};
use crate::presets::{self, Preset, Selected};
use crate::wire::error::{ApiError, Code};

/// What is to hold: one of these.
#[derive(Deserialize, JsonSchema)]
pub struct OverrideFields {
    /// The name of a preset
    #[schemars(length(max = 255))]
    preset: Option<String>,
    /// Fields with override, force and additive
    #[schemars(extend("x-empty" = true))]
    overrides: Option<Map<String, Value>>,
}

/// `GET /v1/sampling/overrides`: what holds; for administrators also what could.
pub async fn list(call: Call) -> Result<Reply, ApiError> {
    let presets = match call.caller.role() {
        Role::Admin => presets::list(&call.app.settings.sampling.preset_dir),
        Role::Api => Vec::new(),
    };
    let selected = call.app.presets.selected();
    Reply::json(&json!({
        "selected_preset": selected.as_ref().and_then(|selected| selected.name.clone()),
        "overrides": selected.map_or_else(|| json!({}), |selected| selected.preset.describe()),
        "presets": presets,
    }))
}

/// `POST /v1/sampling/override/switch`: a preset by its name, or values as they are.
pub async fn switch(mut call: Call) -> Result<Reply, ApiError> {
    let ((own,), _) = call.read::<(OverrideFields,)>().await?;
    let selected = match (own.preset, own.overrides) {
        (Some(name), None) => {
            let preset = presets::load(&call.app.settings.sampling.preset_dir, &name)?;
            Selected { name: Some(name), preset }
        }
        (None, Some(map)) => {
            let preset = Preset::read(&map).map_err(|error| {
                let details = json!({ "errors": error.0 });
                ApiError::field(Code::OutOfRange, "overrides", error.to_string())
                    .with_details(details)
            })?;
            Selected { name: None, preset }
        }
        _ => {
            let message = "give either preset, a name, or overrides, an object of fields";
            return Err(ApiError::field(Code::MissingParameter, "preset", message));
        }
    };
    call.app.presets.select(Some(selected));
    list(call).await
}

/// `POST /v1/sampling/override/unload`: nothing is put above or below requests any more.
pub async fn unload(call: Call) -> Result<Reply, ApiError> {
    call.app.presets.select(None);
    Reply::json(&json!({ "status": "unloaded" }))
}
