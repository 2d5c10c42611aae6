//! The library without the command: what a program that depends on it compiles.

use anyhow::{Context, Result, bail};

use super::stage::{Outcome, check};
use crate::workspace::Workspace;

/// The library as a dependency that asks for no feature.
const ALONE: [&str; 3] = ["-p", "pagella", "--no-default-features"];

/// What only the command needs: one crate of every kind that others of its kind bring along.
const COMMAND_ONLY: &[&str] = &[
    "clap_builder",
    "h2",
    "http",
    "hyper",
    "indicatif",
    "pagella-http",
    "pagella-server",
    "rustls",
    "rustyline",
    "tokio",
    "tungstenite",
    "ureq",
];

/// The library alone compiles, and brings no crate for command lines, HTTP or TLS.
pub fn alone(workspace: &Workspace) -> Result<Outcome> {
    let mut cargo = workspace.cargo();
    cargo.arg("tree").args(ALONE).args(["--edges", "normal,build", "--prefix", "none"]);
    let output = cargo.output().context("cannot start `cargo tree`")?;
    if !output.status.success() {
        bail!("`cargo tree` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let found = command_only(&String::from_utf8_lossy(&output.stdout));
    if !found.is_empty() {
        return Ok(Outcome::Failed(format!("the library alone needs {}", found.join(", "))));
    }
    // Beside it the server without the routes that are features.
    let server = ["check", "-p", "pagella-server", "--no-default-features"];
    match check(workspace, workspace.cargo().arg("check").args(ALONE))? {
        Outcome::Passed(_) => check(workspace, workspace.cargo().args(server)),
        other => Ok(other),
    }
}

/// Crates of a list, `name version` per line, that only the command may need.
fn command_only(tree: &str) -> Vec<&'static str> {
    let names: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    COMMAND_ONLY.iter().copied().filter(|name| names.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_of_the_command_is_found_and_one_of_a_similar_name_is_not() {
        let tree = "pagella v0.1.0 (/x)\nserde v1.0.0\nhyper v1.8.0 (*)\nhttparse v1.0.0\n";
        assert_eq!(command_only(tree), ["hyper"]);
        assert!(command_only("pagella v0.1.0\nhyperscan v1.0.0\n").is_empty());
    }

    #[test]
    fn every_crate_of_the_list_is_one_that_the_command_needs() {
        let lock = std::fs::read_to_string(Workspace::locate().unwrap().root.join("Cargo.lock"));
        let lock = lock.unwrap();
        for name in COMMAND_ONLY {
            assert!(lock.contains(&format!("name = \"{name}\"\n")), "{name}");
        }
    }
}
