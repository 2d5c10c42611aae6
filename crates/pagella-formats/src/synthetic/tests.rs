//! Synthetic linears pass the checks of the reader and look like trained ones.

use super::*;
use crate::checkpoint::Checkpoint;
use crate::exl3::{Codebook, MCG_MULTIPLIER, MUL1_MULTIPLIER};
use crate::gptq::GptqZeros;
use crate::linear::{BiasRule, LinearRequest, load_linear};
use crate::safetensors::write::write_file;

/// Writes `owned`, loads it with all checks, and compares the weights.
fn check_loads(owned: &OwnedLinear) {
    let dir = tempfile::tempdir().unwrap();
    write_file(&dir.path().join("m.safetensors"), &owned.named("layer")).unwrap();
    let checkpoint = Checkpoint::open(dir.path(), &[]).unwrap();
    let made = owned.view();
    let request = LinearRequest {
        bases: &["layer".to_owned()],
        fused: None,
        in_features: made.in_features(),
        out_features: made.out_features(),
        bias: BiasRule::Forbidden,
        transposed: false,
        gptq_zeros: GptqZeros::LessOne,
    };
    let loaded = load_linear(&checkpoint, &request).unwrap();
    assert_eq!(loaded.values(), made.values());
    assert_eq!(loaded.weight_bytes(), made.weight_bytes());
    loaded.tensors().iter().for_each(|tensor| checkpoint.release(tensor));
    assert_eq!(loaded.values(), made.values(), "released tensors read the same");
}

const MIX: &[(u8, f32, usize)] =
    &[(3, 0.4, 128), (8, 0.1, 32), (5, 0.2, 64), (2, 0.2, 32), (4, 0.1, 128)];

/// With groups that are cut off.
const SMALL_FLOATS: &[(SmallFloatKind, usize, usize)] = &[
    (SmallFloatKind::Mxfp4, 96, 5),
    (SmallFloatKind::Nvfp4, 48, 7),
    (SmallFloatKind::Fp8, 200, 130),
    (SmallFloatKind::Fp8E8m0, 129, 257),
    (SmallFloatKind::Fp8E5m2, 31, 9),
    (SmallFloatKind::Nf4, 50, 7),
];

#[test]
fn every_kind_loads_from_a_file_unchanged() {
    check_loads(&exl2(512, 96, MIX, 1));
    check_loads(&exl2(32, 41, &[(6, 1.0, 128)], 2));
    check_loads(&gptq(256, 40, 128, RowOrder::Sequential, 3));
    check_loads(&gptq(256, 40, 32, RowOrder::Shuffled, 4));
    check_loads(&plain_f16(33, 7, 5));
    for (bits, codebook) in [
        (1, Codebook::ThreeInst),
        (4, Codebook::Mcg(MCG_MULTIPLIER)),
        (8, Codebook::Mul1(MUL1_MULTIPLIER)),
    ] {
        check_loads(&exl3(200, 130, bits, codebook, 6));
    }
    for (kind, inputs, outputs) in SMALL_FLOATS {
        check_loads(&small_float(*kind, *inputs, *outputs, 7));
    }
}

#[test]
fn weights_deviate_like_those_of_a_trained_matrix() {
    for owned in [
        exl2(1024, 64, MIX, 1),
        gptq(1024, 64, 128, RowOrder::Shuffled, 1),
        plain_f16(1024, 64, 1),
        exl3(1024, 64, 4, Codebook::Mul1(MUL1_MULTIPLIER), 1),
    ]
    .into_iter()
    .chain(SMALL_FLOATS.iter().map(|(kind, ..)| small_float(*kind, 1024, 64, 1)))
    {
        let linear = owned.view();
        let weights = linear.values();
        let square_sum: f32 = weights.iter().map(|weight| weight * weight).sum();
        let deviation = (square_sum / weights.len() as f32).sqrt();
        let expected = 1.0 / 1024f32.sqrt();
        assert!((0.5..2.0).contains(&(deviation / expected)), "{:?}: {deviation}", linear.kind());
    }
}

#[test]
fn padding_decodes_to_zero_and_seeds_repeat() {
    let owned = exl2(64, 33, &[(8, 0.5, 32), (3, 0.5, 32)], 7);
    let Linear::Exl2(mut linear) = owned.view() else { unreachable!() };
    assert_eq!((linear.columns.stored(), linear.columns.len()), (64, 33));
    linear.columns = crate::linear::Columns::new(64, std::iter::once(33..64).collect()).unwrap();
    linear.out_features = 31;
    assert!(linear.dequantize().iter().all(|weight| weight.to_bits() == 0));
    let again = exl2(64, 33, &[(8, 0.5, 32), (3, 0.5, 32)], 7);
    assert_eq!(owned.view().values(), again.view().values());
    let other = exl2(64, 33, &[(8, 0.5, 32), (3, 0.5, 32)], 8);
    assert_ne!(owned.view().values(), other.view().values());
}

#[test]
fn bits_per_weight_counts_everything_in_the_file() {
    let owned = exl2(512, 96, MIX, 1);
    let on_disk: usize = owned.named("x").iter().map(|tensor| tensor.data.len()).sum();
    let linear = owned.view();
    assert_eq!(linear.weight_bytes(), on_disk as u64);
    assert_eq!(linear.bits_per_weight(), on_disk as f64 * 8.0 / (512.0 * 96.0));
    assert_eq!(plain_f16(10, 10, 1).view().bits_per_weight(), 16.0);
}
