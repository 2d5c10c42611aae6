//! How a job ends, and the summary it leaves.

use std::sync::Arc;

use pagella_backend::PAGE_TOKENS;

use crate::EngineError;
use crate::job::record::{Completion, Held, Record, Stage};
use crate::job::state::Job;
use crate::job::text::Released;
use crate::job::{EosReason, JobOptions};

/// Why a job ends, with what belongs to that reason.
pub(crate) struct Ending {
    pub reason: EosReason,
    /// Id and piece.
    pub stop_token: Option<(u32, String)>,
    pub stop_string: Option<String>,
    pub stop_overlap: usize,
    pub held: Held,
    pub error: Option<Arc<EngineError>>,
}

impl Ending {
    pub fn of(reason: EosReason) -> Self {
        Ending {
            reason,
            stop_token: None,
            stop_string: None,
            stop_overlap: 0,
            held: Held::default(),
            error: None,
        }
    }

    pub fn failed(error: EngineError) -> Self {
        Self::failed_by(Arc::new(error))
    }

    pub fn failed_by(error: Arc<EngineError>) -> Self {
        Ending { error: Some(error), ..Self::of(EosReason::Error) }
    }
}

impl Record {
    /// Adds what became certain.
    pub(crate) fn add(&mut self, released: Released, options: &JobOptions) {
        if self.text.is_empty() {
            self.byte_offset = released.byte_offset;
        }
        self.text.push_str(&released.text);
        self.token_ends.extend(released.ends);
        for accepted in released.ids {
            self.token_ids.push(accepted.id);
            if options.return_probs {
                self.token_probs.push(accepted.p);
            }
            if options.return_top_tokens > 0 {
                self.top_k.push(accepted.top);
            }
            self.logprobs.extend(accepted.logprobs);
            self.logits.extend(accepted.logits);
            self.processed_logits.extend(accepted.processed_logits);
        }
    }
}

impl Job {
    /// An empty record of this job.
    pub fn record(&self) -> Record {
        Record {
            serial: self.serial,
            identifier: self.options.identifier.clone(),
            ..Record::default()
        }
    }

    /// The last record of a job that is stopped from outside. What was held stays held.
    pub fn stop(mut self, mut ending: Ending) -> Record {
        let (text, ids) = self.text.drop_held();
        (ending.held.text, ending.held.token_ids) = (text, ids);
        let record = self.record();
        self.finish(record, ending)
    }

    /// Completes the last record.
    pub fn finish(self, mut record: Record, ending: Ending) -> Record {
        let [time_enqueued, time_prefill, time_generate] = self.clock.spans();
        let time_to_first_token = self.clock.first_token.map(|at| at - self.clock.submitted);
        let n = self.sequences.len();
        let (text, token_ids) = self.text.finish();
        let mut held = ending.held;
        let (eos_token, eos_token_text) = ending.stop_token.unzip();
        held.token_ids.extend(eos_token);
        record.stage = Stage::Streaming;
        record.eos = Some(Box::new(Completion {
            text,
            token_ids,
            eos_reason: ending.reason,
            eos_token,
            eos_token_text,
            eos_string: ending.stop_string,
            stop_overlap: ending.stop_overlap,
            held,
            prompt_tokens: self.prompt_tokens,
            cached_pages: self.cached_tokens / n / PAGE_TOKENS,
            cached_tokens: self.cached_tokens / n,
            new_tokens: self.new_tokens,
            preemptions: self.preemptions,
            rewinds: self.points.rewinds,
            accepted_prediction_tokens: self.draft.predicted.0,
            rejected_prediction_tokens: self.draft.predicted.1,
            accepted_draft_tokens: self.draft.accepted,
            rejected_draft_tokens: self.draft.rejected,
            draft_steps: self.draft.steps,
            time_draft: self.draft.time,
            time_enqueued,
            time_prefill,
            time_generate,
            time_to_first_token,
            seed: self.options.sampling.seed,
            warnings: self.warnings,
            error: ending.error,
        }));
        record
    }
}
