//! `/ws`: a WebSocket with ExLlamaV2's actions.

use http::{HeaderMap, HeaderValue, StatusCode, header};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::app::Phase;
use crate::call::{Call, Reply};
use crate::generate::submit::draining;
use crate::net::{ReplyBody, is_websocket};
use crate::wire::error::{ApiError, Code};
use crate::ws::{SocketOrigin, serve};

/// Agrees to go on as a WebSocket.
pub async fn open(mut call: Call) -> Result<Reply, ApiError> {
    let key = call.headers.get(header::SEC_WEBSOCKET_KEY);
    let upgrade = call.upgrade.take().filter(|_| is_websocket(&call.headers));
    let (Some(key), Some(upgrade)) = (key, upgrade) else {
        let message = "this path is for WebSockets of version 13 over HTTP/1.1: ask with ws://";
        return Err(ApiError::new(Code::UpgradeRequired, message));
    };
    if call.app.phase() >= Phase::Draining {
        return Err(draining());
    }
    let accept = derive_accept_key(key.as_bytes());
    let accept = HeaderValue::from_str(&accept).map_err(|_| ApiError::internal())?;
    let (origin, awaits_key) = (SocketOrigin::of(&call), upgrade.awaits_key);
    upgrade.go_on(move |socket, answering| async move {
        serve(socket, origin, awaits_key).await;
        drop(answering);
    });
    let mut headers = HeaderMap::new();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    let status = StatusCode::SWITCHING_PROTOCOLS;
    Ok(Reply { status, headers, body: ReplyBody::Whole(None) })
}
