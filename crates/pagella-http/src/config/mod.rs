//! From files, environment and flags to [`Settings`](crate::Settings).
//!
//! What keys there are is declared in [`settings`](crate::settings); reading, checking, showing and the
//! sample file go through that list. What is said later wins: defaults, the file, the environment,
//! flags. A key that nobody knows is an error that names the nearest one.

mod import;
mod layer;
mod load;
mod reload;
mod show;
mod yaml;

pub use crate::settings::{Setting, entries};
pub use import::{Imported, import};
pub use load::read_text;
pub use load::{Config, ConfigError, Provenance, Source};
pub use reload::Change;
pub use show::sample;
pub use yaml::read as read_yaml;
