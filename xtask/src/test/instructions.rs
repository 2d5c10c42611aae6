//! Instructions of the demo model per token, counted by valgrind: times depend on the machine and on who
//! else uses it, counts do not.
//!
//! Two texts of different length are written by the debug build, whose kernels are optimised; what they
//! differ by is the cost of the tokens between them, without start and loading. Expected counts stand in
//! `instructions.json`, one per instruction set; the valgrind of Debian 12 knows none above AVX2.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::server::{need, program, with};
use super::stage::Outcome;
use crate::tools;
use crate::workspace::Workspace;

/// Where the expected counts are, below the root.
const EXPECTED: &str = "xtask/src/test/instructions.json";
/// How far a count may be from the expected one, either way: a count that fell is written down, too, or
/// the next rise would not show.
const TOLERANCE: f64 = 0.05;
/// Set to write down what was counted.
const BLESS_ENV: &str = "PAGELLA_BLESS";
/// How the counts are renewed.
const RENEW: &str = "PAGELLA_BLESS=1 cargo xtask test --only instructions";

/// An instruction set, and the tokens of a short and of a longer text.
struct Case {
    isa: &'static str,
    short: u64,
    long: u64,
}

/// Not plain Rust: what the compiler makes of its loops differs by a tenth from build to build.
const CASES: &[Case] = &[Case { isa: "avx2", short: 4, long: 36 }];

/// What is in the file of expected counts.
#[derive(Debug, PartialEq)]
struct Expected {
    /// The compiler that they are of.
    rustc: String,
    per_token: BTreeMap<String, u64>,
}

/// The stage.
pub fn guarded(workspace: &Workspace) -> Result<Outcome> {
    if !cfg!(target_arch = "x86_64") {
        let reason = "counts are written down for x86-64 only".to_owned();
        workspace.console.say(format_args!("SKIPPED: {reason}"));
        return Ok(Outcome::Skipped(reason));
    }
    let valgrind = tools::installed(workspace, &["valgrind"], "valgrind");
    with(need(workspace, "instructions are NOT COUNTED", valgrind), |valgrind| {
        with(program(workspace)?, |program| compare(workspace, &valgrind, &program))
    })
}

fn compare(workspace: &Workspace, valgrind: &Path, program: &Path) -> Result<Outcome> {
    let path = workspace.root.join(EXPECTED);
    let rustc = compiler(workspace)?;
    let mut per_token = BTreeMap::new();
    for case in CASES {
        let count = |tokens| count(workspace, valgrind, program, case.isa, tokens);
        let more = count(case.long)?.saturating_sub(count(case.short)?);
        let each = more / (case.long - case.short);
        workspace.console.say(format_args!("{}: {each} instructions per token", case.isa));
        per_token.insert(case.isa.to_owned(), each);
    }
    if std::env::var_os(BLESS_ENV).is_some() {
        let file = json!({ "rustc": rustc, "per_token": per_token });
        let text = format!("{}\n", serde_json::to_string_pretty(&file)?);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        return Ok(Outcome::Passed(format!("written to {EXPECTED}")));
    }
    let text = std::fs::read_to_string(&path);
    let expected = Expected::read(&text.with_context(|| format!("cannot read {EXPECTED}"))?)?;
    Ok(match expected.objections(&per_token, &rustc) {
        Some(objections) => Outcome::Failed(objections),
        None => Outcome::Passed(String::new()),
    })
}

impl Expected {
    fn read(text: &str) -> Result<Self> {
        let file: Value = serde_json::from_str(text).with_context(|| format!("in {EXPECTED}"))?;
        let rustc = file.get("rustc").and_then(Value::as_str).unwrap_or("").to_owned();
        let counts = file.get("per_token").and_then(Value::as_object);
        let counts = counts.with_context(|| format!("{EXPECTED} has no `per_token`"))?;
        let count = |(isa, n): (&String, &Value)| Some((isa.clone(), n.as_u64()?));
        Ok(Expected { rustc, per_token: counts.iter().filter_map(count).collect() })
    }

    /// What is wrong with the counts, and what to do about it.
    fn objections(&self, found: &BTreeMap<String, u64>, rustc: &str) -> Option<String> {
        let objection = |(isa, found): (&String, &u64)| {
            let Some(expected) = self.per_token.get(isa) else {
                return Some(format!("{isa} has no expected count"));
            };
            let change = *found as f64 / *expected as f64 - 1.0;
            (change.abs() > TOLERANCE + f64::EPSILON).then(|| {
                let (way, percent) = (if change > 0.0 { "more" } else { "fewer" }, change.abs());
                format!("{isa}: {found} instructions per token, {:.1} % {way}", 100.0 * percent)
            })
        };
        let objections: Vec<String> = found.iter().filter_map(objection).collect();
        if objections.is_empty() {
            return None;
        }
        let compiler = match self.rustc == rustc {
            true => String::new(),
            false => format!("; the compiler is another one ({rustc}, not {})", self.rustc),
        };
        let objections = objections.join("; ");
        Some(format!("{objections}{compiler}; if that is right, renew the counts: {RENEW}"))
    }
}

/// Instructions of the whole program while it writes so many tokens.
fn count(
    workspace: &Workspace,
    valgrind: &Path,
    program: &Path,
    isa: &str,
    tokens: u64,
) -> Result<u64> {
    let tokens = tokens.to_string();
    let mut command = Command::new(valgrind);
    command.current_dir(&workspace.root);
    command.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    command.arg(program).args(["run", "--model", "demo", "--raw", "--temperature", "0"]);
    // How many guesses are checked depends on the clock.
    command.args(["--threads", "1", "--isa", isa, "--draft-tokens", "0"]);
    command.args(["--min-new-tokens", &tokens, "--max-new-tokens", &tokens, "The method"]);
    let output = command.output().context("cannot start valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("`pagella run --isa {isa}` under valgrind failed: {}", said.trim());
    }
    counted(&said).with_context(|| format!("valgrind told no count: {}", said.trim()))
}

/// The count in what cachegrind says: `==17== I   refs:      1,234,567`.
fn counted(said: &str) -> Option<u64> {
    let line = said.lines().find(|line| line.contains("refs:"))?;
    let number = line.rsplit("refs:").next()?;
    number.chars().filter(char::is_ascii_digit).collect::<String>().parse().ok()
}

/// Name and version of the compiler.
fn compiler(workspace: &Workspace) -> Result<String> {
    let rustc = std::env::var_os("RUSTC").map_or_else(|| PathBuf::from("rustc"), PathBuf::from);
    let mut command = Command::new(rustc);
    let output = command.current_dir(&workspace.root).arg("--version").output();
    let output = output.context("cannot start rustc")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(avx2: u64) -> BTreeMap<String, u64> {
        BTreeMap::from([("avx2".to_owned(), avx2)])
    }

    #[test]
    fn counts_that_moved_either_way_are_told_with_the_way_to_renew_them() {
        let expected = Expected { rustc: "rustc 1".into(), per_token: counts(1_000) };
        for near in [950, 1_000, 1_050] {
            assert_eq!(expected.objections(&counts(near), "rustc 2"), None);
        }
        let more = expected.objections(&counts(1_051), "rustc 1").unwrap();
        assert!(more.starts_with("avx2: 1051 instructions per token, 5.1 % more"), "{more}");
        assert!(more.ends_with(RENEW) && !more.contains("compiler"), "{more}");
        let fewer = expected.objections(&counts(900), "rustc 2").unwrap();
        assert!(fewer.contains("10.0 % fewer") && fewer.contains("(rustc 2, not rustc 1)"));
        assert!(expected.objections(&BTreeMap::from([("neon".into(), 1)]), "").is_some());
    }

    #[test]
    fn every_case_has_an_expected_count() {
        let workspace = Workspace::locate().unwrap();
        let text = std::fs::read_to_string(workspace.root.join(EXPECTED)).unwrap();
        let expected = Expected::read(&text).unwrap();
        for case in CASES {
            assert!(expected.per_token.contains_key(case.isa), "{}", case.isa);
        }
    }

    #[test]
    fn the_count_is_read_from_what_valgrind_says() {
        let said = "==1== Cachegrind\n==1== \n==1== I   refs:      1,240,229,226\n";
        assert_eq!(counted(said), Some(1_240_229_226));
        assert_eq!(counted("==1== brk segment overflow\n"), None);
    }
}
