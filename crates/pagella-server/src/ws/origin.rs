//! Where messages come from: what all of one socket have in common.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::access::AccessEntry;
use crate::app::App;
use crate::call::Call;
use crate::route::Route;
use crate::wire::error::{ApiError, Code};
use crate::wire::id::request_id;

/// The other end of a socket.
pub struct SocketOrigin {
    /// What all requests share.
    pub app: Arc<App>,
    route: &'static Route,
    /// Those of the greeting, and the key that came later.
    headers: HeaderMap,
    peer: SocketAddr,
}

impl SocketOrigin {
    /// Of the request that began it.
    pub fn of(call: &Call) -> Self {
        let (app, route) = (call.app.clone(), call.route);
        SocketOrigin { app, route, headers: call.headers.clone(), peer: call.peer }
    }

    /// The client says who it is.
    pub fn name(&mut self, key: &str) -> Result<(), ApiError> {
        let value = self.check(key)?;
        self.headers.insert("x-api-key", value);
        Ok(())
    }

    /// The form in which a key is sent, if it is one.
    pub fn check(&self, key: &str) -> Result<HeaderValue, ApiError> {
        let mut value = HeaderValue::from_str(key).map_err(|_| {
            let message = "the key is not known here: check it, or ask who runs the server";
            self.refuse(ApiError::new(Code::InvalidApiKey, message))
        })?;
        value.set_sensitive(true);
        let headers = HeaderMap::from_iter([(HeaderName::from_static("x-api-key"), value.clone())]);
        self.app.identify(&headers, self.peer)?;
        Ok(value)
    }

    /// Counts a failure to say who it is.
    pub fn refuse(&self, error: ApiError) -> ApiError {
        self.app.refuse_peer(self.peer, error)
    }

    /// One message as a request. Who asks is looked up each time, so that a key that was withdrawn or
    /// has expired is refused here too.
    pub fn call(&self) -> Result<Call, ApiError> {
        let caller = self.app.identify(&self.headers, self.peer)?;
        let (id, begun) = (request_id(None), Instant::now());
        let peer = self.app.log.peer(self.peer);
        let mut access =
            AccessEntry::new(self.app.http.clone(), id.clone(), "GET".to_owned(), peer, begun);
        access.set_route(self.route.labels());
        access.set_agent(&self.headers);
        access.begin();
        access.note(|facts| facts.key = Some(caller.key.name.clone()));
        Ok(Call {
            app: self.app.clone(),
            route: self.route,
            id,
            caller,
            segment: None,
            query: String::new(),
            headers: self.headers.clone(),
            access: Arc::new(access),
            begun,
            peer: self.peer,
            waits: Arc::default(),
            body: None,
            body_bytes: 0,
            shown: None,
            upgrade: None,
        })
    }
}
