//! What is written reads back bit for bit; errors are those of outputs.

use pagella_formats::safetensors::write::write_file;
use pagella_formats::{BiasRule, Checkpoint, GptqZeros, Linear, LinearRequest, load_linear};

use super::*;
use crate::factor::FactorOptions;
use crate::hessian::HessianSum;
use crate::params::{LinearParams, WidthShare};
use crate::random::Random;

fn hessian(inputs: usize, random: &mut Random) -> Hessian {
    let mut sum = HessianSum::new(inputs);
    sum.add(&random.normal(2 * inputs * inputs));
    sum.finish("x").unwrap()
}

fn params(widths: &[(f64, u8, usize)]) -> LinearParams {
    let width = |(share, bits, group_rows)| WidthShare { bits, share, group_rows };
    LinearParams::new(widths.iter().copied().map(width).collect()).unwrap()
}

/// Writes a linear, reads it back with the strict reader, and compares every bit.
fn assert_read_back(quantized: &QuantizedLinear, inputs: usize, outputs: usize, cost_bits: u64) {
    let dir = tempfile::tempdir().unwrap();
    let tensors = quantized.tensors().unwrap();
    let named = tensors.named("w");
    let bytes: usize = named.iter().map(|tensor| tensor.data.len()).sum();
    assert_eq!(bytes as u64 * 8, cost_bits);
    write_file(&dir.path().join("output.safetensors"), &named).unwrap();
    let checkpoint = Checkpoint::open(dir.path(), &[]).unwrap();
    let request = LinearRequest {
        bases: &["w".to_owned()],
        fused: None,
        in_features: inputs,
        out_features: outputs,
        bias: BiasRule::IfPresent,
        transposed: false,
        gptq_zeros: GptqZeros::LessOne,
    };
    let Linear::Exl2(read) = load_linear(&checkpoint, &request).unwrap() else {
        panic!("not read as EXL2")
    };
    let decoded = quantized.dequantized();
    assert_eq!((decoded.inputs(), decoded.outputs()), (inputs, outputs));
    let columns = decoded.columns();
    for (at, read) in read.dequantize().iter().enumerate() {
        let ours = decoded.values()[at / outputs * columns + at % outputs];
        assert_eq!(read.to_f32().to_bits(), ours.to_bits(), "{at}");
    }
    let padding = decoded.values().chunks_exact(columns).flat_map(|row| &row[outputs..]);
    assert!(padding.map(|value| value.to_bits()).all(|bits| bits == 0));
}

#[test]
fn what_is_written_reads_back_bit_for_bit() {
    let mut random = Random::new(1);
    for (inputs, outputs, widths) in [
        (96, 70, vec![(0.3, 8, 32), (0.3, 5, 32), (0.4, 3, 32)]),
        (160, 32, vec![(0.1, 6, 32), (0.5, 4, 64), (0.4, 2, 128)]),
        (224, 33, vec![(1.0, 4, 128)]),
        (32, 1, vec![(1.0, 2, 64)]),
    ] {
        let values: Vec<f32> = random.normal(inputs * outputs).iter().map(|x| x * 0.02).collect();
        let weights = WeightMatrix::new("w", inputs, outputs, &values).unwrap();
        let factor = Factor::new(&hessian(inputs, &mut random), &FactorOptions::default()).unwrap();
        let set = params(&widths);
        let quantized =
            quantize_linear(&weights, &factor, &set.layout(weights.inputs()), &Recipe::default())
                .unwrap();
        assert_read_back(
            &quantized,
            inputs,
            outputs,
            set.cost_bits(inputs, weights.columns(), false),
        );
    }
}

#[test]
fn zeros_outliers_and_weights_at_the_limits_of_binary16_are_written() {
    let mut random = Random::new(2);
    let (inputs, outputs) = (128, 64);
    let ordinary: Vec<f32> = random.normal(inputs * outputs).iter().map(|x| x * 0.02).collect();
    let mut zero_columns = ordinary.clone();
    zero_columns.chunks_exact_mut(outputs).for_each(|row| row[3..40].fill(0.0));
    let mut outlier = ordinary.clone();
    outlier[1000] = 60000.0;
    let limits = [65504.0, -65504.0, 5.96e-8, -5.96e-8].repeat(inputs * outputs / 4);
    let tiny: Vec<f32> = ordinary.iter().map(|x| x * 1e-5).collect();
    let all = [zero_columns, outlier, limits, tiny, vec![0.0; inputs * outputs]];
    for (idx, values) in all.iter().enumerate() {
        let weights = WeightMatrix::new("w", inputs, outputs, values).unwrap();
        let hessian = hessian(inputs, &mut random);
        for factor in [
            Factor::new(&hessian, &FactorOptions::default()).unwrap(),
            Factor::order_only(&hessian),
        ] {
            for bits in [2, 3, 8] {
                let set = params(&[(1.0, bits, 32)]);
                let quantized = quantize_linear(
                    &weights,
                    &factor,
                    &set.layout(weights.inputs()),
                    &Recipe::default(),
                )
                .unwrap();
                assert!(quantized.dequantized().values().iter().all(|x| x.is_finite()), "{idx}");
                assert_read_back(&quantized, inputs, outputs, set.cost_bits(inputs, 64, false));
            }
        }
    }
}

#[test]
fn more_bits_mean_less_error() {
    let mut random = Random::new(3);
    let values: Vec<f32> = random.normal(128 * 64).iter().map(|x| x * 0.02).collect();
    let weights = WeightMatrix::new("w", 128, 64, &values).unwrap();
    let hessian = hessian(128, &mut random);
    let factor = Factor::new(&hessian, &FactorOptions::default()).unwrap();
    let errors: Vec<f64> = [2, 3, 4, 5, 6, 8]
        .iter()
        .map(|bits| {
            let set = params(&[(1.0, *bits, 32)]);
            let quantized = quantize_linear(
                &weights,
                &factor,
                &set.layout(weights.inputs()),
                &Recipe::default(),
            )
            .unwrap();
            output_error(&weights, &quantized.dequantized(), &hessian).unwrap().relative
        })
        .collect();
    assert!(errors.is_sorted_by(|a, b| *a > 2.0 * b), "{errors:?}");
    assert!(errors[5] < 1e-4 && errors[0] < 0.3, "{errors:?}");
}

#[test]
fn the_error_is_that_of_the_outputs() {
    let mut random = Random::new(4);
    let (inputs, outputs, tokens) = (64, 32, 50);
    let row = random.normal(tokens * inputs);
    let mut sum = HessianSum::new(inputs);
    sum.add(&row);
    let hessian = sum.finish("x").unwrap();
    let [a, b] = [0, 1].map(|_| {
        WeightMatrix::new("w", inputs, outputs, &random.normal(inputs * outputs)).unwrap()
    });
    let square = |weight: &dyn Fn(usize) -> f64| -> f64 {
        let tokens = row.chunks_exact(inputs);
        let outputs = tokens.flat_map(|x| (0..outputs).map(move |output| (x, output)));
        let value = |(x, output): (&[f32], usize)| -> f64 {
            (0..inputs).map(|k| f64::from(x[k]) * weight(k * 32 + output)).sum()
        };
        outputs.map(|at| value(at).powi(2)).sum()
    };
    let value = |matrix: &WeightMatrix, at: usize| f64::from(matrix.values()[at]);
    let whole = square(&|at| value(&a, at));
    let difference = square(&|at| value(&a, at) - value(&b, at));
    let found = output_error(&a, &b, &hessian).unwrap();
    assert!((found.absolute / difference - 1.0).abs() < 1e-4, "{found:?} {difference}");
    assert!((found.relative / (difference / whole) - 1.0).abs() < 1e-4, "{found:?}");
    assert_eq!(output_error(&a, &a, &hessian).unwrap().absolute, 0.0);
}

#[test]
fn a_hessian_of_another_size_is_refused() {
    let mut random = Random::new(5);
    let weights = WeightMatrix::new("w", 64, 32, &random.normal(64 * 32)).unwrap();
    let hessian = hessian(96, &mut random);
    let factor = Factor::order_only(&hessian);
    let set = params(&[(1.0, 4, 32)]);
    let error =
        quantize_linear(&weights, &factor, &set.layout(weights.inputs()), &Recipe::default())
            .unwrap_err();
    assert!(error.to_string().contains("64 inputs, its Hessian 96"), "{error}");
    assert!(output_error(&weights, &weights, &hessian).is_err());
}

#[test]
fn a_layout_of_another_size_is_refused() {
    let mut random = Random::new(6);
    let weights = WeightMatrix::new("w", 64, 32, &random.normal(64 * 32)).unwrap();
    let factor = Factor::order_only(&hessian(64, &mut random));
    let layout = params(&[(1.0, 4, 32)]).layout(96);
    let error = quantize_linear(&weights, &factor, &layout, &Recipe::default()).unwrap_err();
    assert!(error.to_string().contains("`4b/32 × 3`: `w` has 64 inputs"), "{error}");
}

#[test]
fn the_losses_of_blocks_are_the_error_with_the_damped_hessian() {
    let mut random = Random::new(7);
    let values: Vec<f32> = random.normal(160 * 64).iter().map(|x| x * 0.02).collect();
    let weights = WeightMatrix::new("w", 160, 64, &values).unwrap();
    let hessian = hessian(160, &mut random);
    let factor = Factor::new(&hessian, &FactorOptions::default()).unwrap();
    let layout = params(&[(0.4, 4, 32), (0.6, 3, 64)]).layout(160);
    let quantized = quantize_linear(&weights, &factor, &layout, &Recipe::default()).unwrap();
    let decoded = quantized.dequantized();
    let error = output_error(&weights, &decoded, &hessian).unwrap().absolute;
    let pairs = weights.values().iter().zip(decoded.values());
    let squares: f64 = pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum();
    let expected = error + f64::from(factor.damping()) * squares;
    let found: f64 = quantized.block_losses().iter().sum();
    assert_eq!(quantized.block_losses().len(), 5);
    assert!((found / expected - 1.0).abs() < 1e-3, "{found} {expected}");
}
