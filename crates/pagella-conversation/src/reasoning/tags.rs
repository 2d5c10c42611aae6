//! The tags around reasoning: which a model uses, and whether its answer begins inside them.

use pagella_engine::constraint::{Block, Switch};
use pagella_text::{AddBos, Span, TextError, Tokenizer};

/// Pairs of tags that models use.
const PAIRS: &[(&str, &str)] = &[
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought", "<channel|>"),
    ("<seed:think>", "</seed:think>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("◁think▷", "◁/think▷"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
];

/// The tags around reasoning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tags {
    /// Opens it.
    pub start: String,
    /// Ends it.
    pub end: String,
}

impl Tags {
    /// The tags of a model: those that its template declares, else those that it mentions, else
    /// those that are tokens.
    pub fn of(source: &str, tokenizer: &Tokenizer) -> Option<Self> {
        let declared = (constant(source, "reasoning_start"), constant(source, "reasoning_end"));
        if let (Some(start), Some(end)) = declared {
            return Some(Tags { start, end });
        }
        let mentioned =
            PAIRS.iter().find(|(start, end)| source.contains(start) || source.contains(end));
        let is_token = |text: &str| tokenizer.id_of(text).is_some();
        let tokens = || PAIRS.iter().find(|(start, end)| is_token(start) && is_token(end));
        let (start, end) = mentioned.or_else(tokens)?;
        Some(Tags { start: (*start).to_owned(), end: (*end).to_owned() })
    }

    /// Those of the tags that are special tokens: they must appear in the text.
    pub fn special_ids(&self, tokenizer: &Tokenizer) -> Vec<u32> {
        let named = |name: &&String| self.start.contains(&**name) || self.end.contains(&**name);
        let specials = tokenizer.template_tokens().specials.iter().filter(named);
        specials.filter_map(|name| tokenizer.id_of(name)).collect()
    }

    /// The block that the engine watches over: it can be closed from outside, or when `budget` tokens are
    /// used up, with a message before the end tag. `inside`: the answer begins in it.
    pub fn block(
        &self,
        inside: bool,
        budget: Option<usize>,
        message: &str,
        tokenizer: &Tokenizer,
    ) -> Result<Block, TextError> {
        let spans = [Span::Text(message.to_owned()), Span::Special(self.end.clone())];
        Ok(Block {
            start: (!inside).then(|| self.start.clone()),
            end: self.end.clone(),
            budget,
            closing: tokenizer.encode(&spans, AddBos::Never)?,
            switch: Switch::default(),
        })
    }

    /// Whether text ends inside tags.
    pub fn are_open(&self, text: &str) -> bool {
        let opened = text.rfind(&self.start);
        opened.is_some_and(|at| !text[at + self.start.len()..].contains(&self.end))
    }
}

/// The text that a template assigns to a name at its top, without running it.
fn constant(source: &str, name: &str) -> Option<String> {
    source.split("{%").skip(1).find_map(|statement| {
        let statement = statement.split("%}").next()?.trim_matches(|c: char| c == '-' || c == '+');
        let value = statement.trim().strip_prefix("set")?.trim_start().strip_prefix(name)?;
        let value = value.trim_start().strip_prefix('=')?.trim();
        let quote = value.chars().next().filter(|c| *c == '"' || *c == '\'')?;
        let text = value.strip_prefix(quote)?.strip_suffix(quote)?;
        (!text.is_empty() && !text.contains([quote, '\\'])).then(|| text.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_read_and_not_computed() {
        let source = "{%- set reasoning_start = '<a>' -%}{% set reasoning_end=\"</a>\" %}";
        assert_eq!(constant(source, "reasoning_start").as_deref(), Some("<a>"));
        assert_eq!(constant(source, "reasoning_end").as_deref(), Some("</a>"));
        for other in ["{% set reasoning_start = x %}", "{% set x = 'a' + 'b' %}", "{% set x = '"] {
            assert_eq!(constant(other, "x").or(constant(other, "reasoning_start")), None);
        }
    }

    #[test]
    fn open_tags_are_those_without_an_end_behind_them() {
        let tags = Tags { start: "<think>".into(), end: "</think>".into() };
        assert!(tags.are_open("assistant\n<think>\n"));
        assert!(tags.are_open("<think></think><think>"));
        assert!(!tags.are_open("<think>\n\n</think>\n\n"));
        assert!(!tags.are_open("assistant\n"));
    }
}
