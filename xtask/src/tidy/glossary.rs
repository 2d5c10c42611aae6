//! The words that ARCHITECTURE.md has for things are the words of the code: a declared name has no
//! part that its glossary says never to use.
//!
//! Checked are the words that mean nothing else in these crates. (`block`, `delta` or `event` are the
//! right words for other things.)

use super::declaration::declarations;
use super::{Finding, Tree};

const GLOSSARY: &str = "ARCHITECTURE.md";
/// Where the things live.
const CRATES: &[&str] =
    &["crates/pagella/src/", "crates/pagella-conversation/src/", "crates/pagella-engine/src/"];
/// Words of the column `never`, with their forms.
const NEVER: &[(&str, &[&str])] = &[
    ("iteration", &["iterate", "iteration", "iterations"]),
    ("task", &["task", "tasks"]),
    ("filter", &["filter", "filters"]),
    ("rollback", &["rollback", "rollbacks"]),
];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let texts = || tree.texts();
    let Some((_, glossary)) = texts().find(|(file, _)| file.path == GLOSSARY) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    for (never, forms) in NEVER {
        let Some(word) = instead_of(glossary, never) else {
            let message = format!("the glossary no longer says what to write for `{never}`");
            findings.push(Finding::file(GLOSSARY, message));
            continue;
        };
        for (file, text) in texts() {
            let is_checked = CRATES.iter().any(|start| file.path.starts_with(start));
            if !is_checked || file.is_test() {
                continue;
            }
            let found = declarations(text);
            for found in found.iter().filter(|found| has_part(found.name, forms)) {
                let message = format!("`{}`: the word for it is `{word}`", found.name);
                findings.push(Finding::at(&file.path, found.line, message));
            }
        }
    }
    findings
}

/// The word of the row whose last column has `never`.
fn instead_of<'a>(glossary: &'a str, never: &str) -> Option<&'a str> {
    glossary.lines().find_map(|line| {
        let mut cells = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim);
        let (word, last) = (cells.next()?, cells.next_back()?);
        last.split(", ").any(|other| other == never).then_some(word)
    })
}

/// Whether a name in snake or camel case has one of these words as a part.
fn has_part(name: &str, words: &[&str]) -> bool {
    let mut parts = vec![String::new()];
    for c in name.chars() {
        if c == '_' || c.is_uppercase() {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut().filter(|_| c != '_') {
            part.extend(c.to_lowercase());
        }
    }
    parts.iter().any(|part| words.contains(&part.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = "| step | a pass | iteration |\n| job | a request | task |\n\
                        | mask | ids | sieve, filter |\n| rewind | back | rollback |\n";

    #[test]
    fn a_word_that_has_another_is_found_in_either_case() {
        let code =
            "fn next_task() {}\npub struct BanFilter;\nfn multitasking() {}\nlet x = a.filter();\n";
        let tree = Tree::of(&[(GLOSSARY, ROWS), ("crates/pagella-engine/src/a.rs", code)]);
        let lines: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        let expected = [
            "crates/pagella-engine/src/a.rs:1: `next_task`: the word for it is `job`",
            "crates/pagella-engine/src/a.rs:2: `BanFilter`: the word for it is `mask`",
        ];
        assert_eq!(lines, expected);
        let elsewhere = Tree::of(&[(GLOSSARY, ROWS), ("crates/pagella-cpu/src/a.rs", code)]);
        assert!(check(&elsewhere).is_empty());
    }

    #[test]
    fn a_row_that_is_gone_is_found() {
        let tree = Tree::of(&[(GLOSSARY, &ROWS.replace("rollback", ""))]);
        assert_eq!(check(&tree).len(), 1);
    }
}
