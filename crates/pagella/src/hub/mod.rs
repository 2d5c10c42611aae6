//! Models of the Hugging Face hub: their names, the local cache, downloading.
//!
//! The cache has the layout of `huggingface_hub`, so models fetched by other programs are found and
//! the other way round. Only what the feature `download` adds touches the network.

mod cache;
#[cfg(feature = "download")]
mod download;
mod error;
mod id;

pub use cache::{CachedModel, HubCache};
#[cfg(feature = "download")]
pub use download::{
    FetchOptions, Fetching, PullOptions, PullProgress, Pulled, fetch, free_bytes, pull,
};
pub use error::HubError;
pub use id::HubId;
