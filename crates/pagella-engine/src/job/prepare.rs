//! From a `JobSpec` to a `Job`: every check that needs no page and no model, on the caller's thread.
//!
//! A job that was prepared can run: it fits the cache when it is alone there.

use std::sync::Arc;
use std::time::Instant;

use pagella_arch::ModelSpec;
use pagella_backend::PAGE_TOKENS;
use pagella_text::{BanMatcher, StopMatcher, StreamStart, Tokenizer};

use crate::EngineError;
use crate::adapter::{self, DefaultAdapters, EngineId};
use crate::constraint::{Constraint, HealingConstraint};
use crate::draft::JobDraft;
use crate::job::ban_watch::BanWatch;
use crate::job::rewind::RestorePoints;
use crate::job::state::{ConstraintSlot, JobClock};
use crate::job::text::TextState;
use crate::job::{
    BoxedConstraint, EosReason, Healing, Job, JobOptions, JobSpec, JobState, LengthPolicy,
    Sequence, WeightedPrompt,
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
    /// What adapters must fit.
    pub spec: ModelSpec,
    pub engine: EngineId,
    /// Of jobs that say nothing about adapters.
    pub default_adapters: DefaultAdapters,
}

/// Checks a request and makes it a job.
pub(crate) fn prepare(spec: JobSpec, serial: u64, facts: &Facts) -> Result<Job, EngineError> {
    let submitted = Instant::now();
    let JobSpec { mut prompts, mut options } = spec;
    check_prompts(&mut prompts, &options, facts)?;
    let prompt_tokens = prompts[0].ids.len();
    let mut warnings = Vec::new();
    // Nobody would write the end of the prompt again.
    let healed = match options.max_new_tokens {
        Some(0) => Vec::new(),
        _ => heal(&mut prompts, options.healing, facts, &mut warnings)?,
    };
    let (new_tokens_max, limit_reason) = fit(&mut prompts, &options, healed.len(), facts)?;
    let sampler = Sampler::new(&options.sampling, facts.sets.clone())?;
    let sampler_state = SamplerState::new(&options.sampling);
    let stop = StopMatcher::new(&options.stop_strings)?;
    let ban = match options.banned.as_slice() {
        [] => None,
        rules => Some(BanWatch::new(BanMatcher::new(rules)?)),
    };
    let row_bytes = facts.vocab * size_of::<f32>();
    let unsettled_max = (RESTORE_BYTES_MAX / row_bytes.max(1)).max(UNSETTLED_MIN);
    let mut decoder = facts.tokenizer.stream_decoder(options.specials, StreamStart::Continuation);
    decoder.show(&options.shown_ids);
    decoder.skip_bytes(healed.len());
    let own = options.adapters.take().unwrap_or_else(|| facts.default_adapters.get());
    let (adapters, adapter_keys) = adapter::checked(&own, &facts.engine)?;
    options.adapters = Some(own);
    let namespace = namespace(&options, serial, &adapter_keys);
    let sequences: Vec<Sequence> = prompts
        .into_iter()
        .map(|prompt| Sequence {
            adapters: adapters.clone(),
            ..Sequence::new(prompt.ids, prompt.weight, namespace)
        })
        .collect();
    let constraint = constraint_slot(options.constraint.take(), &healed, facts)?;
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
        draft: JobDraft::new(&mut options),
        healing_bytes: healed.len(),
        new_tokens_max,
        limit_reason,
        prompt_logprobs: Vec::new(),
        prompt_scored: 0,
        new_tokens: 0,
        skips: 0,
        deadline: options.timeout.and_then(|timeout| submitted.checked_add(timeout)),
        queue_position: 0,
        resting: false,
        cached_tokens: 0,
        preemptions: 0,
        warnings,
        clock: JobClock::new(submitted),
        options,
    })
}

/// What the keys and values of a job depend on besides ids.
fn namespace(options: &JobOptions, serial: u64, adapters: &[[u8; 12]]) -> Namespace {
    let serial = serial.to_le_bytes();
    let mut parts: Vec<(&str, &[u8])> = Vec::new();
    match (&options.cache_salt, options.return_prompt_logprobs) {
        // Logits are not kept, so pages that others filled are of no use.
        (_, Some(_)) => parts.push(("scored", &serial)),
        (Some(salt), None) => parts.push(("salt", salt.as_bytes())),
        (None, None) => {}
    }
    parts.extend(adapters.iter().map(|adapter| ("adapter", &adapter[..])));
    Namespace::of(&parts)
}

fn check_prompts(
    prompts: &mut [WeightedPrompt],
    options: &JobOptions,
    facts: &Facts,
) -> Result<(), EngineError> {
    for prompt in &*prompts {
        if let Some(&id) = prompt.ids.iter().find(|&&id| id as usize >= facts.vocab) {
            return Err(EngineError::IdOutOfRange { id, vocab: facts.vocab });
        }
    }
    let n_prompts = prompts.len();
    if options.return_prompt_logprobs.is_some() && n_prompts > 1 {
        return Err(EngineError::ScoredPrompts { prompts: n_prompts });
    }
    if n_prompts > facts.batch_max {
        return Err(EngineError::TooManyPrompts { prompts: n_prompts, batch_max: facts.batch_max });
    }
    match (options.sampling.cfg_scale, &mut *prompts) {
        (Some(scale), [positive, negative]) => {
            (positive.weight, negative.weight) = (scale, 1.0 - scale);
        }
        (Some(_), _) => return Err(EngineError::GuidanceWithoutPair { prompts: n_prompts }),
        (None, _) => {}
    }
    let sum: f32 = prompts.iter().map(|prompt| prompt.weight).sum();
    if sum.is_nan() || (sum - 1.0).abs() > WEIGHT_SUM_SLACK {
        return Err(EngineError::PromptWeights { sum });
    }
    Ok(())
}

/// Takes back the end of the prompts and returns its bytes.
fn heal(
    prompts: &mut [WeightedPrompt],
    healing: Healing,
    facts: &Facts,
    warnings: &mut Vec<String>,
) -> Result<Vec<u8>, EngineError> {
    let cut = |prompt: &WeightedPrompt| match healing {
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
    let cuts: Vec<(usize, Vec<u8>)> = prompts.iter().map(cut).collect();
    let (_, bytes) = &cuts[0];
    if cuts.iter().any(|(_, other)| other != bytes) {
        warnings.push("token healing is off: the prompts end in different text".to_owned());
        return Ok(Vec::new());
    }
    let bytes = bytes.clone();
    if bytes.is_empty() {
        return Ok(bytes);
    }
    for (prompt, (keep, _)) in prompts.iter_mut().zip(cuts) {
        prompt.ids.truncate(keep);
    }
    Ok(bytes)
}

/// How many tokens may be sampled, and why no more. Shortens prompts where the policy says so.
fn fit(
    prompts: &mut [WeightedPrompt],
    options: &JobOptions,
    healed_bytes: usize,
    facts: &Facts,
) -> Result<(usize, EosReason), EngineError> {
    // Each healed id has at least one byte.
    let longest = prompts.iter().map(|prompt| prompt.ids.len()).max().unwrap_or(0);
    let room = facts.capacity.saturating_sub(longest + healed_bytes);
    let asked = options.max_new_tokens.unwrap_or(room.max(1)).min(facts.capacity + 1);
    let fits = |prompts: &[WeightedPrompt], new: usize| {
        let lens = prompts.iter().map(|prompt| prompt.ids.len() + healed_bytes + new);
        let pages: usize = lens.clone().map(|len| len.div_ceil(PAGE_TOKENS)).sum();
        lens.max().unwrap_or(0) <= facts.capacity && pages <= facts.n_pages
    };
    if fits(prompts, asked) {
        let reason = match options.max_new_tokens {
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
    match options.length_policy {
        LengthPolicy::Error if options.max_new_tokens.is_some() || room == 0 => Err(too_long),
        LengthPolicy::Error | LengthPolicy::Clamp => {
            let most = (1..=asked.min(room)).rev().find(|&new| fits(prompts, new));
            most.map(|new| (new, EosReason::LengthLimit)).ok_or(too_long)
        }
        LengthPolicy::TruncatePrompt => {
            let share = facts.capacity.min(facts.n_pages / prompts.len() * PAGE_TOKENS);
            let new = options.max_new_tokens.unwrap_or(share / 4).max(1);
            let Some(keep) =
                share.checked_sub(new.saturating_add(healed_bytes)).filter(|&keep| keep > 0)
            else {
                return Err(too_long);
            };
            for prompt in prompts {
                let cut = prompt.ids.len().saturating_sub(keep);
                prompt.ids.drain(..cut);
            }
            Ok((new, EosReason::MaxNewTokens))
        }
    }
}

fn constraint_slot(
    inner: Option<BoxedConstraint>,
    healed: &[u8],
    facts: &Facts,
) -> Result<Option<ConstraintSlot>, EngineError> {
    let only_heals = inner.is_none();
    let constraint: Box<dyn Constraint> = match (healed, inner.map(|boxed| boxed.0)) {
        ([], None) => return Ok(None),
        ([], Some(inner)) => inner,
        (healed, inner) => {
            Box::new(HealingConstraint::new(&facts.tokenizer, facts.vocab, healed, inner)?)
        }
    };
    Ok(Some(ConstraintSlot::new(constraint, facts.vocab, only_heals)))
}
