//! No leftover markers in sources: work that is not done lives in the issue tracker.

use super::{Finding, Tree};

/// Split in two, so that this file does not find itself.
const MARKERS: &[&str] = &[
    concat!("todo", "!"),
    concat!("dbg", "!"),
    concat!("unimplemented", "!"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("HA", "CK"),
];

/// Allowed only with the number of an issue behind it.
const PROMISE: &str = concat!("TO", "DO");

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, text) in tree.texts() {
        if !file.is_source() && file.extension() != "toml" {
            continue;
        }
        for (idx, line) in text.lines().enumerate() {
            for marker in MARKERS.iter().filter(|marker| has_word(line, marker)) {
                findings.push(Finding::at(&file.path, idx + 1, format!("leftover `{marker}`")));
            }
            if has_word(line, PROMISE) && !line.contains(&format!("{PROMISE}(#")) {
                let message = format!("`{PROMISE}` without an issue: write `{PROMISE}(#123)`");
                findings.push(Finding::at(&file.path, idx + 1, message));
            }
        }
    }
    findings
}

/// Whether `word` stands in `line` and is not a part of a longer word.
fn has_word(line: &str, word: &str) -> bool {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(in_word) && !after.is_some_and(in_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_marker_is_found_with_its_line() {
        for marker in MARKERS {
            let text = format!("//! Fine.\n// {marker} later\n");
            let findings = check(&Tree::of(&[("a.rs", &text), ("a.md", &text)]));
            let expected = format!("leftover `{marker}`");
            assert_eq!(findings, [Finding::at("a.rs", 2, expected)]);
        }
    }

    #[test]
    fn a_promise_needs_an_issue() {
        let bare = format!("// {PROMISE}: later\n");
        let numbered = format!("// {PROMISE}(#12): later\n");
        let tree = Tree::of(&[("bare.py", &bare), ("numbered.py", &numbered)]);
        let found: Vec<_> = check(&tree).into_iter().map(|f| f.path).collect();
        assert_eq!(found, ["bare.py"]);
    }

    #[test]
    fn longer_words_are_not_markers() {
        let text = format!("let {}X = \"a{}b\";\n", MARKERS[4], MARKERS[3]);
        assert_eq!(check(&Tree::of(&[("a.rs", &text)])), []);
    }
}
