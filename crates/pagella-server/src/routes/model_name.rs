//! Whether a name in a request means the model there is.

use std::sync::Arc;

use crate::call::Call;
use crate::fields::Fields;
use crate::model::ServedModel;
use crate::wire::error::{ApiError, Code};

/// The model that a request means. A name that is not the model's is answered by the model there is,
/// which the answer names truly, or refused, as the operator chose.
pub fn model_for(call: &Call, fields: &Fields) -> Result<Arc<ServedModel>, ApiError> {
    let model = call.model()?;
    let unknown = || {
        let message = "there is no model of that name: see /v1/models";
        Err(ApiError::field(Code::ModelNotFound, "model", message))
    };
    if !call.caller.key.sees(&model.parts.id) {
        return unknown();
    }
    match fields.text("model") {
        Some(name) if call.app.settings.model.reject_unknown && !model.is_called(name) => unknown(),
        _ => Ok(model),
    }
}
