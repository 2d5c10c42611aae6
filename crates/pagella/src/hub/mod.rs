//! Models of the Hugging Face hub: their names, the local cache, downloading.
//!
//! The cache has the layout of `huggingface_hub`, so models fetched by other programs are found and
//! the other way round. Nothing here touches the network except [`pull`] and [`fetch`].

mod cache;
mod client;
mod download;
mod error;
mod fetch;
mod id;
mod place;
mod pull;
mod space;

pub use cache::{CachedModel, HubCache};
pub use error::HubError;
pub use fetch::{FetchOptions, Fetching, fetch};
pub use id::HubId;
pub use pull::{PullOptions, PullProgress, Pulled, pull};
pub use space::free_bytes;
