//! From files, environment and flags to [`Settings`](crate::Settings).
//!
//! Every key stands once, as a row of a `table`: its kind, its default, its sentence, whether it can
//! change while the server runs, and what it sets. Reading, checking, showing, the sample file, names
//! of environment variables and flags follow from the rows.
//!
//! What is said later wins: defaults, the file, the environment, flags. A key that nobody knows is an
//! error that names the nearest one.

mod entry;
mod given;
mod import;
mod layer;
mod load;
mod reload;
mod show;
mod table;
mod yaml;

pub use entry::Entry;
pub use import::{Imported, import};
pub(crate) use load::read_text;
pub use load::{Config, ConfigError, Origin, Source};
pub use reload::Change;
pub use show::sample;
pub use table::entries;
pub use yaml::read as read_yaml;
