//! Whole models whose linears are small floats give the logits, bit for bit, of the same models with
//! plain weights of the same values. What those give is compared with transformers beside the families.
//!
//! Weights are those of the family cases, rounded here by a recipe, in the layouts of the writers. The
//! values of codes and scales are computed here from the definitions of the formats.

use std::collections::BTreeMap;

use pagella_arch::{SpecOptions, load_spec};
use pagella_cpu::MathMode;
use pagella_formats::{Dtype, OtherDtype};
use pagella_model::Survey;

use crate::cpu::cpu;
use crate::directory::Tensor;
use crate::families::{Case, case};

const U8: Dtype = Dtype::Other(OtherDtype::U8);
const E4M3: Dtype = Dtype::Other(OtherDtype::F8E4M3);

/// Positive values of E2M1, by code; the fourth bit is the sign.
const E2M1: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
/// The table of nf4, as bits of f32.
const NF4: [u32; 16] = [
    0xBF80_0000,
    0xBF32_39B1,
    0xBF06_6B30,
    0xBECA_32A0,
    0xBE91_A24D,
    0xBE3D_353F,
    0xBDBA_7871,
    0,
    0x3DA2_FAFF,
    0x3E24_CAE3,
    0x3E7C_04DD,
    0x3EAD_033A,
    0x3EE1_A4B8,
    0x3F10_07AB,
    0x3F39_13B3,
    0x3F80_0000,
];

/// Value of a positive E4M3 code.
fn e4m3(code: u8) -> f32 {
    let (power, digits) = (i32::from(code >> 3), f32::from(code & 7) / 8.0);
    if power == 0 { digits * 2f32.powi(-6) } else { (1.0 + digits) * 2f32.powi(power - 7) }
}

/// Place of the nearest of ascending values.
fn nearest(values: &[f32], x: f32) -> usize {
    let above = values.partition_point(|value| *value < x).min(values.len() - 1);
    let below = above.saturating_sub(1);
    if x - values[below] < values[above] - x { below } else { above }
}

/// The code of a signed value, of `bits`, and what it means.
fn signed(values: &[f32], bits: u32, x: f32) -> (u8, f32) {
    let code = nearest(values, x.abs());
    let value = if x.is_sign_negative() { -values[code] } else { values[code] };
    (code as u8 | u8::from(x.is_sign_negative()) << (bits - 1), value)
}

fn largest(values: impl Iterator<Item = f32>) -> f32 {
    values.fold(1e-6, |most, value| value.abs().max(most))
}

fn tensor(name: String, dtype: Dtype, shape: &[usize], data: Vec<u8>) -> Tensor {
    Tensor { name, dtype, shape: shape.to_vec(), data }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A matrix in a format: its tensors after the base name, and its values.
struct Stored {
    tensors: Vec<Tensor>,
    values: Vec<f32>,
}

/// Turns rows of weights into a format.
type Format = fn(base: &str, shape: [usize; 2], weights: &[f32]) -> Stored;

/// Two codes per byte, the first one low.
fn low_first(codes: &[u8]) -> Vec<u8> {
    codes.chunks(2).map(|pair| pair[0] | pair[1] << 4).collect()
}

/// FP8 in rectangles, with the scales that `round` leaves.
fn rectangles(
    shape: [usize; 2],
    side: [usize; 2],
    weights: &[f32],
    round: fn(f32) -> f32,
) -> (Vec<u8>, Vec<f32>, Vec<f32>) {
    let [n, k] = shape;
    let (down, across) = (n.div_ceil(side[0]), k.div_ceil(side[1]));
    let place = |at: usize| at / k / side[0] * across + at % k / side[1];
    let mut scales = vec![1e-6f32; down * across];
    for (at, weight) in weights.iter().enumerate() {
        scales[place(at)] = scales[place(at)].max(weight.abs() / 448.0);
    }
    let scales: Vec<f32> = scales.into_iter().map(round).collect();
    let table: Vec<f32> = (0..0x7F).map(e4m3).collect();
    let (mut codes, mut values) = (Vec::new(), Vec::new());
    for (at, weight) in weights.iter().enumerate() {
        let (code, value) = signed(&table, 8, weight / scales[place(at)]);
        codes.push(code);
        values.push(value * scales[place(at)]);
    }
    (codes, scales, values)
}

/// As DeepSeek V3 and Qwen3 are published, with smaller rectangles.
fn fp8_rectangles(base: &str, shape: [usize; 2], weights: &[f32]) -> Stored {
    let (codes, scales, values) = rectangles(shape, [32, 32], weights, |scale| scale);
    let grid = [shape[0].div_ceil(32), shape[1].div_ceil(32)];
    let tensors = vec![
        tensor(format!("{base}.weight"), E4M3, &shape, codes),
        tensor(format!("{base}.weight_scale_inv"), Dtype::F32, &grid, bytes(&scales)),
    ];
    Stored { tensors, values }
}

/// As compressed-tensors writes it, a bfloat16 scale per output.
fn fp8_outputs(base: &str, shape: [usize; 2], weights: &[f32]) -> Stored {
    let round = |scale: f32| f32::from_bits(((scale.to_bits() >> 16) + 1) << 16);
    let (codes, scales, values) = rectangles(shape, [1, usize::MAX], weights, round);
    let scales = scales.iter().flat_map(|scale| ((scale.to_bits() >> 16) as u16).to_le_bytes());
    let one = tensor(format!("{base}.input_scale"), Dtype::F32, &[1], bytes(&[0.125]));
    let tensors = vec![
        tensor(format!("{base}.weight"), E4M3, &shape, codes),
        tensor(format!("{base}.weight_scale"), Dtype::BF16, &[shape[0], 1], scales.collect()),
        one,
    ];
    Stored { tensors, values }
}

/// As Mistral writes it, one number.
fn fp8_matrix(base: &str, shape: [usize; 2], weights: &[f32]) -> Stored {
    let whole = [usize::MAX, usize::MAX];
    let (codes, scales, values) = rectangles(shape, whole, weights, |scale| scale);
    let tensors = vec![
        tensor(format!("{base}.weight"), E4M3, &shape, codes),
        tensor(format!("{base}.weight_scale_inv"), Dtype::F32, &[], bytes(&scales)),
        tensor(format!("{base}.activation_scale"), Dtype::F32, &[], bytes(&[0.5])),
    ];
    Stored { tensors, values }
}

/// MXFP4 codes and scales of rows.
fn mxfp4_codes(weights: &[f32]) -> (Vec<u8>, Vec<u8>, Vec<f32>) {
    let (mut codes, mut scales, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for group in weights.chunks(32) {
        let scale = 2f32.powi((largest(group.iter().copied()) / 6.0).log2().ceil() as i32);
        scales.push((scale.to_bits() >> 23) as u8);
        for weight in group {
            let (code, value) = signed(&E2M1, 4, weight / scale);
            codes.push(code);
            values.push(value * scale);
        }
    }
    (low_first(&codes), scales, values)
}

/// As compressed-tensors writes it.
fn mxfp4(base: &str, [n, k]: [usize; 2], weights: &[f32]) -> Stored {
    let (codes, scales, values) = mxfp4_codes(weights);
    let tensors = vec![
        tensor(format!("{base}.weight_packed"), U8, &[n, k / 2], codes),
        tensor(format!("{base}.weight_scale"), U8, &[n, k / 32], scales),
    ];
    Stored { tensors, values }
}

/// NVFP4 with a scale of the matrix that is `applied` to those of groups.
fn nvfp4_codes(
    weights: &[f32],
    factor: f32,
    applied: impl Fn(f32) -> f32,
) -> (Vec<u8>, Vec<u8>, Vec<f32>) {
    let table: Vec<f32> = (0..0x7F).map(e4m3).collect();
    let (mut codes, mut scales, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for group in weights.chunks(16) {
        let code = nearest(&table, largest(group.iter().copied()) / 6.0 / factor).max(1);
        scales.push(code as u8);
        let scale = applied(table[code]);
        for weight in group {
            let (code, value) = signed(&E2M1, 4, weight / scale);
            codes.push(code);
            values.push(value * scale);
        }
    }
    (low_first(&codes), scales, values)
}

fn nvfp4_compressed(base: &str, [n, k]: [usize; 2], weights: &[f32]) -> Stored {
    let global = 2688.0 / largest(weights.iter().copied());
    let (codes, scales, values) = nvfp4_codes(weights, 1.0 / global, |scale| scale / global);
    let number = |suffix: &str, value: f32| {
        tensor(format!("{base}.{suffix}"), Dtype::F32, &[1], bytes(&[value]))
    };
    let tensors = vec![
        tensor(format!("{base}.weight_packed"), U8, &[n, k / 2], codes),
        tensor(format!("{base}.weight_scale"), E4M3, &[n, k / 16], scales),
        number("weight_global_scale", global),
        number("input_global_scale", 7.0),
    ];
    Stored { tensors, values }
}

fn nvfp4_modelopt(base: &str, [n, k]: [usize; 2], weights: &[f32]) -> Stored {
    let scale_2 = largest(weights.iter().copied()) / 2688.0;
    let (codes, scales, values) = nvfp4_codes(weights, scale_2, |scale| scale * scale_2);
    let number = |suffix: &str, value: f32| {
        tensor(format!("{base}.{suffix}"), Dtype::F32, &[], bytes(&[value]))
    };
    let tensors = vec![
        tensor(format!("{base}.weight"), U8, &[n, k / 2], codes),
        tensor(format!("{base}.weight_scale"), E4M3, &[n, k / 16], scales),
        number("weight_scale_2", scale_2),
        number("input_scale", 0.25),
        number("k_scale", 0.25),
    ];
    Stored { tensors, values }
}

/// nf4 with double quantisation, as bitsandbytes writes it.
fn nf4(base: &str, [n, k]: [usize; 2], weights: &[f32]) -> Stored {
    let table = NF4.map(f32::from_bits);
    let absmax: Vec<f32> = weights.chunks(64).map(|run| largest(run.iter().copied())).collect();
    let offset = absmax.iter().sum::<f32>() / absmax.len() as f32;
    let map: Vec<f32> = (0..256).map(|i| (i as f32 - 127.5) / 127.5).collect();
    let (mut scale_codes, mut second, mut scales) = (Vec::new(), Vec::new(), Vec::new());
    for run in absmax.chunks(256) {
        let most = largest(run.iter().map(|scale| scale - offset));
        second.push(most);
        for scale in run {
            let code = nearest(&map, (scale - offset) / most);
            scale_codes.push(code as u8);
            scales.push(map[code] * most + offset);
        }
    }
    let (mut codes, mut values) = (Vec::new(), Vec::new());
    for (at, weight) in weights.iter().enumerate() {
        let code = nearest(&table, weight / scales[at / 64]);
        codes.push(code as u8);
        values.push(table[code] * scales[at / 64]);
    }
    let high_first: Vec<u8> = codes
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair.get(1).copied().unwrap_or_default())
        .collect();
    let state = format!(
        r#"{{"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [{n}, {k}],
            "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": {offset}}}"#
    );
    let of = |suffix: &str| format!("{base}.weight{suffix}");
    let tensors = vec![
        tensor(of(""), U8, &[high_first.len(), 1], high_first),
        tensor(of(".absmax"), U8, &[scale_codes.len()], scale_codes),
        tensor(of(".quant_map"), Dtype::F32, &[16], bytes(&table)),
        tensor(of(".nested_absmax"), Dtype::F32, &[second.len()], bytes(&second)),
        tensor(of(".nested_quant_map"), Dtype::F32, &[256], bytes(&map)),
        tensor(of(".quant_state.bitsandbytes__nf4"), U8, &[state.len()], state.into_bytes()),
    ];
    Stored { tensors, values }
}

/// The case with this `quantization_config`.
fn with_config(mut case: Case, quantization: &str) -> Case {
    let entry = format!("{{ \"quantization_config\": {quantization},");
    case.config = case.config.replacen('{', &entry, 1);
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.json"), &case.config).unwrap();
    let options = SpecOptions { context: Some(case.spec.context), ..SpecOptions::default() };
    case.spec = load_spec(dir.path(), &options).unwrap();
    case
}

/// Two models of the same values: tensors that `store` takes in its format, and plain.
fn both(name: &str, quantization: &str, store: impl Fn(&Tensor) -> Option<Stored>) -> [Case; 2] {
    let mut quantised = with_config(case(name), quantization);
    let mut plain = case(name);
    let before = std::mem::take(&mut quantised.tensors);
    let mut n_stored = 0;
    for tensor in before {
        match store(&tensor) {
            None => quantised.tensors.push(tensor),
            Some(stored) => {
                n_stored += 1;
                plain.replace(Tensor::f32(&tensor.name, &tensor.shape, &stored.values));
                quantised.tensors.extend(stored.tensors);
            }
        }
    }
    assert!(n_stored >= 4, "{name}: {n_stored}");
    [quantised, plain]
}

/// Every projection of the layers in one format.
fn projections(name: &str, quantization: &str, format: Format) -> [Case; 2] {
    both(name, quantization, |tensor| {
        let base = tensor.name.strip_suffix(".weight")?;
        let [n, k] = tensor.shape[..] else { return None };
        let is_projection = base.contains(".layers.") && base.contains("_proj");
        is_projection.then(|| format(base, [n, k], &tensor.to_f32()))
    })
}

/// Both give the same bits, and not those of the weights before they were rounded.
#[track_caller]
fn check([quantised, plain]: [Case; 2], format: &str) {
    let found = quantised.run(cpu(MathMode::Exact, 2));
    let wanted = plain.run(cpu(MathMode::Exact, 1));
    assert!(found.iter().all(|logit| logit.is_finite()), "{}", quantised.name);
    let worst = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(found == wanted, "{}: {worst}", quantised.name);
    assert!(quantised.difference(&found) > 1e-2, "{}: nothing was rounded", quantised.name);
    // The kernel of the faster arithmetic is the same one.
    let wide = quantised.run(cpu(MathMode::Wide, 1));
    let dir = tempfile::tempdir().unwrap();
    quantised.write(dir.path());
    let survey = Survey::of(dir.path(), &quantised.spec).unwrap();
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for linear in &survey.linears {
        *kinds.entry(linear.kind.name()).or_default() += 1;
    }
    assert!(kinds.keys().all(|kind| [format, "plain"].contains(kind)), "{kinds:?}");
    assert!(kinds[format] >= 8, "{kinds:?}");
    assert!(wide == found, "{}", quantised.name);
}

#[test]
fn gpt_oss_as_the_hub_has_it() {
    let config = r#"{"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn",
        "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}"#;
    for name in ["gptoss-window-yarn", "gptoss-clamp-bites-layer-types"] {
        let cases = both(name, config, |tensor| {
            let is_gate_up = tensor.name.ends_with("experts.gate_up_proj");
            if !is_gate_up && !tensor.name.ends_with("experts.down_proj") {
                return None;
            }
            // Plain ones are stored [expert, in, out].
            let [experts, inputs, outputs] = tensor.shape[..] else { panic!("{:?}", tensor.shape) };
            let turned = |values: &[f32], rows: usize, columns: usize| -> Vec<f32> {
                let matrices = values.chunks(rows * columns);
                matrices
                    .flat_map(|matrix| {
                        (0..columns * rows).map(move |at| matrix[at % rows * columns + at / rows])
                    })
                    .collect()
            };
            let rows = turned(&tensor.to_f32(), inputs, outputs);
            let (codes, scales, values) = mxfp4_codes(&rows);
            let groups = inputs / 32;
            let tensors = vec![
                self::tensor(
                    format!("{}_blocks", tensor.name),
                    U8,
                    &[experts, outputs, groups, 16],
                    codes,
                ),
                self::tensor(
                    format!("{}_scales", tensor.name),
                    U8,
                    &[experts, outputs, groups],
                    scales,
                ),
            ];
            Some(Stored { tensors, values: turned(&values, outputs, inputs) })
        });
        check(cases, "MXFP4");
    }
}

#[test]
fn deepseek_in_rectangles_that_are_cut_off() {
    // 53 × 56 and 245 × 33 in rectangles of 32 × 32; what unfolds latent vectors is taken apart.
    let config = r#"{"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
        "weight_block_size": [32, 32]}"#;
    check(projections("deepseekv3-odd-sizes-as-they-are", config, fp8_rectangles), "FP8");
    check(projections("qwen3moe-gqa", config, fp8_rectangles), "FP8");
    check(projections("qwen3-mqa-yarn", config, fp8_rectangles), "FP8");
}

#[test]
fn experts_of_8_bits_in_one_tensor() {
    let config = r#"{"quant_method": "fp8", "weight_block_size": [32, 48]}"#;
    let cases = both("qwen3vlmoe-gqa", config, |tensor| {
        if !tensor.name.contains(".experts.") {
            return projections_of_one(tensor);
        }
        let [experts, rows, columns] = tensor.shape[..] else { return None };
        let weights = tensor.to_f32();
        let (mut codes, mut scales, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for matrix in weights.chunks(rows * columns) {
            let (c, s, v) = rectangles([rows, columns], [32, 48], matrix, |scale| scale);
            codes.extend(c);
            scales.extend(s);
            values.extend(v);
        }
        let grid = [experts, rows.div_ceil(32), columns.div_ceil(48)];
        let tensors = vec![
            self::tensor(tensor.name.clone(), E4M3, &tensor.shape, codes),
            self::tensor(format!("{}_scale_inv", tensor.name), Dtype::F32, &grid, bytes(&scales)),
        ];
        Some(Stored { tensors, values })
    });
    check(cases, "FP8");
}

/// A projection beside experts that are stacked.
fn projections_of_one(tensor: &Tensor) -> Option<Stored> {
    let base = tensor.name.strip_suffix(".weight").filter(|base| base.contains("self_attn"))?;
    let [n, k] = tensor.shape[..] else { return None };
    base.ends_with("_proj").then(|| fp8_matrix(base, [n, k], &tensor.to_f32()))
}

#[test]
fn every_other_writer() {
    let compressed =
        r#"{"quant_method": "compressed-tensors", "quantization_status": "compressed"}"#;
    let modelopt = r#"{"quant_method": "modelopt", "quant_algo": "NVFP4"}"#;
    let bitsandbytes = r#"{"quant_method": "bitsandbytes", "load_in_4bit": true,
        "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": true}"#;
    let mistral =
        r#"{"quant_method": "fp8", "weight_block_size": null, "activation_scheme": "static"}"#;
    let formats: [(&str, Format, &str); 6] = [
        (compressed, fp8_outputs, "FP8"),
        (mistral, fp8_matrix, "FP8"),
        (compressed, mxfp4, "MXFP4"),
        (compressed, nvfp4_compressed, "NVFP4"),
        (modelopt, nvfp4_modelopt, "NVFP4"),
        (bitsandbytes, nf4, "bitsandbytes 4-bit"),
    ];
    for (config, format, name) in formats {
        check(projections("qwen3-mqa-yarn", config, format), name);
    }
    // 56 and 33 inputs: runs of 64 begin inside of rows and of bytes.
    check(projections("deepseekv3-odd-sizes-as-they-are", bitsandbytes, nf4), "bitsandbytes 4-bit");
}

#[test]
fn a_code_that_is_no_number_is_refused_before_anything_runs() {
    let config = r#"{"quant_method": "fp8", "weight_block_size": [32, 32]}"#;
    let [mut quantised, _] = projections("qwen3-mqa-yarn", config, fp8_rectangles);
    let name = "model.layers.1.mlp.up_proj.weight";
    let tensor = quantised.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap();
    tensor.data[1000] = 0xFF;
    let error = quantised.load(cpu(MathMode::Exact, 1)).map(drop).unwrap_err().to_string();
    assert!(
        error.contains("`model.layers.1.mlp.up_proj.weight` holds a NaN as code 1000"),
        "{error}"
    );
}
