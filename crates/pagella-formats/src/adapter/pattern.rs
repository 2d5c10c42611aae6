//! Patterns of `adapter_config.json` that name modules.
//!
//! They are regular expressions of Python. Those of the `regex` crate run in linear time and bounded
//! memory; what only Python has, such as looking around, does not compile.

use regex::{Regex, RegexBuilder};

/// Memory of one compiled pattern.
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(super) struct Pattern(Regex);

impl Pattern {
    /// A pattern for the end of a path, from the start of one of its parts on: how ranks and alphas
    /// are given.
    pub fn of_ending(pattern: &str) -> Option<Self> {
        Self::compile(&format!(r"^(?:.*\.)?(?:{pattern})$"))
    }

    /// A pattern for a whole path: how targets are given.
    pub fn of_path(pattern: &str) -> Option<Self> {
        Self::compile(&format!("^(?:{pattern})$"))
    }

    fn compile(pattern: &str) -> Option<Self> {
        RegexBuilder::new(pattern).size_limit(COMPILED_BYTES_MAX).build().ok().map(Self)
    }

    pub fn matches(&self, path: &str) -> bool {
        self.0.is_match(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_begin_at_a_part_and_paths_are_whole() {
        let ending = Pattern::of_ending("q_proj").unwrap();
        assert!(ending.matches("model.layers.0.self_attn.q_proj") && ending.matches("q_proj"));
        assert!(!ending.matches("model.faq_proj") && !ending.matches("q_proj.x"));
        let layer = Pattern::of_ending(r"^model\.layers\.(1|2)\.self_attn\.q_proj").unwrap();
        assert!(layer.matches("model.layers.2.self_attn.q_proj"));
        assert!(!layer.matches("model.layers.3.self_attn.q_proj"));
        let whole = Pattern::of_path(r".*\.(q|v)_proj").unwrap();
        assert!(whole.matches("model.layers.0.self_attn.v_proj") && !whole.matches("q_proj"));
        assert!(Pattern::of_path("(?=x)").is_none());
        assert!(Pattern::of_path("(").is_none());
    }
}
