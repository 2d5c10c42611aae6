//! Whether a name in a request means the model there is.

use std::sync::Arc;

use crate::call::Call;
use crate::generate::fields::GenerationFields;
use crate::model::{ServedModel, resolve};
use crate::wire::error::ApiError;

/// The model that a request means. A name that is not the model's is answered by the model there is,
/// which the answer names truly, or refused, or loaded first, as the operator chose.
pub async fn model_for(
    call: &Call,
    fields: &GenerationFields,
) -> Result<Arc<ServedModel>, ApiError> {
    resolve(call, fields.model.as_deref(), fields.stream).await
}
