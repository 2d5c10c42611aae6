//! Kernel files to fatbins, several at a time, each only when it or a header has changed.
//!
//! A result is kept under a name that holds the hash of everything it depends on: the file, all
//! headers, the compiler and its flags. Results are written beside and renamed, so that two builds
//! at once do no harm.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, id};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::nvcc::Nvcc;
use crate::target::{self, Target};

/// Results of one file that are kept, newest first: switching between two sets of chips is free.
const KEPT_PER_FILE: usize = 4;

/// What to compile, with what, where to.
pub struct Order<'a> {
    pub nvcc: &'a Nvcc,
    /// Folder of `.cu` and `.cuh` files.
    pub sources: &'a Path,
    pub cache: &'a Path,
    /// The value of [`target::ARCHS_ENV`].
    pub archs: Option<&'a str>,
    /// Whether the code says which line it comes from.
    pub line_info: bool,
    /// Processes at once, at least 1.
    pub jobs: usize,
}

/// One compiled file.
pub struct Kernel {
    /// The file's name without its extension.
    pub name: String,
    pub source: PathBuf,
    pub targets: Vec<Target>,
    pub fatbin: PathBuf,
    /// What the compiler said, with the resources of every function.
    pub log: PathBuf,
}

impl Kernel {
    /// Lines of the log that a person should see.
    pub fn warnings(&self) -> Vec<String> {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let is_warning =
            |line: &&str| line.to_lowercase().contains("warning") && !line.starts_with("Remark:");
        log.lines().filter(is_warning).map(|line| format!("{}: {line}", self.name)).collect()
    }
}

/// Compiles every file that has targets, sorted by name.
pub fn all(order: &Order<'_>) -> Result<Vec<Kernel>, String> {
    fs::create_dir_all(order.cache)
        .map_err(|err| format!("cannot create {}: {err}", order.cache.display()))?;
    let kernels = plan(order)?;
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..order.jobs.clamp(1, kernels.len().max(1)) {
            scope.spawn(|| {
                while let Some(kernel) = kernels.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(failure) = compile(order, kernel, kernels.len()) {
                        failures.lock().unwrap_or_else(|err| err.into_inner()).push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap_or_else(|err| err.into_inner());
    if failures.is_empty() { Ok(kernels) } else { Err(failures.join("\n")) }
}

/// Names and places of all results.
fn plan(order: &Order<'_>) -> Result<Vec<Kernel>, String> {
    let mut files = BTreeMap::new();
    read_tree(order.sources, &mut files)?;
    let mut headers = DefaultHasher::new();
    for (path, text) in files.iter().filter(|(path, _)| has_extension(path, "cuh")) {
        (path.strip_prefix(order.sources).ok(), text).hash(&mut headers);
    }
    let headers = headers.finish();
    let mut kernels: Vec<Kernel> = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| has_extension(path, "cu")) {
        let targets = target::of(text, order.archs);
        let targets = targets.map_err(|reason| format!("{}: {reason}", path.display()))?;
        if targets.is_empty() {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if kernels.iter().any(|kernel| kernel.name == name) {
            return Err(format!("two kernel files are called {name}.cu"));
        }
        let mut key = DefaultHasher::new();
        let flags = flags(order, &targets);
        (text, headers, &order.nvcc.identity, flags).hash(&mut key);
        let result = order.cache.join(format!("{name}-{:016x}", key.finish()));
        let (fatbin, log) = (result.with_extension("fatbin"), result.with_extension("log"));
        kernels.push(Kernel { name, source: path.clone(), targets, fatbin, log });
    }
    Ok(kernels)
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

/// All kernel files and headers below a folder, with their text.
fn read_tree(dir: &Path, files: &mut BTreeMap<PathBuf, String>) -> Result<(), String> {
    let failed = |path: &Path, err| format!("cannot read {}: {err}", path.display());
    for entry in fs::read_dir(dir).map_err(|err| failed(dir, err))? {
        let path = entry.map_err(|err| failed(dir, err))?.path();
        if path.is_dir() {
            read_tree(&path, files)?;
        } else if has_extension(&path, "cu") || has_extension(&path, "cuh") {
            println!("cargo::rerun-if-changed={}", path.display());
            let text = fs::read_to_string(&path).map_err(|err| failed(&path, err))?;
            files.insert(path, text);
        }
    }
    Ok(())
}

/// Everything that decides what comes out. No fast maths: results must be the IEEE ones.
fn flags(order: &Order<'_>, targets: &[Target]) -> Vec<String> {
    let mut flags: Vec<String> =
        ["-fatbin", "-O3", "-std=c++17", "-Xptxas", "-v"].map(str::to_owned).into();
    if order.line_info {
        flags.push("-lineinfo".to_owned());
    }
    // The option came with 13.0; before it, fatbinary compressed machine code only when told to.
    let compress: &[&str] = if order.nvcc.version >= (13, 0) {
        &["--compress-mode=size"]
    } else {
        &["-Xfatbin", "-compress-all"]
    };
    flags.extend(compress.iter().map(|flag| (*flag).to_owned()));
    for target in targets {
        flags.extend(["-gencode".to_owned(), target.gencode()]);
    }
    flags
}

/// Makes one result, unless it is there.
fn compile(order: &Order<'_>, kernel: &Kernel, n_kernels: usize) -> Result<(), String> {
    if kernel.fatbin.is_file() && kernel.log.is_file() {
        return Ok(());
    }
    let unfinished = kernel.fatbin.with_extension(format!("{}.unfinished", id()));
    let output = Command::new(&order.nvcc.path)
        .args(flags(order, &kernel.targets))
        // Chips in parallel too when there are fewer files than processors.
        .args(["-t", &(order.jobs / n_kernels).max(1).to_string()])
        .arg("-I")
        .arg(order.sources)
        .arg("-o")
        .arg(&unfinished)
        .arg(&kernel.source)
        .output()
        .map_err(|err| format!("cannot start {}: {err}", order.nvcc.path.display()))?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    if !output.status.success() {
        let is_noise = |line: &&str| line.contains("ptxas info") || line.contains("bytes spill");
        let lines: Vec<&str> = said.lines().filter(|line| !is_noise(line)).collect();
        let source = kernel.source.display();
        return Err(format!("nvcc failed on {source} ({}):\n{}", output.status, lines.join("\n")));
    }
    let kept = |err| format!("cannot keep {}: {err}", kernel.fatbin.display());
    fs::write(&kernel.log, said.as_bytes()).map_err(kept)?;
    fs::rename(&unfinished, &kernel.fatbin).map_err(kept)?;
    forget_old(order.cache, &kernel.name);
    Ok(())
}

/// Removes all but the newest results of one file. Failing to tidy up is no failure.
fn forget_old(cache: &Path, name: &str) {
    let is_result = |path: &Path| {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        has_extension(path, "fatbin") && stem.rsplit_once('-').is_some_and(|(of, _)| of == name)
    };
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path()).filter(|path| is_result(path));
    let mut results: Vec<_> =
        paths.map(|path| (path.metadata().and_then(|meta| meta.modified()).ok(), path)).collect();
    results.sort();
    for (_, fatbin) in results.iter().rev().skip(KEPT_PER_FILE) {
        let _ = fs::remove_file(fatbin);
        let _ = fs::remove_file(fatbin.with_extension("log"));
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::Write;
    use std::process::Stdio;

    use super::*;

    /// A compiler that writes down which files it was asked for, and fails on one called `bad.cu`.
    const FAKE: &str = "#!/bin/sh\nfor last; do :; done\necho \"$last\" >> \"${0%/*}/asked\"\n\
                        case $last in *bad.cu) echo 'bad.cu(1): error: bad'; exit 2;; esac\n\
                        while [ \"$1\" != -o ]; do shift; done\necho code > \"$2\"\n\
                        echo 'ptxas info: fine'; echo 'ptxas Warning: slow'\n";

    /// Written by a process of its own: a file that this one had open for writing could still be open in
    /// what another test is just starting, and such a file cannot be executed ("Text file busy").
    fn write_program(path: &Path, text: &str) {
        let mut writer = Command::new("sh");
        writer.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(path).stdin(Stdio::piped());
        let mut writer = writer.spawn().unwrap();
        writer.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(writer.wait().unwrap().success());
    }

    /// A folder with a compiler and sources of its own.
    struct Place(PathBuf);

    impl Place {
        fn new(test: &str) -> Self {
            let place = std::env::temp_dir().join(format!("pagella-compile-{test}-{}", id()));
            fs::create_dir_all(place.join("kernels")).unwrap();
            write_program(&place.join("nvcc"), FAKE);
            Place(place)
        }

        fn write(&self, file: &str, text: &str) {
            fs::write(self.0.join("kernels").join(file), text).unwrap();
        }

        /// What was compiled, by file name, and the result.
        fn compile(&self, archs: Option<&str>) -> (Vec<String>, Result<Vec<Kernel>, String>) {
            let path = self.0.join("nvcc");
            let nvcc = Nvcc { path, version: (13, 0), identity: "fake".into() };
            let (sources, cache) = (self.0.join("kernels"), self.0.join("cache"));
            let order = Order {
                nvcc: &nvcc,
                sources: &sources,
                cache: &cache,
                archs,
                line_info: false,
                jobs: 2,
            };
            let result = all(&order);
            let asked = fs::read_to_string(self.0.join("asked")).unwrap_or_default();
            let _ = fs::remove_file(self.0.join("asked"));
            let mut asked: Vec<String> =
                asked.lines().filter_map(|l| Some(l.rsplit_once('/')?.1.to_owned())).collect();
            asked.sort();
            (asked, result)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn only_what_changed_is_compiled_again() {
        let place = Place::new("changed");
        place.write("a.cu", "a");
        place.write("b.cu", "b");
        place.write("x.cuh", "x");
        assert_eq!(place.compile(None).0, ["a.cu", "b.cu"]);
        assert_eq!(place.compile(None).0, [""; 0]);
        place.write("b.cu", "b2");
        assert_eq!(place.compile(None).0, ["b.cu"]);
        place.write("x.cuh", "x2");
        assert_eq!(place.compile(None).0, ["a.cu", "b.cu"]);
        assert_eq!(place.compile(Some("80")).0, ["a.cu", "b.cu"]);
        assert_eq!(place.compile(None).0, [""; 0], "the first results are still there");
    }

    #[test]
    fn warnings_are_shown_also_when_nothing_was_compiled() {
        let place = Place::new("warnings");
        place.write("a.cu", "");
        for _ in 0..2 {
            let kernels = place.compile(None).1.unwrap();
            assert_eq!(kernels[0].warnings(), ["a: ptxas Warning: slow"]);
        }
    }

    #[test]
    fn old_results_are_forgotten() {
        let place = Place::new("forgotten");
        for text in ["1", "2", "3", "4", "5", "6", "7"] {
            place.write("a.cu", text);
            place.compile(None).1.unwrap();
        }
        let kept = fs::read_dir(place.0.join("cache")).unwrap().count();
        assert_eq!(kept, 2 * KEPT_PER_FILE, "a fatbin and a log each");
    }

    #[test]
    fn a_failure_shows_what_the_compiler_said_and_the_others_are_kept() {
        let place = Place::new("failure");
        place.write("bad.cu", "");
        place.write("good.cu", "");
        let (_, result) = place.compile(None);
        assert!(result.err().unwrap().contains("error: bad"));
        assert_eq!(place.compile(None).0, ["bad.cu"]);
    }
}
