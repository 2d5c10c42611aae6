//! The built-in page, its files, and the exchange of the terminal's code for a key.

use std::time::Instant;

use serde_json::json;

use crate::call::{Call, Reply};
use crate::fields::{Fields, Param, text};
use crate::ui;
use crate::wire::error::{ApiError, Code};

/// Every field of the exchange.
pub const EXCHANGE: &[&[Param]] = &[&[text("code", 128)]];

/// Refuses where the operator wants no page.
fn check_enabled(call: &Call) -> Result<(), ApiError> {
    match call.app.settings.ui.enabled {
        true => Ok(()),
        false => {
            let message = "the page is switched off: see ui.enabled";
            Err(ApiError::new(Code::FeatureDisabled, message))
        }
    }
}

/// `/`.
pub async fn index(call: Call) -> Result<Reply, ApiError> {
    check_enabled(&call)?;
    Ok(ui::index(&call.headers))
}

/// `/ui/{name}`.
pub async fn asset(call: Call) -> Result<Reply, ApiError> {
    let name = call.segment.as_deref().unwrap_or_default();
    ui::asset(name, &call.headers).ok_or_else(|| {
        let message = "the page has no such file: reload it";
        ApiError::new(Code::UnknownRoute, message)
    })
}

/// `/ui/exchange`: a key for the code that the terminal shows, from this machine only.
pub async fn exchange(mut call: Call) -> Result<Reply, ApiError> {
    check_enabled(&call)?;
    let fields = Fields::read(call.object().await?, EXCHANGE)?;
    call.settle(&fields)?;
    fields.need("code")?;
    let code = fields.text("code").unwrap_or_default();
    let local = call.peer.ip().to_canonical().is_loopback();
    let key = local.then(|| call.app.exchange.redeem(code, Instant::now())).flatten();
    match key {
        Some(key) => Reply::json(&json!({ "key": key })),
        None => {
            let message = "the code is not good (any more): give a key, or start the server anew";
            Err(call.app.refuse_peer(call.peer, ApiError::new(Code::InvalidApiKey, message)))
        }
    }
}
