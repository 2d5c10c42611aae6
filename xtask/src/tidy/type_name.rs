//! A type that others than its own module see has a name of its own in its crate, so that a search
//! finds it.

use std::collections::BTreeMap;

use super::declaration::declarations;
use super::{Finding, Tree};

/// Crates whose names are yet to be sorted out.
const EXCEPT: &[&str] = &["pagella-server"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut first: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for (file, text) in tree.texts() {
        let Some((crate_name, path)) = production(&file.path) else { continue };
        if file.is_test() || EXCEPT.contains(&crate_name) {
            continue;
        }
        for found in declarations(text) {
            let is_type = matches!(found.keyword, "struct" | "enum" | "union" | "trait" | "type");
            if !is_type || !found.is_public {
                continue;
            }
            if let Some(other) = first.insert((crate_name, found.name), path) {
                let message = format!("`{}` is also the name of a type in {other}", found.name);
                findings.push(Finding::at(&file.path, found.line, message));
            }
        }
    }
    findings
}

/// The crate of a file of sources, and the file's place in it.
fn production(path: &str) -> Option<(&str, &str)> {
    let (name, file) = path.strip_prefix("crates/")?.split_once('/')?;
    (file.starts_with("src/") && file.ends_with(".rs")).then_some((name, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_name_twice_in_a_crate_is_found_whoever_sees_it() {
        let tree = Tree::of(&[
            ("crates/a/src/one.rs", "pub struct Share;\nstruct Own;\n"),
            ("crates/a/src/two.rs", "struct Own;\n\npub(super) enum Share {}\n"),
            ("crates/a/src/two/tests.rs", "pub struct Share;\n"),
            ("crates/a/tests/whole.rs", "pub struct Share;\n"),
            ("crates/b/src/lib.rs", "pub struct Share;\npub fn share() {}\n"),
        ]);
        let message = "`Share` is also the name of a type in src/one.rs";
        assert_eq!(check(&tree), [Finding::at("crates/a/src/two.rs", 3, message)]);
    }

    #[test]
    fn associated_types_are_nobodys_name() {
        let text =
            "impl A for B {\n    type Target = u8;\n}\nimpl A for C {\n    type Target = u8;\n}\n";
        assert!(check(&Tree::of(&[("crates/a/src/lib.rs", text)])).is_empty());
    }
}
