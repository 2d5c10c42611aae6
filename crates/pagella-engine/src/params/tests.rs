//! The table is consistent, and what it says holds.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::DraftDepth;

#[test]
fn no_spelling_means_two_parameters() {
    let mut seen = BTreeSet::new();
    for param in all() {
        let spellings = [param.name].into_iter().chain(param.wire_name);
        for name in spellings.chain(param.aliases.iter().copied()) {
            assert!(seen.insert(name), "{name} stands twice");
        }
    }
}

#[test]
fn every_row_says_what_it_is() {
    for param in all() {
        let help = param.help_line();
        assert!(help.len() > 10 && !help.ends_with('.'), "{}: {help:?}", param.name);
        if let Some(needed) = param.needs {
            assert!(all().any(|other| other.name == needed), "{}: {needed}", param.name);
        }
        if let (Some((low, high, step)), Some((min, max))) = (param.slider, param.range()) {
            assert!(low >= min && high <= max && step > 0.0, "{}", param.name);
        }
        if let Some(default) = param.default() {
            let asked = param.number((default as f32).to_string().parse().unwrap());
            assert!(asked.is_ok(), "{}: its default is refused: {asked:?}", param.name);
        }
    }
}

#[test]
fn off_values_set_the_default_and_switch_no_step_on() {
    for param in SAMPLING {
        let Place::Sampling { get, set } = param.place else { continue };
        let default = SampleOptions::default();
        for off in param.off.iter().copied().chain(param.negative_is_off.then_some(-0.01)) {
            let mut options = SampleOptions::exl2_default();
            set(&mut options, param.number(off).unwrap());
            assert_eq!(get(&options) as f32, get(&default) as f32, "{} {off}", param.name);
            assert!(param.is_neutral(&json!(off)), "{} {off}", param.name);
        }
    }
}

#[test]
fn values_are_of_their_type_and_in_range() {
    let of = |name: &str| sampling(name).unwrap();
    let scalar = |name: &str, value: Value| of(name).scalar(&value);
    assert_eq!(scalar("temperature", json!(0.5)), Ok(0.5));
    assert!(matches!(scalar("temperature", json!("1")), Err(ParamError::Type(_))));
    assert_eq!(scalar("temperature", json!(11)), Err(ParamError::Range("from 0 to 10".into())));
    assert_eq!(scalar("top_k", json!(-1)), Ok(0.0));
    assert!(scalar("top_k", json!(1.5)).is_err() && scalar("top_k", json!(-2)).is_err());
    assert_eq!(scalar("adaptive_target", json!(-0.01)), Ok(1.0));
    assert_eq!(scalar("top_n_sigma", json!(-1)), Ok(0.0));
    assert_eq!(scalar("dry_base", json!(0)), Ok(1.75));
    let allowed = "from 1 to 100, or 0: off";
    assert_eq!(scalar("dry_base", json!(0.5)), Err(ParamError::Range(allowed.into())));
    assert_eq!(scalar("mirostat_mode", json!(1)), Ok(1.0));
    assert_eq!(scalar("mirostat", json!(false)), Ok(0.0));
    assert_eq!(scalar("penalty_scope", json!("prompt")), Ok(2.0));
    assert!(scalar("penalty_scope", json!("x")).is_err());
    assert!(scalar("skew", json!(6)).is_err(), "requests may ask for less than options hold");
}

#[test]
fn variants_keep_their_own_meaning() {
    let set = |name: &str, number: f64, from: &SampleOptions| {
        let param = VARIANTS.iter().find(|param| param.name == name).unwrap();
        let Place::Variant { set, .. } = param.place else { panic!("{name}") };
        let mut options = from.clone();
        set(&mut options, number);
        options
    };
    let plain = SampleOptions { dry_multiplier: 1.0, ..SampleOptions::default() };
    assert_eq!(set("rep_pen_range", 0.0, &plain).penalty_range, None);
    assert_eq!(set("repeat_last_n", 0.0, &plain).penalty_range, Some(0));
    assert_eq!(set("repeat_last_n", 64.0, &plain).penalty_range, Some(64));
    assert_eq!(set("dry_penalty_last_n", 0.0, &plain).dry_multiplier, 0.0);
    assert_eq!(set("dry_penalty_last_n", -1.0, &plain).dry_range, 0);
    let wide = set("dynatemp_range", 0.5, &plain);
    assert_eq!((wide.min_temp, wide.max_temp), (0.5, 1.5));
    let given = SampleOptions { min_temp: 0.1, max_temp: 0.2, ..plain.clone() };
    assert_eq!(set("dynatemp_range", 0.5, &given), given);
    assert!(!set("dynamic_temperature", 0.0, &given).has_dynamic_temperature());
    assert_eq!(set("do_sample", 0.0, &plain).temperature, 0.0);
}

#[test]
fn a_request_says_how_many_ids_are_guessed_or_leaves_it_open() {
    let row = JOB.iter().find(|param| param.is_called("speculative.n_max")).unwrap();
    let Place::Job { set } = row.place else { panic!("{}", row.name) };
    let depth = |value: Value| {
        let mut job = JobOptions::default();
        row.scalar(&value).map(|number| set(&mut job, number)).map(|()| job.draft_depth)
    };
    assert_eq!(depth(json!(-1)), Ok(None));
    assert_eq!(depth(json!(0)), Ok(Some(DraftDepth::Off)));
    assert_eq!(depth(json!(31)), Ok(Some(DraftDepth::Fixed(31))));
    assert!(depth(json!(32)).is_err() && depth(json!(-2)).is_err() && depth(json!("4")).is_err());
}

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/parameters.md");

/// A table for every group, for the documentation.
fn documented() -> String {
    let code = |name: &str| format!("`{name}`");
    let mut text = String::new();
    for (group, _, title) in ParamGroup::ALL {
        text += &format!("\n### {title}\n\n| Parameter | Also called | Values | Default | Step |");
        text += " What it does |\n|---|---|---|---|---|---|\n";
        for param in all().filter(|param| param.group == *group) {
            let own = (param.wire() != param.name).then_some(param.name);
            let also = own.into_iter().chain(param.aliases.iter().copied()).map(code);
            let also: Vec<String> = also.collect();
            let values = match param.range() {
                Some(_) if matches!(param.kind, ParamKind::Flag | ParamKind::Switch) => {
                    param.type_name().to_owned()
                }
                Some(_) if param.name == "seed" => param.type_name().to_owned(),
                Some(_) => param.allowed(),
                None => param.type_name().to_owned(),
            };
            let flag = param.kind == ParamKind::Flag;
            let default = param.default().or(flag.then_some(0.0));
            let default = default.map_or("–".to_owned(), |number| {
                param.to_json(number).to_string().replace('"', "")
            });
            let step = param.step.map_or("–".to_owned(), |step| code(step.name()));
            let (name, also) = (code(param.wire()), also.join(", "));
            let help = param.help_line();
            text += &format!("| {name} | {also} | {values} | {default} | {step} | {help} |\n");
        }
    }
    text
}

#[test]
fn the_documented_parameters_are_those_of_the_table() {
    let text = std::fs::read_to_string(DOCS).unwrap();
    let (before, rest) = text.split_once("<!-- parameters -->\n").unwrap();
    let (found, after) = rest.split_once("\n<!-- end -->").unwrap();
    if std::env::var_os("PAGELLA_BLESS").is_some() {
        let text = format!("{before}<!-- parameters -->\n{}\n<!-- end -->{after}", documented());
        std::fs::write(DOCS, text).unwrap();
        return;
    }
    let run = "run `PAGELLA_BLESS=1 cargo test -p pagella-engine documented_parameters`";
    assert_eq!(found, documented(), "{run}");
}
