//! Adapters on the device: pairs by slot beside every linear that they change, and the launches.
//!
//! Steps name slots, and kernels look the pairs up in a table on the device. So a recorded step stays
//! good when a pair comes or goes; only larger ranks than ever before make room for products anew.

use half::{bf16, f16};
use pagella_backend::{
    ADAPTER_SLOTS_MAX, Adapted, AdapterSlots, AdapterUse, BackendError, ExpertSlots, LowRank,
    StepPlan, TableDtype,
};

use crate::backend::CudaBackend;
use crate::device::{Device, KernelArgs, Launch};
use crate::experts::CudaExperts;
use crate::linear::CudaLinear;
use crate::linear::args::NormArgs;
use crate::memory::DeviceBuffer;
use crate::ops::activate::finish_logits;
use crate::ops::embed::CudaTable;
use crate::ops::logits::project_head;
use crate::ops::norm::CudaNorm;
use crate::scratch::Use;
use crate::step::{CudaStep, Shape};
use crate::tensor::Tensor;

/// Linears of one launch.
const TARGETS_MAX: usize = 3;
/// Words of a token: the number of its adapters, then slots with scales.
pub(crate) const USE_WORDS: usize = 36;
/// Most tokens with the same adapters that one block takes.
pub(crate) const TOGETHER: usize = 4;
/// In the place of a token: there is none.
const NO_TOKEN: u32 = u32::MAX;
/// Room for partial sums that is enough for any number of tokens; they are then taken in turns.
const PRODUCTS_BYTES_MAX: usize = 64 << 20;
/// Most groups of a launch.
const GROUPS_MAX: usize = 32 << 10;
/// Inputs of one partial sum.
const SEGMENT: usize = 512;
/// Ranks that a warp of the first kernel takes at once, and warps of a block.
const WARP_RANKS: usize = 4;
const WARPS: usize = THREADS as usize / 32;
/// Outputs of a block of the second kernel.
const BLOCK_COLUMNS: usize = 512;
/// Rows of both halves are padded to multiples of this.
const VECTOR: usize = 8;
const THREADS: u32 = 256;

/// `AdaptPair` of `kernels/adapt.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PairArgs {
    a: u64,
    b: u64,
    rank: u32,
    scale: f32,
    kind: u32,
    pad: u32,
}

/// `AdaptTarget` of `kernels/adapt.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct TargetArgs {
    pairs: u64,
    out: u64,
    outputs: u32,
    pad: u32,
}

/// `kernels/adapt.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
struct AdaptArgs {
    target: [TargetArgs; TARGETS_MAX],
    norm: NormArgs,
    x: u64,
    uses: u64,
    groups: u64,
    row_map: u64,
    products: u64,
    inputs: u32,
    targets: u32,
    stride: u32,
    scale: f32,
    first_group: u32,
    pad: u32,
}

// SAFETY: field for field the struct of the same name in `kernels/adapt.cuh`.
unsafe impl KernelArgs for AdaptArgs {}

/// What adapters add to one linear.
pub struct CudaSlots {
    in_features: usize,
    out_features: usize,
    /// `AdaptPair` of every slot.
    table: DeviceBuffer,
    pairs: Vec<Option<Pair>>,
}

/// Both halves of a pair.
struct Pair {
    a: DeviceBuffer,
    b: DeviceBuffer,
}

impl Pair {
    fn new(device: &Device, source: &LowRank) -> Result<Self, BackendError> {
        let LowRank { in_features, out_features, rank, a, b, dtype, .. } = source;
        let first = rows(a, *rank, *in_features, |row, column| row * in_features + column);
        let second = rows(b, *rank, *out_features, |row, column| column * rank + row);
        let upload = |values: &[f32]| match dtype {
            TableDtype::F16 => {
                let bits: Vec<u16> = values.iter().map(|x| f16::from_f32(*x).to_bits()).collect();
                device.upload(&bits, "adapters")
            }
            TableDtype::BF16 => {
                let bits: Vec<u16> = values.iter().map(|x| bf16::from_f32(*x).to_bits()).collect();
                device.upload(&bits, "adapters")
            }
            TableDtype::F32 => device.upload(values, "adapters"),
        };
        Ok(Pair { a: upload(&first)?, b: upload(&second)? })
    }

    fn args(&self, source: &LowRank) -> PairArgs {
        PairArgs {
            a: self.a.ptr(),
            b: self.b.ptr(),
            rank: source.rank as u32,
            scale: source.scale,
            kind: match source.dtype {
                TableDtype::F16 => 0,
                TableDtype::BF16 => 1,
                TableDtype::F32 => 2,
            },
            pad: 0,
        }
    }
}

/// `rank` rows of `width`, each padded with zeros; `at` says where an element is in `values`.
fn rows(values: &[f32], rank: usize, width: usize, at: impl Fn(usize, usize) -> usize) -> Vec<f32> {
    let stride = width.next_multiple_of(VECTOR);
    let mut out = vec![0.0; rank * stride];
    for (row, line) in out.chunks_exact_mut(stride).enumerate() {
        for (column, to) in line[..width].iter_mut().enumerate() {
            *to = values[at(row, column)];
        }
    }
    out
}

/// The adapters of every token of a plan, `tokens` counting padding, as `kernels/adapt.cuh` reads them.
pub(crate) fn use_words(plan: &StepPlan, tokens: usize) -> Vec<u32> {
    let mut words = vec![0; tokens * USE_WORDS];
    for row in 0..plan.rows() {
        let used = plan.adapters(row);
        for token in plan.token_range(row) {
            let own = &mut words[token * USE_WORDS..(token + 1) * USE_WORDS];
            own[0] = used.len() as u32;
            for (pair, used) in own[1..].chunks_exact_mut(2).zip(used) {
                (pair[0], pair[1]) = (used.slot, used.scale.to_bits());
            }
        }
    }
    words
}

/// Tokens with the same adapters, a few at a time, also of several rows; those without any are in none.
pub(crate) fn groups(plan: &StepPlan) -> Vec<[u32; TOGETHER]> {
    let mut groups: Vec<[u32; TOGETHER]> = Vec::new();
    // The newest group of every set of adapters, with the number of its tokens.
    let mut newest: Vec<(&[AdapterUse], usize, usize)> = Vec::new();
    for row in (0..plan.rows()).filter(|row| !plan.adapters(*row).is_empty()) {
        let used = plan.adapters(row);
        let known = newest.iter().position(|(other, ..)| *other == used).unwrap_or(newest.len());
        if known == newest.len() {
            newest.push((used, 0, TOGETHER));
        }
        let (_, group, count) = &mut newest[known];
        for token in plan.token_range(row) {
            if *count == TOGETHER {
                (*group, *count) = (groups.len(), 0);
                groups.push([NO_TOKEN; TOGETHER]);
            }
            groups[*group][*count] = token as u32;
            *count += 1;
        }
    }
    groups
}

/// Most adapters of a row of the plan.
pub(crate) fn row_adapters(plan: &StepPlan) -> usize {
    (0..plan.rows()).map(|row| plan.adapters(row).len()).max().unwrap_or(0)
}

/// One use of the kernels: groups of rows of `x`, or rows through a map, each for itself.
struct Rows<'a> {
    x: &'a Tensor,
    norm: NormArgs,
    groups: u64,
    row_map: u64,
    /// Groups, or rows of the map; padding included.
    count: usize,
}

fn run(
    backend: &CudaBackend,
    step: &CudaStep,
    rows: &Rows<'_>,
    targets: &[(&CudaSlots, u64)],
    scale: f32,
) -> Result<(), BackendError> {
    let device = backend.device();
    // A recorded step may be run again with more adapters in a row, up to what its shape says.
    let used = step.shape.as_ref().map_or_else(|| row_adapters(&step.plan), Shape::row_adapters);
    let rank = backend.scratch().rank();
    let stride = used * rank;
    if stride == 0 || rows.count == 0 {
        return Ok(());
    }
    let segments = rows.x.width.div_ceil(SEGMENT);
    let splits = (segments * rank.div_ceil(WARP_RANKS)).div_ceil(WARPS) as u32;
    for targets in targets.chunks(TARGETS_MAX) {
        let group_bytes = 4 * TOGETHER * targets.len() * stride * segments;
        let at_once = rows.count.min(GROUPS_MAX).min((PRODUCTS_BYTES_MAX / group_bytes).max(1));
        let products = backend.scratch().ensure(device, Use::Adapted, at_once * group_bytes)?;
        let mut args = AdaptArgs {
            target: [TargetArgs::default(); TARGETS_MAX],
            norm: rows.norm,
            x: rows.x.ptr(),
            uses: step.pointers.adapters,
            groups: rows.groups,
            row_map: rows.row_map,
            products,
            inputs: rows.x.width as u32,
            targets: targets.len() as u32,
            stride: stride as u32,
            scale,
            first_group: 0,
            pad: 0,
        };
        for (to, (slots, out)) in args.target.iter_mut().zip(targets) {
            let outputs = slots.out_features as u32;
            *to = TargetArgs { pairs: slots.table.ptr(), out: *out, outputs, pad: 0 };
        }
        let widest = targets.iter().map(|(slots, _)| slots.out_features).max().unwrap_or(0);
        let columns = widest.div_ceil(BLOCK_COLUMNS) as u32;
        for first in (0..rows.count).step_by(at_once) {
            args.first_group = first as u32;
            let (groups, n) = (at_once.min(rows.count - first) as u32, targets.len() as u32);
            let launch = |grid| Launch { grid, threads: THREADS, shared_bytes: 0 };
            device.launch("pg_adapt_first", launch([groups, n, splits]), &args)?;
            device.launch("pg_adapt_second", launch([columns, groups, n]), &args)?;
        }
    }
    Ok(())
}

impl CudaSlots {
    fn expect_slot(slot: u32) -> Result<usize, BackendError> {
        let index = slot as usize;
        if index < ADAPTER_SLOTS_MAX {
            return Ok(index);
        }
        let (what, expected) = ("slots for adapters", ADAPTER_SLOTS_MAX);
        Err(BackendError::Size { what, expected, found: index + 1 })
    }

    fn note(&self, device: &Device, index: usize, args: PairArgs) -> Result<(), BackendError> {
        device.write(&self.table, index * size_of::<PairArgs>(), &[args])
    }
}

impl AdapterSlots<CudaBackend> for CudaSlots {
    const SUPPORTED: bool = true;
    const IN_EXPERTS: bool = false;
    const REPLACES_TABLES: bool = false;

    fn new(
        backend: &CudaBackend,
        in_features: usize,
        out_features: usize,
    ) -> Result<Self, BackendError> {
        let bytes = ADAPTER_SLOTS_MAX * size_of::<PairArgs>();
        let table = backend.device().zeroed(bytes, "adapters")?;
        let pairs = (0..ADAPTER_SLOTS_MAX).map(|_| None).collect();
        Ok(CudaSlots { in_features, out_features, table, pairs })
    }

    fn fill(
        &mut self,
        backend: &CudaBackend,
        slot: u32,
        pair: &LowRank,
    ) -> Result<(), BackendError> {
        let index = Self::expect_slot(slot)?;
        pair.expect(self.in_features, self.out_features)?;
        let new = Pair::new(backend.device(), pair)?;
        backend.scratch().note_rank(pair.rank);
        self.note(backend.device(), index, new.args(pair))?;
        // What was there is freed after the work that reads it.
        self.pairs[index] = Some(new);
        Ok(())
    }

    fn replace(&mut self, _: &CudaBackend, _: u32, _: CudaLinear) -> Result<(), BackendError> {
        let hint = "merge the adapter into the model, or use --device cpu";
        Err(BackendError::unsupported("cuda", "adapters with a head of their own", hint))
    }

    fn clear(&mut self, backend: &CudaBackend, slot: u32) -> Result<(), BackendError> {
        let index = Self::expect_slot(slot)?;
        if self.pairs[index].is_some() {
            self.note(backend.device(), index, PairArgs::default())?;
            self.pairs[index] = None;
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.pairs.iter().flatten().map(|pair| pair.a.bytes() + pair.b.bytes()).sum()
    }

    fn adapt(
        backend: &CudaBackend,
        step: &CudaStep,
        x: &Tensor,
        norm: Option<&CudaNorm>,
        adapted: &mut [Adapted<'_, CudaBackend>],
        scale: f32,
    ) -> Result<(), BackendError> {
        let tokens = step.plan.tokens();
        if let Some(norm) = norm {
            norm.expect(x.width)?;
        }
        let mut targets = Vec::with_capacity(adapted.len());
        for Adapted { slots, out } in adapted {
            x.expect("adapted input", tokens, slots.in_features)?;
            out.expect("adapted output", tokens, slots.out_features)?;
            targets.push((*slots, out.ptr()));
        }
        let norm = norm.map_or(NormArgs::default(), CudaNorm::args);
        let (groups, count) = (step.pointers.adapter_groups, step.adapter_groups);
        run(backend, step, &Rows { x, norm, groups, row_map: 0, count }, &targets, scale)
    }

    fn logits(
        &self,
        backend: &CudaBackend,
        step: &CudaStep,
        x: &Tensor,
        norm: &CudaNorm,
        head: &CudaLinear,
        scale: f32,
        softcap: Option<f32>,
        out: &mut Tensor,
    ) -> Result<(), BackendError> {
        let n_rows = step.plan.logit_tokens().len();
        if n_rows == 0 {
            return Ok(());
        }
        project_head(&backend.runner(), step, x, norm, head, out)?;
        x.expect("adapted input", step.plan.tokens(), self.in_features)?;
        out.expect("adapted output", n_rows, self.out_features)?;
        let row_map = step.pointers.logit_tokens;
        let (norm, count) = (norm.args(), step.logit_rows);
        let rows = Rows { x, norm, groups: 0, row_map, count };
        run(backend, step, &rows, &[(self, out.ptr())], 1.0)?;
        finish_logits(backend.device(), step.logit_rows, scale, softcap, out)
    }

    fn embed(
        _: &CudaBackend,
        _: &CudaStep,
        _: u32,
        _: &CudaTable,
        _: f32,
        _: Option<&CudaTable>,
        _: &mut Tensor,
    ) -> Result<(), BackendError> {
        let hint = "merge the adapter into the model, or use --device cpu";
        Err(BackendError::unsupported("cuda", "adapters with an embedding of their own", hint))
    }

    fn mix_experts(
        _: &CudaBackend,
        _: &CudaStep,
        _: Option<&CudaNorm>,
        _: &CudaLinear,
        _: &CudaExperts,
        _: &ExpertSlots<'_, CudaBackend>,
        _: &mut Tensor,
    ) -> Result<(), BackendError> {
        let hint = "merge the adapter into the model, or use --device cpu";
        Err(BackendError::unsupported("cuda", "adapters inside experts", hint))
    }
}

#[cfg(test)]
mod tests {
    use pagella_backend::{AdapterUse, LogitUse, StepRow};

    use super::*;

    #[test]
    fn halves_lie_rank_by_rank_with_padded_rows() {
        // [out 3, rank 2] turned round.
        let b = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let turned = rows(&b, 2, 3, |row, column| column * 2 + row);
        assert_eq!(turned[..3], [1.0, 3.0, 5.0]);
        assert_eq!(turned[8..11], [2.0, 4.0, 6.0]);
        assert_eq!((turned.len(), &turned[3..8]), (16, &[0.0; 5][..]));
    }

    #[test]
    fn every_token_says_its_adapters_and_padding_says_none() {
        let used = [AdapterUse { slot: 7, scale: 0.5 }, AdapterUse { slot: 2, scale: -1.0 }];
        let plain = StepRow::new(&[1, 2], 0, &[0], LogitUse::None);
        let plan = StepPlan::new(&[plain, StepRow { adapters: &used, ..plain }]).unwrap();
        let words = use_words(&plan, 5);
        let of = |token: usize| &words[token * USE_WORDS..(token + 1) * USE_WORDS];
        for token in [0, 1, 4] {
            assert!(of(token).iter().all(|word| *word == 0), "token {token}");
        }
        for token in [2, 3] {
            let expected = [2, 7, 0.5f32.to_bits(), 2, (-1.0f32).to_bits(), 0];
            assert_eq!(of(token)[..6], expected);
        }
    }

    #[test]
    fn tokens_with_the_same_adapters_are_taken_together_four_at_a_time() {
        let one = [AdapterUse { slot: 1, scale: 1.0 }];
        let weaker = [AdapterUse { slot: 1, scale: 0.5 }];
        let row = |adapters| StepRow { adapters, ..StepRow::new(&[1], 0, &[0], LogitUse::None) };
        let long = StepRow { adapters: &one, ..StepRow::new(&[1; 4], 0, &[0], LogitUse::None) };
        let plan = StepPlan::new(&[row(&one), row(&weaker), row(&[]), long, row(&one)]).unwrap();
        const NONE: u32 = NO_TOKEN;
        let expected = [[0, 3, 4, 5], [1, NONE, NONE, NONE], [6, 7, NONE, NONE]];
        assert_eq!(groups(&plan), expected);
    }
}
