//! From fields to the settings of sampling.

use std::collections::BTreeMap;

use pagella_engine::SampleOptions;
use pagella_engine::sample::{Breaker, PenaltyScope, SamplerOrder, Step};
use pagella_text::Tokenizer;
use serde_json::Value;

use crate::fields::{Fields, id, ids, out_of_range, strings, unsupported, wrong_type};
use crate::wire::error::{ApiError, Code};

/// What `top_p: 0` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroTopP {
    /// One candidate is left, as in OpenAI's and Anthropic's interfaces.
    One,
    /// The step is off, as in ExLlama.
    Off,
}

/// The ids that a request may name.
#[derive(Clone, Copy)]
pub struct Vocabulary<'a> {
    /// What they stand for.
    pub tokenizer: &'a Tokenizer,
    /// How many there are.
    pub size: usize,
}

/// The settings: what the request says, else what the model recommends. A bias may have `bias_max`
/// entries.
pub fn options(
    fields: &Fields,
    recommended: &SampleOptions,
    vocabulary: Vocabulary<'_>,
    zero_top_p: ZeroTopP,
    bias_max: usize,
) -> Result<SampleOptions, ApiError> {
    let Vocabulary { tokenizer, size: vocab } = vocabulary;
    let mut options = recommended.clone();
    numbers(fields, &mut options, zero_top_p);
    temperatures(fields, &mut options)?;
    penalties(fields, &mut options)?;
    dry(fields, &mut options)?;
    mirostat(fields, &mut options)?;
    if let Some(value) = fields.value("logit_bias") {
        bias(value, vocabulary, bias_max, &mut options)?;
    }
    if let Some(ids) = id_list(fields, "banned_tokens", vocab)? {
        options.deny.extend(ids);
    }
    if let Some(ids) = id_list(fields, "allowed_tokens", vocab)?.filter(|ids| !ids.is_empty()) {
        options.allow = Some(ids);
    }
    if fields.is("ban_eos_token") {
        options.deny.extend(tokenizer.eos_ids());
    }
    if let Some(value) = fields.value("sampler_order") {
        options.sampler_order = order(value)?;
    }
    if fields.number("adaptive_target").is_some_and(|target| target < 1.0) {
        return Err(unsupported("adaptive_target", "leave it at 1"));
    }
    let denied = |id: &u32| options.deny.contains(id);
    if options.allow.as_ref().is_some_and(|allowed| allowed.iter().all(denied)) {
        let message = "allowed_tokens and banned_tokens leave no token: change one of them";
        return Err(ApiError::field(Code::ConflictingParameters, "allowed_tokens", message));
    }
    options.validate().map_err(|error| out_of_range(error.name, error.allowed))?;
    Ok(options)
}

/// Settings that are a number and nothing more.
fn numbers(fields: &Fields, options: &mut SampleOptions, zero_top_p: ZeroTopP) {
    let direct: [(&str, &mut f32); 15] = [
        ("temperature", &mut options.temperature),
        ("smoothing_factor", &mut options.smoothing_factor),
        ("top_p", &mut options.top_p),
        ("top_a", &mut options.top_a),
        ("min_p", &mut options.min_p),
        ("tfs", &mut options.tfs),
        ("typical", &mut options.typical),
        ("top_n_sigma", &mut options.top_n_sigma),
        ("skew", &mut options.skew),
        ("xtc_probability", &mut options.xtc_probability),
        ("xtc_threshold", &mut options.xtc_threshold),
        ("frequency_penalty", &mut options.frequency_penalty),
        ("presence_penalty", &mut options.presence_penalty),
        ("repetition_penalty", &mut options.repetition_penalty),
        ("dry_multiplier", &mut options.dry_multiplier),
    ];
    for (name, setting) in direct {
        if let Some(number) = fields.number(name) {
            *setting = number as f32;
        }
    }
    if let Some(curve) = fields.number("smoothing_curve") {
        options.smoothing_curve = (curve as f32).max(1.0);
    }
    if let Some(k) = fields.int("top_k") {
        options.top_k = usize::try_from(k).unwrap_or(0);
    }
    if fields.number("top_p") == Some(0.0) && zero_top_p == ZeroTopP::One {
        options.top_k = 1;
    }
    if let Some(last) = fields.bool("temperature_last") {
        options.temperature_last = last;
    }
}

fn temperatures(fields: &Fields, options: &mut SampleOptions) -> Result<(), ApiError> {
    if let Some(range) = fields.number("dynatemp_range").filter(|range| *range > 0.0) {
        options.min_temp = (options.temperature - range as f32).max(0.0);
        options.max_temp = options.temperature + range as f32;
    }
    let (min, max) = (fields.number("min_temp"), fields.number("max_temp"));
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        return Err(out_of_range("min_temp", "at most max_temp"));
    }
    if let (Some(min), Some(max)) = (min, max) {
        (options.min_temp, options.max_temp) = (min as f32, max as f32);
    }
    if let Some(exponent) = fields.number("temp_exponent") {
        options.temp_exponent = exponent as f32;
    }
    Ok(())
}

fn penalties(fields: &Fields, options: &mut SampleOptions) -> Result<(), ApiError> {
    let all_or = |range: i64| usize::try_from(range).ok();
    // The same setting under three names, in which 0 means different things.
    let ranges = [
        fields.int("penalty_range").map(all_or),
        fields.int("repeat_last_n").map(all_or),
        fields.int("rep_pen_range").map(|range| all_or(range).filter(|range| *range > 0)),
    ];
    let mut given = ranges.into_iter().flatten();
    if let Some(range) = given.next() {
        if given.any(|other| other != range) {
            let message = "penalty_range is given under several names with different values";
            return Err(ApiError::field(Code::ConflictingParameters, "penalty_range", message));
        }
        options.penalty_range = range;
    }
    if let Some(decay) = fields.int("repetition_decay") {
        options.penalty_decay = usize::try_from(decay).unwrap_or(usize::MAX);
    }
    options.penalty_scope = match fields.text("penalty_scope") {
        Some("output") => PenaltyScope::Output,
        Some("prompt") => PenaltyScope::Prompt,
        Some(_) => PenaltyScope::All,
        None => options.penalty_scope,
    };
    Ok(())
}

fn dry(fields: &Fields, options: &mut SampleOptions) -> Result<(), ApiError> {
    // 0 is how old clients say that they have no opinion.
    if let Some(base) = fields.number("dry_base").filter(|base| *base > 0.0) {
        options.dry_base = base as f32;
    }
    if let Some(length) = fields.int("dry_allowed_length") {
        options.dry_allowed_length = usize::try_from(length).unwrap_or(1).max(1);
    }
    if let Some(longest) = fields.int("dry_max_ngram") {
        options.dry_max_ngram = usize::try_from(longest).unwrap_or(1);
    }
    if let Some(range) = fields.int("dry_range") {
        options.dry_range = usize::try_from(range).unwrap_or(0);
    }
    match fields.int("dry_penalty_last_n") {
        Some(0) => options.dry_multiplier = 0.0,
        Some(range) => options.dry_range = usize::try_from(range).unwrap_or(0),
        None => {}
    }
    let Some(value) = fields.value("dry_sequence_breakers") else { return Ok(()) };
    let path = "dry_sequence_breakers";
    let parsed = value.as_str().map(serde_json::from_str::<Value>);
    let list = match parsed {
        None => value.clone(),
        Some(Ok(list @ Value::Array(_))) => list,
        Some(_) => return Err(wrong_type(path, "a list of strings, or its JSON text")),
    };
    let breakers = strings(path, &list, 64)?;
    if breakers.iter().any(String::is_empty) {
        return Err(out_of_range(path, "strings that are not empty"));
    }
    options.dry_breakers = Some(breakers.into_iter().map(Breaker::Text).collect());
    Ok(())
}

fn mirostat(fields: &Fields, options: &mut SampleOptions) -> Result<(), ApiError> {
    options.mirostat = match fields.value("mirostat_mode") {
        None => options.mirostat,
        Some(Value::Bool(on)) => *on,
        Some(value) => match value.as_f64() {
            Some(mode) if [0.0, 1.0, 2.0].contains(&mode) => mode > 0.0,
            Some(_) => return Err(out_of_range("mirostat_mode", "0, 1 or 2")),
            None => return Err(wrong_type("mirostat_mode", "0, 1, 2, true or false")),
        },
    };
    if let Some(tau) = fields.number("mirostat_tau") {
        options.mirostat_tau = tau as f32;
    }
    if let Some(eta) = fields.number("mirostat_eta") {
        options.mirostat_eta = eta as f32;
    }
    Ok(())
}

/// Ids from a list, or from text such as `1,2,3`.
fn id_list(fields: &Fields, name: &str, vocab: usize) -> Result<Option<Vec<u32>>, ApiError> {
    let Some(value) = fields.value(name) else { return Ok(None) };
    let Some(text) = value.as_str() else { return ids(name, value, vocab).map(Some) };
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let parsed = parts.map(|part| {
        let number: i64 = part.parse().map_err(|_| wrong_type(name, "ids such as \"1,2,3\""))?;
        id(name, &number.into(), vocab)
    });
    parsed.collect::<Result<_, _>>().map(Some)
}

/// `{id: bias}`, or a list of `[id or text, bias or false]`.
fn bias(
    value: &Value,
    vocabulary: Vocabulary<'_>,
    most: usize,
    options: &mut SampleOptions,
) -> Result<(), ApiError> {
    let Vocabulary { tokenizer, size: vocab } = vocabulary;
    let name = "logit_bias";
    let mut entries: Vec<(Value, Value)> = Vec::new();
    match value {
        Value::Object(map) => {
            for (key, bias) in map.iter().take(most.saturating_add(1)) {
                let id: i64 = key.parse().map_err(|_| wrong_type(name, "keyed by token ids"))?;
                entries.push((id.into(), bias.clone()));
            }
        }
        Value::Array(list) => {
            for pair in list.iter().take(most.saturating_add(1)) {
                match pair.as_array().map(Vec::as_slice) {
                    Some([token, bias]) => entries.push((token.clone(), bias.clone())),
                    _ => return Err(wrong_type(name, "an object, or a list of pairs")),
                }
            }
        }
        _ => return Err(wrong_type(name, "an object, or a list of pairs")),
    }
    if entries.len() > most {
        return Err(out_of_range(name, &format!("at most {most} entries")));
    }
    let mut all: BTreeMap<u32, f32> = std::mem::take(&mut options.logit_bias);
    for (token, bias) in entries {
        let bias = match (&bias, bias.as_f64()) {
            (Value::Bool(false), _) => -100.0,
            (_, Some(bias)) if (-100.0..=100.0).contains(&bias) => bias as f32,
            (_, Some(_)) => return Err(out_of_range(name, "from -100 to 100")),
            _ => return Err(wrong_type(name, "numbers, or false")),
        };
        let ids = match token.as_str() {
            Some(text) => tokenizer.encode_text(text).map_err(|_| wrong_type(name, "text"))?,
            None => vec![id(name, &token, vocab)?],
        };
        let bias = if bias <= -100.0 { f32::NEG_INFINITY } else { bias };
        all.extend(ids.into_iter().map(|id| (id, bias)));
    }
    options.logit_bias = all;
    Ok(())
}

/// Steps by our names or by llama.cpp's. What is on and not listed goes where it usually is.
fn order(value: &Value) -> Result<SamplerOrder, ApiError> {
    let name = "sampler_order";
    if value.as_str() == Some("exl2") {
        return Ok(SamplerOrder::exl2());
    }
    let mut steps = Vec::new();
    for text in strings(name, value, 64)? {
        let ours = match text.as_str() {
            "typ_p" | "typical_p" => "typical",
            "temp" => "temperature",
            "tfs_z" => "tfs",
            "logit_bias" => "bias",
            other => other,
        };
        let step = Step::from_name(ours).ok_or_else(|| {
            let known: Vec<&str> = Step::ALL.iter().map(|step| step.name()).collect();
            let message = format!("{text:?} is no step: choose among {}", known.join(", "));
            ApiError::field(Code::UnsupportedValue, name, message)
        })?;
        steps.push(step);
    }
    let order = SamplerOrder::new(steps);
    order.validate().map_err(|error| out_of_range(name, error.allowed))?;
    Ok(order)
}
