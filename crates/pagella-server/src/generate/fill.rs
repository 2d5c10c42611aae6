//! Filling a gap: prompts for models that have tokens for what is before and behind it.

use pagella_text::{Span, Tokenizer};

use crate::fields::unsupported;
use crate::wire::error::ApiError;

/// How a family of models writes a gap.
struct Form {
    /// Before the text in front of the gap.
    prefix: &'static str,
    /// Before the text behind the gap.
    suffix: &'static str,
    /// Before what fills it; empty where the text in front comes last.
    middle: &'static str,
}

const FORMS: &[Form] = &[
    Form { prefix: "<|fim_prefix|>", suffix: "<|fim_suffix|>", middle: "<|fim_middle|>" },
    Form { prefix: "<fim_prefix>", suffix: "<fim_suffix>", middle: "<fim_middle>" },
    Form { prefix: "<fim-prefix>", suffix: "<fim-suffix>", middle: "<fim-middle>" },
    Form {
        prefix: "<｜fim▁begin｜>", suffix: "<｜fim▁hole｜>", middle: "<｜fim▁end｜>"
    },
    Form { prefix: "▁<PRE>", suffix: "▁<SUF>", middle: "▁<MID>" },
    Form { prefix: "[PREFIX]", suffix: "[SUFFIX]", middle: "" },
];

/// The prompt for a gap between two texts; `field` is blamed where the model cannot fill one.
pub fn need(
    tokenizer: &Tokenizer,
    field: &str,
    before: &str,
    behind: &str,
) -> Result<Vec<Span>, ApiError> {
    let none = || unsupported(field, "the model has no tokens for filling a gap");
    gap(tokenizer, before, behind).ok_or_else(none)
}

/// Whether a model has tokens for gaps.
pub fn can(tokenizer: &Tokenizer) -> bool {
    gap(tokenizer, "", "").is_some()
}

/// The prompt for a gap between two texts; `None` if the model has no tokens for it.
pub fn gap(tokenizer: &Tokenizer, before: &str, behind: &str) -> Option<Vec<Span>> {
    let known = |name: &str| name.is_empty() || tokenizer.id_of(name).is_some();
    let form =
        FORMS.iter().find(|form| [form.prefix, form.suffix, form.middle].into_iter().all(known))?;
    let token = |name: &str| Span::Special(name.to_owned());
    let text = |text: &str| Span::Text(text.to_owned());
    Some(match form.middle {
        "" => vec![token(form.suffix), text(behind), token(form.prefix), text(before)],
        middle => {
            let first = [token(form.prefix), text(before)];
            let then = [token(form.suffix), text(behind), token(middle)];
            first.into_iter().chain(then).collect()
        }
    })
}
