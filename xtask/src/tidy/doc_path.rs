//! Paths named in the root documents exist: a map that shows vanished places is worse than none.
//!
//! Looks at inline code, link targets and code blocks. `engine/src/x.rs` is short for
//! `crates/pagella-engine/src/x.rs`, `pagella/src/x.rs` for `crates/pagella/src/x.rs`; `{a,b}` stands for both; from a `<name>` or `*` on, only the
//! folder before it must exist.

use super::{Finding, Tree};

const DOCUMENTS: &[&str] = &["ARCHITECTURE.md", "README.md", "CONTRIBUTING.md", "SECURITY.md"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, text) in tree.texts().filter(|(f, _)| DOCUMENTS.contains(&f.path.as_str())) {
        let mut in_block = false;
        for (idx, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                in_block = !in_block;
                continue;
            }
            let claims = if in_block { block_claims(line) } else { prose_claims(line) };
            for path in claims.into_iter().filter(|claim| is_path(tree, claim)) {
                for missing in expand(&path).into_iter().filter(|p| !exists(tree, p)) {
                    let message = format!("`{missing}` does not exist");
                    findings.push(Finding::at(&file.path, idx + 1, message));
                }
            }
        }
    }
    findings
}

/// Inline code and the targets of links.
fn prose_claims(line: &str) -> Vec<String> {
    let code = line.split('`').skip(1).step_by(2);
    let links = line.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    code.chain(links).map(str::to_owned).collect()
}

/// Words of a code block that could be paths.
fn block_claims(line: &str) -> Vec<String> {
    line.split_whitespace()
        .map(|word| word.trim_matches(['"', '\'', ',', ':', ';']).into())
        .collect()
}

/// Whether a word claims that a file or folder of this repository exists.
fn is_path(tree: &Tree, word: &str) -> bool {
    let path_char = |c: char| c.is_alphanumeric() || "_-./{},<>*".contains(c);
    if word.starts_with(['/', '-', '<', '*']) || !word.chars().all(path_char) {
        return false;
    }
    let Some((first, rest)) = word.split_once('/') else {
        return [".md", ".rs", ".toml"].iter().any(|suffix| word.ends_with(suffix))
            && word.starts_with(char::is_uppercase);
    };
    tree.contains(first) || rest.starts_with("src/") || rest.starts_with("tests/") || rest == "src"
}

/// Replaces one `{a,b}` by its alternatives, again and again.
fn expand(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let Some((list, after)) = rest.split_once('}') else { return vec![path.to_owned()] };
    list.split(',').flat_map(|item| expand(&format!("{before}{item}{after}"))).collect()
}

fn exists(tree: &Tree, path: &str) -> bool {
    let fixed = match path.find(['<', '*']) {
        Some(at) => path[..at].rsplit_once('/').map_or("", |(folder, _)| folder),
        None => path,
    };
    ["", "crates/", "crates/pagella-"].iter().any(|start| tree.contains(&format!("{start}{fixed}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(text: &str) -> Vec<String> {
        let tree = Tree::of(&[
            ("README.md", text),
            ("CHANGELOG.md", "`crates/gone.rs`"),
            ("crates/pagella-engine/src/step.rs", ""),
            ("crates/pagella-arch/src/family/llama.rs", ""),
            ("crates/pagella/src/flags.rs", ""),
            ("models/demo/config.json", ""),
        ]);
        check(&tree).into_iter().map(|f| f.to_string()).collect()
    }

    #[test]
    fn places_that_exist_are_silent_in_every_form() {
        let text = "`engine/src/step.rs` [a](models/demo) [b](README.md#top) `models/demo/`\n\
                    `arch/src/family/<name>.rs` `arch/src/family/*.rs` `engine/{src,src/step.rs}`\n\
                    `pagella/src/flags.rs`\n";
        assert_eq!(missing(text), [""; 0]);
    }

    #[test]
    fn words_that_are_no_paths_are_silent() {
        let text = "`cargo run` `--json` `a/b` `MIT/Apache` `/dev/null` `Array.prototype.map()`\n\
                    [web](https://example.com/src/x.rs) `config.json`\n";
        assert_eq!(missing(text), [""; 0]);
    }

    #[test]
    fn vanished_places_are_found_in_code_links_and_blocks() {
        for text in [
            "`engine/src/gone.rs`",
            "`server/src/routes`",
            "[a](models/gone)",
            "[a](GONE.md)",
            "`models/{demo,gone}`",
            "`arch/src/relatives/<name>.rs`",
            "```text\ncrates/pagella-gone/src   what it was\n```",
        ] {
            assert_eq!(missing(text).len(), 1, "{text}");
        }
    }
}
