//! `pagella bench`: fields and consistency; never how fast.

use crate::support::pagella;

const QUICK: [&str; 9] = [
    "--prompt-tokens",
    "24",
    "--new-tokens",
    "4",
    "--repetitions",
    "2",
    "--batch-steps",
    "2",
    "--json",
];

#[test]
fn the_numbers_agree_with_each_other() {
    let found = pagella(&[&["bench", "demo", "--context", "40"][..], &QUICK].concat()).json();
    let decode = found["decode_tokens_per_s"]["best"].as_f64().unwrap();
    assert!(decode >= found["decode_tokens_per_s"]["median"].as_f64().unwrap());
    assert!(found["prefill_tokens_per_s"]["best"].as_f64().unwrap() > 0.0);
    let rate = found["decode_gb_s"].as_f64().unwrap() * 1e9;
    let bytes = found["weight_bytes_per_token"].as_f64().unwrap();
    assert!((rate / (decode * bytes) - 1.0).abs() < 1e-9);
    let share = rate / (found["bandwidth_gb_s"].as_f64().unwrap() * 1e9);
    assert!((share / found["bandwidth_share"].as_f64().unwrap() - 1.0).abs() < 1e-9);
    assert_eq!((found["context"].as_u64(), found["math"].as_str()), (Some(40), Some("wide")));
    assert!(!found["isa"].as_str().unwrap().is_empty());
    let batch = found["batch_decode_tokens_per_s"].as_array().unwrap();
    let rows: Vec<u64> = batch.iter().map(|size| size["rows"].as_u64().unwrap()).collect();
    assert_eq!(rows, [1, 2, 4, 8, 16, 32]);
    for size in batch {
        assert!(size["best"].as_f64().unwrap() >= size["median"].as_f64().unwrap());
    }
}

#[test]
fn batch_sizes_can_be_chosen_and_must_fit_the_cache() {
    let sizes = |more: &[&str]| {
        let found = pagella(&[&["bench", "demo"][..], more, &QUICK].concat()).json();
        let batch = found["batch_decode_tokens_per_s"].as_array().unwrap().clone();
        batch.iter().map(|size| size["rows"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(sizes(&["--batch", "3"]), [3]);
    assert!(sizes(&["--batch", "none"]).is_empty());
    let small = ["bench", "demo", "--batch", "9", "--cache-tokens", "2048"];
    let said = pagella(&[&small[..], &QUICK].concat());
    assert!(said.error(1).contains("--cache-tokens"), "{}", said.err);
}

#[test]
fn past_and_new_tokens_beyond_the_context_are_refused() {
    let said = pagella(&["bench", "demo", "--context", "2040", "--new-tokens", "64"]);
    assert!(said.error(1).contains("2048"), "{}", said.err);
}
