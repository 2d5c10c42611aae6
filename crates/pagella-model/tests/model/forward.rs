//! The pass itself: blocks that no family case has, taps, skipped work and refused plans.

use pagella_arch::{Activation, BlockOrder, LayerSpec, MlpSpec, NormKind};
use pagella_backend::{
    AdapterUse, KvFormat, LogitUse, NarrowAsk, NarrowRow, StepPlan, StepRow, conformance,
    narrow_plain,
};
use pagella_model::{Model, Tap};

use crate::directory::{Tensor, all_logits, load_with};
use crate::families::{Case, case};
use crate::reference::ReferenceBackend;

const IDS: [u32; 5] = [3, 1, 4, 1, 5];

fn model(case: &Case) -> Model<ReferenceBackend> {
    let dir = tempfile::tempdir().unwrap();
    case.write(dir.path());
    load_with(dir.path(), case.spec.clone(), ReferenceBackend, 16).unwrap()
}

/// Hidden states of [`IDS`] at the taps.
fn tapped(case: &Case, taps: &[Tap]) -> Vec<Vec<f32>> {
    let mut model = model(case);
    let mut kv = model.new_kv(KvFormat::F32, 256).unwrap();
    let row = StepRow::new(&IDS, 0, &[0], LogitUse::None);
    model.forward_tapped(&StepPlan::new(&[row]).unwrap(), &mut kv, taps).unwrap()
}

fn each_layer(case: &mut Case, change: impl Fn(&mut LayerSpec)) {
    case.spec.layers.iter_mut().for_each(change);
}

fn values(case: &Case, name: &str) -> Vec<f32> {
    let tensor = case.tensors.iter().find(|tensor| tensor.name == name).unwrap();
    tensor.data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn set(case: &mut Case, name: &str, change: impl Fn(f32) -> f32) {
    let changed: Vec<f32> = values(case, name).into_iter().map(change).collect();
    let tensor = case.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap();
    *tensor = Tensor::f32(name, &tensor.shape.clone(), &changed);
}

fn assert_close(got: &[f32], want: &[f32], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let worst = got.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst < 2e-5, "{what}: {worst:e}");
}

/// What the first layer adds to the residual.
fn first_branch(case: &Case) -> Vec<f32> {
    let states = tapped(case, &[Tap::Embedding, Tap::Layer(0)]);
    states[1].iter().zip(&states[0]).map(|(after, before)| after - before).collect()
}

#[test]
fn parallel_halves_read_the_same_input() {
    let silence = |half: &str, order: BlockOrder| {
        let mut case = case("llama-gqa");
        each_layer(&mut case, |layer| layer.order = order);
        if !half.is_empty() {
            set(&mut case, &format!("model.layers.0.{half}.weight"), |_| 0.0);
        }
        first_branch(&case)
    };
    let sum = |order| -> Vec<f32> {
        let (attn, mlp) = (silence("mlp.down_proj", order), silence("self_attn.o_proj", order));
        attn.iter().zip(&mlp).map(|(attn, mlp)| attn + mlp).collect()
    };
    // Side by side, with the MLP behind the norm of the attention.
    let mut parallel = case("llama-gqa");
    each_layer(&mut parallel, |layer| layer.order = BlockOrder::Parallel);
    assert_close(&first_branch(&parallel), &sum(BlockOrder::Parallel), "A(h) + M(h)");
    let sequential = silence("", BlockOrder::Sequential);
    let halves = sum(BlockOrder::Sequential);
    let apart = sequential.iter().zip(&halves).map(|(a, b)| (a - b).abs());
    assert!(apart.fold(0.0, f32::max) > 1e-2, "the case cannot tell the orders apart");
}

#[test]
fn branches_are_scaled() {
    let mut half = case("llama-gqa");
    set(&mut half, "model.layers.0.mlp.down_proj.weight", |_| 0.0);
    let whole = first_branch(&half);
    each_layer(&mut half, |layer| layer.branch_scale = 0.5);
    let halved: Vec<f32> = whole.iter().map(|value| value * 0.5).collect();
    assert_close(&first_branch(&half), &halved, "branch scale");
}

#[test]
fn a_plain_mlp_with_layer_norm_follows_the_formula() {
    let mut case = case("llama-gqa");
    set(&mut case, "model.layers.0.self_attn.o_proj.weight", |_| 0.0);
    let norm_name = "model.layers.0.post_attention_layernorm";
    case.tensors.push(Tensor::filled(&format!("{norm_name}.bias"), &[96], 0.125));
    let layer = &mut case.spec.layers[0];
    let MlpSpec::Gated { up, down, .. } = layer.mlp.clone() else { panic!("a gated case") };
    layer.mlp = MlpSpec::Plain { up, down, act: Activation::Relu2 };
    case.tensors.retain(|tensor| tensor.name != "model.layers.0.mlp.gate_proj.weight");
    let norm = layer.mlp_pre_norm.as_mut().unwrap();
    norm.kind = NormKind::Layer;
    let eps = f64::from(norm.eps);

    let weight = values(&case, &format!("{norm_name}.weight"));
    let up = values(&case, "model.layers.0.mlp.up_proj.weight");
    let down = values(&case, "model.layers.0.mlp.down_proj.weight");
    let embedding = values(&case, "model.embed_tokens.weight");
    let mut want = Vec::new();
    for id in IDS {
        let x: Vec<f64> =
            embedding[id as usize * 96..][..96].iter().map(|value| f64::from(*value)).collect();
        let mean = x.iter().sum::<f64>() / 96.0;
        let variance = x.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 96.0;
        let normed = x.iter().zip(&weight).map(|(value, weight)| {
            (value - mean) / (variance + eps).sqrt() * f64::from(*weight) + 0.125
        });
        let normed: Vec<f64> = normed.collect();
        let apply = |rows: &[f32], x: &[f64]| -> Vec<f64> {
            rows.chunks_exact(x.len())
                .map(|row| row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum())
                .collect()
        };
        let inner: Vec<f64> = apply(&up, &normed).iter().map(|u| u.max(0.0).powi(2)).collect();
        want.extend(apply(&down, &inner).into_iter().map(|value| value as f32));
    }
    assert_close(&first_branch(&case), &want, "down(relu²(up(norm x)))");
}

#[test]
fn learned_positions_are_added_after_scaling() {
    let mut case = case("llama-gqa");
    case.spec.embed.scale = 2.0;
    case.spec.embed.positions = Some("model.embed_positions".to_owned());
    let positions: Vec<f32> = (0..512 * 96).map(|i| i as f32 / 1024.0).collect();
    case.tensors.push(Tensor::f32("model.embed_positions.weight", &[512, 96], &positions));
    let embedding = values(&case, "model.embed_tokens.weight");
    let want: Vec<f32> = IDS
        .iter()
        .enumerate()
        .flat_map(|(p, id)| (0..96).map(move |i| (p * 96 + i, *id as usize * 96 + i)))
        .map(|(position, token)| 2.0 * embedding[token] + positions[position])
        .collect();
    assert_eq!(tapped(&case, &[Tap::Embedding])[0], want);
}

#[test]
fn expanded_qk_norm_weights_mean_the_same() {
    let plain = case("qwen3-gqa-tied");
    let mut expanded = case("qwen3-gqa-tied");
    let (heads, kv_heads, d) = {
        let attn = &plain.spec.layers[0].attn;
        (attn.heads, attn.kv_heads, attn.head_dim)
    };
    for tensor in &mut expanded.tensors {
        let heads = match () {
            () if tensor.name.ends_with("q_norm.weight") => heads,
            () if tensor.name.ends_with("k_norm.weight") => kv_heads,
            () => continue,
        };
        tensor.data = tensor.data.repeat(heads);
        tensor.shape = vec![heads, d];
    }
    let logits = |case: &Case| all_logits(&mut model(case), &IDS, 16);
    assert_eq!(logits(&expanded), logits(&plain));
    // Heads really have weights of their own: doubling the last head's must change the result.
    let name = "model.layers.0.self_attn.q_norm.weight";
    let tensor = expanded.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap();
    let (shape, mut changed) = (tensor.shape.clone(), Vec::new());
    changed.extend(tensor.data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)));
    changed[(heads - 1) * d..].iter_mut().for_each(|value| *value *= 2.0);
    *tensor = Tensor::f32(name, &shape, &changed);
    assert_ne!(logits(&expanded), logits(&plain));
}

#[test]
fn fused_tensors_may_come_in_split_form() {
    let fused = case("phi3-mha");
    let mut split = case("phi3-mha");
    split.tensors.clear();
    for tensor in &fused.tensors {
        let part = |name: &str, rows: std::ops::Range<usize>| {
            let row = tensor.data.len() / tensor.shape[0];
            Tensor {
                name: tensor.name.replace("qkv_proj", name).replace("gate_up_proj", name),
                dtype: tensor.dtype,
                shape: vec![rows.len(), tensor.shape[1]],
                data: tensor.data[rows.start * row..rows.end * row].to_vec(),
            }
        };
        let outputs = tensor.shape[0];
        if tensor.name.contains("qkv_proj") {
            let attn = &fused.spec.layers[0].attn;
            let (q, kv) = (attn.heads * attn.head_dim, attn.kv_heads * attn.head_dim);
            split.tensors.push(part("q_proj", 0..q));
            split.tensors.push(part("k_proj", q..q + kv));
            split.tensors.push(part("v_proj", q + kv..outputs));
        } else if tensor.name.contains("gate_up_proj") {
            split.tensors.push(part("gate_proj", 0..outputs / 2));
            split.tensors.push(part("up_proj", outputs / 2..outputs));
        } else {
            split.tensors.push(tensor.clone());
        }
    }
    assert!(split.tensors.len() > fused.tensors.len());
    let logits = |case: &Case| all_logits(&mut model(case), &IDS, 16);
    assert_eq!(logits(&split), logits(&fused));
}

#[test]
fn head_rows_are_normalised_when_the_spec_says_so() {
    let mut case = case("llama-gqa");
    let name = "lm_head.weight";
    let rows = values(&case, name);
    let plain = all_logits(&mut model(&case), &IDS, 16);
    case.spec.head.normalize_rows = true;
    let normalised = all_logits(&mut model(&case), &IDS, 16);
    for (i, (got, was)) in normalised.iter().zip(&plain).enumerate() {
        let row = &rows[i % 160 * 96..][..96];
        let norm = row.iter().map(|w| f64::from(*w).powi(2)).sum::<f64>().sqrt() as f32;
        assert!((got - was / norm).abs() < 1e-5, "logit {i}: {got} for {was} / {norm}");
    }
}

#[test]
fn the_final_norm_tap_is_the_input_of_the_head() {
    let case = case("llama-gqa");
    let states = tapped(&case, &[Tap::FinalNorm, Tap::Layer(2)]);
    let logits = all_logits(&mut model(&case), &IDS, 16);
    let head = values(&case, "lm_head.weight");
    let want = states[0].chunks_exact(96).flat_map(|state| {
        head.chunks_exact(96).map(move |row| row.iter().zip(state).map(|(w, x)| w * x).sum::<f32>())
    });
    assert_close(&logits, &want.collect::<Vec<f32>>(), "head of the tapped state");
    assert_ne!(states[0], states[1]);
}

#[test]
fn a_prompt_fed_without_logits_leaves_the_same_cache() {
    for name in ["llama-gqa", "gemma2-gqa"] {
        let case = case(name);
        let mut model = model(&case);
        let want = all_logits(&mut model, &IDS, 16);
        let mut kv = model.new_kv(KvFormat::F32, 256).unwrap();
        let (prompt, last) = IDS.split_at(4);
        let step = |ids, past, logits_last| {
            StepPlan::new(&[StepRow::new(ids, past, &[0], LogitUse::last(logits_last))]).unwrap()
        };
        let mut logits = vec![1.0];
        model.forward(&step(prompt, 0, 0), &mut kv).unwrap();
        model.read_logits(&mut logits).unwrap();
        assert!(logits.is_empty(), "no logits were asked for");
        model.forward(&step(last, 4, 1), &mut kv).unwrap();
        model.read_logits(&mut logits).unwrap();
        assert_eq!(logits, want[4 * case.spec.vocab..], "{name}");
    }
}

#[test]
fn rows_can_be_read_and_narrowed_one_by_one() {
    let case = case("llama-gqa");
    let (mut model, vocab) = (model(&case), case.spec.vocab);
    let mut kv = model.new_kv(KvFormat::F32, 256).unwrap();
    let row = StepRow::new(&IDS, 0, &[0], LogitUse::last(3));
    model.forward(&StepPlan::new(&[row]).unwrap(), &mut kv).unwrap();
    let mut logits = Vec::new();
    model.read_logits(&mut logits).unwrap();
    let (mut row, mut found) = (Vec::new(), Vec::new());
    for (idx, expected) in logits.chunks_exact(vocab).enumerate() {
        model.read_logit_row(idx, &mut row).unwrap();
        assert_eq!(row, expected);
        let ask =
            NarrowAsk { row: idx, vocab, mask: None, apart: &[1, 4], top: 20, scale: Some(1.0) };
        model.narrow_logits(&[ask], &mut found).unwrap();
        let mut plain = NarrowRow::default();
        narrow_plain(expected, &ask, &mut plain);
        assert_eq!(found, [plain]);
    }
    // The tensor has room for more rows than the step computed.
    let past = NarrowAsk { row: 3, vocab, mask: None, apart: &[], top: 1, scale: None };
    assert_eq!(model.narrow_logits(&[past], &mut found).unwrap_err().code(), "backend");
    assert_eq!(model.read_logit_row(3, &mut row).unwrap_err().code(), "backend");
}

#[test]
fn the_cases_of_narrowing_agree_with_the_plain_way() {
    let cases = conformance::cases::<ReferenceBackend>().into_iter();
    // Reading a row that is not there is a panic in this backend.
    let narrowing =
        cases.filter(|case| case.name.starts_with("narrow/") && case.name != "narrow/read_row");
    let failed: Vec<String> = narrowing
        .filter_map(|case| (case.run)(&ReferenceBackend, &conformance::Tolerances::SINGLE).err())
        .collect();
    assert_eq!(failed, [""; 0]);
}

#[test]
fn plans_that_cannot_be_run_are_refused() {
    let mut model = model(&case("llama-gqa"));
    let mut kv = model.new_kv(KvFormat::F16, 1024).unwrap();
    let code = |model: &mut Model<_>, kv: &mut _, ids: &[u32], past, taps: &[Tap]| {
        let row = StepRow::new(ids, past, &[0, 1, 2, 3], LogitUse::Choice);
        let plan = StepPlan::new(&[row]).unwrap();
        let error = model.forward_tapped(&plan, kv, taps).unwrap_err();
        let mut logits = vec![1.0];
        model.read_logits(&mut logits).unwrap();
        assert!(logits.is_empty(), "a refused step has no logits");
        error.code()
    };
    assert_eq!(code(&mut model, &mut kv, &[1; 17], 0, &[]), "step_too_large");
    assert_eq!(code(&mut model, &mut kv, &[0, 160], 0, &[]), "token_out_of_range");
    assert_eq!(code(&mut model, &mut kv, &[1, 2], 511, &[]), "context_exceeded");
    assert_eq!(code(&mut model, &mut kv, &[1], 0, &[Tap::Layer(3)]), "no_such_layer");
    let row = StepRow::new(&[159; 16], 496, &[0, 1], LogitUse::last(16));
    model.forward(&StepPlan::new(&[row]).unwrap(), &mut kv).expect("the largest step that fits");
}

#[test]
fn what_a_backend_cannot_do_with_a_row_is_refused_by_name() {
    let mut model = model(&case("llama-gqa"));
    let mut kv = model.new_kv(KvFormat::F16, 256).unwrap();
    let plain = StepRow::new(&[1, 2], 0, &[0], LogitUse::Choice);
    for (row, what) in [
        (StepRow { positions: Some(&[4, 6]), ..plain }, "explicit positions"),
        (StepRow { adapters: &[AdapterUse { slot: 0, scale: 1.0 }], ..plain }, "adapters"),
        (StepRow { embeddings: Some(&[0.5; 192]), ..plain }, "embeddings in the place of ids"),
    ] {
        let error = model.forward(&StepPlan::new(&[row]).unwrap(), &mut kv).unwrap_err();
        let said = format!("the reference backend cannot do {what}: leave them out");
        assert_eq!(error.to_string(), said);
    }
    model.forward(&StepPlan::new(&[plain]).unwrap(), &mut kv).unwrap();
}

#[test]
fn weights_that_are_not_finite_are_found_when_loading() {
    for (name, place) in [
        ("model.embed_tokens.weight", "in the embedding"),
        ("model.layers.1.mlp.down_proj.weight", "after layer 1"),
        ("lm_head.weight", "in the final norm or the head"),
    ] {
        let mut case = case("llama-gqa");
        set(&mut case, name, |value| value * f32::INFINITY);
        let dir = tempfile::tempdir().unwrap();
        case.write(dir.path());
        let backend = ReferenceBackend;
        let error = load_with(dir.path(), case.spec, backend, 16).map(drop).unwrap_err();
        assert_eq!(error.code(), "not_finite");
        assert!(error.to_string().contains(place), "{error}");
    }
}

#[test]
fn layers_of_different_width_get_buffers_of_their_own() {
    let mut case = case("llama-gqa");
    let MlpSpec::Gated { gate, up, down, .. } = &mut case.spec.layers[1].mlp else {
        panic!("a gated case");
    };
    (gate.out_features, up.out_features, down.in_features) = (64, 64, 64);
    for part in ["gate_proj", "up_proj", "down_proj"] {
        let name = format!("model.layers.1.mlp.{part}.weight");
        let shape = if part == "down_proj" { [96, 64] } else { [64, 96] };
        let cut = values(&case, &name)[..64 * 96].to_vec();
        let tensor = case.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap();
        *tensor = Tensor::f32(&name, &shape, &cut);
    }
    let mut model = model(&case);
    assert!(all_logits(&mut model, &IDS, 16).iter().all(|logit| logit.is_finite()));
}
