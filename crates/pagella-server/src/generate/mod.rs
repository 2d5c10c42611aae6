//! From the fields of a request to jobs, and from their records to answers. The same for every route
//! that generates text.
//!
//! - `parameters`, `fields`: what clients send; `sampling`, `shape`, `request`: what it means;
//! - `submit`: jobs in the engine, held by guards; `choices`: their records, whichever comes next;
//! - `prompt`: text as ids; `given`: prompts as clients give them; `fill`: prompts with a gap;
//! - `draft`: guesses; `ending`, `usage`, `logprobs`: what clients read of them.

pub mod choices;
pub mod cut_short;
pub mod draft;
pub mod ending;
pub mod fields;
pub mod fill;
pub mod given;
pub mod journal;
pub mod logprobs;
pub mod parameters;
pub mod prompt;
pub mod request;
pub mod sampling;
pub mod shape;
pub mod submit;
pub mod usage;
