//! Adapters: what rows add to a linear, against f64, and with the same bits in any company.
//!
//! A backend that has none refuses them, and passes.

use pagella_arch::NormKind;

use super::compare::{rows_close, same_bits};
use super::fixture::{download, poisoned, refused_size, step_of, text, upload};
use super::norm_add::weights;
use super::reference::{self, softcap, widen};
use super::{Case, Tolerances, linears, noise};
use crate::{
    Adapted, AdapterSlots, AdapterUse, Backend, BackendError, LogitUse, LowRank, NormWeights,
    StepRow, TableDtype,
};

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    use TableDtype::{BF16, F16, F32};
    vec![
        Case { name: "adapt/f16", run: |b, t| check(b, t, &Shape::new(256, 320, 16, F16)) },
        Case { name: "adapt/bf16", run: |b, t| check(b, t, &Shape::new(512, 96, 8, BF16)) },
        Case { name: "adapt/f32", run: |b, t| check(b, t, &Shape::new(96, 640, 32, F32)) },
        Case { name: "adapt/rank_1", run: |b, t| check(b, t, &Shape::new(64, 64, 1, F16)) },
        Case { name: "adapt/odd_sizes", run: |b, t| check(b, t, &Shape::new(75, 51, 5, F16)) },
        Case {
            name: "adapt/large_rank",
            run: |b, t| check(b, t, &Shape::new(320, 1100, 130, BF16)),
        },
        Case { name: "adapt/wide", run: |b, t| check(b, t, &Shape::new(2048, 1536, 64, F16)) },
        Case { name: "adapt/outputs_share_an_input", run: shared_input },
        Case { name: "adapt/slots_come_and_go", run: come_and_go },
        Case { name: "adapt/logits", run: |b, t| logits(b, t, false) },
        Case { name: "adapt/logits_of_another_head", run: |b, t| logits(b, t, true) },
        Case { name: "adapt/embedding_of_another_table", run: embedding },
        Case { name: "adapt/sizes", run: sizes },
    ]
}

/// Whether there is nothing to try.
pub(super) fn lacks_adapters<B: Backend>() -> bool {
    !B::Slots::SUPPORTED
}

/// Sizes of a linear and of the pairs for it.
struct Shape {
    inputs: usize,
    outputs: usize,
    rank: usize,
    dtype: TableDtype,
}

impl Shape {
    fn new(inputs: usize, outputs: usize, rank: usize, dtype: TableDtype) -> Self {
        Shape { inputs, outputs, rank, dtype }
    }

    /// A pair whose values their type holds exactly; other slots have other ranks.
    fn pair(&self, slot: u32) -> LowRank {
        pair(u64::from(slot), self.inputs, self.outputs, self.rank + slot as usize % 3, self.dtype)
    }
}

/// A pair that adds about as much as a linear gives.
pub(super) fn pair(
    seed: u64,
    in_features: usize,
    out_features: usize,
    rank: usize,
    dtype: TableDtype,
) -> LowRank {
    let narrow = |x: f32| match dtype {
        TableDtype::F16 => half::f16::from_f32(x).to_f32(),
        TableDtype::BF16 => half::bf16::from_f32(x).to_f32(),
        TableDtype::F32 => x,
    };
    let values = |seed: u64, len: usize, fan_in: usize| -> Vec<f32> {
        let scale = 1.0 / (fan_in as f32).sqrt();
        noise::gaussian(seed, len).into_iter().map(|x| narrow(x * scale)).collect()
    };
    LowRank {
        in_features,
        out_features,
        rank,
        a: values(700 + 2 * seed, rank * in_features, in_features),
        b: values(701 + 2 * seed, rank * out_features, rank),
        dtype,
        scale: [2.0, 0.5, -1.25][seed as usize % 3],
    }
}

/// `scale · B (A x)` in f64.
pub(super) fn addition(pair: &LowRank, x: &[f64]) -> Vec<f64> {
    let product = |matrix: &[f32], x: &[f64]| -> Vec<f64> {
        let rows = matrix.chunks(x.len());
        rows.map(|row| row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum()).collect()
    };
    let inner = product(&pair.a, x);
    product(&pair.b, &inner).into_iter().map(|y| f64::from(pair.scale) * y).collect()
}

/// Rows of a step: how many tokens each brings, and its adapters.
type Rows = Vec<(usize, Vec<AdapterUse>)>;

fn used(slot: u32, scale: f32) -> AdapterUse {
    AdapterUse { slot, scale }
}

/// Rows with none, one and several adapters; slot 9 has no pair for the linear.
fn mixed() -> Rows {
    vec![
        (3, vec![used(0, 1.0)]),
        (1, vec![]),
        (1, vec![used(7, -0.5)]),
        (2, vec![used(7, 0.75), used(0, 1.5)]),
        (1, vec![used(0, 1.5), used(7, 0.75)]),
        (1, vec![used(9, 1.0)]),
        (1, vec![used(0, 0.25), used(9, 2.0), used(31, 1.0)]),
        (19, vec![used(31, 1.0)]),
        (1, vec![used(0, 0.0)]),
        (1, vec![used(7, 1.0)]),
        (4, vec![]),
        (1, vec![used(0, 1.0)]),
    ]
}

/// Slots of [`mixed`] with pairs.
const FILLED: [u32; 3] = [0, 7, 31];

fn step<B: Backend>(backend: &B, rows: &Rows, logits: LogitUse) -> Result<B::Step, String> {
    let ids = vec![0; rows.iter().map(|(tokens, _)| *tokens).max().unwrap_or(0)];
    let pages: Vec<[u32; 1]> = (0..rows.len() as u32).map(|page| [page]).collect();
    let rows = rows.iter().zip(&pages).map(|((tokens, adapters), pages)| {
        let row = StepRow::new(&ids[..*tokens], 0, pages, logits);
        StepRow { adapters, ..row }
    });
    step_of(backend, &rows.collect::<Vec<_>>())
}

fn slots<B: Backend>(backend: &B, shape: &Shape) -> Result<B::Slots, String> {
    let mut slots = B::Slots::new(backend, shape.inputs, shape.outputs).map_err(text)?;
    for slot in FILLED {
        slots.fill(backend, slot, &shape.pair(slot)).map_err(text)?;
    }
    Ok(slots)
}

/// `out` after the op, which reads `x`.
fn run<B: Backend>(
    backend: &B,
    slots: &B::Slots,
    shape: &Shape,
    rows: &Rows,
    norm: Option<&B::Norm>,
    (x, before): (&[f32], &[f32]),
) -> Result<Vec<f32>, String> {
    let step = step(backend, rows, LogitUse::None)?;
    let x = upload(backend, shape.inputs, x)?;
    let mut out = upload(backend, shape.outputs, before)?;
    let adapted = &mut [Adapted { slots, out: &mut out }];
    B::Slots::adapt(backend, &step, &x, norm, adapted, SCALE).map_err(text)?;
    download(backend, &out, before.len() / shape.outputs)
}

const SCALE: f32 = 0.625;

fn check<B: Backend>(backend: &B, tolerances: &Tolerances, shape: &Shape) -> Result<(), String> {
    if lacks_adapters::<B>() {
        return Ok(());
    }
    let (slots, rows) = (slots(backend, shape)?, mixed());
    let least: usize = FILLED.iter().map(|slot| shape.pair(*slot).bytes()).sum();
    if slots.bytes() < least {
        return Err(format!("{} bytes of slots hold {least} bytes of pairs", slots.bytes()));
    }
    let tokens: usize = rows.iter().map(|(tokens, _)| tokens).sum();
    let x = noise::halves(61, tokens * shape.inputs, 1.0);
    let before = noise::halves(62, tokens * shape.outputs, 1.0);
    for weights in [None, Some(weights(63, NormKind::Rms, shape.inputs, false))] {
        let norm =
            weights.clone().map(|weights| backend.norm(weights)).transpose().map_err(text)?;
        let run = |rows: &Rows, x: &[f32], before: &[f32]| {
            run(backend, &slots, shape, rows, norm.as_ref(), (x, before))
        };
        let all = run(&rows, &x, &before)?;
        let expected = expected(shape, &rows, weights.as_ref(), &x, &before);
        rows_close("adapted rows", &all, &expected, shape.outputs, tolerances.plain_linear)?;
        let mut first = 0;
        for (index, (tokens, adapters)) in rows.iter().enumerate() {
            let (from, to) = (first, first + tokens);
            first = to;
            let part = |values: &[f32], width: usize| values[from * width..to * width].to_vec();
            let (x, before) = (part(&x, shape.inputs), part(&before, shape.outputs));
            let all = part(&all, shape.outputs);
            let alone = run(&vec![(*tokens, adapters.clone())], &x, &before)?;
            same_bits(&format!("row {index} alone"), &alone, &all)?;
            for cut in 1..(*tokens).min(3) {
                let pieces = vec![(cut, adapters.clone()), (tokens - cut, adapters.clone())];
                same_bits(&format!("row {index} in two"), &run(&pieces, &x, &before)?, &all)?;
            }
            if adapters.iter().all(|used| !FILLED.contains(&used.slot)) {
                same_bits(&format!("row {index}, which has nothing"), &all, &before)?;
            }
        }
    }
    Ok(())
}

fn expected(
    shape: &Shape,
    rows: &Rows,
    norm: Option<&NormWeights>,
    x: &[f32],
    before: &[f32],
) -> Vec<f64> {
    let mut out = widen(before);
    let x = norm.map_or_else(|| widen(x), |norm| reference::norm(norm, &widen(x)));
    let adapters = rows.iter().flat_map(|(tokens, used)| std::iter::repeat_n(used, *tokens));
    let tokens = x.chunks(shape.inputs).zip(out.chunks_mut(shape.outputs));
    for ((x, out), adapters) in tokens.zip(adapters) {
        for used in adapters.iter().filter(|used| FILLED.contains(&used.slot)) {
            let added = addition(&shape.pair(used.slot), x);
            let scale = f64::from(SCALE) * f64::from(used.scale);
            out.iter_mut().zip(added).for_each(|(out, y)| *out += scale * y);
        }
    }
    out
}

/// Two linears in one call, and each alone.
fn shared_input<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    if lacks_adapters::<B>() {
        return Ok(());
    }
    let shapes =
        [Shape::new(192, 256, 16, TableDtype::F16), Shape::new(192, 48, 16, TableDtype::F16)];
    let loaded = [slots(backend, &shapes[0])?, slots(backend, &shapes[1])?];
    let rows = mixed();
    let tokens: usize = rows.iter().map(|(tokens, _)| tokens).sum();
    let x = noise::halves(64, tokens * 192, 1.0);
    let before = shapes.each_ref().map(|shape| noise::halves(65, tokens * shape.outputs, 1.0));
    let step = step(backend, &rows, LogitUse::None)?;
    let input = upload(backend, 192, &x)?;
    let mut first = upload(backend, shapes[0].outputs, &before[0])?;
    let mut second = upload(backend, shapes[1].outputs, &before[1])?;
    let adapted = &mut [
        Adapted { slots: &loaded[0], out: &mut first },
        Adapted { slots: &loaded[1], out: &mut second },
    ];
    B::Slots::adapt(backend, &step, &input, None, adapted, SCALE).map_err(text)?;
    for (index, out) in [first, second].iter().enumerate() {
        let shape = &shapes[index];
        let alone = run(backend, &loaded[index], shape, &rows, None, (&x, &before[index]))?;
        same_bits("one of two outputs", &download(backend, out, tokens)?, &alone)?;
    }
    Ok(())
}

/// A slot that was emptied adds nothing, one that was filled anew adds the new pair, and bytes go
/// with them.
fn come_and_go<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    if lacks_adapters::<B>() {
        return Ok(());
    }
    let shape = Shape::new(128, 96, 8, TableDtype::F16);
    let x = noise::halves(66, 128, 1.0);
    let before = noise::halves(67, 96, 1.0);
    let rows = vec![(1, vec![used(5, 1.0)])];
    let mut slots = B::Slots::new(backend, shape.inputs, shape.outputs).map_err(text)?;
    let empty = slots.bytes();
    let run = |slots: &B::Slots| run(backend, slots, &shape, &rows, None, (&x, &before));
    same_bits("an empty slot", &run(&slots)?, &before)?;
    slots.fill(backend, 5, &shape.pair(5)).map_err(text)?;
    let (first, filled) = (run(&slots)?, slots.bytes());
    slots.fill(backend, 5, &shape.pair(8)).map_err(text)?;
    let second = run(&slots)?;
    if first == before || second == first || slots.bytes() != filled || filled <= empty {
        return Err(format!("{empty} bytes, then {filled} and {}", slots.bytes()));
    }
    slots.fill(backend, 5, &shape.pair(5)).map_err(text)?;
    same_bits("a slot with the first pair again", &run(&slots)?, &first)?;
    slots.clear(backend, 5).map_err(text)?;
    same_bits("an emptied slot", &run(&slots)?, &before)?;
    if slots.bytes() == empty { Ok(()) } else { Err(format!("{} bytes are left", slots.bytes())) }
}

/// Logits with pairs, and with a head in the place of the model's.
fn logits<B: Backend>(backend: &B, tolerances: &Tolerances, replaced: bool) -> Result<(), String> {
    if lacks_adapters::<B>() {
        return Ok(());
    }
    let (owned, other) = (linears::one_of_each(), linears::one_of_each());
    let (source, other) = (owned[3].view(), linears::with_bias(other[3].view()));
    let shape = Shape::new(source.in_features(), source.out_features(), 16, TableDtype::F16);
    let mut slots = slots(backend, &shape)?;
    if replaced {
        let linear = backend.linear(&other).map_err(text)?;
        match slots.replace(backend, 7, linear) {
            Err(BackendError::Unsupported { .. }) => return Ok(()),
            done => done.map_err(text)?,
        }
    }
    let rows = mixed();
    let tokens: usize = rows.iter().map(|(tokens, _)| tokens).sum();
    let x = noise::halves(68, tokens * shape.inputs, 1.0);
    let norm = weights(69, NormKind::Rms, shape.inputs, false);
    let (mut expected, mut first) = (Vec::new(), 0);
    for (tokens, adapters) in &rows {
        first += tokens;
        let x =
            reference::norm(&norm, &widen(&x[(first - 1) * shape.inputs..first * shape.inputs]));
        let takes_other = replaced && adapters.iter().any(|used| used.slot == 7);
        let mut out = reference::linear(if takes_other { &other } else { &source }, &x);
        for used in adapters.iter().filter(|used| FILLED.contains(&used.slot)) {
            let added = addition(&shape.pair(used.slot), &x);
            out.iter_mut().zip(added).for_each(|(out, y)| *out += f64::from(used.scale) * y);
        }
        expected.extend(out.into_iter().map(|x| softcap(1.5 * x, Some(4.0))));
    }
    let step = step(backend, &rows, LogitUse::Choice)?;
    let head = backend.linear(&source).map_err(text)?;
    let (norm, x) = (backend.norm(norm).map_err(text)?, upload(backend, shape.inputs, &x)?);
    let mut out = poisoned(backend, rows.len(), shape.outputs)?;
    slots.logits(backend, &step, &x, &norm, &head, 1.5, Some(4.0), &mut out).map_err(text)?;
    let found = download(backend, &out, rows.len())?;
    rows_close("logits", &found, &expected, shape.outputs, tolerances.plain_linear)?;
    if !replaced {
        let mut plain = poisoned(backend, rows.len(), shape.outputs)?;
        backend.logits(&step, &x, &norm, &head, 1.5, Some(4.0), &mut plain).map_err(text)?;
        let plain = download(backend, &plain, rows.len())?;
        let width = shape.outputs;
        same_bits("logits without adapters", &found[width..2 * width], &plain[width..2 * width])?;
    }
    Ok(())
}

/// Rows with a slot take another table, the others stay.
fn embedding<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    if lacks_adapters::<B>() {
        return Ok(());
    }
    let table = |seed| super::embed::table(backend, seed, 40, TableDtype::F16);
    let ((own, width), (other, _)) = (table(1)?, table(2)?);
    let rows = mixed();
    let tokens: usize = rows.iter().map(|(tokens, _)| tokens).sum();
    let step = step(backend, &rows, LogitUse::None)?;
    let embedded = |table: &B::Table| {
        let mut out = poisoned(backend, tokens, width)?;
        backend.embed(&step, table, 1.5, None, &mut out).map_err(text)?;
        Ok::<_, String>((download(backend, &out, tokens)?, out))
    };
    let ((plain, mut out), (replaced, _)) = (embedded(&own)?, embedded(&other)?);
    match B::Slots::embed(backend, &step, 7, &other, 1.5, None, &mut out) {
        Err(BackendError::Unsupported { .. }) => return Ok(()),
        done => done.map_err(text)?,
    }
    let found = download(backend, &out, tokens)?;
    let mut first = 0;
    for (tokens, adapters) in rows {
        let range = first * width..(first + tokens) * width;
        first += tokens;
        let has = adapters.iter().any(|used| used.slot == 7);
        let expected = if has { &replaced } else { &plain };
        same_bits("embedded rows", &found[range.clone()], &expected[range])?;
    }
    Ok(())
}

fn sizes<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    if lacks_adapters::<B>() {
        return Ok(());
    }
    let shape = Shape::new(64, 48, 8, TableDtype::F16);
    let mut slots = slots(backend, &shape)?;
    let mut fill = |what: &str, slot: u32, change: fn(&mut LowRank)| {
        let mut pair = shape.pair(0);
        change(&mut pair);
        refused_size(what, slots.fill(backend, slot, &pair))
    };
    fill("other inputs", 0, |pair| pair.in_features = 32)?;
    fill("other outputs", 0, |pair| pair.out_features = 32)?;
    fill("too few values", 0, |pair| pair.b.truncate(1))?;
    fill("too many values", 0, |pair| pair.a.push(0.0))?;
    fill("no rank", 0, |pair| {
        pair.rank = 0;
        pair.a.clear();
        pair.b.clear();
    })?;
    fill("a slot too many", crate::ADAPTER_SLOTS_MAX as u32, |_| ())?;
    let step = step(backend, &vec![(2, vec![used(0, 1.0)])], LogitUse::None)?;
    let adapt = |inputs: usize, outputs: usize| {
        let x = poisoned(backend, 2, inputs)?;
        let mut out = poisoned(backend, 2, outputs)?;
        let adapted = &mut [Adapted { slots: &slots, out: &mut out }];
        Ok::<_, String>(B::Slots::adapt(backend, &step, &x, None, adapted, 1.0))
    };
    refused_size("another input", adapt(32, 48)?)?;
    refused_size("another output", adapt(64, 64)?)?;
    adapt(64, 48)?.map_err(text)
}
