//! A plan on the device: one block of numbers, uploaded in one copy.
//!
//! A step of few tokens that all want their logits can be recorded. Its tokens are padded to a
//! bucket, and the lists that grow with the context to powers of two, so that one recording serves
//! all steps of that shape: what differs between them is data.

use std::cell::RefCell;

use cudarc::driver::CudaEvent;
use pagella_backend::{BackendError, PAGE_TOKENS, StepPlan};

use crate::device::Device;
use crate::error::device_error;
use crate::graph::Capture;
use crate::memory::{DeviceBuffer, PinnedBuffer};
use crate::ops::adapt::{TOGETHER, USE_WORDS, groups, row_adapters, use_words};
use crate::work::{HeadShape, TILE_WORDS, UNIT_WORDS, Work, tile_words, unit_words};

/// Tokens of recorded steps.
pub(crate) const BUCKETS: [usize; 11] = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128];
/// Slot of a padding row: nothing is written.
pub(crate) const NO_SLOT: u32 = u32::MAX;
/// Smallest room for lists that grow with the context.
const LIST_MIN: usize = 64;
/// Staging buffers; a step may be prepared while earlier ones wait for their upload. Enough for a
/// draft of sixteen ids, whose steps are all enqueued before the first has ended.
const RING: usize = 20;
/// First size of each of them; they grow with the steps they take.
const STAGING_BYTES: usize = 64 << 10;
/// First size of the block on the device.
const BLOCK_BYTES: usize = 1 << 20;
/// In the place of a row's last row of logits: it has none.
const NO_LOGITS: u32 = u32::MAX;

/// The smallest bucket of at least `rows`, or `rows` itself beyond the largest.
pub(crate) fn bucket_rows(rows: usize) -> usize {
    BUCKETS.into_iter().find(|bucket| *bucket >= rows).unwrap_or(rows)
}

/// Everything about a plan that the launches of its step depend on, how many tokens which row brings
/// included, as that decides the attention work. Lists that grow with the context have room for
/// powers of two.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    /// Tokens, padding included.
    tokens: usize,
    /// Rows of logits, padding included.
    logit_rows: usize,
    /// Room for attention work, by shape of heads.
    work: Vec<(HeadShape, WorkRoom)>,
    /// Most adapters of a row, as a power of two; 0: their operations are not named.
    row_adapters: usize,
    /// Groups of tokens with the same adapters, as a power of two.
    adapter_groups: usize,
}

impl Shape {
    /// Most adapters that a row of such a step has.
    pub(crate) fn row_adapters(&self) -> usize {
        self.row_adapters
    }
}

/// Room for the attention work of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WorkRoom {
    pub(crate) units: usize,
    pub(crate) slots: usize,
    pub(crate) counters: usize,
    pub(crate) tiles: usize,
}

impl WorkRoom {
    fn exact(work: &Work) -> Self {
        let Work { units, tiles, slots, counters } = work;
        WorkRoom { units: units.len(), slots: *slots, counters: *counters, tiles: tiles.len() }
    }

    fn rounded(self) -> Self {
        let up = |n: usize| n.next_power_of_two().max(LIST_MIN);
        let WorkRoom { units, slots, counters, tiles } = self;
        WorkRoom { units: up(units), slots: up(slots), counters: up(counters), tiles }
    }
}

/// Attention work on the device, for one shape of heads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkPointers {
    /// How many units there are; one word.
    pub(crate) n_units: u64,
    pub(crate) units: u64,
    pub(crate) tiles: u64,
    /// Pages of all rows, which tiles name by index.
    pub(crate) pages: u64,
    pub(crate) room: WorkRoom,
}

/// Where the parts of a step lie, in words from the start of the block.
#[derive(Clone, Debug, Default)]
struct Parts {
    /// Tokens, padding included.
    tokens: usize,
    /// Rows of logits, padding included.
    logit_rows: usize,
    /// Groups of tokens with the same adapters, padding included.
    n_groups: usize,
    ids: usize,
    positions: usize,
    slots: usize,
    logit_tokens: usize,
    /// Empty in a step without adapters.
    adapters: usize,
    groups: usize,
    /// Number of units, units, tiles.
    work: Vec<[usize; 3]>,
    pages: usize,
    last_rows: usize,
    words: usize,
}

/// Numbers of one step in device memory, as addresses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepPointers {
    /// New ids, `[tokens]`.
    pub(crate) ids: u64,
    /// Positions, `[tokens]`.
    pub(crate) positions: u64,
    /// `page · 256 + offset` that takes the token's keys and values, or [`NO_SLOT`]. `[tokens]`.
    pub(crate) slots: u64,
    /// Tokens whose logits are wanted. `[logit_rows]`.
    pub(crate) logit_tokens: u64,
    /// Which row of logits is of a row's last token, or [`NO_LOGITS`]. `[rows]`. No recording may
    /// name it: where it lies depends on the number of pages.
    pub(crate) last_rows: u64,
    /// Adapters of every token, `[tokens, USE_WORDS]`; nothing in a step without them.
    pub(crate) adapters: u64,
    /// Tokens with the same adapters, `[adapter_groups, TOGETHER]`.
    pub(crate) adapter_groups: u64,
}

/// A plan on the device.
pub struct CudaStep {
    pub(crate) plan: StepPlan,
    /// Tokens to compute, padding included.
    pub(crate) tokens: usize,
    /// Rows of logits to compute, padding included.
    pub(crate) logit_rows: usize,
    /// Groups of tokens with the same adapters, padding included.
    pub(crate) adapter_groups: usize,
    pub(crate) pointers: StepPointers,
    /// Attention work of the head shapes that were known when the step began.
    work: Vec<(HeadShape, WorkPointers)>,
    /// Work of others, made when they were met.
    late_work: RefCell<Vec<(HeadShape, WorkPointers, DeviceBuffer)>>,
    /// Present when the step can be recorded.
    pub(crate) shape: Option<Shape>,
    /// Present while its operations are being recorded.
    pub(crate) capture: Option<Capture>,
    /// Buffers that were filled for this step, by address.
    filled: RefCell<Vec<u64>>,
}

impl CudaStep {
    /// Whether this is the first time the step names that buffer.
    pub(crate) fn first_use_of(&self, buffer: u64) -> bool {
        let mut filled = self.filled.borrow_mut();
        let first = !filled.contains(&buffer);
        if first {
            filled.push(buffer);
        }
        first
    }

    /// The attention work for that shape of heads.
    pub(crate) fn work(
        &self,
        device: &Device,
        shape: HeadShape,
    ) -> Result<WorkPointers, BackendError> {
        if let Some((_, work)) = self.work.iter().find(|(known, _)| *known == shape) {
            return Ok(*work);
        }
        let mut late = self.late_work.borrow_mut();
        if let Some((_, work, _)) = late.iter().find(|(known, ..)| *known == shape) {
            return Ok(*work);
        }
        let works = [(shape, Work::of(&self.plan, shape))];
        let parts = Parts::new(&self.plan, &works, None);
        let mut words = vec![0; parts.words];
        parts.fill(&self.plan, &works, &mut words);
        let buffer = device.upload(&words, "attention work")?;
        let room = WorkRoom::exact(&works[0].1);
        let work = parts.work_pointers(buffer.ptr(), 0, room);
        late.push((shape, work, buffer));
        Ok(work)
    }
}

/// Staging and device memory for steps.
pub(crate) struct StepBuffers {
    device: DeviceBuffer,
    ring: Vec<Staging>,
    next: usize,
    /// Head shapes that steps have met, whose work is uploaded with each step.
    head_shapes: Vec<HeadShape>,
}

struct Staging {
    host: PinnedBuffer,
    /// When the last upload from here was done.
    uploaded: CudaEvent,
}

impl StepBuffers {
    pub(crate) fn new(device: &Device) -> Result<Self, BackendError> {
        let staging = || {
            let uploaded = device.context.new_event(None).map_err(device_error)?;
            Ok(Staging { host: PinnedBuffer::new(&device.context, STAGING_BYTES)?, uploaded })
        };
        Ok(StepBuffers {
            device: device.zeroed(BLOCK_BYTES, "step plans")?,
            ring: (0..RING).map(|_| staging()).collect::<Result<_, BackendError>>()?,
            next: 0,
            head_shapes: Vec::new(),
        })
    }

    /// Takes the head shapes that a step has met into account from now on.
    pub(crate) fn learn(&mut self, step: &CudaStep) {
        for (shape, ..) in step.late_work.borrow().iter() {
            if !self.head_shapes.contains(shape) {
                self.head_shapes.push(*shape);
            }
        }
    }

    /// Uploads a plan; `true` when the memory of earlier steps was replaced for it.
    pub(crate) fn upload(
        &mut self,
        device: &Device,
        plan: &StepPlan,
    ) -> Result<(CudaStep, bool), BackendError> {
        let works: Vec<(HeadShape, Work)> =
            self.head_shapes.iter().map(|shape| (*shape, Work::of(plan, *shape))).collect();
        let shape = recordable_shape(plan, &works);
        let parts = Parts::new(plan, &works, shape.as_ref());
        let bytes = parts.words * 4;
        let grown = bytes > self.device.bytes();
        if grown {
            device.synchronize()?;
            self.device = device.zeroed(bytes.next_power_of_two(), "step plans")?;
        }
        let staging = &mut self.ring[self.next];
        self.next = (self.next + 1) % RING;
        parts.fill(plan, &works, staging.make_room(device, bytes)?);
        staging.upload(device, &self.device, bytes)?;
        let base = self.device.ptr();
        let room = |i: usize, work: &Work| {
            let exact = WorkRoom::exact(work);
            shape.as_ref().and_then(|shape| shape.work.get(i)).map_or(exact, |(_, room)| *room)
        };
        let work = works
            .iter()
            .enumerate()
            .map(|(i, (shape, work))| (*shape, parts.work_pointers(base, i, room(i, work))));
        let step = CudaStep {
            plan: plan.clone(),
            tokens: parts.tokens,
            logit_rows: parts.logit_rows,
            adapter_groups: parts.n_groups,
            pointers: parts.pointers(base),
            work: work.collect(),
            late_work: RefCell::default(),
            shape,
            capture: None,
            filled: RefCell::default(),
        };
        Ok((step, grown))
    }
}

/// The shape of a step that is worth recording: few tokens that all have logits, be it that rows
/// write one each or that drafted ids are checked.
fn recordable_shape(plan: &StepPlan, works: &[(HeadShape, Work)]) -> Option<Shape> {
    let (tokens, logit_rows) = (plan.tokens(), plan.logit_tokens().len());
    let largest = BUCKETS.last().copied().unwrap_or(1);
    let room = |(shape, work): &(HeadShape, Work)| (*shape, WorkRoom::exact(work).rounded());
    let up = |n: usize| if n == 0 { 0 } else { n.next_power_of_two() };
    (tokens == logit_rows && tokens <= largest).then(|| Shape {
        tokens: bucket_rows(tokens),
        logit_rows: bucket_rows(logit_rows),
        work: works.iter().map(room).collect(),
        row_adapters: up(row_adapters(plan)),
        adapter_groups: up(groups(plan).len()),
    })
}

impl Staging {
    /// At least `bytes` to write to, once the last upload from here is done.
    fn make_room(&mut self, device: &Device, bytes: usize) -> Result<&mut [u32], BackendError> {
        self.uploaded.synchronize().map_err(device_error)?;
        if self.host.bytes() < bytes {
            self.host = PinnedBuffer::new(&device.context, bytes.next_power_of_two())?;
        }
        Ok(self.host.words_mut())
    }

    fn upload(
        &mut self,
        device: &Device,
        target: &DeviceBuffer,
        bytes: usize,
    ) -> Result<(), BackendError> {
        device.context.bind_to_thread().map_err(device_error)?;
        let source = &self.host.as_slice()[..bytes];
        // SAFETY: both sides have the room; the source is not written again before the event.
        unsafe {
            let stream = device.stream.cu_stream();
            cudarc::driver::result::memcpy_htod_async(target.ptr(), source, stream)
        }
        .map_err(device_error)?;
        self.uploaded.record(&device.stream).map_err(device_error)
    }
}

impl Parts {
    fn new(plan: &StepPlan, works: &[(HeadShape, Work)], shape: Option<&Shape>) -> Self {
        let tokens = shape.map_or(plan.tokens(), |shape| shape.tokens);
        let logit_rows = shape.map_or(plan.logit_tokens().len(), |shape| shape.logit_rows);
        let mut at = 0;
        let mut take = |words: usize| {
            let start = at;
            // 16-byte alignment: units and tiles are read as vectors.
            at += words.next_multiple_of(4);
            start
        };
        let room = |i: usize, work: &Work| {
            let exact = WorkRoom::exact(work);
            shape.and_then(|shape| shape.work.get(i)).map_or(exact, |(_, room)| *room)
        };
        let n_groups = shape.map_or_else(|| groups(plan).len(), |shape| shape.adapter_groups);
        let mut parts = Parts {
            tokens,
            logit_rows,
            n_groups,
            ids: take(tokens),
            positions: take(tokens),
            slots: take(tokens),
            logit_tokens: take(logit_rows),
            adapters: take(if plan.has_adapters() { tokens * USE_WORDS } else { 0 }),
            groups: take(n_groups * TOGETHER),
            ..Parts::default()
        };
        for (i, (_, work)) in works.iter().enumerate() {
            let room = room(i, work);
            let words = [1, UNIT_WORDS * room.units, TILE_WORDS * room.tiles];
            parts.work.push(words.map(&mut take));
        }
        // Last, because their lengths are no part of a shape.
        parts.pages = take((0..plan.rows()).map(|row| plan.pages(row).len()).sum());
        parts.last_rows = take(plan.rows());
        parts.words = at;
        parts
    }

    /// Writes all numbers; padding tokens have id 0, position 0 and no slot.
    fn fill(&self, plan: &StepPlan, works: &[(HeadShape, Work)], words: &mut [u32]) {
        put(words, self.ids, plan.ids());
        put(words, self.logit_tokens, plan.logit_tokens());
        let mut page_start = 0;
        for row in 0..plan.rows() {
            let (past, pages) = (plan.past(row), plan.pages(row));
            put(words, self.pages + page_start, pages);
            page_start += pages.len();
            for (i, token) in plan.token_range(row).enumerate() {
                let position = past + i;
                let page = pages[position / PAGE_TOKENS];
                words[self.positions + token] = position as u32;
                words[self.slots + token] =
                    page * PAGE_TOKENS as u32 + (position % PAGE_TOKENS) as u32;
            }
        }
        for token in plan.tokens()..self.tokens {
            words[self.ids + token] = 0;
            words[self.positions + token] = 0;
            words[self.slots + token] = NO_SLOT;
        }
        // There are at least as many tokens as rows of logits.
        for row in plan.logit_tokens().len()..self.logit_rows {
            words[self.logit_tokens + row] = row as u32;
        }
        for (row, last) in plan.last_logit_rows().enumerate() {
            words[self.last_rows + row] = last.map_or(NO_LOGITS, |last| last as u32);
        }
        if plan.has_adapters() {
            put(words, self.adapters, &use_words(plan, self.tokens));
            words[self.groups..self.groups + self.n_groups * TOGETHER].fill(u32::MAX);
            put(words, self.groups, groups(plan).as_flattened());
        }
        for ((_, work), [n_units, units, tiles]) in works.iter().zip(&self.work) {
            words[*n_units] = work.units.len() as u32;
            put(words, *units, unit_words(&work.units));
            put(words, *tiles, tile_words(&work.tiles));
        }
    }

    fn pointers(&self, base: u64) -> StepPointers {
        let at = |word: usize| base + 4 * word as u64;
        StepPointers {
            ids: at(self.ids),
            positions: at(self.positions),
            slots: at(self.slots),
            logit_tokens: at(self.logit_tokens),
            last_rows: at(self.last_rows),
            adapters: at(self.adapters),
            adapter_groups: at(self.groups),
        }
    }

    fn work_pointers(&self, base: u64, index: usize, room: WorkRoom) -> WorkPointers {
        let at = |word: usize| base + 4 * word as u64;
        let [n_units, units, tiles] = self.work[index];
        WorkPointers {
            n_units: at(n_units),
            units: at(units),
            tiles: at(tiles),
            pages: at(self.pages),
            room,
        }
    }
}

fn put(words: &mut [u32], at: usize, values: &[u32]) {
    words[at..at + values.len()].copy_from_slice(values);
}

#[cfg(test)]
mod tests {
    use pagella_backend::{LogitUse, StepRow};

    use super::*;

    const HEADS: HeadShape = HeadShape { heads: 8, kv_heads: 2 };

    /// A plan of rows with so many tokens before and in the step.
    fn plan(rows: &[(usize, usize)], logits: LogitUse) -> (StepPlan, Vec<(HeadShape, Work)>) {
        let (ids, pages) = (vec![7; 256], (0..64).collect::<Vec<u32>>());
        let row = |&(past, new): &(usize, usize)| StepRow::new(&ids[..new], past, &pages, logits);
        let plan = StepPlan::new(&rows.iter().map(row).collect::<Vec<_>>()).unwrap();
        let works = vec![(HEADS, Work::of(&plan, HEADS))];
        (plan, works)
    }

    fn shape(rows: &[(usize, usize)], logits: LogitUse) -> Option<Shape> {
        let (plan, works) = plan(rows, logits);
        recordable_shape(&plan, &works)
    }

    #[test]
    fn plans_of_one_shape_differ_in_data_only() {
        let choice = LogitUse::Choice;
        let three = shape(&[(5, 1), (70, 1), (0, 1)], choice).unwrap();
        assert_eq!((three.tokens, three.logit_rows), (4, 4));
        assert_eq!(shape(&[(9, 1), (3, 1), (8, 1), (60, 1)], choice), Some(three.clone()));
        assert_ne!(shape(&[(5, 1); 5], choice), Some(three.clone()));
        // As many tokens, cut differently: the drafts of a row are attended together.
        let drafts = LogitUse::Check { drafted: 3 };
        let checked = shape(&[(5, 4)], drafts).unwrap();
        assert_eq!((checked.tokens, checked.logit_rows), (4, 4));
        assert_eq!(shape(&[(40, 4)], drafts), Some(checked));
        let long = LogitUse::Check { drafted: 19 };
        assert_ne!(shape(&[(5, 20)], long), shape(&[(5, 1); 20], choice));
    }

    #[test]
    fn prompts_are_not_recorded() {
        assert_eq!(shape(&[(5, 1), (0, 9)], LogitUse::Choice), None);
        assert_eq!(shape(&[(0, 3)], LogitUse::None), None);
        assert_eq!(shape(&[(0, 129)], LogitUse::Score { choice: true }), None);
    }

    #[test]
    fn padding_writes_nothing_and_stays_among_the_tokens() {
        let (plan, works) = plan(&[(300, 3), (2, 2)], LogitUse::Score { choice: true });
        let shape = recordable_shape(&plan, &works);
        let parts = Parts::new(&plan, &works, shape.as_ref());
        let mut words = vec![99; parts.words];
        parts.fill(&plan, &works, &mut words);
        let part = |at: usize| &words[at..at + 8];
        assert_eq!(part(parts.ids), [7, 7, 7, 7, 7, 0, 0, 0]);
        assert_eq!(part(parts.positions), [300, 301, 302, 2, 3, 0, 0, 0]);
        let slots = [300, 301, 302, 2, 3, NO_SLOT, NO_SLOT, NO_SLOT];
        assert_eq!(part(parts.slots), slots);
        assert_eq!(part(parts.logit_tokens), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
    #[test]
    fn every_row_knows_its_last_row_of_logits_behind_all_that_recordings_name() {
        let (ids, pages) = ([7; 4], [0, 1]);
        let uses = [LogitUse::Choice, LogitUse::None, LogitUse::last(3), LogitUse::Choice];
        let rows = uses.map(|logits| StepRow::new(&ids, 300, &pages, logits));
        let plan = StepPlan::new(&rows).unwrap();
        let works = vec![(HEADS, Work::of(&plan, HEADS))];
        let parts = Parts::new(&plan, &works, None);
        let mut words = vec![99; parts.words];
        parts.fill(&plan, &works, &mut words);
        assert_eq!(words[parts.last_rows..][..4], [0, NO_LOGITS, 3, 4]);
        let earlier = [parts.ids, parts.positions, parts.slots, parts.logit_tokens, parts.pages];
        assert!(earlier.iter().all(|at| *at < parts.last_rows));
    }
}
