//! Every Rust file under a `src` folder is declared by a `mod` line; the compiler ignores the others
//! without a word, and their tests never run.

use super::{Finding, Tree};

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        let Some((parents, module)) = expected_in(&file.path) else { continue };
        let declared = tree
            .texts()
            .filter(|(parent, _)| parents.contains(&parent.path))
            .any(|(_, text)| text.lines().any(|line| declares(line, &module)));
        if !declared {
            let message =
                format!("no `mod {module};` in {}: the compiler skips it", parents.join(" or "));
            findings.push(Finding::file(&file.path, message));
        }
    }
    findings
}

/// The files that may declare the module at `path`, and its name. `None` for crate roots and for
/// files outside `src`.
fn expected_in(path: &str) -> Option<(Vec<String>, String)> {
    let (crate_dir, inner) = path.split_once("/src/")?;
    let stem = inner.strip_suffix(".rs")?;
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    if matches!(stem, "lib" | "main") || stem.starts_with("bin/") {
        return None;
    }
    let src = format!("{crate_dir}/src");
    let (parents, module) = match stem.rsplit_once('/') {
        None => (vec![format!("{src}/lib.rs"), format!("{src}/main.rs")], stem),
        Some((dir, name)) => (vec![format!("{src}/{dir}/mod.rs"), format!("{src}/{dir}.rs")], name),
    };
    Some((parents, module.to_owned()))
}

fn declares(line: &str, module: &str) -> bool {
    line.trim().strip_suffix(';').is_some_and(|line| {
        line.strip_suffix(module)
            .is_some_and(|before| before == "mod " || before.ends_with(" mod "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_nobody_declares_is_found() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "mod exl2;\npub(crate) mod page;\n"),
            ("crates/a/src/exl2/mod.rs", "mod pack;\n"),
            ("crates/a/src/exl2/pack.rs", ""),
            ("crates/a/src/exl2/orphan.rs", ""),
            ("crates/a/src/page.rs", "#[cfg(test)]\nmod tests;\n"),
            ("crates/a/src/page/tests.rs", ""),
            ("crates/a/src/packpage.rs", ""),
            ("crates/a/tests/golden.rs", ""),
        ]);
        let found: Vec<_> = check(&tree).into_iter().map(|f| f.path).collect();
        assert_eq!(found, ["crates/a/src/exl2/orphan.rs", "crates/a/src/packpage.rs"]);
    }
}
