//! `/slots`, as llama.cpp has it: a place per sequence that can be computed at once, and which job is
//! on it. Never any token id or text.

use pagella_engine::{JobState, MappedJob};
use serde_json::{Value, json};

use super::pages::ask;
use crate::call::{Call, Reply};
use crate::requests::Owner;
use crate::router::query_value;
use crate::wire::error::{ApiError, Code};

/// Answers the request.
pub async fn show(call: Call) -> Result<Reply, ApiError> {
    if !call.app.settings.network.slots {
        let message = "slots are switched off: see network.slots";
        return Err(ApiError::new(Code::FeatureDisabled, message));
    }
    let model = call.app.model.need()?;
    let map = ask(&model, |generator| generator.cache_map()).await?;
    let owners = call.app.requests.owners();
    let n_slots = model.parts.facts.batch_max.max(1).max(map.jobs.len());
    let wants_free = query_value(&call.query, "fail_on_no_slot").is_some_and(|value| value == "1");
    if wants_free && map.jobs.len() == n_slots {
        return Err(ApiError::new(Code::QueueFull, "no slot is free: try again later"));
    }
    let slot = |idx: usize| {
        let job = map.jobs.get(idx);
        describe(idx, model.capacity(), job, job.and_then(|job| owners.get(&job.serial)))
    };
    Reply::json(&(0..n_slots).map(slot).collect::<Vec<_>>())
}

fn describe(idx: usize, context: usize, job: Option<&MappedJob>, owner: Option<&Owner>) -> Value {
    let mut slot = json!({
        "id": idx,
        "id_task": job.map_or(-1, |job| i64::try_from(job.serial).unwrap_or(i64::MAX)),
        "n_ctx": context,
        "speculative": false,
        "is_processing": job.is_some(),
    });
    let Some(job) = job else { return slot };
    slot["params"] = json!({ "n_predict": job.new_tokens_max });
    slot["n_prompt_tokens"] = job.prompt_tokens.into();
    slot["n_prompt_tokens_cache"] = job.cached_tokens.into();
    slot["n_prompt_tokens_processed"] = job.processed_tokens.into();
    slot["next_token"] = json!({
        "has_next_token": job.state == JobState::Decode,
        "n_remain": job.new_tokens_max.saturating_sub(job.new_tokens),
        "n_decoded": job.new_tokens,
    });
    slot["request"] = owner.map(|owner| owner.id.as_str()).into();
    slot["key"] = owner.map(|owner| owner.key.as_str()).into();
    slot
}
