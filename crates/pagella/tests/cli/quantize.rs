//! `pagella quantize` and `pagella diff` on the demo's draft model, which is float16.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Said, command, demo_dir, feed, pagella, text};

/// A small job: some seconds even without optimisation.
const SMALL: [&str; 6] = ["--rows", "3", "--length", "48", "--threads", "2"];

fn draft() -> PathBuf {
    demo_dir().join("draft")
}

fn arguments<'a>(source: &'a Path, target: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    [&["quantize", text(source), text(target)], &SMALL[..], more].concat()
}

fn quantize(target: &Path, more: &[&str]) -> Said {
    pagella(&arguments(&draft(), target, more))
}

/// All files below a folder, by their path in it.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => open.push(path),
                false => {
                    let bytes = std::fs::read(&path).unwrap();
                    found.insert(path.strip_prefix(dir).unwrap().to_owned(), bytes);
                }
            }
        }
    }
    found
}

/// Whole files below a folder that another program may be at work in.
fn count(dir: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let of = |path: PathBuf| match path.is_dir() {
        true => count(&path),
        false => usize::from(!path.to_string_lossy().ends_with(".tmp")),
    };
    entries.filter_map(|entry| Some(of(entry.ok()?.path()))).sum()
}

/// Runs the command and kills it, as a power cut would, as soon as the folder of its job holds more
/// files than before. Whether it had ended by then.
fn run_and_kill(arguments: &[&str], job: &Path) -> bool {
    let mut command = command(arguments);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let before = count(job);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success());
            return true;
        }
        if count(job) > before {
            child.kill().unwrap();
            return !child.wait().unwrap().success() && !job.exists();
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_job_that_is_killed_again_and_again_ends_with_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, target) = (dir.path().join("whole"), dir.path().join("killed"));
    assert_eq!(quantize(&whole, &["--bits", "3.0,5.0"]).code, 0);
    let source = draft();
    let arguments = arguments(&source, &target, &["--bits", "3.0,5.0"]);
    let mut kills = 0;
    while !run_and_kill(&arguments, &dir.path().join("killed.quantize")) {
        kills += 1;
        assert!(kills < 100);
    }
    assert!(kills >= 5, "{kills}");
    assert!(files(&target) == files(&whole));
    assert!(!dir.path().join("killed.quantize").exists());
}

#[test]
fn the_facts_for_programs_and_for_people_are_those_promised() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("models");
    let found = quantize(&target, &["--bits", "3,5.5", "--head-bits", "6", "--json"]).json();
    let fields: Vec<&String> = found.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["models", "rows", "length", "seconds"]);
    let models = found["models"].as_array().unwrap();
    assert_eq!(models.len(), 2);
    for (model, bits) in models.iter().zip([3.0, 5.5]) {
        let fields: Vec<&String> = model.as_object().unwrap().keys().collect();
        let promised = [
            "dir",
            "bits",
            "layer_bits",
            "head_bits",
            "total_bits",
            "bytes",
            "expected",
            "bound",
            "starved",
        ];
        assert_eq!(fields, promised);
        assert_eq!(model["bits"], bits);
        let layer_bits = model["layer_bits"].as_f64().unwrap();
        assert!(layer_bits <= bits && layer_bits > bits - 0.3, "{model}");
        assert!(model["bound"].as_f64() <= model["expected"].as_f64());
        assert_eq!(model["dir"], text(&target.join(format!("{bits:?}bpw"))));
    }
    let better = text(&target.join("5.5bpw")).to_owned();
    let worse = text(&target.join("3.0bpw")).to_owned();
    let diff = |b: &str| -> Value {
        pagella(&["diff", text(&draft()), b, "--rows", "2", "--length", "64", "--json"]).json()
    };
    let (better, worse) = (diff(&better), diff(&worse));
    assert!(better["kl"].as_f64().unwrap() < worse["kl"].as_f64().unwrap());
    assert_eq!(better["layers"].as_array().unwrap().len(), 2);

    let said = quantize(&dir.path().join("one"), &["--bits", "4"]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.starts_with("calibrated with 3 rows of 48 tokens"), "{}", said.out);
    assert!(said.out.contains("expected loss"), "{}", said.out);
}

#[test]
fn a_model_that_was_made_talks() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("model");
    assert_eq!(quantize(&target, &["--bits", "5"]).code, 0);
    let said = pagella(&["run", "--model", text(&target), "The", "--max-tokens", "4"]);
    assert_eq!(said.code, 0, "{}", said.err);
}

/// What cannot be done is one sentence, and nothing is left behind.
#[test]
fn hostile_orders_are_refused_in_a_sentence_before_any_work() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let (target, file, full) = (path("model"), path("file"), path("full"));
    std::fs::write(&file, "x").unwrap();
    std::fs::create_dir(&full).unwrap();
    std::fs::write(format!("{full}/mine"), "x").unwrap();
    let draft = draft();
    let weights = text(&draft.join("model.safetensors")).to_owned();
    let draft = text(&draft);
    let cases: &[(&[&str], i32, &str)] = &[
        (&[draft], 2, "give DST"),
        (&[draft, &target, "--bits", "0"], 1, "can be stored at"),
        (&[draft, &target, "--bits", "-1"], 2, "unexpected argument"),
        (&[draft, &target, "--bits=-1"], 1, "can be stored at"),
        (&[draft, &target, "--bits", "nan"], 2, "--bits"),
        (&[draft, &target, "--bits", "inf"], 2, "--bits"),
        (&[draft, &target, "--bits", "1e300"], 1, "can be stored at"),
        (&[draft, &target, "--bits", ""], 2, "--bits"),
        (&[draft, &target, "--bits", "4,4.0"], 2, "twice"),
        (&[draft, &target, "--head-bits", "7"], 2, "2, 3, 4, 5, 6 or 8"),
        (&[draft, &target, "--rope-scale", "2", "--rope-alpha", "2"], 2, "--rope-alpha"),
        (&[draft, &target, "--device", "cuda"], 2, "cannot be used here yet"),
        (&[draft, &target, "--calibration", &path("none.txt")], 1, "none.txt: cannot read"),
        (&[draft, &target, "--measurement", &path("none.json")], 1, "none.json: cannot read"),
        (&[draft, &target, "--measurement", &file], 1, "file"),
        (&[draft, &target, "--output-measurement", &full], 1, "full: cannot write"),
        (&[draft, &target, "--output-measurement", &path("no/m.json")], 1, "m.json: cannot write"),
        (&[draft, &target, "--calibration", "/dev/null"], 1, "only 0 tokens"),
        (&[draft, &target, "--calibration", &full], 1, "full: cannot read"),
        (&[draft, &target, "--calibration", &weights], 1, "not UTF-8"),
        (&[draft, &file], 1, "is no folder"),
        (&[draft, &full], 1, "is not empty"),
        (&[draft, draft], 1, "is not empty"),
        (&[draft, "."], 1, "give the model a new folder"),
        (&[draft, ".."], 1, "give the model a new folder"),
        (&[draft, &format!("{file}/model")], 1, "cannot make the folder"),
        (&["demo", &target], 1, "is quantised already"),
        (&[&path("nothing"), &target], 1, "nothing"),
    ];
    for (arguments, code, wanted) in cases {
        let said = pagella(&[&["quantize"], *arguments].concat());
        let error = said.error(*code);
        assert!(error.contains(wanted), "{arguments:?}: {error}");
        let mut left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(Result::unwrap).collect();
        left.retain(|entry| !["file", "full"].contains(&&*entry.file_name().to_string_lossy()));
        assert!(left.is_empty(), "{arguments:?} left {left:?}");
    }
}

/// A limit on the size of files stands for a full disk: writing fails in the middle of a file.
#[cfg(unix)]
#[test]
fn a_full_disk_is_one_sentence_and_what_was_done_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, target) = (dir.path().join("whole"), dir.path().join("model"));
    assert_eq!(quantize(&whole, &["--bits", "4"]).code, 0);
    let source = draft();
    let arguments = arguments(&source, &target, &["--bits", "4"]);
    let ready = command(&arguments);
    for kilobytes in [64, 256, 1100] {
        let mut limited = Command::new("sh");
        let script = format!("trap '' XFSZ; ulimit -f $(({kilobytes} * 2)); exec \"$@\"");
        limited.args(["-c", &script, "sh"]).arg(ready.get_program()).args(ready.get_args());
        limited.env_remove("PAGELLA_MODEL");
        let said = feed(limited, "");
        let error = said.error(1);
        assert!(error.contains("File too large"), "{error}");
        assert!(dir.path().join("model.quantize").join("job.json").exists());
        assert!(!target.exists());
    }
    assert_eq!(pagella(&arguments).code, 0);
    assert!(files(&target) == files(&whole));
}

#[test]
fn models_of_different_shape_are_not_compared() {
    let said = pagella(&["diff", "demo", text(&draft())]);
    assert!(said.error(1).contains("differ in shape"), "{}", said.err);
}
