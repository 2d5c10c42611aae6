//! The project's own documentation as calibration: plain, and as conversations where the model has a
//! chat template.

use std::path::Path;

use pagella_text::{ChatTemplate, Message, Tokenizer};

use super::file::conversation;
use crate::error::QuantError;

/// Pages, in the order in which they are read.
const PAGES: &[&str] = &[
    include_str!("../../../../docs/running.md"),
    include_str!("../../../../docs/library.md"),
    include_str!("../../../../docs/families.md"),
    include_str!("../../../../docs/inspect-and-doctor.md"),
    include_str!("../../../../docs/batching.md"),
    include_str!("../../../../docs/cuda.md"),
    include_str!("../../../../docs/serving.md"),
];

/// Up to `n` rows of `length` ids each, half of them conversations where the model has them.
pub(super) fn rows(
    dir: &Path,
    tokenizer: &Tokenizer,
    n: usize,
    length: usize,
) -> Result<Vec<Vec<u32>>, QuantError> {
    let plain: Vec<u32> = tokenizer.encode_text(&PAGES.join("\n\n"))?;
    let chat = match ChatTemplate::from_dir(dir) {
        Ok(_) => conversations(dir, tokenizer)?,
        Err(_) => Vec::new(),
    };
    let n_chat = (n / 2).min(chat.len() / length.max(1));
    let mut rows = spread(&plain, n - n_chat, length);
    rows.extend(spread(&chat, n_chat, length));
    Ok(rows)
}

/// Sections as answers to their headings.
fn conversations(dir: &Path, tokenizer: &Tokenizer) -> Result<Vec<u32>, QuantError> {
    let mut ids = Vec::new();
    for section in PAGES.iter().flat_map(|page| page.split("\n## ").skip(1)) {
        if let Some((heading, body)) = section.split_once('\n') {
            let question = Message::new("user", format!("Explain: {heading}"));
            let answer = Message::new("assistant", body.trim());
            // A template that refuses two plain messages is of no use here.
            ids.extend(conversation(dir, tokenizer, &[question, answer]).unwrap_or_default());
        }
    }
    Ok(ids)
}

/// Up to `n` rows that lie evenly in `ids`.
fn spread(ids: &[u32], n: usize, length: usize) -> Vec<Vec<u32>> {
    let whole = ids.len() / length.max(1);
    let n = n.min(whole);
    let last = ids.len() - length.min(ids.len());
    let start = |row: usize| if n > 1 { row * last / (n - 1) } else { 0 };
    (0..n).filter_map(|row| Some(ids.get(start(row)..start(row) + length)?.to_vec())).collect()
}
