//! The longer list of sampling settings, from flags and from files.

use serde_json::Value;

use crate::support::{pagella, text};

/// The ids of a short answer with a fixed seed.
fn ids(more: &[&str]) -> Value {
    let args = ["run", "Tell me about arrays", "--json", "--seed", "7", "--max-new-tokens", "24"];
    pagella(&[&args[..], more].concat()).json()["token_ids"].clone()
}

#[test]
fn every_setting_reaches_the_sampler() {
    let neutral = ids(&["--preset", "neutral"]);
    for more in [
        &["--top-a", "0.5"][..],
        &["--tfs", "0.5"],
        &["--typical", "0.2"],
        &["--epsilon-cutoff", "0.2"],
        &["--eta-cutoff", "0.5"],
        &["--top-n-sigma", "1"],
        &["--smoothing-factor", "3"],
        &["--dynatemp", "0.01,0.3"],
        &["--mirostat", "--mirostat-tau", "0.5"],
        &["--xtc-probability", "1", "--xtc-threshold", "0.05"],
        &["--skew", "-3"],
        &["--no-repeat-ngram", "1"],
        &["--rng", "mt19937"],
        &["--adaptive-target", "0.05"],
        &["--min-temp", "0.01", "--max-temp", "0.3"],
        &["--bias", "271=100"],
    ] {
        assert_ne!(ids(&[&["--preset", "neutral"], more].concat()), neutral, "{more:?}");
    }
    assert_eq!(ids(&["--preset", "neutral", "--top-a", "0"]), neutral);
    assert_eq!(ids(&["--bias", "271=inf"]), Value::from(vec![271; 24]));
}

#[test]
fn min_keep_holds_for_every_cut() {
    let with = |more: &[&str]| ids(&[&["--preset", "neutral"], more].concat());
    let cuts = [
        &["--top-k", "1"][..],
        &["--top-p", "0.001"],
        &["--min-p", "0.999"],
        &["--top-a", "1000"],
        &["--tfs", "0.001"],
        &["--typical", "0.001"],
        &["--epsilon-cutoff", "1"],
        &["--eta-cutoff", "1"],
        &["--top-n-sigma", "0.001"],
        &["--mirostat", "--mirostat-tau", "0.01"],
    ];
    for cut in cuts {
        let kept = with(&[cut, &["--min-keep", "40"]].concat());
        assert_ne!(kept, with(cut), "{cut:?}");
    }
    let all = with(&["--top-k", "40"]);
    assert_eq!(with(&["--top-k", "1", "--min-keep", "40"]), all, "forty are what forty are");
}

#[test]
fn values_that_mean_off_are_off() {
    let neutral = ids(&["--preset", "neutral"]);
    for off in [
        &["--top-k", "-1"][..],
        &["--top-p", "0"],
        &["--top-n-sigma", "-1"],
        &["--adaptive-target", "-0.01"],
        &["--penalty-range", "-1", "--repetition-penalty", "1"],
    ] {
        assert_eq!(ids(&[&["--preset", "neutral"], off].concat()), neutral, "{off:?}");
    }
}

#[test]
fn dry_ends_a_repetition() {
    let text = |more: &[&str]| {
        let repeats = "p {\n  font-weight: bold;\n  font-weight: bold;\n  font-weight:";
        let args = ["run", "--raw", repeats, "--json", "--greedy"];
        let answer = pagella(&[&args[..], &["--max-new-tokens", "8"], more].concat()).json();
        answer["text"].as_str().unwrap().to_owned()
    };
    assert!(text(&[]).starts_with(" bold"), "{}", text(&[]));
    assert!(!text(&["--dry-multiplier", "50"]).starts_with(" bold"));
}

#[test]
fn a_file_of_settings_is_the_same_as_flags_and_flags_win() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sampling.json");
    std::fs::write(&path, r#"{"temperature": 0.9, "typical_p": 0.5, "top_k": -1}"#).unwrap();
    let flags = ["--preset", "neutral", "--temperature", "0.9", "--typical", "0.5"];
    assert_eq!(ids(&["--sampling", text(&path)]), ids(&flags));
    let greedy = ids(&["--sampling", text(&path), "--temperature", "0"]);
    assert_eq!(greedy, ids(&["--greedy"]));
    std::fs::write(&path, r#"{"seed": 41}"#).unwrap();
    let answer =
        pagella(&["run", "Hi", "--json", "--max-new-tokens", "1", "--sampling", text(&path)]);
    assert_eq!(answer.json()["seed"], 41);
}

#[test]
fn wrong_files_of_settings_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sampling.json");
    for contents in ["", "[]", r#"{"temprature": 1}"#, r#"{"top_p": 3}"#, r#"{"temperature": "x"}"#]
    {
        std::fs::write(&path, contents).unwrap();
        let said = pagella(&["run", "Hi", "--sampling", text(&path)]);
        assert_eq!(said.code, 2, "{contents}: {}", said.err);
    }
    let said = pagella(&["run", "Hi", "--sampling", text(&dir.path().join("none.json"))]);
    assert!(said.error(1).contains("none.json"));
}

#[test]
fn log_probabilities_are_those_of_the_tokens() {
    let args = ["run", "What is CSS?", "--json", "--greedy", "--max-new-tokens", "5"];
    let answer = pagella(&[&args[..], &["--logprobs", "3"]].concat()).json();
    let tokens = answer["logprobs"].as_array().unwrap();
    let ids: Value = tokens.iter().map(|token| token["token_id"].clone()).collect();
    assert_eq!(ids, answer["token_ids"]);
    let text: String = tokens.iter().map(|token| token["token"].as_str().unwrap()).collect();
    assert_eq!(text.trim_start(), answer["text"].as_str().unwrap());
    for token in tokens {
        let top = token["top"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        // Greedy: the token is the first of the alternatives.
        assert_eq!(
            (&top[0]["token_id"], &top[0]["logprob"]),
            (&token["token_id"], &token["logprob"])
        );
        let logprobs: Vec<f64> = top.iter().map(|t| t["logprob"].as_f64().unwrap()).collect();
        assert!(logprobs.is_sorted_by(|a, b| a >= b) && logprobs[0] <= 0.0, "{logprobs:?}");
    }
}
