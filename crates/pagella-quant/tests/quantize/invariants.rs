//! What writers of EXL2 guarantee and kernels rely on, checked on the tensors of written files, without
//! the reader that everything else uses.

use std::path::Path;

use half::f16;
use pagella_formats::{Checkpoint, Dtype, OtherDtype, TensorView};
use serde_json::Value;

use crate::families::spec;
use crate::source::{options, run, write_source, write_source_of_vocab};

/// Bit widths of the format, widest first.
const WIDTHS: [i16; 6] = [8, 6, 5, 4, 3, 2];

/// Suffixes of the tensors of a linear.
const SUFFIXES: [&str; 5] = ["q_weight", "q_scale", "q_scale_max", "q_groups", "q_invperm"];

/// The tensors of one linear as they lie in the file.
struct Raw {
    words: Vec<u32>,
    word_rows: usize,
    columns: usize,
    scales: Vec<u32>,
    ceilings: Vec<f16>,
    /// `(bits, first word row)` of every group.
    groups: Vec<(i16, i16)>,
    order: Vec<i32>,
    /// Of all its tensors.
    bytes: u64,
}

impl Raw {
    fn read(file: &Checkpoint, base: &str) -> Self {
        let of = |suffix: &str, dtype: Dtype| -> TensorView<'_> {
            let tensor = file.tensor(&format!("{base}.{suffix}")).unwrap();
            assert_eq!(tensor.dtype, dtype, "{base}.{suffix}");
            tensor
        };
        let (words, scales) = (of("q_weight", Dtype::I32), of("q_scale", Dtype::I32));
        let (ceilings, groups) = (of("q_scale_max", Dtype::F16), of("q_groups", Dtype::I16));
        let order = of("q_invperm", Dtype::I32);
        let &[word_rows, columns] = words.shape else { panic!("{base}: {:?}", words.shape) };
        let n_groups = ceilings.shape[0];
        assert_eq!(scales.shape, [n_groups, columns / 8], "{base}");
        assert_eq!(
            (ceilings.shape, groups.shape),
            (&[n_groups][..], &[2 * n_groups][..]),
            "{base}"
        );
        assert_eq!(order.shape.len(), 1, "{base}");
        let n_bytes = [&words, &scales, &ceilings, &groups, &order].map(|t| t.data.len() as u64);
        let u32s = |tensor: &TensorView<'_>| {
            tensor.data.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect()
        };
        let table = groups.data.as_chunks::<4>().0.iter();
        let ceilings = ceilings.data.as_chunks::<2>().0.iter();
        let order = order.data.as_chunks::<4>().0.iter();
        Self {
            words: u32s(&words),
            word_rows,
            columns,
            scales: u32s(&scales),
            ceilings: ceilings.map(|b| f16::from_le_bytes(*b)).collect(),
            groups: table
                .map(|[a, b, c, d]| (i16::from_le_bytes([*a, *b]), i16::from_le_bytes([*c, *d])))
                .collect(),
            order: order.map(|b| i32::from_le_bytes(*b)).collect(),
            bytes: n_bytes.iter().sum(),
        }
    }

    /// Rows of every group, checked.
    fn group_rows(&self, base: &str) -> Vec<usize> {
        let starts = self.groups.iter().map(|(_, start)| usize::try_from(*start).unwrap());
        let ends = starts.clone().skip(1).chain([self.word_rows]);
        let mut rows = Vec::new();
        for ((begin, end), (bits, _)) in starts.zip(ends).zip(&self.groups) {
            assert!(begin < end && WIDTHS.contains(bits), "{base}: {:?}", self.groups);
            assert!(((end - begin) * 32).is_multiple_of(*bits as usize), "{base}");
            rows.push((end - begin) * 32 / *bits as usize);
        }
        assert_eq!(self.groups[0].1, 0, "{base}");
        rows
    }

    /// The code of a packed row, by the rule of the format and nothing else.
    fn code(&self, group: usize, row: usize, column: usize) -> u32 {
        let (bits, start) = (self.groups[group].0 as usize, self.groups[group].1 as usize);
        let (word, shift) = (start + row * bits / 32, row * bits % 32);
        let low = self.words[word * self.columns + column] >> shift;
        let high = match shift + bits > 32 {
            true => self.words[(word + 1) * self.columns + column] << (32 - shift),
            false => 0,
        };
        (low | high) & ((1 << bits) - 1)
    }

    fn check(&self, base: &str, inputs: usize, outputs: usize) {
        let rows = self.group_rows(base);
        let widths: Vec<i16> = self.groups.iter().map(|(bits, _)| *bits).collect();
        assert!(widths.is_sorted_by(|a, b| a >= b), "{base}: {widths:?}");
        assert!(rows.iter().all(|rows| rows.is_multiple_of(32)), "{base}: {rows:?}");
        assert_eq!(rows.iter().sum::<usize>(), inputs, "{base}");
        // Only the last group may be cut short.
        let (last, whole) = rows.split_last().unwrap();
        assert!(whole.iter().all(|rows| [32, 64, 128].contains(rows)), "{base}: {rows:?}");
        assert!(*last <= 128, "{base}: {rows:?}");
        let mut order = self.order.clone();
        order.sort_unstable();
        assert!(order.iter().enumerate().all(|(at, row)| at as i32 == *row), "{base}");
        assert!(inputs <= 1 << 16, "{base}");
        assert!(self.ceilings.iter().all(|c| c.is_finite() && c.is_sign_positive()), "{base}");
        assert_eq!(self.columns, outputs.next_multiple_of(32), "{base}");
        assert_eq!(self.scales.len(), self.groups.len() * self.columns / 8, "{base}");
        for column in outputs..self.columns {
            for (group, rows) in rows.iter().enumerate() {
                let zero = 1 << (widths[group] - 1);
                let is_zero = (0..*rows).all(|row| self.code(group, row, column) == zero);
                assert!(is_zero, "{base}: padding column {column}");
            }
        }
    }
}

/// The header's metadata of a file, which ExLlamaV2 does not write.
fn metadata(path: &Path) -> Option<Value> {
    let bytes = std::fs::read(path).unwrap();
    let header_bytes = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + header_bytes]).unwrap();
    header.get("__metadata__").cloned()
}

fn checked(source: &Path, target: &Path, rate: f64) -> Checkpoint {
    let outcome = run(&options(source, target, &[rate])).unwrap();
    let file = Checkpoint::open(target, &[]).unwrap();
    let spec = spec(target);
    let quantized = |base: &str| file.contains(&format!("{base}.q_weight"));
    let (mut bytes, mut n_linears) = (0, 0);
    let mut seen: Vec<&str> = Vec::new();
    for (label, linear) in spec.linear_specs() {
        let base = &linear.bases[0];
        if seen.contains(&base.as_str()) {
            continue;
        }
        seen.push(base);
        if !quantized(base) {
            let plain = file.tensor(&format!("{base}.weight")).unwrap();
            assert_eq!(plain.dtype, Dtype::F16, "{label}");
            continue;
        }
        assert!(!file.contains(&format!("{base}.weight")), "{label} is there twice");
        let raw = Raw::read(&file, base);
        raw.check(base, linear.in_features, linear.out_features);
        bytes += raw.bytes;
        n_linears += 1;
        if let Some(bias) = file.tensor(&format!("{base}.bias")) {
            assert_eq!(
                (bias.dtype, bias.shape),
                (Dtype::F16, &[linear.out_features][..]),
                "{base}"
            );
            // The budget counts padding.
            bytes += 2 * linear.out_features.next_multiple_of(32) as u64;
        }
    }
    assert!(n_linears > 0);
    // What the budget counts is what lies in the file, to the bit.
    assert_eq!(outcome.models[0].total_bits, 8 * bytes);
    check_names(&file, n_linears);
    check_config(target, rate);
    file
}

/// Nothing but whole linears, binary16, and what stays as it was.
fn check_names(file: &Checkpoint, n_linears: usize) {
    let of = |suffix: &str| file.names().filter(|n| n.ends_with(&format!(".{suffix}"))).count();
    assert!(SUFFIXES.iter().all(|suffix| of(suffix) == n_linears));
    for name in file.names() {
        let tensor = file.tensor(name).unwrap();
        let is_part = SUFFIXES.iter().any(|suffix| name.ends_with(&format!(".{suffix}")));
        assert!(is_part || !matches!(tensor.dtype, Dtype::Other(OtherDtype::I64)), "{name}");
        assert!(!name.ends_with("q_perm") && !name.ends_with("q_group_map"), "{name}");
        if tensor.dtype == Dtype::F16 {
            let mut values = tensor.data.as_chunks::<2>().0.iter().map(|b| f16::from_le_bytes(*b));
            assert!(values.all(f16::is_finite), "{name}");
        }
    }
}

fn check_config(target: &Path, rate: f64) {
    assert_eq!(metadata(&target.join("output.safetensors")), None);
    let config = std::fs::read_to_string(target.join("config.json")).unwrap();
    assert!(config.starts_with("{\n    \""), "an indent of four");
    let config: Value = serde_json::from_str(&config).unwrap();
    let block = config["quantization_config"].as_object().unwrap();
    let keys: Vec<&str> = block.keys().map(String::as_str).collect();
    assert_eq!(keys, ["quant_method", "version", "bits", "head_bits", "calibration"]);
    assert_eq!(block["bits"].as_f64(), Some(rate));
    assert_eq!(block["calibration"]["dataset"], "(default)");
}

#[test]
fn files_hold_what_writers_guarantee_at_every_rate() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    write_source("llama-gqa", &source);
    for rate in [2.5, 3.3, 6.0, 8.0] {
        checked(&source, &dir.path().join(format!("{rate}")), rate);
    }
}

#[test]
fn columns_that_fill_up_an_odd_vocabulary_are_zero() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    write_source_of_vocab("llama-gqa", &source, Some(141));
    let file = checked(&source, &target, 4.0);
    assert_eq!(file.tensor("lm_head.q_weight").unwrap().shape[1], 160);
}

#[test]
fn biases_experts_and_vectors_keep_their_form() {
    let dir = tempfile::tempdir().unwrap();
    for case in ["qwen2-window", "gptoss-window-yarn", "mixtral-gqa", "phi3-mha", "gpt2-mha"] {
        let (source, target) = (dir.path().join(case), dir.path().join(format!("{case}-q")));
        write_source(case, &source);
        checked(&source, &target, 4.0);
    }
}

#[test]
fn norms_that_add_one_lie_where_adding_one_is_exact() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    write_source("gemma2-gqa", &source);
    let file = checked(&source, &target, 4.0);
    let norm = file.tensor("model.layers.0.input_layernorm.weight").unwrap();
    for bytes in norm.data.as_chunks::<2>().0 {
        let stored = f16::from_le_bytes(*bytes).to_f32();
        assert_eq!(f16::from_f32(1.0 + stored).to_f32() - 1.0, stored);
    }
}
