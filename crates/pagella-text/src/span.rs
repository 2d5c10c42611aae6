//! What is encoded: text with a note on whether control tokens may be recognised in it.

/// A piece of a prompt. Neighbouring spans are tokenized as if they were one string; a span border
/// adds no space and cuts no word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Span {
    /// Text in which special tokens are inert: `</s>` stays five characters.
    Text(String),
    /// Text in which special tokens are recognised, as Hugging Face Tokenizers would.
    Special(String),
}

impl Span {
    /// The text of the span.
    pub fn as_str(&self) -> &str {
        match self {
            Span::Text(s) | Span::Special(s) => s,
        }
    }
}

/// Whether `encode` puts the begin-of-sequence token in front.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AddBos {
    /// Add it if the model wants one and the ids do not start with it already.
    #[default]
    Auto,
    /// Add it even if the ids start with one; an error if the tokenizer has none.
    Always,
    /// Never add it.
    Never,
}

/// What decoding does with special tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SpecialTokens {
    /// Leave them out.
    #[default]
    Hide,
    /// Write their text.
    Show,
}

/// The concatenated text of spans.
pub fn spans_to_string(spans: &[Span]) -> String {
    spans.iter().map(Span::as_str).collect()
}
