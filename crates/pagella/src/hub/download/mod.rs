//! Files of the hub on their way to this machine. All of the crate that touches the network.

mod client;
mod dirs;
mod fetch;
mod file;
mod pull;
mod space;

pub use fetch::{FetchOptions, Fetching, fetch};
pub use pull::{PullOptions, PullProgress, Pulled, pull};
pub use space::free_bytes;

use super::{HubCache, HubError, HubId, cache, id};
