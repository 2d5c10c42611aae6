//! Texts that wait for their vectors, and the one that is partly computed.
//!
//! Invariant: only `open` holds pages between two steps, and it always gets on: it has all it needs.

use std::collections::VecDeque;
use std::sync::Arc;

use pagella_backend::AdapterUse;

use crate::EngineError;
use crate::adapter::{self, Adapter};
use crate::embed::Pooling;
use crate::embed::pooling::Pool;
use crate::job::Facts;
use crate::pages::{PageIdx, PageTable};

/// Where the vectors of a job go. Dropped without a call when the job is cancelled.
pub(crate) type Reply = Box<dyn FnOnce(Result<Vec<Vec<f32>>, EngineError>) + Send>;

/// Texts that were asked for together.
pub(crate) struct EmbedJob {
    pub serial: u64,
    pooling: Pooling,
    /// Adapters that its rows have.
    adapters: Vec<AdapterUse>,
    /// Keeps them where they are.
    _held: Vec<(Adapter, f32)>,
    /// Texts that have not begun, with their places among the vectors.
    waiting: VecDeque<(usize, Vec<u32>)>,
    /// What is computed so far.
    vectors: Vec<Option<Vec<f32>>>,
    reply: Reply,
}

impl EmbedJob {
    /// Checks texts: each has tokens that the model knows, and fits it. They have the adapters that the
    /// engine gives to everything.
    pub fn new(
        serial: u64,
        texts: Vec<Vec<u32>>,
        pooling: Pooling,
        facts: &Facts,
        reply: Reply,
    ) -> Result<Self, EngineError> {
        let (vocab, capacity) = (facts.vocab, facts.capacity);
        if texts.is_empty() || texts.iter().any(Vec::is_empty) {
            return Err(EngineError::EmptyPrompt);
        }
        for ids in &texts {
            if ids.len() > capacity {
                return Err(EngineError::PromptTooLong { prompt: ids.len(), capacity });
            }
            if let Some(&id) = ids.iter().find(|id| **id as usize >= vocab) {
                return Err(EngineError::IdOutOfRange { id, vocab });
            }
        }
        let vectors = vec![None; texts.len()];
        let waiting = texts.into_iter().enumerate().collect();
        let held = facts.default_adapters.get();
        let (adapters, _) = adapter::checked(&held, &facts.engine)?;
        Ok(EmbedJob { serial, pooling, adapters, _held: held, waiting, vectors, reply })
    }
}

/// A text that has its pages.
pub(super) struct OpenText {
    pub serial: u64,
    place: usize,
    pub ids: Vec<u32>,
    /// Ids that are computed.
    pub fed: usize,
    pub pages: Vec<PageIdx>,
    /// Those of its job, which holds them.
    pub adapters: Vec<AdapterUse>,
    pub pool: Pool,
}

impl OpenText {
    /// Ids that are not computed yet.
    pub fn left(&self) -> usize {
        self.ids.len() - self.fed
    }
}

/// All jobs, in the order in which they get their turn.
#[derive(Default)]
pub(crate) struct Embeddings {
    jobs: VecDeque<EmbedJob>,
    open: Option<OpenText>,
    /// Why the last step failed, until someone looks.
    error: Option<Arc<EngineError>>,
}

impl Embeddings {
    pub fn push(&mut self, job: EmbedJob) {
        self.jobs.push_back(job);
    }

    /// Tasks that are not done.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Pages in use.
    pub fn pages(&self) -> &[PageIdx] {
        self.open.as_ref().map_or(&[], |open| &open.pages)
    }

    /// Pages were moved.
    pub fn follow(&mut self, new_index: &[PageIdx]) {
        for page in self.open.iter_mut().flat_map(|open| &mut open.pages) {
            *page = new_index[*page as usize];
        }
    }

    /// The text that is partly computed; whoever takes it brings it back or ends it.
    pub(super) fn take_open(&mut self) -> Option<OpenText> {
        self.open.take()
    }

    pub(super) fn keep_open(&mut self, text: OpenText) {
        self.open = Some(text);
    }

    /// Length of the text whose turn is next.
    pub(super) fn next_len(&mut self) -> Option<usize> {
        // Tasks take turns, so that a small one does not wait for a large one.
        let idx = self.jobs.iter().position(|job| !job.waiting.is_empty())?;
        self.jobs.rotate_left(idx);
        self.jobs.front()?.waiting.front().map(|(_, ids)| ids.len())
    }

    /// Begins the text whose turn it is.
    pub(super) fn begin(&mut self, pages: Vec<PageIdx>) -> Option<OpenText> {
        let job = self.jobs.front_mut()?;
        let (place, ids) = job.waiting.pop_front()?;
        let (adapters, pool) = (job.adapters.clone(), Pool::new(job.pooling));
        let text = OpenText { serial: job.serial, place, ids, fed: 0, pages, adapters, pool };
        self.jobs.rotate_left(1);
        Some(text)
    }

    /// Notes the vector of a text; answers when it was the last one of its job.
    pub(super) fn finish(&mut self, text: OpenText) {
        let Some(idx) = self.jobs.iter().position(|job| job.serial == text.serial) else {
            return;
        };
        let job = &mut self.jobs[idx];
        job.vectors[text.place] = Some(text.pool.finish());
        if job.vectors.iter().all(Option::is_some)
            && let Some(job) = self.jobs.remove(idx)
        {
            (job.reply)(Ok(job.vectors.into_iter().flatten().collect()));
        }
    }

    /// Why the last step failed, if it did and nobody has looked.
    pub fn take_error(&mut self) -> Option<Arc<EngineError>> {
        self.error.take()
    }

    /// Ends a job with an error.
    pub(super) fn fail(&mut self, serial: u64, error: &Arc<EngineError>) {
        self.error = Some(error.clone());
        if let Some(idx) = self.jobs.iter().position(|job| job.serial == serial)
            && let Some(job) = self.jobs.remove(idx)
        {
            (job.reply)(Err(EngineError::Failed(error.clone())));
        }
    }

    /// Forgets a job. Whether there was one.
    pub fn cancel(&mut self, serial: u64, table: &mut PageTable) -> bool {
        let before = self.jobs.len();
        self.jobs.retain(|job| job.serial != serial);
        if let Some(open) = self.open.take_if(|open| open.serial == serial) {
            open.pages.into_iter().for_each(|page| table.release(page));
        }
        self.jobs.len() < before
    }

    /// Gives all pages back; the text that had them begins again.
    pub fn close(&mut self, table: &mut PageTable) {
        let Some(open) = self.open.take() else { return };
        open.pages.into_iter().for_each(|page| table.release(page));
        if let Some(job) = self.jobs.iter_mut().find(|job| job.serial == open.serial) {
            job.waiting.push_front((open.place, open.ids));
        }
    }

    /// Ends every job after a panic, when no page can be relied on.
    pub fn fail_all(&mut self, error: &Arc<EngineError>) {
        self.open = None;
        for job in std::mem::take(&mut self.jobs) {
            (job.reply)(Err(EngineError::Failed(error.clone())));
        }
    }
}
