//! From a `JobSpec` to a `Job`: every check that needs no page and no model, on the caller's thread.
//!
//! A job that was prepared can run: it fits the cache when it is alone there.

use std::sync::Arc;
use std::time::Instant;

use pagella_backend::PAGE_TOKENS;
use pagella_text::{BanMatcher, StopMatcher, StreamStart, Tokenizer};

use crate::EngineError;
use crate::constraint::{Bitmask, Constraint, HealingConstraint};
use crate::job::ban_watch::BanWatch;
use crate::job::rewind::RestorePoints;
use crate::job::state::{ConstraintSlot, JobClock};
use crate::job::text::TextState;
use crate::job::{
    EosReason, Healing, Job, JobSpec, JobState, LengthPolicy, Sequence, WeightedPrompt,
};
use crate::pages::Namespace;
use crate::sample::{Sampler, SamplerState, VocabSets};

/// How far the weights of a job's prompts may be from 1 in sum.
const WEIGHT_SUM_SLACK: f32 = 1e-3;

/// Memory for the rows of logits a job can go back to.
const RESTORE_BYTES_MAX: usize = 64 << 20;
/// A job can go back at least this many tokens, whatever they take.
const UNSETTLED_MIN: usize = 32;

/// What preparing a job needs to know of the engine.
pub(crate) struct Facts {
    pub tokenizer: Tokenizer,
    pub sets: Arc<VocabSets>,
    /// Entries of a row of logits.
    pub vocab: usize,
    /// Entries of a hidden state.
    pub hidden: usize,
    /// Longest sequence, reply included, in tokens.
    pub capacity: usize,
    pub n_pages: usize,
    /// Most sequences in one step.
    pub batch_max: usize,
}

/// Checks a request and makes it a job.
pub(crate) fn prepare(mut spec: JobSpec, serial: u64, facts: &Facts) -> Result<Job, EngineError> {
    let submitted = Instant::now();
    check_prompts(&mut spec, facts)?;
    let prompt_tokens = spec.prompts[0].ids.len();
    let mut warnings = Vec::new();
    // Nobody would write the end of the prompt again.
    let healed = match spec.max_new_tokens {
        Some(0) => Vec::new(),
        _ => heal(&mut spec, facts, &mut warnings)?,
    };
    let (new_tokens_max, limit_reason) = fit(&mut spec, healed.len(), facts)?;
    let sampler = Sampler::new(&spec.sampling, facts.sets.clone())?;
    let sampler_state = SamplerState::new(&spec.sampling);
    let stop = StopMatcher::new(&spec.stop_strings)?;
    let ban = match spec.banned.as_slice() {
        [] => None,
        rules => Some(BanWatch::new(BanMatcher::new(rules)?)),
    };
    let row_bytes = facts.vocab * size_of::<f32>();
    let unsettled_max = (RESTORE_BYTES_MAX / row_bytes.max(1)).max(UNSETTLED_MIN);
    let mut decoder = facts.tokenizer.stream_decoder(spec.specials, StreamStart::Continuation);
    decoder.show(&spec.shown_ids);
    decoder.skip_bytes(healed.len());
    let namespace = match (&spec.cache_salt, spec.return_prompt_logprobs) {
        // Logits are not kept, so pages that others filled are of no use.
        (_, Some(_)) => Namespace::of(&[("scored", &serial.to_le_bytes())]),
        (Some(salt), None) => Namespace::of(&[("salt", salt.as_bytes())]),
        (None, None) => Namespace::EMPTY,
    };
    let prompts = std::mem::take(&mut spec.prompts).into_iter();
    let sequences: Vec<Sequence> =
        prompts.map(|prompt| Sequence::new(prompt.ids, prompt.weight, namespace)).collect();
    let constraint = constraint_slot(&mut spec, &healed, facts)?;
    Ok(Job {
        serial,
        state: JobState::Queued,
        prompt_len: sequences[0].ids.len(),
        sequences,
        prompt_tokens,
        sampler,
        sampler_state,
        text: TextState::new(decoder, stop, ban, unsettled_max),
        points: RestorePoints::default(),
        tolerated: Vec::new(),
        constraint,
        healing_bytes: healed.len(),
        new_tokens_max,
        limit_reason,
        prompt_logprobs: Vec::new(),
        prompt_scored: 0,
        new_tokens: 0,
        skips: 0,
        deadline: spec.timeout.and_then(|timeout| submitted.checked_add(timeout)),
        queue_position: 0,
        resting: false,
        cached_tokens: 0,
        preemptions: 0,
        warnings,
        clock: JobClock::new(submitted),
        spec,
    })
}

fn check_prompts(spec: &mut JobSpec, facts: &Facts) -> Result<(), EngineError> {
    if spec.prompts.is_empty() || spec.prompts.iter().any(|prompt| prompt.ids.is_empty()) {
        return Err(EngineError::EmptyPrompt);
    }
    for prompt in &spec.prompts {
        if let Some(&id) = prompt.ids.iter().find(|&&id| id as usize >= facts.vocab) {
            return Err(EngineError::IdOutOfRange { id, vocab: facts.vocab });
        }
    }
    if spec.return_prompt_logprobs.is_some() && spec.prompts.len() > 1 {
        return Err(EngineError::ScoredPrompts { prompts: spec.prompts.len() });
    }
    let prompts = spec.prompts.len();
    if prompts > facts.batch_max {
        return Err(EngineError::TooManyPrompts { prompts, batch_max: facts.batch_max });
    }
    match (spec.sampling.cfg_scale, spec.prompts.as_mut_slice()) {
        (Some(scale), [positive, negative]) => {
            (positive.weight, negative.weight) = (scale, 1.0 - scale);
        }
        (Some(_), _) => return Err(EngineError::GuidanceWithoutPair { prompts }),
        (None, _) => {}
    }
    let sum: f32 = spec.prompts.iter().map(|prompt| prompt.weight).sum();
    if sum.is_nan() || (sum - 1.0).abs() > WEIGHT_SUM_SLACK {
        return Err(EngineError::PromptWeights { sum });
    }
    Ok(())
}

/// Takes back the end of the prompts and returns its bytes.
fn heal(
    spec: &mut JobSpec,
    facts: &Facts,
    warnings: &mut Vec<String>,
) -> Result<Vec<u8>, EngineError> {
    let cut = |prompt: &WeightedPrompt| match spec.healing {
        Healing::Off => (prompt.ids.len(), Vec::new()),
        Healing::Auto => {
            let point = facts.tokenizer.healing_point(&prompt.ids);
            (point.keep, point.prefix)
        }
        Healing::Ids(n) => {
            let keep = prompt.ids.len().saturating_sub(n).max(1);
            let removed = &prompt.ids[keep..];
            (
                keep,
                removed.iter().flat_map(|&id| facts.tokenizer.token_bytes(id)).copied().collect(),
            )
        }
    };
    let cuts: Vec<(usize, Vec<u8>)> = spec.prompts.iter().map(cut).collect();
    let (_, bytes) = &cuts[0];
    if cuts.iter().any(|(_, other)| other != bytes) {
        warnings.push("token healing is off: the prompts end in different text".to_owned());
        return Ok(Vec::new());
    }
    let bytes = bytes.clone();
    if bytes.is_empty() {
        return Ok(bytes);
    }
    for (prompt, (keep, _)) in spec.prompts.iter_mut().zip(cuts) {
        prompt.ids.truncate(keep);
    }
    Ok(bytes)
}

/// How many tokens may be sampled, and why no more. Shortens prompts where the policy says so.
fn fit(
    spec: &mut JobSpec,
    healed_bytes: usize,
    facts: &Facts,
) -> Result<(usize, EosReason), EngineError> {
    // Each healed id has at least one byte.
    let longest = spec.prompts.iter().map(|prompt| prompt.ids.len()).max().unwrap_or(0);
    let room = facts.capacity.saturating_sub(longest + healed_bytes);
    let asked = spec.max_new_tokens.unwrap_or(room.max(1)).min(facts.capacity + 1);
    let fits = |prompts: &[WeightedPrompt], new: usize| {
        let lens = prompts.iter().map(|prompt| prompt.ids.len() + healed_bytes + new);
        let pages: usize = lens.clone().map(|len| len.div_ceil(PAGE_TOKENS)).sum();
        lens.max().unwrap_or(0) <= facts.capacity && pages <= facts.n_pages
    };
    if fits(&spec.prompts, asked) {
        let reason = match spec.max_new_tokens {
            Some(_) => EosReason::MaxNewTokens,
            None => EosReason::LengthLimit,
        };
        return Ok((asked, reason));
    }
    let too_long = EngineError::TooLong {
        prompt: longest,
        new: asked,
        capacity: facts.capacity,
        cache_tokens: facts.n_pages * PAGE_TOKENS,
    };
    match spec.length_policy {
        LengthPolicy::Error if spec.max_new_tokens.is_some() || room == 0 => Err(too_long),
        LengthPolicy::Error | LengthPolicy::Clamp => {
            let most = (1..=asked.min(room)).rev().find(|&new| fits(&spec.prompts, new));
            most.map(|new| (new, EosReason::LengthLimit)).ok_or(too_long)
        }
        LengthPolicy::TruncatePrompt => {
            let share = facts.capacity.min(facts.n_pages / spec.prompts.len() * PAGE_TOKENS);
            let new = spec.max_new_tokens.unwrap_or(share / 4).max(1);
            let Some(keep) =
                share.checked_sub(new.saturating_add(healed_bytes)).filter(|&keep| keep > 0)
            else {
                return Err(too_long);
            };
            for prompt in &mut spec.prompts {
                let cut = prompt.ids.len().saturating_sub(keep);
                prompt.ids.drain(..cut);
            }
            Ok((new, EosReason::MaxNewTokens))
        }
    }
}

fn constraint_slot(
    spec: &mut JobSpec,
    healed: &[u8],
    facts: &Facts,
) -> Result<Option<ConstraintSlot>, EngineError> {
    let inner = spec.constraint.take().map(|boxed| boxed.0);
    let only_heals = inner.is_none();
    let constraint: Box<dyn Constraint> = match (healed, inner) {
        ([], None) => return Ok(None),
        ([], Some(inner)) => inner,
        (healed, inner) => {
            Box::new(HealingConstraint::new(&facts.tokenizer, facts.vocab, healed, inner)?)
        }
    };
    let mask = Bitmask::new_none(facts.vocab);
    Ok(Some(ConstraintSlot { constraint, mask, verdict: None, only_heals }))
}
