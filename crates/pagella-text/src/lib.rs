//! Tokenizers, chat templates and streaming text.
//!
//! A prompt goes through this crate twice. On the way in, messages become [`Span`]s
//! ([`ChatTemplate`]) and spans become ids ([`Tokenizer::encode`]). On the way out, ids become text
//! ([`StreamDecoder`]) and text is searched for stop strings ([`StopMatcher`]) and banned ones
//! ([`BanMatcher`]).
//!
//! What always holds:
//! - Plain text never becomes a control token. Only a [`Span::Special`] can name one, and the spans
//!   that come from message content are never special.
//! - Spans that are all special encode exactly as Hugging Face Tokenizers encodes their text.
//! - Decoding is the concatenation of the ids' bytes. Streaming emits the same text as decoding at
//!   once and never half a character.
//! - No id is invented: a token nobody declares is absent.
//! - Every file and every template has limits; nothing here panics on what a file contains.
//!
//! ```
//! use pagella_text::{AddBos, ChatTemplate, Message, RenderOptions, Span, Tokenizer};
//! # let json = br#"{"model": {"type": "BPE", "vocab": {"h": 0, "i": 1, "hi": 2, "</s>": 3, "<": 4,
//! #   "/": 5, "s": 6, ">": 7}, "merges": ["h i"]}, "added_tokens": [
//! #   {"id": 3, "content": "</s>", "special": true}]}"#;
//! let tokenizer = Tokenizer::from_json_bytes(json)?;
//! assert_eq!(tokenizer.encode_text("hi</s>")?, [2, 4, 5, 6, 7]);
//! let spans = [Span::Text("hi".into()), Span::Special("</s>".into())];
//! assert_eq!(tokenizer.encode(&spans, AddBos::Auto)?, [2, 3]);
//!
//! let template = ChatTemplate::builtin("chatml")?;
//! let spans = template.render(&[Message::new("user", "hi")], &RenderOptions::default())?;
//! assert_eq!(spans[0], Span::Special("<|im_start|>user\n".into()));
//! assert_eq!(spans[1], Span::Text("hi".into()));
//! # Ok::<(), pagella_text::TextError>(())
//! ```

#![forbid(unsafe_code)]

mod added;
mod ban;
mod budget;
mod byte_alphabet;
mod control;
mod decode;
mod direct;
mod encode;
mod error;
mod file;
mod healing;
mod least;
mod long_word;
mod marked;
mod merges;
mod pipeline;
mod plain;
mod source;
mod span;
mod stop;
mod template;
mod tokenizer;
mod utf8;
mod vocab;
mod word_cache;
mod words;

pub use ban::{BanMatch, BanMatcher, BanPattern, BanRule, BanStep};
pub use budget::EncodeBudget;
pub use control::{PadSource, PadToken};
pub use decode::{StreamDecoder, StreamStart};
pub use error::TextError;
pub use healing::HealingPoint;
pub use span::{AddBos, Span, SpecialTokens, spans_to_string};
pub use stop::{StopMatch, StopMatcher, StopStep};
pub use template::{
    ChatTemplate, ContentTracking, Message, RenderOptions, Rendered, TemplateLimits,
    TemplateTokens, is_reserved_variable,
};
pub use tokenizer::Tokenizer;
pub use vocab::TokenFlags;
