//! Presets of sampling: which there are, and which one holds.

use serde_json::{Value, json};

use crate::auth::Role;
use crate::call::{Call, Reply};
use crate::fields::{Fields, Param, any, text, wrong_type};
use crate::presets::{self, Preset, Selected};
use crate::wire::error::{ApiError, Code};

/// Fields of a switch.
pub const SWITCH: &[&[Param]] = &[&[text("preset", 255), any("overrides")]];

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
    let fields = Fields::read(call.object().await?, SWITCH)?;
    call.settle(&fields)?;
    let selected =
        match (fields.text("preset").filter(|name| !name.is_empty()), fields.value("overrides")) {
            (Some(name), None) => {
                let preset = presets::load(&call.app.settings.sampling.preset_dir, name)?;
                Selected { name: Some(name.to_owned()), preset }
            }
            (None, Some(Value::Object(map))) => {
                let preset = Preset::read(map).map_err(|error| {
                    let details = json!({ "errors": error.0 });
                    ApiError::field(Code::OutOfRange, "overrides", error.to_string())
                        .with_details(details)
                })?;
                Selected { name: None, preset }
            }
            (None, Some(_)) => return Err(wrong_type("overrides", "an object of fields")),
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
