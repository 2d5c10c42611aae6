//! `cargo xtask gpu-bundle DIR [PROGRAM]`: everything that a machine with a GPU and no Rust needs to
//! test and measure: the program, the test programs, their data, and `gpu.sh`, which runs them.
//! With PROGRAM, that one is taken instead of a build.
//!
//! ```text
//! DIR.tar.gz        all of the following
//! DIR/gpu.sh        runs everything and prints a table
//! DIR/bundle.env    which commit this is, and where it was built
//! DIR/bin/pagella   built with the profile `dist`
//! DIR/tests/*       one program per suite, named package--target
//! DIR/checkout/     models and testdata, unless DIR lies inside a checkout, which has them
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::toolchain::{self, Readiness};
use crate::Verdict;
use crate::workspace::Workspace;

/// Packages and the test targets of them that use a GPU; `unit` are those beside the code.
const SUITES: &[(&str, &str)] = &[
    ("pagella-cuda", "unit"),
    ("pagella-cuda", "conformance"),
    ("pagella-cuda", "kernel_resources"),
    ("pagella-model", "model"),
    ("pagella-engine", "demo"),
    ("pagella", "device"),
];

/// Data that tests and the program read, below the root of the checkout.
const DATA: &[&str] = &["models", "testdata"];

/// A program that Cargo built for one target of a package.
#[derive(Debug, PartialEq, Eq)]
struct Built {
    package: String,
    target: String,
    program: PathBuf,
}

/// Builds and collects. Replaces what an earlier call left in the folder.
pub fn command(workspace: &Workspace, args: &[String]) -> Result<Verdict> {
    let (dir, program) = match args {
        [dir] => (dir, None),
        [dir, program] => (dir, Some(Path::new(program))),
        _ => bail!("usage: cargo xtask gpu-bundle DIR [PROGRAM]"),
    };
    let dir = std::path::absolute(dir).context("the folder's path")?;
    match toolchain::prepare(workspace)? {
        Readiness::Ready(_) => {}
        Readiness::NotHere(reason) | Readiness::Failed(reason) => {
            bail!("a bundle without kernels is of no use: {reason}");
        }
    }
    for part in ["bin", "tests", "checkout"] {
        super::remove(&dir.join(part))?;
    }
    match program {
        Some(program) => keep(program, &dir.join("bin/pagella"))?,
        None => keep(&build_program(workspace)?, &dir.join("bin/pagella"))?,
    }
    keep_suites(&build(workspace, &["test", "--no-run", "--workspace"])?, &dir.join("tests"))?;
    if !dir.starts_with(&workspace.root) {
        for data in DATA {
            copy_tree(&workspace.root.join(data), &dir.join("checkout").join(data))?;
        }
    }
    for script in ["gpu.sh", "gpu-fault.c"] {
        fs::copy(workspace.root.join("scripts").join(script), dir.join(script)).context(script)?;
    }
    fs::write(dir.join("bundle.env"), about(workspace)).context("bundle.env")?;
    let archive = archive(&dir)?;
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    println!("{}: {:.1} MB; run gpu.sh there", dir.display(), megabytes(bytes(&dir)?));
    println!("{}: {:.1} MB", archive.display(), megabytes(fs::metadata(&archive)?.len()));
    Ok(Verdict::Good)
}

/// Packs the folder into one file beside it.
fn archive(dir: &Path) -> Result<PathBuf> {
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
        bail!("{} has no folder around it for the archive", dir.display());
    };
    let mut file = name.to_owned();
    file.push(".tar.gz");
    let archive = parent.join(file);
    let mut tar = Command::new("tar");
    let status = tar.arg("-C").arg(parent).arg("-czf").arg(&archive).arg(name).status();
    let status = status.context("cannot start tar")?;
    if !status.success() {
        bail!("tar ended with {status}");
    }
    Ok(archive)
}

/// The program as it is given to others.
pub fn build_program(workspace: &Workspace) -> Result<PathBuf> {
    let args =
        ["build", "--profile", "dist", "--locked", "--package", "pagella", "--bin", "pagella"];
    let built = build(workspace, &args)?.pop();
    Ok(built.context("cargo named no program")?.program)
}

/// Runs Cargo and returns the programs it made.
fn build(workspace: &Workspace, args: &[&str]) -> Result<Vec<Built>> {
    println!("$ cargo {}", args.join(" "));
    let mut cargo = workspace.cargo();
    cargo.args(args).arg("--message-format=json-render-diagnostics");
    let output = cargo.stderr(std::process::Stdio::inherit()).output();
    let output = output.context("cannot start cargo")?;
    if !output.status.success() {
        bail!("`cargo {}` ended with {}", args.join(" "), output.status);
    }
    let built = programs(&String::from_utf8_lossy(&output.stdout));
    if built.is_empty() {
        bail!("`cargo {}` made no program", args.join(" "));
    }
    Ok(built)
}

/// The programs among Cargo's messages, which are one JSON object per line.
fn programs(messages: &str) -> Vec<Built> {
    let objects = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let built = objects.filter(|object| object["reason"] == "compiler-artifact");
    built
        .filter_map(|object| {
            let program = PathBuf::from(object["executable"].as_str()?);
            let target = object["target"]["name"].as_str()?;
            // `path+file:///…/crates/pagella-cuda#0.1.0`, or with `#name@version`.
            let id = object["package_id"].as_str()?;
            let package = match id.rsplit_once('#')? {
                (_, named) if named.contains('@') => named.split('@').next()?,
                (path, _) => path.rsplit('/').next()?,
            };
            let is_library = object["target"]["kind"][0] == "lib";
            let target = if is_library { "unit" } else { target }.to_owned();
            Some(Built { package: package.to_owned(), target, program })
        })
        .collect()
}

/// Keeps the programs of the suites as `package--target`.
fn keep_suites(built: &[Built], folder: &Path) -> Result<()> {
    for (package, target) in SUITES {
        let found = built.iter().find(|built| built.package == *package && built.target == *target);
        let found = found.with_context(|| format!("cargo made no `{target}` of {package}"))?;
        keep(&found.program, &folder.join(format!("{package}--{target}")))?;
    }
    Ok(())
}

/// Copies a program without its symbols, which are most of it.
pub fn keep(program: &Path, to: &Path) -> Result<()> {
    let folder = to.parent().context("no folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let stripped = Command::new("strip").arg("-o").arg(to).arg(program).status();
    if !stripped.is_ok_and(|status| status.success()) {
        println!("strip does not work here: {} stays large", to.display());
        fs::copy(program, to).with_context(|| format!("cannot copy {}", program.display()))?;
    }
    Ok(())
}

/// Lines for the shell: the commit, and the folder whose path was compiled into the tests.
fn about(workspace: &Workspace) -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).current_dir(&workspace.root).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    let changed = if changed.is_some_and(|list| !list.is_empty()) { " with changes" } else { "" };
    format!("BUNDLE_COMMIT='{commit}{changed}'\nBUNDLE_ROOT='{}'\n", workspace.root.display())
}

pub fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    let entries = fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
    for entry in entries {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)
                .with_context(|| format!("cannot copy {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// Bytes of all files below a folder.
fn bytes(dir: &Path) -> Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let entry = entry?;
        total +=
            if entry.path().is_dir() { bytes(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_among_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"half"},"executable":null}
{"reason":"compiler-artifact","package_id":"path+file:///c/crates/pagella-cuda#0.1.0","target":{"name":"conformance","kind":["test"]},"executable":"/t/conformance-1a"}
{"reason":"compiler-artifact","package_id":"path+file:///c/x#pagella-cuda@0.1.0","target":{"name":"pagella_cuda","kind":["lib"]},"executable":"/t/pagella_cuda-1a"}
{"reason":"build-finished","success":true}
"#;
        let built = |target: &str, program: &str| Built {
            package: "pagella-cuda".into(),
            target: target.into(),
            program: program.into(),
        };
        let expected =
            [built("conformance", "/t/conformance-1a"), built("unit", "/t/pagella_cuda-1a")];
        assert_eq!(programs(messages), expected);
    }

    #[test]
    fn every_suite_names_a_crate_of_ours() {
        let root = Workspace::locate().unwrap().root;
        for (package, _) in SUITES {
            assert!(root.join("crates").join(package).join("Cargo.toml").is_file(), "{package}");
        }
    }
}
