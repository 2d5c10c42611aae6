//! `Session`: one sequence and its place in the cache.
//!
//! Invariant: `ids` are exactly the tokens whose keys and values are in pages `0..`; a failed step
//! leaves it true, because ids are recorded only after their step succeeded.

use pagella_arch::ModelSpec;
use pagella_backend::{AdapterUse, LogitUse, NarrowAsk, PAGE_TOKENS, StepPlan, StepRow};
use pagella_model::BoundAdapter;

use crate::logit_rows::{LogitRows, RowAnswer, RowAsk};
use crate::score::argmax;
use crate::{EngineError, Forward};

/// One sequence, its cache, and the logits of its newest token.
pub struct Session {
    forward: Box<dyn Forward>,
    ids: Vec<u32>,
    /// Pages of the cache in order; this milestone's sequence owns all of them.
    pages: Vec<u32>,
    /// Tokens the session may hold: the smaller of cache and model context.
    capacity: usize,
    /// Logits of the newest token, after `prefill` or `decode`. Shape `[vocab]`.
    logits: Vec<f32>,
    /// What `write` learnt of a row.
    rows: LogitRows,
    /// In slots from 0 on.
    adapters: Vec<AdapterUse>,
}

/// What a prefill had to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefill {
    /// Tokens found in the cache.
    pub cached: usize,
    /// Tokens computed.
    pub computed: usize,
}

impl Session {
    /// An empty sequence over a model. The context is that of the model's spec, or the cache if
    /// that is smaller.
    pub fn new(forward: Box<dyn Forward>) -> Self {
        let cache_tokens = forward.cache_tokens();
        let capacity = forward.spec().context.min(cache_tokens);
        let n_pages = cache_tokens.div_ceil(PAGE_TOKENS);
        let pages = (0..n_pages as u32).collect();
        let (ids, logits, rows) = (Vec::new(), Vec::new(), LogitRows::default());
        Session { forward, ids, pages, capacity, logits, rows, adapters: Vec::new() }
    }

    /// Adds an adapter to those that the sequence has, and forgets everything.
    pub fn add_adapter(&mut self, adapter: &BoundAdapter, scale: f32) -> Result<(), EngineError> {
        let slot = self.adapters.len() as u32;
        adapter.parts().iter().try_for_each(|part| self.forward.fill_adapter(slot, part))?;
        self.adapters.push(AdapterUse { slot, scale });
        self.clear();
        Ok(())
    }

    /// Gives the model and its cache back.
    pub fn into_forward(self) -> Box<dyn Forward> {
        self.forward
    }

    /// The model as data.
    pub fn spec(&self) -> &ModelSpec {
        self.forward.spec()
    }

    /// Tokens the session may hold, reply included.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Most new tokens of one step.
    pub fn step_tokens_max(&self) -> usize {
        self.forward.step_tokens_max()
    }

    /// Tokens in the cache.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Logits of the newest token; empty before the first step. Shape `[vocab]`.
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.ids.clear();
        self.logits.clear();
    }

    /// Makes the sequence equal to `prompt` and computes the logits of its last token. Tokens that
    /// the cache already holds from the start on are not computed again, except the last one, whose
    /// logits are wanted.
    pub fn prefill(&mut self, prompt: &[u32]) -> Result<Prefill, EngineError> {
        if prompt.is_empty() {
            return Err(EngineError::EmptyPrompt);
        }
        if prompt.len() > self.capacity {
            let capacity = self.capacity;
            return Err(EngineError::PromptTooLong { prompt: prompt.len(), capacity });
        }
        let common = self.ids.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let cached = common.min(prompt.len() - 1);
        self.ids.truncate(cached);
        let mut logits = std::mem::take(&mut self.logits);
        let fed = self.feed(&prompt[cached..], Wanted::Last, &mut logits, |_, _| ());
        self.logits = logits;
        fed?;
        Ok(Prefill { cached, computed: prompt.len() - cached })
    }

    /// Appends one token and returns the id that the model finds most likely to follow, the lowest
    /// among equals. On a device only that id is read, so [`Session::logits`] is empty afterwards.
    pub fn write(&mut self, id: u32) -> Result<u32, EngineError> {
        self.expect_room()?;
        self.logits.clear();
        let ids = [id];
        let row = StepRow::new(&ids, self.ids.len(), &self.pages, LogitUse::Choice);
        let row = StepRow { adapters: &self.adapters, ..row };
        self.forward.launch(&StepPlan::new(&[row])?)?;
        let vocab = self.forward.spec().vocab;
        let best = NarrowAsk { row: 0, vocab, mask: None, apart: &[], top: 1, scale: None };
        self.forward.read(&[RowAsk::Narrowed(best)], &mut self.rows)?;
        let mut next = most_likely(self.rows.get(0));
        if next.is_none() {
            self.forward.read(&[RowAsk::Whole], &mut self.rows)?;
            next = most_likely(self.rows.get(0));
        }
        self.ids.push(id);
        next.ok_or(EngineError::LogitsShape { expected: vocab, found: 0 })
    }

    fn expect_room(&self) -> Result<(), EngineError> {
        if self.ids.len() < self.capacity {
            return Ok(());
        }
        Err(EngineError::ContextFull { capacity: self.capacity })
    }

    /// Appends one token and computes its logits.
    pub fn decode(&mut self, id: u32) -> Result<(), EngineError> {
        self.expect_room()?;
        let mut logits = std::mem::take(&mut self.logits);
        let fed = self.feed(&[id], Wanted::Last, &mut logits, |_, _| ());
        self.logits = logits;
        fed
    }

    /// Appends tokens and hands the logits of every one of them to `visit`, with its position.
    pub fn feed_all(
        &mut self,
        ids: &[u32],
        visit: impl FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        if self.ids.len() + ids.len() > self.capacity {
            return Err(EngineError::PromptTooLong {
                prompt: self.ids.len() + ids.len(),
                capacity: self.capacity,
            });
        }
        self.logits.clear();
        self.feed(ids, Wanted::All, &mut Vec::new(), visit)
    }

    /// Runs `ids` in chunks. `visit` sees every wanted row while its chunk's logits are at hand.
    fn feed(
        &mut self,
        ids: &[u32],
        wanted: Wanted,
        logits: &mut Vec<f32>,
        mut visit: impl FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        let n_chunks = ids.len().div_ceil(self.step_tokens_max());
        for (idx, chunk) in ids.chunks(self.step_tokens_max()).enumerate() {
            let logits_for = match wanted {
                Wanted::All => LogitUse::Score { choice: false },
                Wanted::Last if idx + 1 == n_chunks => LogitUse::Choice,
                Wanted::Last => LogitUse::None,
            };
            let past = self.ids.len();
            let row = StepRow::new(chunk, past, &self.pages, logits_for);
            let row = StepRow { adapters: &self.adapters, ..row };
            self.forward.forward(&StepPlan::new(&[row])?, logits)?;
            self.ids.extend_from_slice(chunk);
            let n_rows = logits_for.wanted(chunk.len());
            if n_rows == 0 {
                continue;
            }
            let vocab = logits.len() / n_rows;
            if vocab == 0 || vocab * n_rows != logits.len() {
                let expected = n_rows * self.spec().vocab;
                return Err(EngineError::LogitsShape { expected, found: logits.len() });
            }
            for (offset, row) in logits.chunks_exact(vocab).enumerate() {
                visit(past + chunk.len() - n_rows + offset, row);
            }
        }
        Ok(())
    }
}

/// The most likely id of a row; `None` if what is known of it does not tell.
fn most_likely(row: RowAnswer<'_>) -> Option<u32> {
    match row {
        RowAnswer::Whole(logits) => Some(argmax(logits) as u32),
        // Where numbers are missing, the whole row decides.
        RowAnswer::Narrowed(known) => known.top.first().filter(|_| known.nan == 0).map(|top| top.0),
        RowAnswer::Nothing => None,
    }
}

/// Which tokens of a feed need logits.
#[derive(Clone, Copy)]
enum Wanted {
    Last,
    All,
}

#[cfg(test)]
mod tests;
