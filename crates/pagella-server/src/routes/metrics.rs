//! `/metrics`, as Prometheus reads it. Answers also while the engine hangs.

use http::StatusCode;

use crate::call::{Call, Reply};
use crate::metrics::render;
use crate::wire::error::ApiError;

/// All series.
pub async fn show(call: Call) -> Result<Reply, ApiError> {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    Ok(Reply::bytes(StatusCode::OK, kind, render(&call.app)))
}
