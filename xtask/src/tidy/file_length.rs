//! A source file has at most 600 lines, inline tests included; files of tests may be longer.

use super::{Finding, Tree};

const LINES_MAX: usize = 600;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, text) in tree.texts().filter(|(file, _)| file.is_source() && !file.is_test()) {
        let n_lines = text.lines().count();
        if n_lines > LINES_MAX {
            let message = format!("{n_lines} lines, the limit is {LINES_MAX}: split it");
            findings.push(Finding::file(&file.path, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_after_the_last_allowed_one_is_found() {
        let fits = "x\n".repeat(LINES_MAX);
        let long = "x\n".repeat(LINES_MAX + 1);
        let tree = Tree::of(&[
            ("fits.rs", &fits),
            ("long.cu", &long),
            ("tests/long.rs", &long),
            ("long.md", &long),
        ]);
        let found: Vec<_> = check(&tree).into_iter().map(|f| f.path).collect();
        assert_eq!(found, ["long.cu"]);
    }
}
