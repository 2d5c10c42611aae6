//! What stands above HTTP: whatever handlers share, and the table of routes.

use std::sync::Arc;

use crate::HttpState;
use crate::fields::Rules;
use crate::route::Route;
use crate::wire::error::Dialect;

/// What a server does with requests. Its value is what all handlers share.
pub trait Application: Rules + Sized + Send + Sync + 'static {
    /// What of it has to do with HTTP.
    fn http(&self) -> &Arc<HttpState>;

    /// Every route.
    fn routes() -> &'static [Route<Self>];

    /// How errors of a path look that leads nowhere: as those of the routes beside it.
    fn dialect_beside(path: &str) -> Dialect;
}
