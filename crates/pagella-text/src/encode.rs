//! Spans to ids. All spans are joined into one string, so a span border changes nothing about how
//! text is cut; what a span decides is only whether special tokens are recognised in it.

use std::ops::Range;

use crate::budget::EncodeBudget;
use crate::error::TextError;
use crate::span::{AddBos, Span};
use crate::tokenizer::Tokenizer;

impl Tokenizer {
    /// The ids of `spans`.
    pub fn encode(&self, spans: &[Span], add_bos: AddBos) -> Result<Vec<u32>, TextError> {
        self.encode_within(spans, add_bos, &EncodeBudget::default())
    }

    /// The same, unless there are more ids than the budget has, or nobody waits for them.
    pub fn encode_within(
        &self,
        spans: &[Span],
        add_bos: AddBos,
        budget: &EncodeBudget,
    ) -> Result<Vec<u32>, TextError> {
        let mut text = String::with_capacity(spans.iter().map(|s| s.as_str().len()).sum());
        let mut inert: Vec<Range<usize>> = Vec::new();
        for span in spans {
            let start = text.len();
            text.push_str(span.as_str());
            if matches!(span, Span::Text(_)) && start < text.len() {
                inert.push(start..text.len());
            }
        }
        let ids = self.pipeline().encode(&text, &inert, budget)?;
        self.with_bos(ids, add_bos)
    }

    /// The ids of plain text: no begin token, special tokens inert.
    pub fn encode_text(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let whole = 0..text.len();
        self.pipeline().encode(text, std::slice::from_ref(&whole), &EncodeBudget::default())
    }

    /// The ids of text in which special tokens are recognised, as Hugging Face Tokenizers encodes it
    /// with `add_special_tokens=False`.
    pub fn encode_special(&self, text: &str) -> Result<Vec<u32>, TextError> {
        self.pipeline().encode(text, &[], &EncodeBudget::default())
    }

    fn with_bos(&self, mut ids: Vec<u32>, add_bos: AddBos) -> Result<Vec<u32>, TextError> {
        let wanted = match add_bos {
            AddBos::Never => return Ok(ids),
            AddBos::Always => Some(self.bos_id().ok_or(TextError::NoBos)?),
            AddBos::Auto => self.bos_id().filter(|id| self.wants_bos() && ids.first() != Some(id)),
        };
        if let Some(bos) = wanted {
            ids.insert(0, bos);
        }
        Ok(ids)
    }
}
