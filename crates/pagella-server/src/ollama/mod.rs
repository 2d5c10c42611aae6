//! Ollama's interface: its words for fields, and answers of one JSON object per line.
//!
//! A conversation becomes a chat like that of every other dialect; what is different is here: fields
//! that stand under `options` ([`request`]), messages without ids of calls ([`message`]), answers whose
//! calls come whole and whose end tells counts and times ([`answer`]), and names with a tag ([`card`]).

mod answer;
mod card;
mod message;
mod request;

pub use answer::{AnswerForm, OllamaAnswer, done_without_text};
pub use card::{entry, own_name, process, show, tagged};
pub use message::messages;
pub use request::{
    CHAT, EMBED, EMBEDDINGS, GENERATE, PULL, SHOW, ends_the_model, job_fields, only_neutral,
};
