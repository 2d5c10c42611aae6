//! A job that is stopped anywhere and goes on gives the files of one that never stopped.

use pagella_quant::QuantError;

use crate::source::{files, options, run, run_until, write_source};

#[test]
fn stopped_anywhere_it_goes_on_to_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    write_source("llama-gqa", &source);
    let whole = dir.path().join("whole");
    let (reports, done) = run_until(&options(&source, &whole, &[3.0, 5.0]), usize::MAX);
    done.unwrap();
    let expected = files(&whole);
    assert!(expected.len() >= 6, "{:?}", expected.keys());

    // Every stop a while after the last, until the job ends; with another number of threads each time.
    let target = dir.path().join("target");
    let mut stops = 0;
    loop {
        let threads = Some(1 + stops % 3);
        let job =
            pagella_quant::QuantizeOptions { threads, ..options(&source, &target, &[3.0, 5.0]) };
        match run_until(&job, 7 + 13 * stops).1 {
            Ok(_) => break,
            Err(QuantError::Stopped { job }) => assert_eq!(job, dir.path().join("target.quantize")),
            Err(other) => panic!("{other}"),
        }
        stops += 1;
    }
    assert!(stops >= 3, "{stops} stops of {reports} reports");
    assert!(files(&target) == expected);
    assert!(!dir.path().join("target.quantize").exists());
}

#[test]
fn rows_that_the_model_was_writing_are_written_on() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    write_source("llama-gqa", &source);
    let long = |target: &str| {
        let mut job = options(&source, &dir.path().join(target), &[4.0]);
        job.calibration.length = 200;
        job
    };
    let (whole, target) = (long("whole"), long("target"));
    run(&whole).unwrap();
    // In the calibration, after rows were kept twice.
    assert!(matches!(run_until(&target, 150).1, Err(QuantError::Stopped { .. })));
    let kept = dir.path().join("target.quantize");
    assert!(kept.join("calibration-begun.safetensors").exists());
    assert!(!kept.join("calibration.safetensors").exists());
    // Another number of threads, and fewer reports, because what is kept is not written again.
    let target = pagella_quant::QuantizeOptions { threads: Some(1), ..target };
    run(&target).unwrap();
    assert!(files(&dir.path().join("whole")) == files(&dir.path().join("target")));
}

#[test]
fn states_on_disk_give_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    write_source("mixtral-gqa", &source);
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    run(&options(&source, &a, &[4.0])).unwrap();
    // Rows are taken over, because low memory has none of the model's own.
    let mut job = options(&source, &b, &[4.0]);
    let stopped = run_until(&job, 40).1;
    assert!(matches!(stopped, Err(QuantError::Stopped { .. })));
    let kept = dir.path().join("b.quantize");
    let identity = std::fs::read_to_string(kept.join("job.json")).unwrap();
    let identity = identity.replace("\"own_writing\": true", "\"own_writing\": false");
    std::fs::write(kept.join("job.json"), identity).unwrap();
    job.calibration.low_memory = true;
    run(&job).unwrap();
    assert!(files(&a) == files(&b));
}

#[test]
fn what_cannot_be_done_is_said_before_any_work() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    write_source("llama-gqa", &source);
    let target = dir.path().join("target");

    let error = run(&options(&source, &target, &[1.5])).unwrap_err().to_string();
    assert!(error.contains("1.5 bits per weight cannot be reached"), "{error}");
    assert!(!dir.path().join("target.quantize").exists());

    std::fs::create_dir(&target).unwrap();
    std::fs::write(target.join("mine"), "x").unwrap();
    let error = run(&options(&source, &target, &[4.0])).unwrap_err().to_string();
    assert!(error.contains("is not empty"), "{error}");
    assert!(!dir.path().join("target.quantize").exists());

    let blocked = target.join("mine").join("model");
    let error = run(&options(&source, &blocked, &[4.0])).unwrap_err().to_string();
    assert!(error.contains("cannot make the folder"), "{error}");

    let shards = pagella_quant::QuantizeOptions {
        shard_bytes: 64,
        ..options(&source, &dir.path().join("small"), &[4.0])
    };
    let error = run(&shards).unwrap_err().to_string();
    assert!(error.contains("raise --shard-size"), "{error}");
    // What was done is kept for a command with larger shards.
    assert!(dir.path().join("small.quantize").join("measure").exists());
    let shards = pagella_quant::QuantizeOptions { shard_bytes: 1 << 20, ..shards };
    run(&shards).unwrap();
}

#[test]
fn what_stands_in_the_place_of_the_model_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    write_source("llama-gqa", &source);
    let file = dir.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    for (target, wanted) in [
        (file.clone(), "is no folder"),
        (source.clone(), "is not empty"),
        (dir.path().join(".."), "give the model a new folder"),
        (std::env::current_dir().unwrap(), "give the model a new folder"),
    ] {
        let error = run(&options(&source, &target, &[4.0])).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    let mut left: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["file", "source"]);
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    // Inside the source is a place like any other, and an empty folder gives way.
    let inside = source.join("quantised");
    std::fs::create_dir(&inside).unwrap();
    let (_, stopped) = run_until(&options(&source, &inside, &[4.0]), 20);
    assert!(matches!(stopped, Err(QuantError::Stopped { .. })));
    run(&options(&source, &inside, &[4.0])).unwrap();
    assert!(inside.join("output.safetensors").exists());
}

#[test]
fn work_with_a_measurement_that_has_changed_is_not_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    write_source("llama-gqa", &source);
    let path = dir.path().join("measurement.json");
    let only = pagella_quant::QuantizeOptions {
        output_measurement: Some(path.clone()),
        ..options(&source, &path, &[])
    };
    run(&only).unwrap();
    let job = pagella_quant::QuantizeOptions {
        measurement: Some(path.clone()),
        ..options(&source, &target, &[4.0])
    };
    assert!(matches!(run_until(&job, 35).1, Err(QuantError::Stopped { .. })));
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{text}\n")).unwrap();
    let error = run(&job).unwrap_err().to_string();
    assert!(error.contains("another calibration or measurement"), "{error}");
    let anew = pagella_quant::QuantizeOptions { resume: false, ..job };
    run(&anew).unwrap();
}

/// The folder of a job at every report is what a power cut could leave, but for halves of files, which
/// have names of their own.
#[test]
fn a_power_cut_at_the_last_moment_finds_the_work_done() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    write_source("llama-gqa", &source);
    let job = options(&source, &target, &[3.0, 4.0]);
    let (reports, whole) = run_until(&job, usize::MAX);
    let expected = files(&target);
    std::fs::remove_dir_all(&target).unwrap();
    // Stopped when the last model is about to be written, the first one is in its place.
    assert!(matches!(run_until(&job, reports - 1).1, Err(QuantError::Stopped { .. })));
    assert!(target.join("3.0bpw").join("config.json").exists());
    std::fs::write(dir.path().join("target.quantize/.layer.tmp"), "half").unwrap();
    let again = run(&job).unwrap();
    let facts = |outcome: pagella_quant::Outcome| -> Vec<_> {
        outcome.models.into_iter().map(|m| (m.dir, m.total_bits, m.bytes)).collect()
    };
    assert_eq!(facts(again), facts(whole.unwrap()));
    assert!(files(&target) == expected);
}

#[test]
fn a_quantised_model_is_no_source() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    write_source("llama-gqa", &source);
    let target = dir.path().join("target");
    run(&options(&source, &target, &[4.0])).unwrap();
    let error = run(&options(&target, &dir.path().join("again"), &[4.0])).unwrap_err().to_string();
    assert!(error.contains("is quantised already"), "{error}");
}

#[test]
fn small_shards_hold_the_same_tensors() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    write_source("llama-gqa", &source);
    let (one, many) = (dir.path().join("one"), dir.path().join("many"));
    run(&options(&source, &one, &[4.0])).unwrap();
    let small =
        pagella_quant::QuantizeOptions { shard_bytes: 40 << 10, ..options(&source, &many, &[4.0]) };
    run(&small).unwrap();
    let open = |dir| pagella_formats::Checkpoint::open(dir, &[]).unwrap();
    let (one, many) = (open(&one), open(&many));
    assert!(many.files().count() > 2);
    assert!(one.names().eq(many.names()));
    for name in one.names() {
        assert_eq!(one.tensor(name).unwrap().data, many.tensor(name).unwrap().data, "{name}");
    }
}
