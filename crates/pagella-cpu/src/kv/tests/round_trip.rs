//! What goes into the cache comes out as its format says, wherever it is put, and nothing else
//! changes.

use super::*;
use crate::kv::code::tests::{encode_on, noise, scalar_round_trip};
use crate::kv::code::{Bits, ROTATION, UNROTATE, rotate_row};

/// The pages of a test, scattered; others stay unused.
const TABLE: [u32; 4] = [4, 1, 5, 0];
/// Pages of a cache.
const PAGES: usize = 6;

/// Keys and values, `[tokens, width]` each.
struct Tokens {
    keys: Vec<f32>,
    values: Vec<f32>,
    width: usize,
}

impl Tokens {
    fn new(tokens: usize, width: usize) -> Self {
        let (keys, values) = (noise(5, tokens * width), noise(6, tokens * width));
        Tokens { keys, values, width }
    }

    /// Appends `new` tokens after `past` of them.
    fn append(&self, op: &AttentionOp, kv: &mut KvPages, table: &[u32], past: usize, new: usize) {
        let ids = vec![0; new];
        let row = StepRow::new(&ids, past, table, LogitUse::None);
        let plan = StepPlan::new(&[row]).unwrap();
        let part = |all: &[f32]| {
            let mut rows = Tensor::new(new, self.width).unwrap();
            rows.data.copy_from_slice(&all[past * self.width..(past + new) * self.width]);
            rows
        };
        let (mut k, mut v) = (part(&self.keys), part(&self.values));
        let mut q = Tensor::new(new, op.heads * op.head_dim).unwrap();
        let pool = Pool::new(2, None);
        append(Isa::best(), &pool, &plan, op, None, None, &mut q, &mut k, &mut v, kv).unwrap();
    }

    /// Checks that the cache holds token `t` as its format defines, in the pages of [`TABLE`].
    fn expect_stored(&self, format: KvFormat, kv: &KvPages, t: usize) {
        let layer = &kv.layers[1];
        let (page, place) = (TABLE[t / PAGE_TOKENS] as usize, t % PAGE_TOKENS);
        for (values, all) in [(false, &self.keys), (true, &self.values)] {
            let row = &all[t * self.width..(t + 1) * self.width];
            let expected = expected(format, row, values);
            for (head, expected) in expected.chunks(layer.head_dim).enumerate() {
                let found = &decoded(layer, page, head)[usize::from(values)];
                let found = &found[place * layer.head_dim..][..layer.head_dim];
                let close = |(x, y): (&f32, &f64)| (f64::from(*x) - y).abs() < 1e-5;
                assert!(found.iter().zip(expected).all(close), "{} token {t}", format.name());
            }
        }
    }
}

/// Keys and values of a head and page as the cache understands them, `[256][head_dim]` each.
fn decoded(layer: &LayerPages, page: usize, head: usize) -> [Vec<f32>; 2] {
    let width = layer.head_dim;
    let padded = width.next_multiple_of(16);
    let mut keys = vec![0.0; width * PAGE_TOKENS];
    let mut values = vec![0.0; padded * PAGE_TOKENS];
    layer.widen(Isa::best(), page, head, PAGE_TOKENS, &mut keys, &mut values, padded);
    let key = |t: usize| (0..width).map(move |d| d * PAGE_TOKENS + t);
    let keys = (0..PAGE_TOKENS).flat_map(key).map(|i| keys[i]).collect();
    let values = values.chunks(padded).flat_map(|row| row[..width].to_vec()).collect();
    let mut both: [Vec<f32>; 2] = [keys, values];
    if layer.is_rotated() {
        both.iter_mut().for_each(|rows| rotate_row(Isa::best(), rows, UNROTATE));
    }
    both
}

/// What a format makes of keys and values, by its definition.
fn expected(format: KvFormat, x: &[f32], values: bool) -> Vec<f64> {
    let half = |x: &f32| half::f16::from_f32(*x);
    let upper = |x: &f32| half::f16::from_bits(half(x).to_bits() & 0xFF00);
    let codes = |bits| x.chunks(ROTATION).flat_map(|x| scalar_round_trip(x, bits)).collect();
    match format {
        KvFormat::F32 => x.iter().map(|x| f64::from(*x)).collect(),
        KvFormat::F16 => x.iter().map(|x| half(x).to_f64()).collect(),
        KvFormat::Fp8 => x.iter().map(|x| upper(x).to_f64()).collect(),
        KvFormat::K8V4 if values => codes(Bits::Four),
        KvFormat::Q8 | KvFormat::K8V4 => codes(Bits::Eight),
        KvFormat::Q4 => codes(Bits::Four),
    }
}

#[test]
fn tokens_come_back_as_their_format_defines_for_every_chunk() {
    for format in KvFormat::ALL {
        for (head_dim, kv_heads) in [(64, 2), (96, 2)] {
            let op = op(kv_heads, kv_heads, head_dim);
            let width = kv_heads * head_dim;
            for (past, new) in [(0, 1), (255, 2), (1, 255), (300, 256), (511, 257)] {
                let tokens = Tokens::new(past + new, width);
                let mut kv = KvPages::new(&spec(&op, format, PAGES)).unwrap();
                if past > 0 {
                    tokens.append(&op, &mut kv, &TABLE, 0, past);
                }
                tokens.append(&op, &mut kv, &TABLE, past, new);
                let last = past + new - 1;
                for t in [0, 1, 255, 256, past.saturating_sub(1), past, past + new / 2, last] {
                    tokens.expect_stored(format, &kv, t.min(last));
                }
            }
        }
    }
}

#[test]
fn bytes_of_a_token_do_not_depend_on_its_page() {
    for format in KvFormat::ALL {
        let op = op(2, 2, 64);
        let tokens = Tokens::new(300, 128);
        let mut scattered = KvPages::new(&spec(&op, format, PAGES)).unwrap();
        let mut in_order = KvPages::new(&spec(&op, format, PAGES)).unwrap();
        tokens.append(&op, &mut scattered, &TABLE, 0, 300);
        tokens.append(&op, &mut in_order, &[0, 1], 0, 300);
        for t in 0..300 {
            let (page, place) = (t / PAGE_TOKENS, t % PAGE_TOKENS);
            let found = token_bytes(&scattered.layers[1], TABLE[page] as usize, place);
            assert!(found == token_bytes(&in_order.layers[1], page, place), "{}", format.name());
        }
    }
}

#[test]
fn storing_a_token_changes_no_byte_of_any_other() {
    for format in KvFormat::ALL {
        // Heads of 32 are rotated in pairs, the others alone.
        for (head_dim, kv_heads) in [(64, 1), (32, 2), (96, 2)] {
            let op = op(kv_heads, kv_heads, head_dim);
            let tokens = Tokens::new(2 * PAGE_TOKENS, kv_heads * head_dim);
            for t in [0, 1, 15, 16, 100, 255, 256, 511] {
                let mut kv = KvPages::new(&spec(&op, format, PAGES)).unwrap();
                let planes = kv.layers.iter_mut().flat_map(LayerPages::planes_mut);
                planes.for_each(|plane| plane.bytes.fill(0xA5));
                tokens.append(&op, &mut kv, &TABLE, t, 1);
                let written = (TABLE[t / PAGE_TOKENS] as usize, t % PAGE_TOKENS);
                for (page, place) in (0..PAGES).flat_map(|p| (0..PAGE_TOKENS).map(move |t| (p, t)))
                {
                    let bytes = token_bytes(&kv.layers[1], page, place);
                    let untouched = bytes.iter().all(|&b| b == 0xA5);
                    assert_eq!(untouched, (page, place) != written, "{} {t}", format.name());
                }
                let other = kv.layers[0].planes().all(|p| p.bytes.iter().all(|&b| b == 0xA5));
                assert!(other, "the other layer stays");
            }
        }
    }
}

#[test]
fn copied_and_restored_pages_decode_to_the_same_bits() {
    let bits =
        |both: [Vec<f32>; 2]| both.map(|x| x.into_iter().map(f32::to_bits).collect::<Vec<_>>());
    for format in KvFormat::ALL {
        for (head_dim, kv_heads) in [(64, 2), (96, 2)] {
            let op = op(kv_heads, kv_heads, head_dim);
            let mut kv = KvPages::new(&spec(&op, format, PAGES)).unwrap();
            Tokens::new(256, kv_heads * head_dim).append(&op, &mut kv, &[3], 0, 256);
            kv.copy_pages(&[(3, 5)]).unwrap();
            kv.copy_page_prefix(3, 0, PAGE_TOKENS).unwrap();
            let mut other = KvPages::new(&spec(&op, format, PAGES)).unwrap();
            let mut bytes = Vec::new();
            kv.read_page(3, &mut bytes).unwrap();
            other.write_page(2, &bytes).unwrap();
            for head in 0..kv_heads {
                let original = bits(decoded(&kv.layers[1], 3, head));
                assert!(original[0].iter().any(|&b| b != 0));
                for (kv, page) in [(&kv, 5), (&kv, 0), (&other, 2)] {
                    let copy = bits(decoded(&kv.layers[1], page, head));
                    assert!(copy == original, "{} page {page}", format.name());
                }
            }
        }
    }
}

#[test]
fn zeros_stay_zero_and_tiny_values_stay_finite() {
    for format in KvFormat::ALL {
        for (scale, largest) in [(0.0, 0.0), (1e-7, 1e-6), (1e-5, 1e-4), (6e-5, 6e-4)] {
            let op = op(2, 2, 64);
            let mut tokens = Tokens::new(20, 128);
            let all = tokens.keys.iter_mut().chain(&mut tokens.values);
            all.for_each(|x| *x *= scale);
            let mut kv = KvPages::new(&spec(&op, format, 1)).unwrap();
            tokens.append(&op, &mut kv, &[0], 0, 20);
            for found in (0..2).flat_map(|head| decoded(&kv.layers[1], 0, head)) {
                let bounded = |x: &f32| x.is_finite() && x.abs() <= largest;
                assert!(found.iter().all(bounded), "{} {scale}", format.name());
            }
        }
    }
}

#[test]
fn the_error_is_the_same_in_every_head_and_block() {
    let op = op(4, 4, 128);
    let tokens = Tokens::new(PAGE_TOKENS, 512);
    for (format, errors) in [(KvFormat::Q8, [0.0060, 0.0060]), (KvFormat::Q4, [0.093, 0.093])] {
        let mut kv = KvPages::new(&spec(&op, format, 1)).unwrap();
        tokens.append(&op, &mut kv, &[0], 0, PAGE_TOKENS);
        for head in 0..4 {
            let found = decoded(&kv.layers[1], 0, head);
            let sources = [&tokens.keys, &tokens.values];
            for ((found, source), expected) in found.iter().zip(sources).zip(errors) {
                for block in 0..2 {
                    let mut sum = 0.0;
                    for t in 0..PAGE_TOKENS {
                        for d in block * ROTATION..(block + 1) * ROTATION {
                            let x = source[t * 512 + head * 128 + d];
                            sum += f64::from(x - found[t * 128 + d]).powi(2);
                        }
                    }
                    let rms = (sum / (PAGE_TOKENS * ROTATION) as f64).sqrt();
                    let near = (rms / expected - 1.0).abs() < 0.067;
                    assert!(near, "{} head {head} block {block}: {rms}", format.name());
                }
            }
        }
    }
}

/// Where a slot keeps the code of an element: byte in the slot, and shift inside it.
fn address(bits: Bits, values: bool, width: usize, token: usize, d: usize) -> (usize, u32) {
    match (bits, values) {
        // Four keys of a token to a word, words of all tokens side by side.
        (Bits::Eight, false) => ((d / 4 * PAGE_TOKENS + token) * 4 + d % 4, 0),
        (Bits::Eight, true) => (token * width + d, 0),
        // Eight keys to a word: 0 to 3 in the low nibbles, 4 to 7 in the high ones.
        (Bits::Four, false) => {
            ((d / 8 * PAGE_TOKENS + token) * 4 + d % 4, if d % 8 < 4 { 0 } else { 4 })
        }
        // 32 values to 16 bytes, in the same way.
        (Bits::Four, true) => {
            (token * width / 2 + d / 32 * 16 + d % 16, if d % 32 < 16 { 0 } else { 4 })
        }
    }
}

#[test]
fn codes_and_scales_lie_where_the_layout_says() {
    let (head_dim, kv_heads) = (128, 4);
    let (op, width) = (op(kv_heads, kv_heads, head_dim), kv_heads * head_dim);
    let tokens = Tokens::new(2, width);
    for (format, widths) in [
        (KvFormat::Q8, [Bits::Eight, Bits::Eight]),
        (KvFormat::K8V4, [Bits::Eight, Bits::Four]),
        (KvFormat::Q4, [Bits::Four, Bits::Four]),
    ] {
        let mut kv = KvPages::new(&spec(&op, format, 2)).unwrap();
        tokens.append(&op, &mut kv, &[1], 0, 2);
        let layer = &kv.layers[1];
        let stores =
            [(&layer.keys, &tokens.keys), (layer.values.as_ref().unwrap(), &tokens.values)];
        for (values, ((store, source), bits)) in stores.into_iter().zip(widths).enumerate() {
            let scales = &store.code.as_ref().unwrap().1;
            // Elements of the flat array: the last ones belong to the second token.
            for element in [0, 1, 31, 32, 63, 64, 127, 128, 511, 512, 513, 1023] {
                let (token, at) = (element / width, element % width);
                let (head, d) = (at / head_dim, at % head_dim);
                let start = element / ROTATION * ROTATION;
                let (codes, block_scales) =
                    encode_on(Isa::best(), &source[start..start + ROTATION], bits);
                let (byte, shift) = address(bits, values == 1, head_dim, token, d);
                let slot = &store.elements.bytes[store.elements.slot(1, head)];
                let mask = if bits == Bits::Four { 0xF } else { 0xFF };
                let code = (slot[byte] >> shift) & mask;
                assert_eq!(code, codes[element - start], "{} {element}", format.name());
                let slot = halves(&scales.bytes[scales.slot(1, head)]);
                let scale = block_scales[(element - start) / 32].to_f32();
                assert_eq!(slot[d / 32 * PAGE_TOKENS + token], scale, "{element}");
            }
        }
    }
}
