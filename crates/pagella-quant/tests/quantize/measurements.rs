//! Measurements: made once, used again, and taken from ExLlamaV2.

use pagella_quant::{Measurement, ModuleMeasurement, QuantizeOptions};
use serde_json::Value;

use crate::source::{files, options, run, write_source};

#[test]
fn a_measurement_is_made_once_and_serves_any_size() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    write_source("llama-gqa", &source);
    let path = dir.path().join("measurement.json");
    let only = QuantizeOptions {
        output_measurement: Some(path.clone()),
        ..options(&source, &dir.path().join("none"), &[])
    };
    assert!(run(&only).unwrap().models.is_empty());
    let (with, without) = (dir.path().join("with"), dir.path().join("without"));
    let job = QuantizeOptions { measurement: Some(path), ..options(&source, &with, &[4.0]) };
    run(&job).unwrap();
    run(&options(&source, &without, &[4.0])).unwrap();
    assert!(files(&with) == files(&without));
}

#[test]
fn a_measurement_in_the_form_of_exllamav2_gives_a_model() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    write_source("llama-gqa", &source);
    let path = dir.path().join("measurement.json");
    let only = QuantizeOptions {
        output_measurement: Some(path.clone()),
        ..options(&source, &dir.path().join("none"), &[])
    };
    run(&only).unwrap();
    // As another program would have written it: without what only we know.
    let mut value: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert!(value.as_object_mut().unwrap().remove("pagella").is_some());
    std::fs::write(&path, value.to_string()).unwrap();
    let measurement = Measurement::load(&path).unwrap();
    let module = measurement.module("model.layers.0.self_attn").unwrap();
    let ModuleMeasurement::Candidates(candidates) = module else { panic!("{module:?}") };
    assert_eq!(candidates.len(), 19);

    let target = dir.path().join("target");
    let job =
        QuantizeOptions { measurement: Some(path.clone()), ..options(&source, &target, &[4.5]) };
    let outcome = run(&job).unwrap();
    assert!(outcome.models[0].layer_bits <= 4.5, "{:?}", outcome.models);

    let Value::Object(modules) = &mut value["measurement"] else { panic!("no modules") };
    modules.remove("model.layers.0.mlp");
    std::fs::write(&path, value.to_string()).unwrap();
    let job = QuantizeOptions {
        measurement: Some(path),
        ..options(&source, &dir.path().join("other"), &[4.5])
    };
    let error = run(&job).unwrap_err().to_string();
    assert!(error.contains("says nothing of `model.layers.0.mlp`"), "{error}");
}

#[test]
fn a_measurement_of_another_model_is_refused_before_any_work() {
    let dir = tempfile::tempdir().unwrap();
    let (narrow, wide) = (dir.path().join("narrow"), dir.path().join("wide"));
    write_source("llama-gqa", &narrow);
    write_source("llama-wide", &wide);
    let path = dir.path().join("measurement.json");
    let only =
        QuantizeOptions { output_measurement: Some(path.clone()), ..options(&narrow, &path, &[]) };
    run(&only).unwrap();
    let job = QuantizeOptions {
        measurement: Some(path.clone()),
        ..options(&wide, &dir.path().join("target"), &[4.0])
    };
    let error = run(&job).unwrap_err().to_string();
    assert!(error.contains("says nothing of"), "{error}");
    let mut value: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    // Of a model whose linears have the names and sizes of this one, but more blocks.
    let mut longer = value.clone();
    for losses in longer["pagella"]["linears"][0]["table"]["losses"].as_array_mut().unwrap() {
        losses.as_array_mut().unwrap().push(0.5.into());
    }
    let damaged = dir.path().join("damaged.json");
    std::fs::write(&damaged, longer.to_string()).unwrap();
    let (source, measurement) = (narrow, Some(damaged));
    let error = run(&QuantizeOptions { source, measurement, ..job.clone() }).unwrap_err();
    assert!(error.to_string().contains("of another number of inputs"), "{error}");
    value.as_object_mut().unwrap().remove("pagella");
    std::fs::write(&path, value.to_string()).unwrap();
    let error = run(&job).unwrap_err().to_string();
    assert!(error.contains("is of another model"), "{error}");
    assert!(!dir.path().join("target.quantize").exists());
}
