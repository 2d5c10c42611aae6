//! `config.json` to [`ModelSpec`]: one small file per model family.
//!
//! The way through the crate, in the order a file takes it:
//!
//! 1. `load` reads `config.json` and `generation_config.json`, both limited in size and depth;
//! 2. `config` answers questions about them: alternative names, `text_config`, types, ranges;
//! 3. `family` finds the family of the architecture string; its file states a `record`, which is
//!    the Llama record with a few fields changed;
//! 4. `assemble` turns record and config into the [`ModelSpec`] of `spec`, with the help of
//!    `geometry` (sizes), `window` (who sees how far), `rope` (rotary tables), `names` (tensors),
//!    `experts` (how many, how wide, in which layers), `multiplier` (scales and caps), `feature`
//!    (what a family grants or refuses), `tokens` (control ids, quantisation facts) and `notes` (what
//!    a user should know);
//! 5. `extra` says of tensors that no part of a spec takes whether that is known of published files.
//!
//! Nothing here looks at weights or devices, and no input can make it panic or allocate more than
//! a small multiple of the file: every number has a named bound in `limits`.
//!
//! ```
//! use pagella_arch::{SpecOptions, spec_from_json};
//!
//! let config = br#"{
//!     "architectures": ["LlamaForCausalLM"], "vocab_size": 4096, "hidden_size": 384,
//!     "num_hidden_layers": 8, "num_attention_heads": 6, "num_key_value_heads": 2,
//!     "intermediate_size": 1024, "rms_norm_eps": 1e-5, "max_position_embeddings": 2048
//! }"#;
//! let spec = spec_from_json(config, None, &SpecOptions::default())?;
//! assert_eq!(spec.layers.len(), 8);
//! assert_eq!(spec.kv_elements_per_token(), 8 * 2 * 2 * 64);
//! # Ok::<(), pagella_arch::ArchError>(())
//! ```

#![forbid(unsafe_code)]

mod assemble;
mod config;
mod error;
mod experts;
mod extra;
mod family;
mod feature;
mod geometry;
mod latent;
mod limits;
mod load;
mod multiplier;
mod names;
mod notes;
mod query;
mod record;
mod rope;
pub mod spec;
mod tokens;
mod window;

pub use error::ArchError;
pub use extra::Extra;
pub use family::{FamilyInfo, families};
pub use load::{load_spec, spec_from_json};
pub use spec::*;
