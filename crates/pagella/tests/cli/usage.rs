//! Wrong usage: exit code 2, and a word on what is right.

use crate::support::{command, pagella};

#[test]
fn wrong_usage_exits_with_two() {
    for args in [
        &["run"][..],
        &["frobnicate"],
        &["run", "a", "--prompt", "b"],
        &["run", "a", "--unknown"],
        &["run", "a", "--greedy", "--temperature", "1"],
        &["run", "a", "--raw", "--system", "b"],
        &["run", "--prompt", "-", "--prompt", "-"],
        &["run", "a", "--stop", ""],
        &["run", "a", "--ban", ""],
        &["run", "a", "-n", "0"],
        &["run", "a", "--timeout", "0"],
        &["run", "a", "--timeout", "-1"],
        &["run", "a", "--negative", "b"],
        &["run", "a", "--cfg-scale", "1.5"],
        &["run", "a", "--negative", "b", "--cfg-scale", "1000"],
        &["run", "a", "--logprobs", "2"],
        &["run", "a", "--batch-max", "0"],
        &["run", "a", "--queue-max", "0"],
        &["run", "a", "--reserve", "some"],
        &["run", "a", "--choice", "b", "--regex", "c"],
        &["run", "a", "--json-object", "--json-schema", "{}"],
        &["run", "a", "--regex", "("],
        &["run", "a", "--choice", ""],
        &["run", "a", "--json-schema", "{"],
        &["run", "a", "--json-schema", "{\"type\": 5}"],
        &["run", "a", "--preset", "other"],
        &["run", "a", "--preset", "exl2", "--sampling", "x.json"],
        &["run", "a", "--bias", "5"],
        &["run", "a", "--bias", "5=nan"],
        &["run", "a", "--dynatemp", "2,1"],
        &["run", "a", "--mirostat-tau", "2"],
        &["run", "a", "--dry-base", "2"],
        &["run", "a", "--xtc-threshold", "0.1"],
        &["run", "a", "--typical", "2"],
        &["run", "a", "--rng", "dice"],
        &["bench", "demo", "--batch", "0"],
        &["bench", "demo", "--batch", "1,x"],
        &["run", "a", "--temperature", "1000"],
        &["run", "a", "--temperature", "nan"],
        &["run", "a", "--top-p", "1.5"],
        &["run", "a", "--max-new-tokens", "0"],
        &["run", "a", "--threads", "0"],
        &["run", "a", "--cache", "q5"],
        &["run", "a", "--cache-tokens", "x"],
        &["run", "a", "--device", "gpu"],
        &["run", "a", "--math", "fast"],
        &["run", "a", "--rope-scale", "2", "--rope-alpha", "2"],
        &["ppl", "demo"],
        &["ppl", "demo", "--ids", "a", "--text", "b"],
        &["ppl", "demo", "--ids", "a", "--prefill", "3"],
        &["ppl", "demo", "--ids", "a", "--prefix", "x"],
        &["bench"],
        &["bench", "demo", "--bits", "4"],
        &["bench", "--synthetic", "no-such-shape"],
        &["bench", "--synthetic", "llama-3.2-1b", "--weights", "f16", "--bits", "4"],
        &["pull", "no-slash"],
        &["pull", "../../etc/passwd"],
    ] {
        let said = pagella(args);
        assert_eq!(said.code, 2, "{args:?}: {} {}", said.out, said.err);
        assert!(said.err.starts_with("error: "), "{args:?}: {}", said.err);
        assert_eq!(said.out, "", "{args:?}");
    }
}

#[test]
fn fast_arithmetic_names_the_alternatives() {
    assert!(pagella(&["run", "a", "--math", "fast"]).err.contains("choose exact or wide"));
}

#[test]
fn a_gpu_that_is_not_there_is_refused_with_a_way_out() {
    let there = ["cuda:98", "cuda:99"];
    for args in
        [&["run", "a", "--device", there[0]][..], &["inspect", "demo", "--device", there[1]]]
    {
        assert!(pagella(args).error(1).contains("--device cpu"));
    }
}

#[test]
fn models_that_are_not_there_say_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let with_home = |args: &[&str]| {
        let mut command = command(args);
        command.env("HF_HOME", home.path());
        crate::support::feed(command, "")
    };
    assert!(with_home(&["run", "a", "-m", "nowhere"]).error(1).contains("`demo`"));
    assert!(with_home(&["chat", "org/name"]).error(1).contains("pagella pull org/name"));
    assert!(with_home(&["inspect", "org/name@4.0bpw"]).error(1).contains("pull org/name@4.0bpw"));
}

#[test]
fn help_and_version_succeed() {
    for args in [&["--help"][..], &["--version"], &["run", "--help"], &["bench", "--help"]] {
        let said = pagella(args);
        assert_eq!((said.code, said.out.is_empty()), (0, false), "{args:?}");
    }
}

#[test]
#[cfg(unix)]
fn a_reader_that_goes_away_is_no_error() {
    use std::process::Stdio;
    let args = ["run", "Tell me a story", "--min-new-tokens", "200", "--max-new-tokens", "200"];
    let mut child = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
