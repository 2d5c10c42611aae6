//! `cargo xtask fuzz`: the fuzz targets as ordinary programs, on the stable compiler.
//!
//! The `smoke` program of the fuzz crate mutates seed inputs for a number of seconds per target. It
//! has no coverage feedback; for long hunts use cargo-fuzz (see `fuzz/README.md`).

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::Verdict;
use crate::workspace::Workspace;

const SECONDS_DEFAULT: u64 = 60;

/// Runs the named targets, or all of them.
pub fn command(workspace: &Workspace, args: &[String]) -> Result<Verdict> {
    let (seconds, targets) = parse(args)?;
    let status = smoke(workspace, seconds, &targets).status().context("cannot start cargo")?;
    Ok(if status.success() { Verdict::Good } else { Verdict::Bad })
}

/// The command that mutates inputs for `seconds` per target; no targets means all.
pub fn smoke(workspace: &Workspace, seconds: u64, targets: &[String]) -> Command {
    let mut command = workspace.cargo();
    command.args(["run", "--quiet", "--package", "pagella-fuzz", "--bin", "smoke", "--"]);
    command.args(["--seconds", &seconds.to_string()]);
    command.args(targets);
    command
}

fn parse(args: &[String]) -> Result<(u64, Vec<String>)> {
    let mut seconds = SECONDS_DEFAULT;
    let mut targets = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seconds" => {
                let value = args.next().context("`--seconds` needs a number")?;
                seconds = value.parse().with_context(|| format!("`{value}` is not a number"))?;
            }
            option if option.starts_with('-') => bail!("unknown option `{option}`"),
            target => targets.push(target.to_owned()),
        }
    }
    Ok((seconds, targets))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<(u64, Vec<String>)> {
        parse(&args.iter().map(|a| a.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn seconds_and_targets_are_read_in_any_order() {
        assert_eq!(parsed(&[]).unwrap(), (SECONDS_DEFAULT, vec![]));
        let expected = (600, vec!["config_json".to_owned()]);
        assert_eq!(parsed(&["config_json", "--seconds", "600"]).unwrap(), expected);
    }

    #[test]
    fn wrong_options_are_errors() {
        assert!(parsed(&["--seconds"]).is_err());
        assert!(parsed(&["--seconds", "soon"]).is_err());
        assert!(parsed(&["--forever"]).is_err());
    }
}
