//! The routes of llama.cpp's server that are not OpenAI's: its words for fields, prompts of text and
//! ids mixed, and what it tells about an answer. Everything else is that of completions.

mod answer;
mod infill;
mod prompt;
mod request;
mod settings;

pub use answer::{LlamaAnswer, Prompted};
pub use infill::spans as infill_spans;
pub use prompt::prompts;
pub use request::{FIELDS, INFILL, read, set_defaults};
pub use settings::generation_settings;
