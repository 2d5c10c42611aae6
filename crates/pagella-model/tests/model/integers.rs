//! Models in every format of integer codes, put there by a recipe: logits against those of the plain
//! weights that the codes stand for, and configurations that contradict the tensors.

use std::path::Path;

use pagella_arch::{ModelSpec, SpecOptions, load_spec};
use pagella_backend::KvFormat;
use pagella_cpu::MathMode;
use pagella_formats::LinearKind;
use pagella_formats::safetensors::write::{TensorData, write_file};
use pagella_formats::synthetic::{IntegerFormat, IntegerMatrix, Rounding};
use pagella_model::{ModelError, Survey};
use serde_json::{Value, json};

use crate::cpu::cpu;
use crate::directory::{Tensor, all_logits_in, load, write_model};

/// Largest root mean square difference in logits from plain weights, relative to the logits.
const EXACT_RMS_MAX: f64 = 2e-5;
/// The same with 15-bit activations.
const WIDE_RMS_MAX: f64 = 2e-3;

/// A Llama whose MLP has an odd number of groups.
fn config() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "vocab_size": 160, "hidden_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
        "intermediate_size": 224, "rms_norm_eps": 1e-6, "max_position_embeddings": 512,
        "tie_word_embeddings": false,
    })
}

/// Weights of a matrix, `[rows, columns]`, of the size of trained ones; the same for the same seed.
fn weights(rows: usize, columns: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9).wrapping_add(1);
    let spread = 3f32.sqrt() / (rows as f32).sqrt();
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 8) as f32 / (1u32 << 23) as f32 - 1.0) * spread
    };
    (0..rows * columns).map(next).collect()
}

/// A plain matrix, `[out, in]` in its file.
fn plain(name: &str, rows: usize, columns: usize, values: &[f32]) -> Tensor {
    let at = |at: usize| values[at % rows * columns + at / rows];
    let turned: Vec<f32> = (0..values.len()).map(at).collect();
    Tensor::f32(&format!("{name}.weight"), &[columns, rows], &turned)
}

fn spec_of(dir: &Path) -> ModelSpec {
    load_spec(dir, &SpecOptions::default()).unwrap()
}

/// Writes the model to `dir`, its layers rounded if `how` says so, and to `twin` as plain weights of
/// the same values.
fn write(dir: &Path, twin: &Path, quantization: Value, how: Rounding) {
    let mut config = config();
    std::fs::write(dir.join("config.json"), config.to_string()).unwrap();
    let spec = spec_of(dir);
    let table = weights(128, 160, 7);
    let mut both = vec![Tensor::f32(&format!("{}.weight", spec.embed.name), &[160, 128], &table)];
    for (_, norm) in spec.norm_specs() {
        both.push(Tensor::filled(&format!("{}.weight", norm.bases[0]), &[norm.width], 1.0));
    }
    let mut plains = Vec::new();
    let mut rounded = Vec::new();
    for (seed, (label, linear)) in spec.linear_specs().enumerate() {
        let (rows, columns, base) = (linear.in_features, linear.out_features, &linear.bases[0]);
        let values = weights(rows, columns, seed as u32);
        if label == "head" {
            both.push(plain(base, rows, columns, &values));
            continue;
        }
        let whole = how.group_rows == 0;
        let group_rows = if whole { rows } else { how.group_rows };
        let matrix = IntegerMatrix::round(&values, rows, columns, Rounding { group_rows, ..how });
        plains.push(plain(base, rows, columns, &matrix.values()));
        rounded.extend(matrix.tensors(base).iter().map(|tensor| Tensor::of(&tensor.borrowed())));
    }
    write_model(twin, &config.to_string(), &[both.clone(), plains].concat());
    if !quantization.is_null() {
        config["quantization_config"] = quantization;
    }
    write_model(dir, &config.to_string(), &[both, rounded].concat());
}

fn ids() -> Vec<u32> {
    (0..40u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 20) % 160).collect()
}

/// Root mean square of the difference, relative to the values.
fn relative_rms(found: &[f32], wanted: &[f32]) -> f64 {
    assert_eq!(found.len(), wanted.len());
    let square =
        |values: &mut dyn Iterator<Item = f32>| values.map(|v| f64::from(v).powi(2)).sum::<f64>();
    let error = square(&mut found.iter().zip(wanted).map(|(a, b)| a - b));
    (error / square(&mut wanted.iter().copied())).sqrt()
}

/// A way to round; no rows mean one group.
fn how(format: IntegerFormat, bits: u8, group_rows: usize, symmetric: bool) -> Rounding {
    Rounding { format, bits, group_rows, symmetric, scattered: false }
}

fn gptq(bits: u8, checkpoint_format: &str) -> Value {
    json!({ "quant_method": "gptq", "bits": bits, "checkpoint_format": checkpoint_format })
}

fn compressed(bits: u8, format: &str) -> Value {
    let weights = json!({ "num_bits": bits, "type": "int" });
    json!({
        "quant_method": "compressed-tensors", "format": format,
        "config_groups": { "group_0": { "targets": ["Linear"], "weights": weights } },
    })
}

/// Every format with the configuration that its writers give it.
fn models() -> Vec<(LinearKind, Value, Rounding)> {
    use IntegerFormat::{Awq, BnbInt8, Gptq, GptqV2, IntQuantized, PackQuantized};
    let scattered = |how: Rounding| Rounding { scattered: true, ..how };
    let awq = || json!({ "quant_method": "awq", "bits": 4, "version": "gemm" });
    let bnb = json!({ "quant_method": "bitsandbytes", "load_in_8bit": true });
    let packed = |bits| compressed(bits, "pack-quantized");
    vec![
        (LinearKind::Awq, awq(), how(Awq, 4, 32, false)),
        (LinearKind::Awq, awq(), how(Awq, 4, 0, true)),
        (LinearKind::Gptq, gptq(2, "gptq"), how(Gptq, 2, 32, false)),
        (LinearKind::Gptq, gptq(3, "gptq"), scattered(how(Gptq, 3, 32, false))),
        (LinearKind::Gptq, gptq(3, "gptq_v2"), how(GptqV2, 3, 0, false)),
        (LinearKind::Gptq, gptq(8, "gptq_v2"), scattered(how(GptqV2, 8, 32, false))),
        (LinearKind::PackQuantized, packed(2), how(PackQuantized, 2, 32, true)),
        (LinearKind::PackQuantized, packed(4), scattered(how(PackQuantized, 4, 32, false))),
        (LinearKind::PackQuantized, packed(8), how(PackQuantized, 8, 0, true)),
        (LinearKind::IntQuantized, compressed(8, "int-quantized"), how(IntQuantized, 8, 0, false)),
        (LinearKind::BnbInt8, bnb, how(BnbInt8, 8, 0, true)),
    ]
}

#[test]
fn every_format_of_integers_gives_the_logits_of_its_plain_weights() {
    for (kind, quantization, how) in models() {
        let (dir, twin) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(dir.path(), twin.path(), quantization, how);
        let survey = Survey::of(dir.path(), &spec_of(dir.path())).unwrap();
        for facts in survey.linears.iter().filter(|facts| facts.kind == kind) {
            // GPTQ is read where it lies, but for its zero points.
            let made = if kind == LinearKind::Gptq { 0 } else { facts.params * 3 / 8 };
            assert!(facts.made_bytes >= made.min(facts.stored_bytes / 2), "{facts:?}");
        }
        let kinds = survey.linears.iter().map(|facts| facts.kind);
        assert_eq!(kinds.filter(|found| *found == kind).count(), 14, "{how:?}");
        assert!(survey.warnings.is_empty(), "{:?}", survey.warnings);
        let mut plain = load(twin.path(), cpu(MathMode::Exact, 2), 64).unwrap();
        let wanted = all_logits_in(KvFormat::F32, &mut plain, &ids(), 64);
        for (math, limit) in [(MathMode::Exact, EXACT_RMS_MAX), (MathMode::Wide, WIDE_RMS_MAX)] {
            let mut model = load(dir.path(), cpu(math, 2), 64).unwrap();
            let found = all_logits_in(KvFormat::F32, &mut model, &ids(), 64);
            let rms = relative_rms(&found, &wanted);
            println!("{how:?} {math:?}: {rms:.1e}");
            assert!(rms <= limit, "{how:?} {math:?}: {rms:e}");
        }
    }
}

/// What a survey says of rounded layers under a configuration.
fn surveyed(quantization: Value, how: Rounding) -> Result<Survey, ModelError> {
    let (dir, twin) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(dir.path(), twin.path(), quantization, how);
    Survey::of(dir.path(), &spec_of(dir.path()))
}

#[test]
fn a_configuration_that_contradicts_the_tensors_is_refused() {
    let awq = || json!({ "quant_method": "awq", "bits": 4 });
    for (quantization, how, words) in [
        (awq(), how(IntegerFormat::Gptq, 4, 32, false), ["stored as GPTQ", "says awq"]),
        (gptq(4, "gptq"), how(IntegerFormat::Awq, 4, 32, false), ["stored as AWQ", "says gptq"]),
        (
            compressed(4, "pack-quantized"),
            how(IntegerFormat::PackQuantized, 8, 32, true),
            ["of 8 bits", "compressed-tensors of 4 bits"],
        ),
        (
            json!({ "load_in_8bit": true }),
            how(IntegerFormat::IntQuantized, 8, 0, true),
            ["int-quantized", "says bitsandbytes"],
        ),
    ] {
        let error = surveyed(quantization, how).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        assert!(error.contains("model.layers.0."), "{error}");
    }
}

#[test]
fn a_configuration_of_a_format_that_is_nowhere_is_refused() {
    let (dir, twin) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(dir.path(), twin.path(), Value::Null, how(IntegerFormat::Awq, 4, 32, false));
    let mut plain = config();
    plain["quantization_config"] = gptq(4, "gptq");
    std::fs::write(twin.path().join("config.json"), plain.to_string()).unwrap();
    let error = Survey::of(twin.path(), &spec_of(twin.path())).unwrap_err().to_string();
    assert!(error.contains("says gptq, but no linear is stored so"), "{error}");
}

#[test]
fn gptq_that_nothing_describes_is_read_as_it_began_with_a_warning() {
    let survey = surveyed(Value::Null, how(IntegerFormat::Gptq, 4, 32, false)).unwrap();
    assert!(matches!(&survey.warnings[..], [warning] if warning.contains("gptq_v2")));
    let survey = surveyed(Value::Null, how(IntegerFormat::Awq, 4, 32, false)).unwrap();
    assert!(survey.warnings.is_empty(), "shapes tell AWQ: {:?}", survey.warnings);
}

#[test]
fn weights_of_an_impossible_size_are_a_warning() {
    let (dir, twin) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let how = how(IntegerFormat::IntQuantized, 8, 0, true);
    write(dir.path(), twin.path(), compressed(8, "int-quantized"), how);
    let path = dir.path().join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let checkpoint = pagella_formats::Checkpoint::open(dir.path(), &[]).unwrap();
    let scales = checkpoint.tensor("model.layers.0.self_attn.q_proj.weight_scale").unwrap();
    let at = bytes.windows(scales.data.len()).position(|window| window == scales.data).unwrap();
    for scale in bytes[at..at + scales.data.len()].as_chunks_mut::<4>().0 {
        *scale = (f32::from_le_bytes(*scale) * 1e6).to_le_bytes();
    }
    drop(checkpoint);
    std::fs::write(&path, bytes).unwrap();
    let survey = Survey::of(dir.path(), &spec_of(dir.path())).unwrap();
    assert!(
        matches!(&survey.warnings[..], [warning] if warning.contains("layers.0.self_attn.q_proj")),
        "{:?}",
        survey.warnings
    );
}

#[test]
fn a_file_of_its_own_may_say_how_weights_are_quantised() {
    for (file, block, how) in [
        (
            "quantize_config.json",
            json!({ "bits": 4, "checkpoint_format": "gptq_v2" }),
            how(IntegerFormat::GptqV2, 4, 32, false),
        ),
        (
            "quant_config.json",
            json!({ "zero_point": true, "q_group_size": 32, "w_bit": 4, "version": "GEMM" }),
            how(IntegerFormat::Awq, 4, 32, false),
        ),
    ] {
        let (dir, twin) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(dir.path(), twin.path(), Value::Null, how);
        std::fs::write(dir.path().join(file), block.to_string()).unwrap();
        let spec = spec_of(dir.path());
        assert_eq!(spec.quant.bits, Some(4.0), "{file}");
        let survey = Survey::of(dir.path(), &spec).unwrap();
        assert!(survey.warnings.is_empty(), "{:?}", survey.warnings);
        std::fs::write(dir.path().join(file), "{").unwrap();
        let error = load_spec(dir.path(), &SpecOptions::default()).unwrap_err().to_string();
        assert!(error.contains(file), "{error}");
    }
}

#[test]
fn a_file_of_modelopt_is_a_promise_like_any_other() {
    let (dir, twin) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(dir.path(), twin.path(), Value::Null, how(IntegerFormat::Awq, 4, 32, false));
    let survey = |algorithm: Value| {
        let block = json!({ "quantization": { "quant_algo": algorithm, "exclude_modules": [] } });
        std::fs::write(twin.path().join("hf_quant_config.json"), block.to_string()).unwrap();
        Survey::of(twin.path(), &spec_of(twin.path()))
    };
    let error = survey(json!("NVFP4")).unwrap_err().to_string();
    assert!(error.contains("says modelopt, but no linear is stored so"), "{error}");
    survey(Value::Null).unwrap();
}

#[test]
fn weights_that_are_there_in_two_formats_are_a_warning() {
    let (dir, twin) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let awq = json!({ "quant_method": "awq", "bits": 4, "version": "gemm" });
    write(dir.path(), twin.path(), awq, how(IntegerFormat::Awq, 4, 32, false));
    let wanted = all_logits_in(
        KvFormat::F32,
        &mut load(dir.path(), cpu(MathMode::Exact, 1), 64).unwrap(),
        &ids(),
        64,
    );
    let plain =
        |name: &str| Tensor::filled(&format!("model.layers.{name}_proj.weight"), &[128, 128], 0.5);
    let second = [plain("0.self_attn.q"), plain("1.self_attn.o")];
    let data: Vec<TensorData<'_>> = second
        .iter()
        .map(|tensor| TensorData {
            name: tensor.name.clone(),
            dtype: tensor.dtype,
            shape: tensor.shape.clone(),
            data: &tensor.data,
        })
        .collect();
    write_file(&dir.path().join("second.safetensors"), &data).unwrap();
    let survey = Survey::of(dir.path(), &spec_of(dir.path())).unwrap();
    assert_eq!(
        survey.warnings,
        [
            "`model.layers.0.self_attn.q_proj` and 1 more linear: stored as AWQ and as plain, of which \
          AWQ is used"
        ]
    );
    assert!(survey.unused.is_empty(), "{:?}", survey.unused);
    let mut model = load(dir.path(), cpu(MathMode::Exact, 1), 64).unwrap();
    let found = all_logits_in(KvFormat::F32, &mut model, &ids(), 64);
    assert_eq!(found, wanted, "the first format of the list wins");
}
