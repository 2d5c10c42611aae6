//! How an answer is sampled, in llama.cpp's words.

use pagella_engine::{JobOptions, SampleOptions};
use serde_json::{Value, json};

/// What an answer is sampled with. −1 stands for no limit.
pub fn generation_settings(job: &JobOptions) -> Value {
    let sampling: &SampleOptions = &job.sampling;
    let limit = job.max_new_tokens.map_or(-1, |tokens| i64::try_from(tokens).unwrap_or(i64::MAX));
    let all_or = |range: Option<usize>| range.and_then(|n| i64::try_from(n).ok()).unwrap_or(-1);
    let dynamic = (sampling.max_temp - sampling.min_temp).max(0.0) / 2.0;
    let on_or_one = |share: f32| if share == 0.0 { 1.0 } else { share };
    json!({
        "n_predict": limit,
        "max_tokens": limit,
        "seed": sampling.seed,
        "temperature": sampling.temperature,
        "dynatemp_range": dynamic,
        "dynatemp_exponent": sampling.temp_exponent,
        "top_k": sampling.top_k,
        "top_p": on_or_one(sampling.top_p),
        "min_p": sampling.min_p,
        "top_n_sigma": if sampling.top_n_sigma > 0.0 { sampling.top_n_sigma } else { -1.0 },
        "xtc_probability": sampling.xtc_probability,
        "xtc_threshold": sampling.xtc_threshold,
        "typical_p": on_or_one(sampling.typical),
        "repeat_last_n": all_or(sampling.penalty_range),
        "repeat_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "dry_multiplier": sampling.dry_multiplier,
        "dry_base": sampling.dry_base,
        "dry_allowed_length": sampling.dry_allowed_length,
        "dry_penalty_last_n": all_or(Some(sampling.dry_range).filter(|range| *range > 0)),
        "mirostat": if sampling.mirostat { 2 } else { 0 },
        "mirostat_tau": sampling.mirostat_tau,
        "mirostat_eta": sampling.mirostat_eta,
        "stop": job.stop_strings,
        "ignore_eos": job.stop_ids.is_empty(),
        "n_keep": -1,
        "n_discard": 0,
        "n_probs": job.return_logprobs.unwrap_or(job.return_top_tokens),
        "min_keep": sampling.min_keep,
        "samplers": sampling.sampler_order,
    })
}
