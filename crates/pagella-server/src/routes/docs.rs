//! The interface, described: for programs and for people.

use std::sync::OnceLock;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};

use crate::call::{Call, Reply};
use crate::openapi;
use crate::ui;
use crate::wire::error::ApiError;

/// Both texts, made when they are first asked for.
#[derive(Default)]
pub struct Described {
    document: OnceLock<Bytes>,
    page: OnceLock<Bytes>,
}

/// `/openapi.json`.
pub async fn document(call: Call) -> Result<Reply, ApiError> {
    let base = &call.app.settings.network.base_path;
    let make = || openapi::document(base).to_string().into();
    let text = call.app.described.document.get_or_init(make).clone();
    Ok(kept(Reply::bytes(StatusCode::OK, "application/json", text)))
}

/// `/docs`.
pub async fn page(call: Call) -> Result<Reply, ApiError> {
    let base = &call.app.settings.network.base_path;
    let text = call.app.described.page.get_or_init(|| openapi::page(base).into()).clone();
    let mut reply = kept(Reply::bytes(StatusCode::OK, "text/html; charset=utf-8", text));
    ui::write_page_headers(&mut reply.headers);
    Ok(reply)
}

/// Changes only with the program; browsers ask again all the same.
fn kept(mut reply: Reply) -> Reply {
    reply.headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    reply
}
