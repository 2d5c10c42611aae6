//! Progress reports: how many, in which order, and how to stop.

use std::ops::ControlFlow;

use pagella_arch::{BlockOrder, ModelSpec};
use pagella_model::{LoadOptions, Model, ModelError};

use crate::families::{Case, case};
use crate::reference::ReferenceBackend;

/// One report, owned.
#[derive(Clone, Debug)]
struct Report {
    modules: (usize, usize),
    bytes: (u64, u64),
    name: String,
}

/// Loads a case, stopping after `reports_max` reports.
fn reports(case: &Case, spec: ModelSpec, reports_max: usize) -> (Vec<Report>, Option<ModelError>) {
    let dir = tempfile::tempdir().unwrap();
    case.write(dir.path());
    let mut reports = Vec::new();
    let backend = ReferenceBackend;
    let loaded = Model::load(dir.path(), spec, backend, &LoadOptions::default(), &mut |p| {
        reports.push(Report {
            modules: (p.modules_done, p.modules_total),
            bytes: (p.bytes_done, p.bytes_total),
            name: p.name.to_owned(),
        });
        if reports.len() == reports_max {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    (reports, loaded.err())
}

#[test]
fn n_modules_give_n_plus_one_reports_that_only_grow() {
    let case = case("llama-gqa");
    let (reports, error) = reports(&case, case.spec.clone(), usize::MAX);
    assert!(error.is_none());
    let n = 1 + 2 * 3 + 2;
    assert_eq!(reports.len(), n + 1);
    for (i, report) in reports.iter().enumerate() {
        assert_eq!(report.modules, (i, n));
    }
    assert!(reports.windows(2).all(|pair| pair[0].bytes.0 <= pair[1].bytes.0));
    assert_eq!(reports[0].bytes.0, 0);
    let stored: usize = case.tensors.iter().map(|tensor| tensor.data.len()).sum();
    let norms: usize =
        case.tensors.iter().filter(|t| t.name.contains("layernorm")).map(|t| t.data.len()).sum();
    let last = reports.last().unwrap();
    assert_eq!(last.bytes.0, last.bytes.1);
    assert_eq!(last.bytes.1, (stored - norms) as u64, "norms of layers are too small to count");
    let names: Vec<&str> = reports.iter().map(|report| report.name.as_str()).collect();
    assert_eq!(names[..3], ["embedding", "layers.0.attention", "layers.0.mlp"]);
    assert_eq!(names[n - 2..], ["final norm", "head", ""]);
}

#[test]
fn experts_are_one_module_with_all_their_bytes() {
    let case = case("qwen3moe-gqa");
    let (reports, error) = reports(&case, case.spec.clone(), usize::MAX);
    assert!(error.is_none());
    assert_eq!(reports.len(), 1 + 2 * 2 + 2 + 1);
    let at = |name: &str| reports.iter().position(|report| report.name == name).unwrap();
    let mlp = at("layers.1.mlp");
    let experts: usize = case
        .tensors
        .iter()
        .filter(|tensor| tensor.name.starts_with("model.layers.1.mlp."))
        .map(|tensor| tensor.data.len())
        .sum();
    assert_eq!(reports[mlp + 1].bytes.0 - reports[mlp].bytes.0, experts as u64);
}

#[test]
fn a_parallel_layer_is_one_module() {
    let case = case("llama-gqa");
    let mut spec = case.spec.clone();
    spec.layers.iter_mut().for_each(|layer| layer.order = BlockOrder::Parallel);
    let (reports, error) = reports(&case, spec, usize::MAX);
    assert!(error.is_none());
    assert_eq!(reports.len(), 1 + 3 + 2 + 1);
}

#[test]
fn every_report_can_cancel() {
    let case = case("llama-gqa");
    for reports_max in 1..=10 {
        let (reports, error) = reports(&case, case.spec.clone(), reports_max);
        assert_eq!(reports.len(), reports_max);
        assert!(matches!(error, Some(ModelError::Cancelled)), "{error:?}");
    }
}
