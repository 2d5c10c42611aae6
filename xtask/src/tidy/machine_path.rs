//! No paths of one particular machine in tracked files: they are wrong for everybody else.

use super::{Finding, Tree};

/// Split in two, so that this file does not find itself.
const PREFIXES: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/tmp/bash", "_jobs")];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, text) in tree.texts() {
        for (idx, line) in text.lines().enumerate() {
            for prefix in PREFIXES.iter().filter(|prefix| has_absolute(line, prefix)) {
                let message = format!("`{prefix}` exists on one machine only");
                findings.push(Finding::at(&file.path, idx + 1, message));
            }
        }
    }
    findings
}

/// Whether `prefix` starts a path in `line`, rather than continuing one (as in `a/b/c` or a URL).
fn has_absolute(line: &str, prefix: &str) -> bool {
    let continues = |c: char| c.is_alphanumeric() || "_-.*}".contains(c);
    line.match_indices(prefix).any(|(at, _)| !line[..at].chars().next_back().is_some_and(continues))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prefix_is_found_with_its_line() {
        for prefix in PREFIXES {
            let text = format!("first\npath = \"{prefix}/model\"\n");
            let findings = check(&Tree::of(&[("a.toml", &text)]));
            let expected = format!("`{prefix}` exists on one machine only");
            assert_eq!(findings, [Finding::at("a.toml", 2, expected)]);
        }
    }

    #[test]
    fn a_folder_of_that_name_inside_a_path_is_fine() {
        let text = format!("https://example.com{}1 and net{}x\n", PREFIXES[0], PREFIXES[1]);
        assert_eq!(check(&Tree::of(&[("a.md", &text)])), []);
    }
}
