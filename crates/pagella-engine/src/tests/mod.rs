//! The generator as a whole, on the checksum model: every job gets what it would get alone.
//!
//! - `stand_in`: the checksum model; `support`: running jobs; `script`: random jobs and what is done to them;
//! - `random_jobs`: thousands of such scripts; `sharing`: pages computed once;
//! - `quirks`: one named test for each known mistake of generators of this kind;
//! - `cache_map`: the picture of the cache; `prompt_logprobs`: prompts scored;
//! - `adapters`: loads that fail, pages of different adapters;
//! - `draft`: ids that are guessed and checked; `embed`: texts as vectors beside jobs;
//! - `text`: stops, bans, characters; `worker`: threads, streams, cancelling; `saved`: files.

mod adapters;
mod cache_map;
mod draft;
mod embed;
mod prompt_logprobs;
mod quirks;
mod random_jobs;
mod saved;
mod script;
mod sharing;
pub(crate) mod stand_in;
mod support;
mod text;
mod worker;
