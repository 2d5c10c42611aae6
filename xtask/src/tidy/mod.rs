//! `cargo xtask tidy`: style rules that a program can check, so that reviewers need not.
//!
//! Each check is a pure function from a [`Tree`] (the files of the repository, in memory) to
//! findings, in a file of its own, with a test that shows it can fail. All of them also run as one
//! unit test of this crate, so plain `cargo test` is enough to notice a slip.

mod crate_arrow;
mod dead_file;
mod declaration;
mod doc_path;
mod file_length;
mod file_name;
mod function_length;
mod glossary;
mod large_file;
mod machine_path;
mod marker;
mod opening_doc;
mod tree;
mod type_name;

use std::fmt;

use anyhow::{Result, bail};

use crate::Verdict;
use crate::workspace::Workspace;
use tree::Tree;

/// One broken rule. Shown as `path:line: message`; line 0 means the file as a whole.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl Finding {
    /// About line `line`, counted from 1.
    fn at(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }

    /// About the file as a whole.
    fn file(path: &str, message: impl Into<String>) -> Self {
        Self::at(path, 0, message)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// A rule and the function that looks for breaches of it.
struct Check {
    rule: &'static str,
    run: fn(&Tree) -> Vec<Finding>,
}

const CHECKS: &[Check] = &[
    Check { rule: "a source file has at most 600 lines", run: file_length::check },
    Check { rule: "a function has at most 70 lines", run: function_length::check },
    Check { rule: "a Rust file opens with `//!`, a CUDA file with `//`", run: opening_doc::check },
    Check { rule: "a file is named after what it holds", run: file_name::check },
    Check { rule: "a public type has a name of its own in its crate", run: type_name::check },
    Check { rule: "the words of the glossary are those of the code", run: glossary::check },
    Check { rule: "no leftover markers", run: marker::check },
    Check { rule: "every Rust file is part of its crate", run: dead_file::check },
    Check { rule: "crates depend downwards only", run: crate_arrow::check },
    Check { rule: "paths named in the root documents exist", run: doc_path::check },
    Check { rule: "no paths of one particular machine", run: machine_path::check },
    Check { rule: "no file above 16 MB", run: large_file::check },
];

/// Prints every finding. `Bad` when there is one.
pub fn command(workspace: &Workspace, args: &[String]) -> Result<Verdict> {
    match args {
        [] => {}
        [flag] if flag == "--list" => {
            CHECKS.iter().for_each(|check| println!("  {}", check.rule));
            return Ok(Verdict::Good);
        }
        _ => bail!("`cargo xtask tidy` knows one option: --list"),
    }
    let findings = findings(workspace)?;
    findings.iter().for_each(|finding| println!("{finding}"));
    println!("{} rules, {} findings", CHECKS.len(), findings.len());
    Ok(if findings.is_empty() { Verdict::Good } else { Verdict::Bad })
}

/// Every breach of every rule in the checkout.
pub fn findings(workspace: &Workspace) -> Result<Vec<Finding>> {
    let tree = Tree::read(&workspace.root)?;
    Ok(CHECKS.iter().flat_map(|check| (check.run)(&tree)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_tidy() {
        let findings = findings(&Workspace::locate().unwrap()).unwrap();
        let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
        assert!(lines.is_empty(), "{} findings:\n{}", lines.len(), lines.join("\n"));
    }

    #[test]
    fn a_finding_names_its_place() {
        assert_eq!(Finding::at("a.rs", 3, "long").to_string(), "a.rs:3: long");
        assert_eq!(Finding::file("a.rs", "long").to_string(), "a.rs: long");
    }
}
