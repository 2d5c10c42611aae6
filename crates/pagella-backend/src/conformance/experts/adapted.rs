//! Adapters inside a layer of experts: in the router, which changes the choice, and in experts.

use pagella_arch::Weigh;

use super::super::adapt::{addition, lacks_adapters, pair};
use super::super::compare::{rows_close, same_bits};
use super::super::fixture::{download, step_of, text, upload};
use super::super::{Tolerances, noise};
use super::layer::{Layer, Loaded};
use crate::{
    AdapterSlots, AdapterUse, Backend, BackendError, ExpertSlots, LogitUse, LowRank, StepRow,
    TableDtype,
};

const EXPERTS: usize = 8;
const SLOT: u32 = 2;

/// Which parts have a pair: not all, and not of all experts.
fn has_pair(expert: usize, part: usize) -> bool {
    !(expert + part).is_multiple_of(3)
}

fn part_pair(layer: &Layer, expert: usize, part: usize) -> LowRank {
    let (hidden, inner) = (layer.op.hidden, layer.op.inner);
    let (inputs, outputs) = if part == 2 { (inner, hidden) } else { (hidden, inner) };
    pair((20 + 3 * expert + part) as u64, inputs, outputs, 4, TableDtype::F16)
}

fn router_pair(layer: &Layer) -> LowRank {
    pair(19, layer.op.hidden, EXPERTS, 3, TableDtype::F16)
}

/// The adapters of row `i`: every third has none, the others the same one with two scales.
fn adapters_of(i: usize) -> Vec<AdapterUse> {
    let scale = [0.0, 1.0, -0.5][i % 3];
    if scale == 0.0 { Vec::new() } else { vec![AdapterUse { slot: SLOT, scale }] }
}

/// In f64: logits with what the router's pair adds, `factor` being the scale of the row.
fn logits(layer: &Layer, row: &[f32], factor: f64) -> Vec<f64> {
    let added = addition(&router_pair(layer), &layer.normed(row));
    layer.logits(row).into_iter().zip(added).map(|(l, more)| l + factor * more).collect()
}

pub(super) fn check<B: Backend>(backend: &B, tolerances: &Tolerances) -> Result<(), String> {
    if lacks_adapters::<B>() {
        return Ok(());
    }
    for weigh in [Weigh::Output, Weigh::Input] {
        let mut layer = Layer::plain(EXPERTS, 2);
        layer.op.routing.weigh = weigh;
        check_layer(backend, tolerances, &layer)?;
    }
    Ok(())
}

/// The slots of a layer in a backend's layout.
struct Slots<B: Backend> {
    router: B::Slots,
    experts: Vec<[Option<B::Slots>; 3]>,
}

fn load<B: Backend>(backend: &B, layer: &Layer) -> Result<Slots<B>, BackendError> {
    let slots = |pair: &LowRank| {
        let mut slots = B::Slots::new(backend, pair.in_features, pair.out_features)?;
        slots.fill(backend, SLOT, pair)?;
        Ok::<_, BackendError>(slots)
    };
    let part = |expert: usize, part: usize| {
        has_pair(expert, part).then(|| slots(&part_pair(layer, expert, part))).transpose()
    };
    let expert = |e: usize| Ok([part(e, 0)?, part(e, 1)?, part(e, 2)?]);
    let experts = (0..EXPERTS).map(expert).collect::<Result<_, BackendError>>()?;
    Ok(Slots { router: slots(&router_pair(layer))?, experts })
}

fn check_layer<B: Backend>(
    backend: &B,
    tolerances: &Tolerances,
    layer: &Layer,
) -> Result<(), String> {
    const ROWS: usize = 24;
    let Some(loaded) = layer.load(backend, ROWS)? else { return Ok(()) };
    let slots = match load(backend, layer) {
        Err(BackendError::Unsupported { .. }) => return Ok(()),
        other => other.map_err(text)?,
    };
    let hidden = layer.op.hidden;
    // Rows whose choice is clear with their adapters.
    let (mut rows, mut expected) = (Vec::new(), Vec::new());
    for row in noise::halves(41, 60 * ROWS * hidden, 1.0).chunks(hidden) {
        let index = rows.len() / hidden;
        let factor = f64::from(adapters_of(index).first().map_or(0.0, |used| used.scale));
        let logits = logits(layer, row, factor);
        if index == ROWS || layer.margin_of(&logits) < 0.02 {
            continue;
        }
        let more = |expert: usize, part: usize, x: &[f64]| {
            let pair = part_pair(layer, expert, part);
            let factor = if has_pair(expert, part) { factor } else { 0.0 };
            addition(&pair, x).into_iter().map(|y| factor * y).collect()
        };
        expected.extend(layer.addition_with(row, &logits, &more));
        rows.extend_from_slice(row);
    }
    let run = |range: std::ops::Range<usize>| -> Result<Option<Vec<f32>>, String> {
        run(
            backend,
            &loaded,
            &slots,
            range.clone(),
            &rows[range.start * hidden..range.end * hidden],
        )
    };
    let Some(all) = run(0..ROWS)? else { return Ok(()) };
    let added: Vec<f32> = all.iter().zip(&rows).map(|(after, before)| after - before).collect();
    rows_close("adapted experts", &added, &expected, hidden, layer.tolerance(tolerances))?;
    for row in 0..ROWS {
        let alone = run(row..row + 1)?.unwrap_or_default();
        same_bits(&format!("row {row} alone"), &alone, &all[row * hidden..(row + 1) * hidden])?;
    }
    Ok(())
}

/// The rows after the op; `None` where the backend has no adapters inside experts.
fn run<B: Backend>(
    backend: &B,
    loaded: &Loaded<B>,
    slots: &Slots<B>,
    range: std::ops::Range<usize>,
    rows: &[f32],
) -> Result<Option<Vec<f32>>, String> {
    let hidden = rows.len() / range.len();
    let adapters: Vec<_> = range.clone().map(adapters_of).collect();
    let pages: Vec<[u32; 1]> = range.clone().map(|page| [page as u32]).collect();
    let step_rows = adapters.iter().zip(&pages).map(|(adapters, pages)| {
        let row = StepRow::new(&[0], 0, pages, LogitUse::None);
        StepRow { adapters, ..row }
    });
    let step = step_of(backend, &step_rows.collect::<Vec<_>>())?;
    let mut residual = upload(backend, hidden, rows)?;
    let Loaded { norm, router, experts } = loaded;
    let adapted = ExpertSlots { router: Some(&slots.router), experts: &slots.experts };
    let norm = norm.as_ref();
    match B::Slots::mix_experts(backend, &step, norm, router, experts, &adapted, &mut residual) {
        Err(BackendError::Unsupported { .. }) => Ok(None),
        done => {
            done.map_err(text)?;
            download(backend, &residual, range.len()).map(Some)
        }
    }
}
