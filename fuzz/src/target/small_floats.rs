//! A safetensors file with small floats: every linear that its names announce, checked and decoded.

use std::collections::BTreeSet;

use pagella_formats::{
    BiasRule, Checkpoint, FusedPart, GptqZeros, Linear, LinearRequest, load_linear,
};

use crate::container;

/// Suffixes that announce a linear.
const SUFFIXES: &[&str] = &[".weight", ".weight_packed", ".weight.absmax", "_blocks", "_scale_inv"];

/// Larger matrices are read but not decoded: that would test patience, not parsing.
const WEIGHTS_MAX: usize = 1 << 20;

pub fn run(data: &[u8]) {
    read_file(data);
    // Most changes to a header change its length, and the first check would refuse the rest.
    read_file(&container::with_true_length(data));
}

fn read_file(data: &[u8]) {
    let name = format!("pagella-fuzz-floats-{}.safetensors", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, data).expect("the temporary folder is writable");
    if let Ok(checkpoint) = Checkpoint::open_file(&path) {
        // The file says nothing of a configuration; its length stands in for one.
        let side = data.len() % 3 + 1;
        let checkpoint = checkpoint.with_scale_groups((side > 1).then_some([side, 2 * side]));
        let of = |name: &str| {
            SUFFIXES.iter().find_map(|suffix| Some(name.strip_suffix(suffix)?.to_owned()))
        };
        let bases: BTreeSet<String> = checkpoint.names().filter_map(of).collect();
        bases.into_iter().for_each(|base| load(&checkpoint, base));
    }
    // The mapping is gone, so the file may change.
    let _ = std::fs::remove_file(&path);
}

/// Asks for the shapes that the tensors may have, so that the reader gets past its first checks.
fn load(checkpoint: &Checkpoint, base: String) {
    let names = [format!("{base}.weight"), format!("{base}.weight_packed"), base.clone()];
    let codes = names.iter().find_map(|name| checkpoint.tensor(name));
    let (outputs, inputs) = match codes.map(|codes| codes.shape.to_vec()).as_deref() {
        Some([outputs, inputs] | [_, outputs, inputs]) => (*outputs, *inputs),
        _ => (4, 64),
    };
    for (inputs, outputs) in [(inputs, outputs), (inputs.saturating_mul(2), outputs), (64, 2)] {
        for (slab, transposed) in [(None, false), (Some((1, 2)), false), (Some((0, 2)), true)] {
            let whole = 0..outputs;
            let fused = FusedPart {
                base: &base,
                total_out: outputs,
                rows: std::slice::from_ref(&whole),
                step: 1,
                slab,
            };
            decode(
                checkpoint,
                &LinearRequest {
                    bases: std::slice::from_ref(&base),
                    fused: slab.is_some().then_some(fused),
                    in_features: inputs,
                    out_features: outputs,
                    bias: BiasRule::IfPresent,
                    transposed,
                    gptq_zeros: GptqZeros::default(),
                },
            );
        }
    }
}

fn decode(checkpoint: &Checkpoint, request: &LinearRequest<'_>) {
    let Ok(linear) = load_linear(checkpoint, request) else { return };
    let (inputs, outputs) = (request.in_features, request.out_features);
    assert_eq!((linear.in_features(), linear.out_features()), (inputs, outputs));
    let _ = linear.details();
    if inputs.saturating_mul(outputs) > WEIGHTS_MAX {
        return;
    }
    if linear.check_values().is_ok() && linear.value_dtype().is_weight_float() {
        let values = linear.values();
        assert_eq!(values.len(), inputs * outputs);
        // Weights of other formats may be anything; what was checked is a number.
        let is_checked = matches!(linear, Linear::SmallFloat(_));
        assert!(!is_checked || values.iter().all(|value| value.is_finite()), "{}", linear.name());
    }
}

/// One file per format, one of all.
pub fn seeds() -> Vec<Vec<u8>> {
    let parts =
        [container::mxfp4_experts(), container::four_bits(), container::fp8(), container::nf4()];
    let mut files: Vec<Vec<u8>> = parts.iter().map(|part| container::file(part)).collect();
    files.push(container::file(&parts.concat()));
    files
}
