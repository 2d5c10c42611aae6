//! Which stages to run: `--only` and `--skip`, checked against the list of stages.

use anyhow::{Context, Result, bail};

/// A parsed command line of `cargo xtask test`.
#[derive(Debug, Default)]
pub struct Selection {
    only: Vec<String>,
    skip: Vec<String>,
    /// `--list`: say what there is and stop.
    pub list_only: bool,
}

impl Selection {
    /// Reads the arguments. A stage that does not exist is an error: a misspelt `--only` would
    /// otherwise run nothing and look like success.
    pub fn parse(args: &[String], stages: &[&str]) -> Result<Self> {
        let mut selection = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let list = match arg.as_str() {
                "--list" => {
                    selection.list_only = true;
                    continue;
                }
                "--only" => &mut selection.only,
                "--skip" => &mut selection.skip,
                other => bail!("unknown option `{other}`; known: --only, --skip, --list"),
            };
            let stage = args.next().with_context(|| format!("`{arg}` needs a stage"))?;
            if !stages.contains(&stage.as_str()) {
                bail!("no stage is called `{stage}`; there are: {}", stages.join(", "));
            }
            list.push(stage.clone());
        }
        Ok(selection)
    }

    /// Whether a stage runs: named by `--only` (or no `--only` at all), and not by `--skip`.
    pub fn wants(&self, stage: &str) -> bool {
        let listed = |list: &[String]| list.iter().any(|name| name == stage);
        (self.only.is_empty() || listed(&self.only)) && !listed(&self.skip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(args: &[&str]) -> Result<Vec<&'static str>> {
        let stages = ["fmt", "clippy", "tests"];
        let args: Vec<String> = args.iter().map(|a| a.to_string()).collect();
        let selection = Selection::parse(&args, &stages)?;
        Ok(stages.into_iter().filter(|s| selection.wants(s)).collect())
    }

    #[test]
    fn without_options_every_stage_runs() {
        assert_eq!(selected(&[]).unwrap(), ["fmt", "clippy", "tests"]);
    }

    #[test]
    fn only_and_skip_combine() {
        assert_eq!(selected(&["--only", "fmt", "--only", "tests"]).unwrap(), ["fmt", "tests"]);
        assert_eq!(selected(&["--skip", "clippy"]).unwrap(), ["fmt", "tests"]);
        assert_eq!(selected(&["--only", "fmt", "--skip", "fmt"]).unwrap(), [""; 0]);
    }

    #[test]
    fn a_misspelt_stage_or_option_is_an_error() {
        assert!(selected(&["--only", "clipy"]).unwrap_err().to_string().contains("clipy"));
        assert!(selected(&["--only"]).is_err());
        assert!(selected(&["--fast"]).is_err());
    }
}
