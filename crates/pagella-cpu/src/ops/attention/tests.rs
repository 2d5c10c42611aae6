//! Attention against f64, and against itself: cut, threaded and compiled in different ways.

use pagella_backend::{
    AttentionOp, KvFormat, KvLayer, KvSpec, LogitUse, PAGE_TOKENS, StepPlan, StepRow,
};

use super::*;
use crate::kv::code::tests::scalar_round_trip;
use crate::kv::code::{Bits, ROTATION};
use crate::kv::{KvElement, append};

/// A model's attention layer and one sequence of it.
#[derive(Clone)]
struct Case {
    op: AttentionOp,
    format: KvFormat,
    tokens: usize,
    seed: u64,
}

fn case(head_dim: usize, kv_heads: usize, group: usize, tokens: usize) -> Case {
    let op = AttentionOp::plain(0, kv_heads * group, kv_heads, head_dim);
    Case { op, format: KvFormat::F16, tokens, seed: (head_dim * 100 + group) as u64 }
}

/// Uniform in [−2, 2], the same everywhere.
fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 22) as f32 - 2.0
    };
    (0..len).map(|_| next()).collect()
}

impl Case {
    fn q(&self) -> Vec<f32> {
        noise(self.seed, self.tokens * self.op.heads * self.op.head_dim)
    }
    fn k(&self) -> Vec<f32> {
        noise(self.seed + 1000, self.tokens * self.op.kv_heads * self.op.head_dim)
    }
    fn v(&self) -> Vec<f32> {
        noise(self.seed + 2000, self.tokens * self.op.kv_heads * self.op.head_dim)
    }

    fn pages(&self) -> usize {
        self.tokens.div_ceil(PAGE_TOKENS)
    }
}

fn tensor(rows: usize, values: &[f32]) -> Tensor {
    let mut tensor = Tensor::new(rows, values.len() / rows).unwrap();
    tensor.data.copy_from_slice(values);
    tensor
}

/// A cache full of garbage: NaN wherever nothing was appended.
fn cache(case: &Case, pages: usize) -> KvPages {
    let layer = KvLayer::plain(case.op.kv_heads, case.op.head_dim);
    let spec = KvSpec { layers: vec![layer], format: case.format, pages };
    let mut kv = KvPages::new(&spec).unwrap();
    for plane in kv.layers.iter_mut().flat_map(|l| l.planes_mut()) {
        plane.bytes.fill(0xFF);
    }
    kv
}

/// How a sequence is run.
#[derive(Clone, Copy)]
struct Way {
    isa: Isa,
    threads: usize,
    chunk: usize,
}

impl Way {
    fn best(chunk: usize) -> Self {
        Way { isa: Isa::best(), threads: 1, chunk }
    }

    /// Attention of all tokens, in steps of `chunk`, on scattered pages. `[tokens, heads · D]`.
    fn run(self, case: &Case) -> Vec<f32> {
        let spare = 3;
        let mut kv = cache(case, case.pages() + spare);
        // A permutation with gaps: odd pages first, from the top.
        let mut table: Vec<u32> = (0..(case.pages() + spare) as u32).rev().collect();
        table.sort_by_key(|p| p % 2 == 0);
        table.truncate(case.pages());
        let pool = Pool::new(self.threads, None);
        let (q, k, v) = (case.q(), case.k(), case.v());
        let mut result = Vec::new();
        for past in (0..case.tokens).step_by(self.chunk) {
            let new = self.chunk.min(case.tokens - past);
            let ids = vec![0; new];
            let row = StepRow::new(&ids, past, &table, LogitUse::None);
            let plan = StepPlan::new(&[row]).unwrap();
            let part = |all: &[f32]| {
                let width = all.len() / case.tokens;
                tensor(new, &all[past * width..(past + new) * width])
            };
            let (mut q, mut k, mut v) = (part(&q), part(&k), part(&v));
            let op = &case.op;
            append(self.isa, &pool, &plan, op, None, None, &mut q, &mut k, &mut v, &mut kv)
                .unwrap();
            let mut out = Tensor::new(new, op.heads * op.head_dim).unwrap();
            attend(self.isa, &pool, &plan, op, None, &q, &kv, &mut out).unwrap();
            result.extend_from_slice(&out.data);
        }
        result
    }
}

/// What a cache of this width makes of `x`.
fn stored(x: &[f32], element: KvElement) -> Vec<f64> {
    match element {
        KvElement::F32 => x.iter().map(|&x| x.into()).collect(),
        KvElement::F16 => x.iter().map(|&x| half::f16::from_f32(x).to_f64()).collect(),
        KvElement::F8 => {
            let upper = |x: &f32| half::f16::from_f32(*x).to_bits() & 0xFF00;
            x.iter().map(|x| half::f16::from_bits(upper(x)).to_f64()).collect()
        }
        KvElement::Code(bits) => {
            x.chunks(ROTATION).flat_map(|b| scalar_round_trip(b, bits)).collect()
        }
    }
}

/// The textbook in f64, on keys and values as the cache holds them.
fn reference(case: &Case) -> Vec<f64> {
    let op = &case.op;
    let (key_kind, value_kind) = match case.format {
        KvFormat::F32 => (KvElement::F32, KvElement::F32),
        KvFormat::F16 => (KvElement::F16, KvElement::F16),
        KvFormat::Fp8 => (KvElement::F8, KvElement::F8),
        KvFormat::Q8 => (KvElement::Code(Bits::Eight), KvElement::Code(Bits::Eight)),
        KvFormat::K8V4 => (KvElement::Code(Bits::Eight), KvElement::Code(Bits::Four)),
        KvFormat::Q4 => (KvElement::Code(Bits::Four), KvElement::Code(Bits::Four)),
    };
    let (q, k, v) = (case.q(), stored(&case.k(), key_kind), stored(&case.v(), value_kind));
    let mut out = Vec::with_capacity(q.len());
    let head_of = |token: usize, heads: usize, head: usize| {
        let start = (token * heads + head) * op.head_dim;
        start..start + op.head_dim
    };
    for token in 0..case.tokens {
        let first = op.window.map_or(0, |w| (token + 1).saturating_sub(w));
        for head in 0..op.heads {
            let kv_head = head / (op.heads / op.kv_heads);
            let query = &q[head_of(token, op.heads, head)];
            let score = |key: usize| {
                let keys = &k[head_of(key, op.kv_heads, kv_head)];
                let dot: f64 = query.iter().zip(keys).map(|(&a, &b)| f64::from(a) * b).sum();
                let score = dot * f64::from(op.scale);
                op.softcap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
            };
            let scores: Vec<f64> = (first..=token).map(score).collect();
            let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
            let sum: f64 = weights.iter().sum();
            out.extend((0..op.head_dim).map(|d| {
                let value = |key: usize| v[head_of(key, op.kv_heads, kv_head)][d];
                (first..=token).zip(&weights).map(|(key, w)| w * value(key)).sum::<f64>() / sum
            }));
        }
    }
    out
}

#[track_caller]
fn assert_close(case: &Case, found: &[f32], expected: &[f64], cap: f64) {
    assert_eq!(found.len(), expected.len());
    let error: f64 = found.iter().zip(expected).map(|(&a, b)| (f64::from(a) - b).powi(2)).sum();
    let size: f64 = expected.iter().map(|b| b * b).sum();
    let relative = (error / size).sqrt();
    assert!(relative <= cap, "{:?} {}: relative RMS {relative:e}", case.op, case.tokens);
}

#[track_caller]
fn assert_same_bits(what: &str, expected: &[f32], found: &[f32]) {
    assert_eq!(expected.len(), found.len(), "{what}");
    let differs = expected.iter().zip(found).position(|(a, b)| a.to_bits() != b.to_bits());
    assert_eq!(differs, None, "{what}");
}

#[test]
fn every_head_size_and_group_matches_the_textbook() {
    for head_dim in [40, 64, 80, 96, 128, 256] {
        for group in [1, 2, 4, 7] {
            let case = case(head_dim, 2, group, 70);
            assert_close(&case, &Way::best(33).run(&case), &reference(&case), 1e-6);
        }
    }
    for group in 1..=8 {
        let case = case(32, 1, group, 40);
        assert_close(&case, &Way::best(1).run(&case), &reference(&case), 1e-6);
    }
}

#[test]
fn page_borders_match_the_textbook() {
    for tokens in [1, 255, 256, 257, 600] {
        for chunk in [tokens, 64] {
            let case = case(64, 1, 2, tokens);
            assert_close(&case, &Way::best(chunk).run(&case), &reference(&case), 1e-6);
        }
    }
}

#[test]
fn windows_and_soft_caps_match_the_textbook() {
    for window in [1, 2, 15, 16, 17, 255, 256, 257, 300, 5000] {
        let mut case = case(32, 1, 2, 560);
        case.op.window = Some(window);
        assert_close(&case, &Way::best(200).run(&case), &reference(&case), 1e-6);
    }
    let mut case = case(64, 2, 2, 300);
    (case.op.softcap, case.op.scale) = (Some(2.0), 0.5);
    assert_close(&case, &Way::best(100).run(&case), &reference(&case), 1e-6);
    case.op.window = Some(70);
    assert_close(&case, &Way::best(100).run(&case), &reference(&case), 1e-6);
}

#[test]
fn chunks_do_not_change_a_bit() {
    for (mut case, window) in [
        (case(64, 2, 4, 600), None),
        (case(80, 1, 3, 520), Some(130)),
        (case(40, 1, 13, 300), None),
    ] {
        case.op.window = window;
        let whole = Way::best(case.tokens).run(&case);
        for chunk in [1, 7, 256, 511] {
            assert_same_bits(&format!("{chunk}"), &whole, &Way::best(chunk).run(&case));
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let mut case = case(32, 2, 2, 1100);
    for window in [None, Some(400)] {
        case.op.window = window;
        for chunk in [110, 1100] {
            let alone = Way::best(chunk).run(&case);
            for threads in [2, 3, 7] {
                let way = Way { threads, ..Way::best(chunk) };
                assert_same_bits(&format!("{threads} threads"), &alone, &way.run(&case));
            }
        }
    }
}

#[test]
fn levels_do_not_change_a_bit() {
    for (head_dim, group) in [(40, 5), (64, 8), (128, 3)] {
        let mut case = case(head_dim, 1, group, 300);
        case.op.softcap = Some(5.0);
        case.op.window = Some(290);
        let expected = Way::best(37).run(&case);
        for isa in Isa::available() {
            for chunk in [1, 300] {
                let way = Way { isa, threads: 2, chunk };
                let found = Way { chunk, ..way }.run(&case);
                assert_same_bits(isa.name(), &expected, &found);
            }
        }
    }
}

/// Formats that are always read through panels.
const PANELLED: [KvFormat; 5] =
    [KvFormat::F32, KvFormat::Q8, KvFormat::Fp8, KvFormat::K8V4, KvFormat::Q4];

#[test]
fn other_formats_match_the_textbook() {
    for format in PANELLED {
        for (head_dim, kv_heads, group) in [(64, 1, 4), (128, 2, 2), (96, 4, 2), (32, 2, 3)] {
            for window in [None, Some(100)] {
                let mut case = case(head_dim, kv_heads, group, 300);
                (case.format, case.op.window) = (format, window);
                assert_close(&case, &Way::best(90).run(&case), &reference(&case), 1e-6);
            }
        }
    }
}

#[test]
fn other_formats_give_the_same_bits_however_they_are_run() {
    for format in PANELLED {
        for (head_dim, kv_heads, group) in [(64, 2, 4), (96, 2, 3), (64, 1, 7), (128, 1, 8)] {
            let mut case = case(head_dim, kv_heads, group, 520);
            (case.format, case.op.window) = (format, Some(400));
            let whole = Way::best(case.tokens).run(&case);
            for chunk in [7, 256, 511] {
                assert_same_bits(format.name(), &whole, &Way::best(chunk).run(&case));
            }
            for threads in [2, 3, 7] {
                let way = Way { threads, ..Way::best(100) };
                assert_same_bits(format.name(), &whole, &way.run(&case));
            }
            case.tokens = 290;
            let expected = Way::best(case.tokens).run(&case);
            for isa in Isa::available() {
                let way = Way { isa, ..Way::best(150) };
                assert_same_bits(isa.name(), &expected, &way.run(&case));
            }
        }
    }
}

#[test]
fn rows_of_a_batch_do_not_see_each_other() {
    let lengths = [1, 255, 257, 700, 30];
    let mut cases: Vec<Case> = lengths.map(|tokens| case(64, 2, 2, tokens)).to_vec();
    for (i, case) in cases.iter_mut().enumerate() {
        case.seed += 10 * i as u64;
    }
    let alone: Vec<Vec<f32>> = cases.iter().map(|c| Way::best(c.tokens).run(c)).collect();
    for threads in [1, 3] {
        let pool = Pool::new(threads, None);
        let mut kv = cache(&cases[0], 16);
        let mut free = (0..16u32).rev();
        let tables: Vec<Vec<u32>> =
            cases.iter().map(|c| free.by_ref().take(c.pages()).collect()).collect();
        // Prompts up to the last token, then a step with the last token of every row.
        for last in [false, true] {
            let new = |c: &Case| if last { c.tokens.min(1) } else { c.tokens - 1 };
            let chosen: Vec<usize> = (0..cases.len()).filter(|&i| new(&cases[i]) > 0).collect();
            let part = |all: Vec<f32>, c: &Case| {
                let width = all.len() / c.tokens;
                let start = if last { c.tokens - 1 } else { 0 };
                all[start * width..(start + new(c)) * width].to_vec()
            };
            let gather = |f: fn(&Case) -> Vec<f32>| {
                let all = chosen.iter().flat_map(|&i| part(f(&cases[i]), &cases[i]));
                let rows = chosen.iter().map(|&i| new(&cases[i])).sum();
                tensor(rows, &all.collect::<Vec<f32>>())
            };
            let ids = vec![0; 1000];
            let rows: Vec<StepRow<'_>> = chosen
                .iter()
                .map(|&i| {
                    StepRow::new(
                        &ids[..new(&cases[i])],
                        if last { cases[i].tokens - 1 } else { 0 },
                        &tables[i],
                        LogitUse::None,
                    )
                })
                .collect();
            let plan = StepPlan::new(&rows).unwrap();
            let (mut q, mut k, mut v) = (gather(Case::q), gather(Case::k), gather(Case::v));
            let (isa, op) = (Isa::best(), &cases[0].op);
            append(isa, &pool, &plan, op, None, None, &mut q, &mut k, &mut v, &mut kv).unwrap();
            let mut out = Tensor::new(plan.tokens(), op.heads * op.head_dim).unwrap();
            attend(isa, &pool, &plan, op, None, &q, &kv, &mut out).unwrap();
            let expected: Vec<f32> =
                chosen.iter().flat_map(|&i| part(alone[i].clone(), &cases[i])).collect();
            assert_same_bits("batch", &expected, &out.data);
        }
    }
}

#[test]
fn wrong_sizes_are_errors() {
    let case = case(64, 2, 2, 10);
    let pool = Pool::new(1, None);
    let kv = cache(&case, 1);
    let plan =
        |page: u32| StepPlan::new(&[StepRow::new(&[1], 0, &[page], LogitUse::None)]).unwrap();
    let q = Tensor::new(1, 256).unwrap();
    let mut out = Tensor::new(1, 256).unwrap();
    let mut run = |plan: &StepPlan, op: &AttentionOp| {
        attend(Isa::best(), &pool, plan, op, None, &q, &kv, &mut out)
    };
    assert!(run(&plan(0), &case.op).is_ok());
    assert!(matches!(run(&plan(1), &case.op), Err(BackendError::Size { what: "cache pages", .. })));
    let op = AttentionOp { layer: 1, ..case.op.clone() };
    assert!(run(&plan(0), &op).is_err());
    let op = AttentionOp { heads: 2, ..case.op.clone() };
    assert!(run(&plan(0), &op).is_err());
}
