//! Everything that can go wrong in this crate, one variant per cause.
//! Invariant: a variant that blames a file carries that file's name.

use std::path::PathBuf;

/// Why a tokenizer or a chat template could not be loaded or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "a field that its name says all of needs no words")]
pub enum TextError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A file is larger than anything this crate would load.
    #[error(
        "{file} has {bytes} bytes, more than the limit of {limit}: it is not a file of this kind, or it is damaged"
    )]
    FileTooLarge {
        file: String,
        /// Its length in bytes.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A JSON file does not parse, or a field has the wrong type.
    #[error("{file} is not valid: {source}; download the file again or fix that field")]
    Json {
        file: String,
        /// Line, column and reason.
        source: serde_json::Error,
    },
    /// A field holds a value that makes no sense.
    #[error("{file}: {field} {problem}")]
    Field {
        file: String,
        /// The field, as a path inside the file.
        field: String,
        /// What is wrong, starting with a verb.
        problem: String,
    },
    /// A SentencePiece file is cut short or is not SentencePiece at all.
    #[error(
        "{file} is not a SentencePiece model: {problem} at byte {offset}; download the file again"
    )]
    Protobuf {
        file: String,
        /// Where the reader stopped.
        offset: usize,
        /// What is wrong there.
        problem: &'static str,
    },
    /// A directory has no tokenizer this crate can read.
    #[error("no tokenizer.json or tokenizer.model in {}: copy the tokenizer files of the original model there", dir.display())]
    NoTokenizer {
        /// The directory.
        dir: PathBuf,
    },
    /// A tokenizer file of a kind that is known but not supported.
    #[error(
        "{file} is a {kind} vocabulary, which is not supported: convert it to tokenizer.json with the Hugging Face transformers library and put that beside it"
    )]
    UnsupportedFile {
        file: String,
        /// The kind of vocabulary.
        kind: &'static str,
    },
    /// A tokenizer uses a stage or model that is not supported.
    #[error(
        "{file}: {part} of type {kind:?} is not supported: use a tokenizer built from {supported}"
    )]
    UnsupportedStage {
        file: String,
        /// Which part of the pipeline.
        part: &'static str,
        /// Its type as written.
        kind: String,
        /// What would work.
        supported: &'static str,
    },
    /// An id is beyond any real vocabulary.
    #[error(
        "{file}: token {piece:?} has id {id}, beyond the limit of {limit}: the file is damaged"
    )]
    IdTooLarge {
        file: String,
        /// The token.
        piece: String,
        id: u64,
        /// First id that is refused.
        limit: u32,
    },
    /// Two tokens share an id, or one token has two ids.
    #[error(
        "{file}: tokens {first:?} and {second:?} claim id {id}: every id must belong to one token"
    )]
    DuplicateId {
        file: String,
        /// The token that was there first.
        first: String,
        /// The token that collides.
        second: String,
        /// The id in question.
        id: u32,
    },
    /// The tokenizer knows ids that the model has no row for.
    #[error(
        "{file}: token {piece:?} has id {id}, but the model's vocabulary ends at {vocab}: the tokenizer belongs to another model"
    )]
    IdOutsideModel {
        file: String,
        /// The first offending token.
        piece: String,
        id: u32,
        /// Number of ids the model knows.
        vocab: usize,
    },
    /// The text is longer than this crate encodes in one call.
    #[error("text of {bytes} bytes exceeds the limit of {limit}: split it")]
    TextTooLong {
        /// Length of the text in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The text becomes more ids than it may.
    #[error("the text has at least {at_least} tokens and may have {limit}: shorten it")]
    TooManyTokens {
        /// How many were counted, or follow from the text's length.
        at_least: usize,
        limit: usize,
    },
    /// Whoever wanted the ids does not want them any more.
    #[error("encoding was stopped: nobody waits for it")]
    Stopped,
    /// The tokenizer itself failed on this text.
    #[error(
        "the tokenizer could not encode the text: {problem}; the tokenizer file is probably damaged"
    )]
    Encode {
        /// What the tokenizer said.
        problem: String,
    },
    /// A begin-of-sequence token was asked for, but the tokenizer has none.
    #[error(
        "a begin-of-sequence token was asked for, but this tokenizer has none: use the automatic setting"
    )]
    NoBos,
    /// A stop string is empty, or there are too many or too long ones.
    #[error("stop strings: {problem}")]
    StopString {
        /// What is wrong with them.
        problem: String,
    },
    /// A banned string is empty or cannot be searched for in a stream, or there are too many.
    #[error("banned strings: {problem}")]
    BanRule {
        /// What is wrong with them.
        problem: String,
    },
    /// The model directory has no chat template.
    #[error("no chat template in {}: pass one, or choose a built-in one ({builtin})", dir.display())]
    NoTemplate {
        /// The directory.
        dir: PathBuf,
        /// Names of the built-in templates.
        builtin: String,
    },
    /// No template of that name exists.
    #[error("no chat template named {name:?}: choose one of {known}")]
    UnknownTemplate {
        /// The name asked for.
        name: String,
        /// Names that exist.
        known: String,
    },
    /// A template does not compile, or it failed while rendering.
    #[error("chat template {name:?}: {problem}")]
    Template {
        /// Where the template came from.
        name: String,
        /// The reason with its line.
        problem: String,
    },
    /// A template asked for more than it may use.
    #[error(
        "chat template {name:?} exceeded its {what} limit of {limit}: the template is broken or hostile; use a built-in one"
    )]
    TemplateLimit {
        /// Where the template came from.
        name: String,
        /// Which limit.
        what: &'static str,
        /// Its value, in the unit of the limit.
        limit: u64,
    },
    /// The template itself refused these messages.
    #[error("the chat template refused the messages: {message}")]
    TemplateRefused {
        /// What the template said.
        message: String,
    },
    /// An extra template variable would replace one of the standard ones.
    #[error("template variable {name:?} is reserved: choose another name")]
    ReservedVariable {
        /// The variable.
        name: String,
    },
    /// Messages that cannot be rendered.
    #[error("message {index}: {problem}")]
    Message {
        /// Position in the list of messages.
        index: usize,
        /// What is wrong with it.
        problem: String,
    },
}

impl TextError {
    /// Shorthand for [`TextError::Field`].
    pub(crate) fn field(file: &str, field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Field { file: file.into(), field: field.into(), problem: problem.into() }
    }
}
