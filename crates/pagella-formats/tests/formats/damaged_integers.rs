//! Random damage to linears of every format of integer codes: an error that names it, or weights.

use pagella_formats::synthetic::{IntegerFormat, IntegerMatrix, Rounding};
use pagella_formats::{GptqZeros, LinearRequest, load_linear};
use proptest::prelude::*;

use crate::support::{Tensor, made_up, open, request, tensors_of_recipe};

/// Size of the linears.
const SIZE: (usize, usize) = (64, 32);

/// Formats with a width and the rows of a group.
const FORMATS: [(IntegerFormat, u8, usize); 7] = [
    (IntegerFormat::Awq, 4, 32),
    (IntegerFormat::GptqV2, 2, 32),
    (IntegerFormat::GptqV2, 3, 32),
    (IntegerFormat::GptqV2, 8, 32),
    (IntegerFormat::PackQuantized, 4, 32),
    (IntegerFormat::IntQuantized, 8, 64),
    (IntegerFormat::BnbInt8, 8, 64),
];

/// A linear with everything that its format may have.
fn linear((format, bits, group_rows): (IntegerFormat, u8, usize)) -> Vec<Tensor> {
    let scattered = format == IntegerFormat::PackQuantized || format == IntegerFormat::GptqV2;
    let how = Rounding { format, bits, group_rows, symmetric: false, scattered };
    tensors_of_recipe(&IntegerMatrix::round(&made_up(SIZE.0, SIZE.1), SIZE.0, SIZE.1, how))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn damaged_integers_load_or_are_refused_by_name(
        format in prop::sample::select(FORMATS.to_vec()),
        tensor in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        reshape in prop::option::of(prop::collection::vec(0usize..70, 0..4)),
        zeros in prop::sample::select(vec![
            GptqZeros::LessOne, GptqZeros::LessOneByWord, GptqZeros::AsTheyAre,
        ]),
    ) {
        let mut tensors = linear(format);
        let damaged = tensor.get_mut(&mut tensors);
        if let Some(shape) = reshape {
            *damaged = Tensor::zeros(&damaged.name, damaged.dtype, &shape);
        }
        for (at, value) in damage {
            if !damaged.data.is_empty() {
                let at = at.index(damaged.data.len());
                damaged.data[at] = value;
            }
        }
        let (_dir, checkpoint) = open(&tensors);
        let bases = ["layer".to_owned()];
        let request = LinearRequest { gptq_zeros: zeros, ..request(&bases, SIZE.0, SIZE.1) };
        match load_linear(&checkpoint, &request) {
            Ok(linear) => {
                let values = linear.values();
                prop_assert_eq!(values.len(), SIZE.0 * SIZE.1);
                prop_assert!(!values.iter().any(|value| value.is_nan()));
            }
            Err(error) => prop_assert!(error.to_string().contains("layer"), "{}", error),
        }
    }
}
