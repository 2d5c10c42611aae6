//! Counts and times of a request, as clients read them.

use std::time::{Duration, Instant};

use pagella_backend::PAGE_TOKENS;
use pagella_engine::Completion;
use serde_json::{Value, json};

/// Counts and times of one request, over all its choices.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// Tokens of all prompts, each once.
    pub prompt_tokens: usize,
    /// Of these, not computed again.
    pub cached_tokens: usize,
    /// Tokens written, over all choices.
    pub completion_tokens: usize,
    /// Of these, reasoning.
    pub reasoning_tokens: usize,
    /// Tokens that were guessed right, over all choices.
    accepted_draft_tokens: usize,
    /// Tokens that were guessed wrong.
    rejected_draft_tokens: usize,
    /// Steps that checked guesses, of all choices.
    draft_steps: usize,
    /// The same, of choices whose request came with a prediction.
    accepted_prediction_tokens: usize,
    rejected_prediction_tokens: usize,
    written_tokens: usize,
    queue: Duration,
    prompt: Duration,
    completion: Duration,
    draft: Duration,
    total: Duration,
}

fn per_second(tokens: usize, time: Duration) -> Option<f64> {
    let seconds = time.as_secs_f64();
    (seconds > 0.0).then(|| tokens as f64 / seconds)
}

impl Usage {
    /// Adds up finished jobs; `n` neighbouring ones share a prompt, which counts once.
    pub fn of(done: &[Option<Completion>], n: usize, begun: Instant) -> Self {
        let mut usage = Usage { total: begun.elapsed(), ..Usage::default() };
        for same_prompt in done.chunks(n.max(1)) {
            let ended = || same_prompt.iter().flatten();
            let prompt = ended().map(|job| job.prompt_tokens).max().unwrap_or(0);
            // The first to be computed finds what was there before; its siblings find all of it.
            let cached = ended().map(|job| job.cached_tokens).min().unwrap_or(0);
            usage.prompt_tokens += prompt;
            usage.cached_tokens += cached;
            let whole_pages = prompt / PAGE_TOKENS * PAGE_TOKENS;
            usage.written_tokens += whole_pages.saturating_sub(cached);
            usage.completion_tokens += ended().map(|job| job.new_tokens).sum::<usize>();
        }
        for job in done.iter().flatten() {
            usage.accepted_draft_tokens += job.accepted_draft_tokens;
            usage.rejected_draft_tokens += job.rejected_draft_tokens;
            usage.draft_steps += job.draft_steps;
            usage.draft += job.time_draft;
            usage.accepted_prediction_tokens += job.accepted_prediction_tokens;
            usage.rejected_prediction_tokens += job.rejected_prediction_tokens;
            usage.queue = usage.queue.max(job.time_enqueued);
            usage.prompt = usage.prompt.max(job.time_prefill);
            usage.completion = usage.completion.max(job.time_generate);
        }
        usage
    }

    /// OpenAI's object, with TabbyAPI's times in seconds.
    pub fn openai(&self) -> Value {
        let computed = self.prompt_tokens.saturating_sub(self.cached_tokens);
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {
                "cached_tokens": self.cached_tokens,
                "cache_write_tokens": self.written_tokens,
                "image_tokens": 0,
            },
            "completion_tokens_details": {
                "reasoning_tokens": self.reasoning_tokens,
                "accepted_prediction_tokens": self.accepted_prediction_tokens,
                "rejected_prediction_tokens": self.rejected_prediction_tokens,
            },
            "queue_time": self.queue.as_secs_f64(),
            "prompt_time": self.prompt.as_secs_f64(),
            "prompt_tokens_per_sec": per_second(computed, self.prompt),
            "completion_time": self.completion.as_secs_f64(),
            "completion_tokens_per_sec": per_second(self.completion_tokens, self.completion),
            "total_time": self.total.as_secs_f64(),
            "draft_accepted_tokens": self.accepted_draft_tokens,
            "draft_rejected_tokens": self.rejected_draft_tokens,
            "draft_steps": self.draft_steps,
            "draft_time": self.draft.as_secs_f64(),
        })
    }

    /// The object of a response.
    pub fn responses(&self) -> Value {
        json!({
            "input_tokens": self.prompt_tokens,
            "input_tokens_details": {
                "cached_tokens": self.cached_tokens,
                "cache_write_tokens": self.written_tokens,
            },
            "output_tokens": self.completion_tokens,
            "output_tokens_details": { "reasoning_tokens": self.reasoning_tokens },
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        })
    }

    /// Ollama's counts and times, in nanoseconds; `load` is how long the model was waited for.
    pub fn ollama(&self, load: Duration) -> Value {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        json!({
            "total_duration": nanos(self.total),
            "load_duration": nanos(load),
            "prompt_eval_count": self.prompt_tokens,
            "prompt_eval_duration": nanos(self.prompt),
            "eval_count": self.completion_tokens,
            "eval_duration": nanos(self.completion),
        })
    }

    /// llama.cpp's object, in milliseconds.
    pub fn timings(&self) -> Value {
        let computed = self.prompt_tokens.saturating_sub(self.cached_tokens);
        let mut timings = json!({
            "cache_n": self.cached_tokens,
            "prompt_n": computed,
            "prompt_ms": self.prompt.as_secs_f64() * 1e3,
            "prompt_per_second": per_second(computed, self.prompt),
            "predicted_n": self.completion_tokens,
            "predicted_ms": self.completion.as_secs_f64() * 1e3,
            "predicted_per_second": per_second(self.completion_tokens, self.completion),
        });
        let guessed = self.accepted_draft_tokens + self.rejected_draft_tokens;
        // As there: only where something was guessed.
        if guessed > 0 {
            timings["draft_n"] = guessed.into();
            timings["draft_n_accepted"] = self.accepted_draft_tokens.into();
        }
        timings
    }
}
