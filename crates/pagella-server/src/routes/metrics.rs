//! `/metrics`, as Prometheus reads it. Answers also while the engine hangs.

use http::StatusCode;

use crate::call::{Call, Reply};
use crate::metrics::{Form, render};
use crate::wire::error::{ApiError, Code};

/// All series.
pub async fn show(call: Call) -> Result<Reply, ApiError> {
    if !call.app.settings.metrics.enabled {
        let message = "counts are switched off: see metrics.enabled";
        return Err(ApiError::new(Code::FeatureDisabled, message));
    }
    let accept = call.headers.get("accept").and_then(|value| value.to_str().ok());
    let form = Form::accepted(accept.unwrap_or_default());
    Ok(Reply::bytes(StatusCode::OK, form.content_type(), render(&call.app, form)))
}
