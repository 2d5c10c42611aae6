//! The built-in page, its files, and the exchange of the terminal's code for a key.

use std::time::Instant;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::auth;
use crate::call::{Call, Reply};
use crate::exchange::Redeemed;
use crate::ui;
use crate::wire::error::{ApiError, Code};

/// What a key is given for.
#[derive(Deserialize, JsonSchema)]
pub struct ExchangeFields {
    /// The code of the link
    #[schemars(length(max = 128))]
    code: String,
}

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
    let ((ExchangeFields { code },), _) = call.read::<(ExchangeFields,)>().await?;
    let local = call.peer.ip().to_canonical().is_loopback();
    let redeemed = match local {
        true => call.app.exchange.redeem(&code, Instant::now()),
        false => Redeemed::Unknown,
    };
    match redeemed {
        Redeemed::Key(key) => Reply::json(&json!({ "key": key })),
        Redeemed::Used => Err(spent(&call, "this link was used already")),
        Redeemed::Old => Err(spent(&call, "this link was good for ten minutes")),
        Redeemed::Unknown => {
            let message = "the code is not good (any more): give a key, or start the server anew";
            Err(call.app.refuse_peer(call.peer, ApiError::new(Code::InvalidApiKey, message)))
        }
    }
}

/// The refusal of a code that was good once. Who has it has read the terminal, and may hear where the
/// keys are; it is no guess, so it does not count as one.
fn spent(call: &Call, what: &str) -> ApiError {
    let file = auth::file_in_use(&call.app.settings.auth.keys_file);
    let file = std::path::absolute(&file).unwrap_or(file);
    let message = format!("{what}: give a key, or start the server anew for another link");
    ApiError::new(Code::InvalidApiKey, message)
        .with_details(json!({ "keys_file": file.to_string_lossy() }))
}
