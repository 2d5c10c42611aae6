//! Rotary tables and the rotation against f64.

use super::*;
use crate::simd::{Isa, Kernel};

fn spec(style: RopeStyle, pairs: usize) -> RopeSpec {
    let frequency = |i: usize| 10_000f64.powf(-(i as f64) / pairs as f64) as f32;
    RopeSpec {
        style,
        rotary_dim: 2 * pairs,
        inv_freq: (0..pairs).map(frequency).collect(),
        attention_factor: 1.0,
        position_offset: 0,
    }
}

struct Rotate<'a> {
    table: &'a RopeTable,
    position: usize,
    x: &'a mut [f32],
}

impl Kernel for Rotate<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: the test gives `2 · pairs` elements and a prepared position.
        unsafe { rotate::<S>(self.table, self.position, self.x.as_mut_ptr()) }
    }
}

fn input(len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 29 % 64) as f32 - 31.0) / 8.0).collect()
}

#[test]
fn rotation_matches_f64_and_is_the_same_on_every_level() {
    for style in [RopeStyle::Neox, RopeStyle::GptJ] {
        for pairs in [4, 16, 20, 64] {
            let spec = spec(style, pairs);
            let rope = CpuRope::new(&spec, 4096).unwrap();
            for position in [0usize, 1, 511, 512, 4095, 131_071] {
                let table = rope.table(position + 1);
                let x = input(2 * pairs);
                let mut first: Option<Vec<f32>> = None;
                for isa in Isa::available() {
                    let mut y = x.clone();
                    isa.run(Rotate { table: &table, position, x: &mut y });
                    for j in 0..pairs {
                        let (a, b) = match style {
                            RopeStyle::Neox => (j, j + pairs),
                            RopeStyle::GptJ => (2 * j, 2 * j + 1),
                        };
                        let angle = f64::from(position as f32 * spec.inv_freq[j]);
                        let (sin, cos) = angle.sin_cos();
                        let (xa, xb) = (f64::from(x[a]), f64::from(x[b]));
                        let error = (f64::from(y[a]) - (xa * cos - xb * sin))
                            .abs()
                            .max((f64::from(y[b]) - (xb * cos + xa * sin)).abs());
                        assert!(error <= 1e-6, "{style:?} {pairs} {position}: {error:e}");
                    }
                    assert_eq!(&y, first.get_or_insert(y.clone()), "{}", isa.name());
                }
            }
        }
    }
}

#[test]
fn offset_and_factor_are_part_of_the_table() {
    let mut spec = spec(RopeStyle::Neox, 8);
    (spec.position_offset, spec.attention_factor) = (3, 1.25);
    let table = CpuRope::new(&spec, 100).unwrap().table(8);
    let angle = f64::from(8.0f32 * spec.inv_freq[2]);
    assert_eq!(table.row(5)[2], (angle.cos() * 1.25) as f32);
    assert_eq!(table.row(5)[8 + 2], (angle.sin() * 1.25) as f32);
}

#[test]
fn growing_keeps_what_was_computed() {
    let rope = CpuRope::new(&spec(RopeStyle::Neox, 4), 100).unwrap();
    let small = rope.table(10);
    let large = rope.table(5 * BLOCK_POSITIONS + 1);
    assert_eq!(large.blocks.len(), 6);
    assert!(Arc::ptr_eq(&small.blocks[0], &large.blocks[0]));
    assert!(Arc::ptr_eq(&large, &rope.table(10)), "nothing is computed twice");
}

#[test]
fn a_table_without_enough_frequencies_is_refused() {
    let mut spec = spec(RopeStyle::Neox, 4);
    spec.rotary_dim = 16;
    assert!(CpuRope::new(&spec, 10).is_err());
}
