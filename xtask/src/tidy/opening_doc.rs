//! Every source file opens with what it is, what it owns, what must hold: a Rust file with `//!`, a
//! CUDA file with `//`.

use super::{Finding, Tree};

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, text) in tree.texts() {
        let comment = match file.extension() {
            "rs" => "//!",
            "cu" | "cuh" => "// ",
            _ => continue,
        };
        let opening = text.lines().next().unwrap_or("");
        if opening.strip_prefix(comment).is_none_or(|words| words.trim().is_empty()) {
            let message = format!("does not open with `{}` and a sentence", comment.trim());
            findings.push(Finding::at(&file.path, 1, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_opening_sentence_is_found() {
        let tree = Tree::of(&[
            ("good.rs", "//! A tour.\n\nfn f() {}\n"),
            ("plain.rs", "use std::fmt;\n"),
            ("hollow.rs", "//!\n"),
            ("empty.rs", ""),
            ("good.cu", "// Norms.\n"),
            ("plain.cuh", "#pragma once\n"),
            ("notes.md", "# Notes\n"),
        ]);
        let found: Vec<_> = check(&tree).into_iter().map(|f| f.path).collect();
        assert_eq!(found, ["plain.rs", "hollow.rs", "empty.rs", "plain.cuh"]);
    }
}
