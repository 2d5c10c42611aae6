//! `cargo xtask dist DIR [PROGRAM]`: everything that an installation holds, below a prefix such as
//! `/usr/local`. With PROGRAM, that one is taken instead of a build.
//!
//! ```text
//! DIR/bin/pagella                      built with the profile `dist`
//! DIR/share/pagella/models/demo        where the program looks for its demo model
//! DIR/share/man/man1                   made by the program itself, and so are
//! DIR/share/{bash-completion,zsh,fish} completions
//! DIR/lib/systemd/system               the unit
//! ```

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::Verdict;
use crate::cuda::bundle::{build_program, copy_tree, keep};
use crate::workspace::Workspace;

/// Shells, and where they look for completions of installed programs.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "share/bash-completion/completions/pagella"),
    ("zsh", "share/zsh/site-functions/_pagella"),
    ("fish", "share/fish/vendor_completions.d/pagella.fish"),
];

/// Builds and lays out.
pub fn command(workspace: &Workspace, args: &[String]) -> Result<Verdict> {
    let (dir, program) = match args {
        [dir] => (dir, None),
        [dir, program] => (dir, Some(Path::new(program))),
        _ => bail!("usage: cargo xtask dist DIR [PROGRAM]"),
    };
    let dir = std::path::absolute(dir).context("the folder's path")?;
    let installed = dir.join("bin/pagella");
    match program {
        Some(program) => keep(program, &installed)?,
        None => keep(&build_program(workspace)?, &installed)?,
    }
    copy_tree(&workspace.root.join("models/demo"), &dir.join("share/pagella/models/demo"))?;
    let man = dir.join("share/man/man1");
    ask(&installed, &["man", man.to_str().context("the folder's name is not Unicode")?])?;
    for (shell, place) in COMPLETIONS {
        write(&dir.join(place), &ask(&installed, &["completions", shell])?)?;
    }
    let unit = fs::read(workspace.root.join("packaging/pagella.service")).context("the unit")?;
    write(&dir.join("lib/systemd/system/pagella.service"), &unit)?;
    println!("{}: copy it to a prefix such as /usr/local", dir.display());
    Ok(Verdict::Good)
}

/// What the program prints.
fn ask(program: &Path, args: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(program).args(args).output();
    let output = output.with_context(|| format!("cannot start {}", program.display()))?;
    if !output.status.success() {
        bail!("`pagella {}`: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.stdout)
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    let folder = path.parent().context("no folder")?;
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, content))
        .with_context(|| format!("cannot write {}", path.display()))
}
