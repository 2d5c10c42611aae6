//! A model for tests of scheduling and text: what follows is a checksum of the ids in the cache.
//!
//! Where a real cache stores keys and values it stores the running checksum of every position, read
//! through the plan's page lists. Any wrong reuse, copy, rotation or rollback changes what follows.
//! It serves tests only; everything about the quality of text is tested on the demo model.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pagella_arch::{ModelSpec, SpecOptions, spec_from_json};
use pagella_backend::{
    AdapterUse, KvFormat, NarrowAsk, NarrowRow, PAGE_TOKENS, StepPlan, narrow_plain,
};
use pagella_model::AdapterPart;
use pagella_text::Tokenizer;

use crate::{EngineError, Forward, LogitRows, RowAsk};

/// Size of the stand-in's vocabulary.
pub const VOCAB: usize = 64;
/// Ids below have a token.
pub const TOKENS: usize = 58;
/// The control token.
pub const END: u32 = 57;

/// A tokenizer for it: ids 0–51 are the letters a–z and A–Z, 52 is a space, 53–55 are the three
/// bytes of `€`, 56 is `END`, 57 a control token. Ids above have no token.
pub fn tokenizer() -> Tokenizer {
    let letters = ('a'..='z').chain('A'..='Z').map(String::from);
    // The byte-level alphabet writes a space as Ġ and the bytes E2 82 AC as below.
    let rest = ["Ġ", "â", "Ĥ", "¬", "END", "<|end|>"].map(String::from);
    let vocab: Vec<String> =
        letters.chain(rest).enumerate().map(|(id, piece)| format!("{piece:?}: {id}")).collect();
    let json = format!(
        r#"{{"model": {{"type": "BPE", "vocab": {{{}}}, "merges": []}},
            "pre_tokenizer": {{"type": "ByteLevel", "add_prefix_space": false,
                "trim_offsets": true, "use_regex": false}},
            "decoder": {{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}},
            "added_tokens": [{{"id": 57, "content": "<|end|>", "special": true}}]}}"#,
        vocab.join(", ")
    );
    Tokenizer::from_json_bytes(json.as_bytes()).unwrap()
}

/// The checksum after one more id.
fn next_sum(sum: u64, id: u32) -> u64 {
    (sum * 1_000_003 + u64::from(id) * 7919 + 12345) % ((1 << 31) - 1)
}

/// Logits that belong to a checksum: one clear winner, and a fixed order among the others.
fn logits_of(sum: u64) -> impl Iterator<Item = f32> {
    let winner = sum / 7 % VOCAB as u64;
    (0..VOCAB as u64).map(move |id| {
        let mixed = (sum ^ (id << 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let other = (mixed >> 40) as f32 / (1u64 << 24) as f32 * 3.0;
        if id == winner { 4.0 } else { other }
    })
}

/// The checksum after each id.
pub fn sums(ids: &[u32]) -> Vec<u64> {
    let sums = ids.iter().scan(1, |sum, &id| {
        *sum = next_sum(*sum, id);
        Some(*sum)
    });
    sums.collect()
}

/// What follows `prompt` when the most likely id with a token is always taken.
pub fn greedy_ids(prompt: &[u32], n: usize) -> Vec<u32> {
    let mut sum = prompt.iter().fold(1, |sum, &id| next_sum(sum, id));
    let mut ids = Vec::new();
    for _ in 0..n {
        let mut best = (0, f32::MIN);
        for (id, logit) in logits_of(sum).enumerate().take(TOKENS) {
            if logit > best.1 {
                best = (id as u32, logit);
            }
        }
        ids.push(best.0);
        sum = next_sum(sum, best.0);
    }
    ids
}

/// One row of a recorded step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRecord {
    /// Tokens in the cache before.
    pub past: usize,
    /// New tokens.
    pub tokens: usize,
    /// Rows of logits.
    pub logits: usize,
}

/// The stand-in; clones share their record of steps, not their cache.
#[derive(Clone)]
pub struct StandIn {
    spec: ModelSpec,
    step_tokens_max: usize,
    pages: Vec<[u64; PAGE_TOKENS]>,
    /// Logits of the last step.
    logits: Vec<f32>,
    /// Most candidates of a narrowed row, where rows are narrowed.
    narrowed_top: Option<usize>,
    /// The checksum before the first id.
    first_sum: u64,
    record: Arc<Mutex<Record>>,
}

#[derive(Default)]
struct Record {
    /// Rows of every step.
    steps: Vec<Vec<StepRecord>>,
    copied_tokens: usize,
    whole_rows: usize,
    narrowed_rows: usize,
    fail_at: Option<usize>,
    fail_read_at: Option<usize>,
    panic_at: Option<usize>,
    /// Parts in every slot.
    parts: BTreeMap<u32, usize>,
    /// Parts that can still be filled before one fails.
    fills_left: Option<usize>,
    /// Slots that cannot be emptied before one can.
    failing_clears: usize,
    delay: Duration,
    /// Ids that win, by the position of the token they follow, instead of the checksum.
    script: Vec<(usize, u32)>,
}

impl StandIn {
    /// A stand-in with this context and a cache of the same size, in tokens.
    pub fn new(context: usize, step_tokens_max: usize) -> Self {
        Self::with_cache(context, context.div_ceil(PAGE_TOKENS), step_tokens_max)
    }

    /// A stand-in with this context in tokens and a cache of `n_pages`.
    pub fn with_cache(context: usize, n_pages: usize, step_tokens_max: usize) -> Self {
        let config = format!(
            r#"{{"architectures": ["LlamaForCausalLM"], "vocab_size": {VOCAB}, "hidden_size": 64,
                "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 64,
                "rms_norm_eps": 1e-5, "max_position_embeddings": {context}}}"#
        );
        let spec = spec_from_json(config.as_bytes(), None, &SpecOptions::default()).unwrap();
        let pages = vec![[u64::MAX >> 16; PAGE_TOKENS]; n_pages];
        let (logits, narrowed_top) = (Vec::new(), None);
        let (first_sum, record) = (1, Arc::default());
        StandIn { spec, step_tokens_max, pages, logits, narrowed_top, first_sum, record }
    }

    /// A stand-in that says other things than the others.
    pub fn astray(mut self) -> Self {
        self.first_sum = 2;
        self
    }

    /// Narrows rows as a device does, to `top` candidates even if more are asked for.
    pub fn narrowing(self, top: usize) -> Self {
        StandIn { narrowed_top: Some(top), ..self }
    }

    /// How many rows were read whole, and how many were narrowed.
    pub fn rows_read(&self) -> (usize, usize) {
        let record = self.record.lock().unwrap();
        (record.whole_rows, record.narrowed_rows)
    }

    /// Makes the step with this index fail when it is read, once.
    pub fn fail_read_at_step(&self, step: usize) {
        self.record.lock().unwrap().fail_read_at = Some(step);
    }

    /// Makes `ids` win from the token at `position` on, whatever the checksum says.
    pub fn script(&self, position: usize, ids: &[u32]) {
        let mut record = self.record.lock().unwrap();
        record.script = (position..).zip(ids.iter().copied()).collect();
    }

    /// Every step so far.
    pub fn steps(&self) -> Vec<Vec<StepRecord>> {
        self.record.lock().unwrap().steps.clone()
    }

    /// Ids computed so far.
    pub fn forwarded(&self) -> usize {
        self.steps().iter().flatten().map(|row| row.tokens).sum()
    }

    /// Tokens copied between pages so far.
    pub fn copied(&self) -> usize {
        self.record.lock().unwrap().copied_tokens
    }

    /// Makes the step with this index fail, once.
    pub fn fail_at_step(&self, step: usize) {
        self.record.lock().unwrap().fail_at = Some(step);
    }

    /// Makes the step with this index panic, once.
    pub fn panic_at_step(&self, step: usize) {
        self.record.lock().unwrap().panic_at = Some(step);
    }

    /// Makes every step take this long.
    pub fn delay(&self, delay: Duration) {
        self.record.lock().unwrap().delay = delay;
    }

    /// Notes a step; an error or a panic if one was ordered.
    fn note(&self, plan: &StepPlan) -> Result<(), EngineError> {
        let mut record = self.record.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let step = record.steps.len();
        std::thread::sleep(record.delay);
        let rows = (0..plan.rows()).map(|row| {
            let range = plan.token_range(row);
            let wanted = |token: &&u32| range.contains(&(**token as usize));
            let logits = plan.logit_tokens().iter().filter(wanted).count();
            StepRecord { past: plan.past(row), tokens: range.len(), logits }
        });
        let rows = rows.collect();
        record.steps.push(rows);
        if record.panic_at.take_if(|at| *at == step).is_some() {
            drop(record);
            panic!("ordered by a test");
        }
        match record.fail_at.take_if(|at| *at == step) {
            Some(_) => Err(EngineError::LogitsShape { expected: 1, found: 0 }),
            None => Ok(()),
        }
    }

    /// What adapters change of an id: nothing without any. They must be there.
    fn adapted(&self, adapters: &[AdapterUse]) -> u32 {
        let record = self.record.lock().unwrap();
        assert!(adapters.iter().all(|used| record.parts.contains_key(&used.slot)));
        let one = |used: &AdapterUse| (used.slot + 1).wrapping_mul(used.scale.to_bits() >> 7);
        adapters.iter().fold(0, |all: u32, used| all.wrapping_mul(31).wrapping_add(one(used)))
    }

    /// Slots with something in them.
    pub fn filled_slots(&self) -> Vec<u32> {
        self.record.lock().unwrap().parts.keys().copied().collect()
    }

    /// Lets this many parts of adapters be filled; the next one fails. `None`: all.
    pub fn fail_fill_after(&self, parts: Option<usize>) {
        self.record.lock().unwrap().fills_left = parts;
    }

    /// Lets so many attempts to empty a slot fail.
    pub fn fail_clears(&self, attempts: usize) {
        self.record.lock().unwrap().failing_clears = attempts;
    }

    fn scripted(&self, position: usize) -> Option<u32> {
        let record = self.record.lock().unwrap();
        record.script.iter().find(|(at, _)| *at == position).map(|(_, id)| *id)
    }
}

impl Forward for StandIn {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn step_tokens_max(&self) -> usize {
        self.step_tokens_max
    }

    fn cache_tokens(&self) -> usize {
        self.pages.len() * PAGE_TOKENS
    }

    fn kv_format(&self) -> KvFormat {
        KvFormat::F32
    }

    fn narrows(&self) -> bool {
        self.narrowed_top.is_some()
    }

    fn recorded_tokens(&self) -> &'static [usize] {
        if self.narrows() { &[1, 2, 4, 8] } else { &[] }
    }

    fn read(&mut self, asks: &[RowAsk<'_>], rows: &mut LogitRows) -> Result<(), EngineError> {
        let mut record = self.record.lock().unwrap();
        let last = record.steps.len().checked_sub(1);
        if record.fail_read_at.take_if(|at| Some(*at) == last).is_some() {
            return Err(EngineError::LogitsShape { expected: 1, found: 0 });
        }
        assert_eq!(asks.len() * VOCAB, self.logits.len());
        rows.clear(VOCAB);
        rows.narrowed_memory().clear();
        for (idx, (ask, logits)) in asks.iter().zip(self.logits.chunks_exact(VOCAB)).enumerate() {
            match (ask, self.narrowed_top) {
                (RowAsk::Nothing, _) => rows.push_nothing(),
                (RowAsk::Narrowed(ask), Some(most)) => {
                    ask.check(asks.len(), VOCAB).unwrap();
                    assert_eq!(ask.row, idx);
                    let ask = NarrowAsk { top: ask.top.min(most), ..*ask };
                    let mut row = NarrowRow::default();
                    narrow_plain(logits, &ask, &mut row);
                    rows.narrowed_memory().push(row);
                    rows.push_narrowed();
                    record.narrowed_rows += 1;
                }
                (RowAsk::Whole | RowAsk::Narrowed(_), _) => {
                    rows.push_whole(|out| {
                        out.clear();
                        out.extend_from_slice(logits);
                        Ok(())
                    })?;
                    record.whole_rows += 1;
                }
            }
        }
        Ok(())
    }

    fn launch(&mut self, plan: &StepPlan) -> Result<(), EngineError> {
        assert!(plan.tokens() <= self.step_tokens_max);
        let result = self.note(plan);
        let mut logits = std::mem::take(&mut self.logits);
        logits.clear();
        let mut written = Vec::new();
        for row in 0..plan.rows() {
            let (pages, past) = (plan.pages(row), plan.past(row));
            let range = plan.token_range(row);
            let first_page = past / PAGE_TOKENS;
            written.extend_from_slice(&pages[first_page..]);
            for (offset, token) in range.enumerate() {
                let at = past + offset;
                let slot = |at: usize| (pages[at / PAGE_TOKENS] as usize, at % PAGE_TOKENS);
                let before = match at {
                    0 => self.first_sum,
                    _ => {
                        let (page, at) = slot(at - 1);
                        self.pages[page][at]
                    }
                };
                let sum = next_sum(before, plan.ids()[token] ^ self.adapted(plan.adapters(row)));
                let (page, in_page) = slot(at);
                self.pages[page][in_page] = sum;
                if !plan.logit_tokens().contains(&(token as u32)) {
                    continue;
                }
                match self.scripted(at) {
                    Some(id) => {
                        logits.extend((0..VOCAB).map(|i| f32::from(u8::from(i == id as usize))))
                    }
                    None => logits.extend(logits_of(sum)),
                }
            }
        }
        let n = written.len();
        written.sort_unstable();
        written.dedup();
        assert_eq!(written.len(), n, "two rows write one page");
        self.logits = logits;
        result
    }

    /// The checksum of a token in the first place, and ones.
    fn hidden_states(&mut self, plan: &StepPlan, states: &mut Vec<f32>) -> Result<(), EngineError> {
        self.launch(plan)?;
        states.clear();
        for row in 0..plan.rows() {
            for offset in 0..plan.token_range(row).len() {
                let at = plan.past(row) + offset;
                let sum = self.pages[plan.pages(row)[at / PAGE_TOKENS] as usize][at % PAGE_TOKENS];
                states.push(sum as f32);
                states.resize(states.len() + self.spec.hidden - 1, 1.0);
            }
        }
        Ok(())
    }

    fn fill_adapter(&mut self, slot: u32, _part: &AdapterPart) -> Result<(), EngineError> {
        let mut record = self.record.lock().unwrap();
        // A part that fails half-way may have taken something.
        *record.parts.entry(slot).or_default() += 1;
        match &mut record.fills_left {
            Some(0) => Err(EngineError::LogitsShape { expected: 1, found: 0 }),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn clear_adapter(&mut self, slot: u32) -> Result<(), EngineError> {
        let mut record = self.record.lock().unwrap();
        if record.failing_clears > 0 {
            record.failing_clears -= 1;
            return Err(EngineError::LogitsShape { expected: 1, found: 0 });
        }
        record.parts.remove(&slot);
        Ok(())
    }

    fn copy_pages(&mut self, moves: &[(u32, u32)]) -> Result<(), EngineError> {
        for &(from, to) in moves {
            self.pages[to as usize] = self.pages[from as usize];
        }
        Ok(())
    }

    fn copy_page_prefix(&mut self, from: u32, to: u32, tokens: usize) -> Result<(), EngineError> {
        let source = self.pages[from as usize];
        self.pages[to as usize][..tokens].copy_from_slice(&source[..tokens]);
        self.record.lock().unwrap().copied_tokens += tokens;
        Ok(())
    }

    fn page_bytes(&self) -> usize {
        PAGE_TOKENS * 8
    }

    fn read_page(&mut self, page: u32, out: &mut Vec<u8>) -> Result<(), EngineError> {
        out.clear();
        out.extend(self.pages[page as usize].iter().flat_map(|sum| sum.to_le_bytes()));
        Ok(())
    }

    fn write_page(&mut self, page: u32, bytes: &[u8]) -> Result<(), EngineError> {
        for (slot, bytes) in self.pages[page as usize].iter_mut().zip(bytes.chunks_exact(8)) {
            *slot = u64::from_le_bytes(bytes.try_into().unwrap());
        }
        Ok(())
    }
}
