//! Chat templates: messages in, spans out.
//!
//! A template is a Jinja program that came with a model, so it is not trusted: it runs on its own
//! thread within limits on steps, time, memory and output, and sees nothing but its variables. What
//! it writes is template text, in which special tokens count; what it copies from messages is
//! content, in which they do not. Telling the two apart is the job of `mark`.

mod budget;
mod builtin;
mod chat;
mod clock;
mod compare;
mod environment;
mod mark;
mod message;
mod method;
mod program;
mod python;
mod render;
mod twin;

pub use budget::TemplateLimits;
pub use chat::ChatTemplate;
pub use message::{ContentTracking, Message, RenderOptions, Rendered, TemplateTokens};
pub use render::is_reserved_variable;
