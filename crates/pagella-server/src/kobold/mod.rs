//! KoboldAI's interface, as KoboldCpp extends it: its words for fields, and answers that are known by
//! a name of the client's choice. Everything else is that of completions.

mod genkeys;
mod order;
mod request;

pub use genkeys::{Genkeys, Named};
pub use request::{Asked, FIELDS, GENKEY, TOKENCOUNT, genkey, read};
