//! Prompts as clients give them: text, ids, or both in one.

use pagella_text::{AddBos, EncodeBudget, Tokenizer};
use serde_json::Value;

use super::ending::too_long;
use super::prompt::{prompt_ids, text_ids};
use crate::fields::ids;
use crate::wire::error::ApiError;

/// Which ids a prompt may have, and how many.
#[derive(Clone, Copy)]
pub struct IdBounds {
    pub vocab: usize,
    /// Longest sequence of the model.
    pub capacity: usize,
}

impl IdBounds {
    /// The ids of a prompt; a list that cannot fit is refused before they are looked at.
    pub fn read(self, path: &str, value: &Value) -> Result<Vec<u32>, ApiError> {
        match value.as_array().map_or(0, Vec::len) {
            n if n > self.capacity => Err(too_long(n, self.capacity, path)),
            _ => ids(path, value, self.vocab),
        }
    }
}

/// One prompt on the wire.
pub enum GivenPrompt {
    /// Text, in which special tokens count.
    Text(String),
    /// Token ids, as they are.
    Ids(Vec<u32>),
    /// One behind the other.
    Mixed(Vec<GivenPrompt>),
}

impl GivenPrompt {
    /// The prompt as ids. Only text at the very beginning gets a beginning.
    pub fn encode(
        self,
        tokenizer: &Tokenizer,
        add_bos: AddBos,
        budget: &EncodeBudget,
    ) -> Result<Vec<u32>, ApiError> {
        let parts = match self {
            GivenPrompt::Text(text) => return prompt_ids(tokenizer, text, add_bos, budget),
            GivenPrompt::Ids(ids) => return Ok(ids),
            GivenPrompt::Mixed(parts) => parts,
        };
        let mut ids = Vec::new();
        for (idx, part) in parts.into_iter().enumerate() {
            let add_bos = if idx == 0 { add_bos } else { AddBos::Never };
            ids.extend(match part {
                GivenPrompt::Text(text) => text_ids(tokenizer, text, add_bos, budget)?,
                other => other.encode(tokenizer, add_bos, budget)?,
            });
        }
        Ok(ids)
    }
}
