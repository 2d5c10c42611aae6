//! Ranges, names and the two ways through JSON.

use std::collections::BTreeMap;

use super::*;
use crate::sample::SamplerOrder;

fn refused(change: impl Fn(&mut SampleOptions)) -> &'static str {
    let mut options = SampleOptions::default();
    change(&mut options);
    options.validate().unwrap_err().name
}

#[test]
fn presets_are_valid() {
    for options in
        [SampleOptions::default(), SampleOptions::greedy(), SampleOptions::exl2_default()]
    {
        assert_eq!(options.validate(), Ok(()));
    }
    assert!(Step::ALL.iter().all(|step| !SampleOptions::default().uses(*step)));
}

#[test]
fn values_out_of_range_are_named() {
    assert_eq!(refused(|o| o.temperature = -0.5), "temperature");
    assert_eq!(refused(|o| o.temperature = f32::NAN), "temperature");
    assert_eq!(refused(|o| o.top_p = 1.5), "top_p");
    assert_eq!(refused(|o| o.min_p = -0.1), "min_p");
    assert_eq!(refused(|o| o.repetition_penalty = 0.0), "repetition_penalty");
    assert_eq!(refused(|o| o.presence_penalty = f32::INFINITY), "presence_penalty");
    assert_eq!(refused(|o| o.smoothing_curve = 0.5), "smoothing_curve");
    assert_eq!(refused(|o| o.dry_base = 0.5), "dry_base");
    assert_eq!(refused(|o| o.dry_allowed_length = 0), "dry_allowed_length");
    assert_eq!(refused(|o| o.dry_allowed_length = 21), "dry_allowed_length");
    assert_eq!(refused(|o| o.xtc_threshold = 1.5), "xtc_threshold");
    assert_eq!(refused(|o| o.allow = Some(Vec::new())), "allow (ids)");
    assert_eq!(refused(|o| o.cfg_scale = Some(f32::NAN)), "cfg_scale");
    assert_eq!(refused(|o| o.logit_bias = BTreeMap::from([(3, f32::NAN)])), "logit_bias");
    let empty = Breaker::Text(String::new());
    assert_eq!(
        refused(|o| o.dry_breakers = Some(vec![empty.clone()])),
        "dry_breakers (empty ones)"
    );
    assert_eq!(
        refused(|o| {
            o.mirostat = true;
            o.mirostat_tau = 0.0;
        }),
        "mirostat_tau"
    );
}

#[test]
fn an_active_step_missing_in_the_order_is_an_error() {
    let options = SampleOptions {
        top_k: 5,
        sampler_order: SamplerOrder::new(vec![Step::Temperature, Step::TopP]),
        ..SampleOptions::default()
    };
    let error = options.validate().unwrap_err();
    assert_eq!(error.name, "sampler_order");
    assert!(error.to_string().contains("top_k"), "{error}");
    assert_eq!(SampleOptions { top_k: 0, top_p: 0.5, ..options }.validate(), Ok(()));
}

#[test]
fn the_reference_names_are_understood() {
    let json = r#"{
        "token_repetition_penalty": 1.1, "token_repetition_range": -1, "token_repetition_decay": 8,
        "token_frequency_penalty": 0.2, "token_presence_penalty": 0.3, "token_bias": {"5": "-inf"},
        "dry_sequence_breakers": ["\n", 17], "xtc_ignore_tokens": [4], "top_k": -1, "typical_p": 0.5,
        "rng": "mt19937", "penalty_scope": "output", "sampler_order": "exl2"
    }"#;
    let options: SampleOptions = serde_json::from_str(json).unwrap();
    let expected = SampleOptions {
        repetition_penalty: 1.1,
        penalty_decay: 8,
        frequency_penalty: 0.2,
        presence_penalty: 0.3,
        logit_bias: BTreeMap::from([(5, f32::NEG_INFINITY)]),
        dry_breakers: Some(vec![Breaker::Text("\n".into()), Breaker::Id(17)]),
        xtc_ignore: Some(vec![4]),
        typical: 0.5,
        rng: Rng::Mt19937,
        penalty_scope: PenaltyScope::Output,
        ..SampleOptions::default()
    };
    assert_eq!(options, expected);
}

#[test]
fn options_survive_json_and_unknown_names_do_not() {
    let options = SampleOptions {
        logit_bias: BTreeMap::from([(1, 2.5), (2, f32::INFINITY), (3, f32::NEG_INFINITY)]),
        penalty_range: Some(64),
        sampler_order: SamplerOrder::new(vec![Step::TopK, Step::Temperature]),
        seed: u64::MAX,
        ..SampleOptions::exl2_default()
    };
    let json = serde_json::to_string(&options).unwrap();
    assert_eq!(serde_json::from_str::<SampleOptions>(&json).unwrap(), options);
    assert!(serde_json::from_str::<SampleOptions>(r#"{"temprature": 1}"#).is_err());
    assert!(serde_json::from_str::<SampleOptions>(r#"{"token_bias": {"5": "x"}}"#).is_err());
    assert!(serde_json::from_str::<SampleOptions>(r#"{"token_bias": {"x": 1}}"#).is_err());
    assert!(serde_json::from_str::<SampleOptions>(r#"{"sampler_order": "exl3"}"#).is_err());
}
