//! One test per quirk of ExLlamaV2 that changes output, named after it: the case is right, and where
//! the quirk can be put into the spec, it would be noticed. Those of configs are in the tests of the
//! arch crate. A20 to A22 concern tensor parallelism, A8, A16, A24 to A26 images: there are none here.

use pagella_arch::{MlpSpec, ModelSpec, NormKind};
use pagella_backend::KvFormat;
use pagella_cpu::MathMode;
use pagella_formats::Linear;
use pagella_formats::synthetic::exl2;

use crate::cpu::cpu;
use crate::directory::{Tensor, all_logits_in, load_with};
use crate::families::{Case, case};

/// Largest difference of a case that is right.
const RIGHT: f32 = 1e-3;
/// Least difference of one that is not.
const WRONG: f32 = 1e-2;

fn difference(case: &Case) -> f32 {
    case.difference(&case.run(cpu(MathMode::Exact, 2)))
}

/// The case is right, and with `quirk` it is not.
fn check(name: &str, quirk: impl Fn(&mut ModelSpec)) {
    let mut case = case(name);
    let right = difference(&case);
    assert!(right <= RIGHT, "{name}: {right:.2e}");
    quirk(&mut case.spec);
    let wrong = difference(&case);
    assert!(wrong >= WRONG, "{name} with the quirk: {wrong:.2e}");
}

#[test]
fn square_experts_of_dbrx_are_transposed_by_family_not_by_shape() {
    check("dbrx-square-experts", |spec| {
        for layer in &mut spec.layers {
            if let MlpSpec::Moe(moe) = &mut layer.mlp {
                for [_, _, down] in &mut moe.experts {
                    down.transposed = false;
                }
            }
        }
    });
}

#[test]
fn windows_are_used() {
    for name in
        ["mistral-window", "mixtral-window-top3", "qwen2-window", "starcoder2-window-untied"]
    {
        check(name, |spec| spec.layers.iter_mut().for_each(|layer| layer.attn.window = None));
    }
}

#[test]
fn heads_of_qwen3_are_normed_by_rms() {
    for name in ["qwen3-gqa-tied", "qwen3moe-gqa"] {
        check(name, |spec| {
            for norm in spec.layers.iter_mut().filter_map(|layer| layer.attn.qk_norm.as_mut()) {
                (norm.q.kind, norm.k.kind) = (NormKind::Layer, NormKind::Layer);
            }
        });
    }
}

#[test]
fn global_layers_of_cohere2_do_not_rotate() {
    check("cohere2-pattern", |spec| {
        spec.layers.iter_mut().for_each(|layer| layer.attn.rope = Some(0));
    });
}

#[test]
fn dbrx_clamps_queries_keys_and_values() {
    check("dbrx-clip", |spec| spec.layers.iter_mut().for_each(|layer| layer.attn.clip_qkv = None));
}

#[test]
fn a_window_counts_the_query_itself() {
    for name in ["gemma2-gqa", "cohere2-layer-types"] {
        check(name, |spec| {
            for layer in &mut spec.layers {
                layer.attn.window = layer.attn.window.map(|window| window + 1);
            }
        });
    }
}

#[test]
fn windows_slide_with_every_query_of_a_chunk() {
    for name in ["mistral-window", "gemma2-gqa", "llama4-chunks"] {
        let case = case(name);
        let dir = tempfile::tempdir().unwrap();
        case.write(dir.path());
        let backend = cpu(MathMode::Exact, 2);
        let mut model = load_with(dir.path(), case.spec.clone(), backend, 64).unwrap();
        for chunk in [1, 3, 8, 40, 64] {
            let logits = all_logits_in(KvFormat::F32, &mut model, &case.input_ids, chunk);
            let difference = case.difference(&logits);
            assert!(difference <= RIGHT, "{name}, chunks of {chunk}: {difference:.2e}");
        }
    }
}

#[test]
fn a_prompt_never_sees_what_comes_after() {
    let mut case = case("llama-gqa");
    let whole = case.run(cpu(MathMode::Exact, 2));
    case.input_ids.truncate(30);
    let beginning = case.run(cpu(MathMode::Exact, 2));
    assert!(beginning[..] == whole[..beginning.len()]);
}

/// Rounding moves angles little at 64 positions, so what is right is asked to be nearer than usual.
#[test]
fn rotary_frequencies_of_qwen2_vl_are_not_rounded() {
    let mut case = case("qwen2vl-old-names");
    let right = difference(&case);
    for frequency in &mut case.spec.ropes[0].inv_freq {
        *frequency = half::f16::from_f32(*frequency).to_f32();
    }
    let wrong = difference(&case);
    assert!(right <= 1e-4 && wrong >= 10.0 * right, "{right:.2e}, rounded {wrong:.2e}");
}

#[test]
fn weights_of_experts_sum_to_one_only_where_the_config_says_so() {
    check("qwen3moe-dense-layers-window", |spec| {
        for layer in &mut spec.layers {
            if let MlpSpec::Moe(moe) = &mut layer.mlp {
                moe.renormalize = true;
            }
        }
    });
}

#[test]
fn every_row_gets_its_own_experts() {
    let case = case("qwen3moe-gqa");
    let dir = tempfile::tempdir().unwrap();
    case.write(dir.path());
    let mut model = load_with(dir.path(), case.spec.clone(), cpu(MathMode::Exact, 2), 64).unwrap();
    let alone = all_logits_in(KvFormat::F16, &mut model, &case.input_ids, 1);
    for rows in [2, 4, 64] {
        let together = all_logits_in(KvFormat::F16, &mut model, &case.input_ids, rows);
        assert!(together == alone, "{rows} rows");
    }
}

#[test]
fn biases_are_scaled_with_their_branch() {
    check("granite-biases-tied", |spec| {
        spec.layers.iter_mut().for_each(|layer| layer.branch_scale = 1.0);
    });
}

#[test]
fn yi_is_read_under_both_spellings_of_its_norms() {
    for name in ["yi-gqa", "yi-usual-names-tied"] {
        assert!(difference(&case(name)) <= RIGHT, "{name}");
    }
}

#[test]
fn gemma_3_without_images_is_known() {
    check("gemma3-gqa", |spec| spec.layers.iter_mut().for_each(|layer| layer.attn.rope = Some(0)));
}

#[test]
fn text_models_are_found_under_the_old_and_the_new_prefix() {
    for family in ["gemma3vl", "qwen2vl", "qwen25vl", "pixtral", "mistral3"] {
        let root = crate::directory::testdata().join("families");
        let names = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name());
        let names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        for prefix in ["old-names", "new-names"] {
            let start = format!("{family}-{prefix}");
            let name = names.iter().find(|name| name.starts_with(&start)).unwrap();
            assert!(difference(&case(name)) <= RIGHT, "{name}");
        }
    }
}

#[test]
fn gpt2_is_read_with_and_without_its_prefix() {
    for name in ["gpt2-mha", "gpt2-bare-narrow"] {
        assert!(difference(&case(name)) <= RIGHT, "{name}");
    }
}

#[test]
fn starcoder2_reads_both_names_of_its_epsilon() {
    for name in ["starcoder2-gqa", "starcoder2-old-eps-no-bias"] {
        assert!(difference(&case(name)) <= RIGHT, "{name}");
    }
}

#[test]
fn one_is_added_to_norm_weights_in_f32() {
    // Weights that 16 bits cannot hold once 1 is added: rounding would drop all of them.
    let mut case = case("gemma-gqa");
    let logits = |case: &Case| case.run(cpu(MathMode::Exact, 2));
    let is_norm = |tensor: &Tensor| tensor.name.ends_with("norm.weight");
    let fill = |case: &mut Case, value: f32| {
        for tensor in case.tensors.iter_mut().filter(|tensor| is_norm(tensor)) {
            *tensor = Tensor::filled(&tensor.name.clone(), &tensor.shape.clone(), value);
        }
    };
    fill(&mut case, 0.0);
    let plain = logits(&case);
    fill(&mut case, 2f32.powi(-12));
    let scaled = logits(&case);
    let moved = plain.iter().zip(&scaled).filter(|(a, b)| a != b).count();
    assert!(moved > plain.len() / 2, "{moved} of {} logits moved", plain.len());
}

/// ExLlamaV2 sorts the outputs of gate and up in the order in which down reads them, and leaves their
/// biases where they were.
#[test]
fn biases_of_an_mlp_stay_with_their_columns() {
    let mut quantised = case("llama-biases-tied");
    let mut plain = case("llama-biases-tied");
    let mut sorted = case("llama-biases-tied");
    for (label, linear) in quantised.spec.clone().linear_specs() {
        if !label.contains("mlp") {
            continue;
        }
        let (inputs, outputs) = (linear.in_features, linear.out_features);
        let made = exl2(inputs, outputs, &[(6, 0.4, 32), (4, 0.6, 64)], label.len() as u64);
        let Linear::Exl2(view) = made.view() else { panic!("made as EXL2") };
        let base = &linear.bases[0];
        let weight = format!("{base}.weight");
        quantised.tensors.retain(|tensor| tensor.name != weight);
        quantised.tensors.extend(made.named(base).iter().map(Tensor::of));
        let matrix = view.dequantize();
        let value = |at: usize| matrix[at % inputs * outputs + at / inputs].to_f32();
        let values: Vec<f32> = (0..inputs * outputs).map(value).collect();
        for case in [&mut plain, &mut sorted] {
            case.replace(Tensor::f32(&weight, &[outputs, inputs], &values));
        }
        if outputs == view.perm.len() && !label.contains("down") {
            let bias = sorted.tensor(&format!("{base}.bias")).to_f32();
            let moved: Vec<f32> = view.perm.iter().map(|&from| bias[from as usize]).collect();
            sorted.replace(Tensor::f32(&format!("{base}.bias"), &[outputs], &moved));
        }
    }
    let logits = |case: &Case| case.run(cpu(MathMode::Exact, 2));
    let furthest =
        |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let (found, wanted) = (logits(&quantised), logits(&plain));
    assert!(furthest(&found, &wanted) <= RIGHT, "{:.2e}", furthest(&found, &wanted));
    let wrong = furthest(&found, &logits(&sorted));
    assert!(wrong >= WRONG, "with the quirk: {wrong:.2e}");
}
