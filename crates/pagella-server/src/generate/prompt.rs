//! Text that is continued, as ids.

use pagella_text::{AddBos, EncodeBudget, Span, Tokenizer};

use super::ending::text_error;
use crate::wire::error::ApiError;

/// The ids of a text in which special tokens count.
pub fn text_ids(
    tokenizer: &Tokenizer,
    text: String,
    add_bos: AddBos,
    budget: &EncodeBudget,
) -> Result<Vec<u32>, ApiError> {
    let encoded = tokenizer.encode_within(&[Span::Special(text)], add_bos, budget);
    encoded.map_err(|error| text_error(&error))
}

/// The same for a whole prompt: nothing but the beginning of a text is one too.
pub fn prompt_ids(
    tokenizer: &Tokenizer,
    text: String,
    add_bos: AddBos,
    budget: &EncodeBudget,
) -> Result<Vec<u32>, ApiError> {
    let ids = text_ids(tokenizer, text, add_bos, budget)?;
    Ok(if ids.is_empty() { tokenizer.bos_id().into_iter().collect() } else { ids })
}
