//! A file or folder of sources is named after what it holds; names that fit anything are banned.

use super::{Finding, Tree};

const BANNED: &[&str] = &["utils", "common", "helpers", "misc", "manager", "base", "v2"];

/// Where such a word may stand: headers that all CUDA kernels include, and modules that have the names
/// of another package's, so that its users find them.
const EXCEPTIONS: [&str; 2] = ["kernels/common/", "pagella/compat/"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.is_source()) {
        if EXCEPTIONS.iter().any(|place| file.path.contains(place)) {
            continue;
        }
        for part in file.path.split('/') {
            let stem = part.split('.').next().unwrap_or(part);
            if BANNED.contains(&stem) {
                let message = format!("`{part}` could hold anything: name what it holds");
                findings.push(Finding::file(&file.path, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banned_names_are_found_as_files_and_as_folders() {
        let tree = Tree::of(&[
            ("src/utils.rs", ""),
            ("tests/common/mod.rs", ""),
            ("src/base_frequency.rs", ""),
            ("crates/pagella-cuda/kernels/common/warp.cuh", ""),
            ("docs/misc/notes.md", ""),
        ]);
        let found: Vec<_> = check(&tree).into_iter().map(|f| f.path).collect();
        assert_eq!(found, ["src/utils.rs", "tests/common/mod.rs"]);
    }
}
