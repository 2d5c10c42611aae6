//! From parameters to the settings of sampling.

use std::collections::BTreeMap;

use pagella_engine::SampleOptions;
use pagella_engine::params::{self, ParamError, ParamKind, Place};
use pagella_engine::sample::{Breaker, SamplerOrder, Step};
use pagella_text::Tokenizer;
use serde_json::Value;

use super::parameters::Parameters;
use crate::fields::{id, ids, out_of_range, strings, wrong_type};
use crate::wire::error::{ApiError, Code};

/// Texts that end a phrase, at most.
const BREAKERS_MAX: usize = 64;
/// Names in an order, at most.
const STEPS_MAX: usize = 64;
/// What others list as a step and is none here: masks, which come after everything on logits.
const NOT_IN_ORDER: [&str; 3] = ["no_repeat_ngram", "encoder_repetition_penalty", "infill"];

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
    parameters: &Parameters,
    recommended: &SampleOptions,
    vocabulary: Vocabulary<'_>,
    zero_top_p: ZeroTopP,
    bias_max: usize,
) -> Result<SampleOptions, ApiError> {
    let mut options = recommended.clone();
    refuse_contradictions(parameters)?;
    for param in params::SAMPLING.iter().chain(params::VARIANTS) {
        let (Place::Sampling { set, .. } | Place::Variant { set, .. }) = param.place else {
            continue;
        };
        let Some(value) = parameters.value(param.wire()) else { continue };
        // The same setting under another name may say something.
        if matches!(param.place, Place::Variant { .. }) && param.is_neutral(value) {
            continue;
        }
        let scalar = param.scalar(value).map_err(|error| refused(param.wire(), error))?;
        set(&mut options, scalar);
    }
    if parameters.number("top_p") == Some(0.0) && zero_top_p == ZeroTopP::One {
        options.top_k = 1;
    }
    lists(parameters, vocabulary, bias_max, &mut options)?;
    let denied = |id: &u32| options.deny.contains(id);
    if options.allow.as_ref().is_some_and(|allowed| allowed.iter().all(denied)) {
        let message = "allowed_tokens and banned_tokens leave no token: change one of them";
        return Err(ApiError::field(Code::ConflictingParameters, "allowed_tokens", message));
    }
    options.validate().map_err(|error| out_of_range(error.name, &error.allowed))?;
    Ok(options)
}

/// The error for a value that its row does not allow.
pub fn refused(name: &str, error: ParamError) -> ApiError {
    match error {
        ParamError::Type(expected) => wrong_type(name, &expected),
        ParamError::Range(allowed) => out_of_range(name, &allowed),
    }
}

/// One setting under several names must have one value, as far as they ask for something.
fn refuse_contradictions(parameters: &Parameters) -> Result<(), ApiError> {
    let asked = |param: &params::Param| {
        let value = parameters.value(param.wire())?;
        if param.is_neutral(value) { None } else { Some((param.wire(), value.as_f64()?)) }
    };
    for param in params::SAMPLING {
        let is_variant = |variant: &&params::Param| {
            let counts = matches!(variant.kind, ParamKind::Integer(..));
            matches!(variant.place, Place::Variant { of, .. } if of == param.name) && counts
        };
        let variants = params::VARIANTS.iter().filter(is_variant);
        let mut given = [param].into_iter().chain(variants).filter_map(asked);
        let Some((name, first)) = given.next() else { continue };
        if let Some((other, _)) = given.find(|(_, value)| *value != first) {
            let message = format!("{name} and {other} have different values: give one");
            return Err(ApiError::field(Code::ConflictingParameters, name, message));
        }
    }
    match (parameters.number("min_temp"), parameters.number("max_temp")) {
        (Some(min), Some(max)) if min > max => Err(out_of_range("min_temp", "at most max_temp")),
        _ => Ok(()),
    }
}

/// Settings that are no scalars.
fn lists(
    parameters: &Parameters,
    vocabulary: Vocabulary<'_>,
    bias_max: usize,
    options: &mut SampleOptions,
) -> Result<(), ApiError> {
    let Vocabulary { tokenizer, size: vocab } = vocabulary;
    if let Some(value) = parameters.value("logit_bias") {
        bias(value, vocabulary, bias_max, options)?;
    }
    if let Some(ids) = id_list(parameters, "banned_tokens", vocab)? {
        options.deny.extend(ids);
    }
    if let Some(ids) = id_list(parameters, "allowed_tokens", vocab)?.filter(|ids| !ids.is_empty()) {
        options.allow = Some(ids);
    }
    if let Some(ids) = id_list(parameters, "xtc_ignore", vocab)? {
        options.xtc_ignore = Some(ids);
    }
    if parameters.is("ban_eos_token") {
        options.deny.extend(tokenizer.eos_ids());
    }
    if let Some(value) = parameters.value("dry_sequence_breakers") {
        options.dry_breakers = breakers(value)?;
    }
    if let Some(value) = parameters.value("sampler_order") {
        options.sampler_order = order(value)?;
    }
    Ok(())
}

/// Texts in a list, or in the JSON text of one; none is the usual ones.
fn breakers(value: &Value) -> Result<Option<Vec<Breaker>>, ApiError> {
    let path = "dry_sequence_breakers";
    let list = match value.as_str() {
        None => value.clone(),
        Some(text) => {
            // text-generation-webui writes the list without its brackets.
            let list = serde_json::from_str(text).ok().filter(Value::is_array);
            let list = list.or_else(|| serde_json::from_str(&format!("[{text}]")).ok());
            list.ok_or_else(|| wrong_type(path, "a list of strings, or its JSON text"))?
        }
    };
    let breakers = strings(path, &list, BREAKERS_MAX)?;
    if breakers.iter().any(String::is_empty) {
        return Err(out_of_range(path, "strings that are not empty"));
    }
    Ok((!breakers.is_empty()).then(|| breakers.into_iter().map(Breaker::Text).collect()))
}

/// Ids from a list, or from text such as `1,2,3`.
fn id_list(
    parameters: &Parameters,
    name: &str,
    vocab: usize,
) -> Result<Option<Vec<u32>>, ApiError> {
    let Some(value) = parameters.value(name) else { return Ok(None) };
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

/// Steps by our names or by those of others. What is not listed goes where it usually is, so that no
/// setting is lost; what works on logits comes first in any case.
fn order(value: &Value) -> Result<SamplerOrder, ApiError> {
    let name = "sampler_order";
    if value.as_str() == Some("exl2") {
        return Ok(SamplerOrder::exl2());
    }
    let listed = match value.as_str() {
        Some(letters) if !letters.is_empty() && letters.chars().all(|c| by_letter(c).is_some()) => {
            letters.chars().filter_map(by_letter).map(str::to_owned).collect()
        }
        // As text-generation-webui and llama.cpp's command line write lists.
        Some(text) => text.split(['\n', ';', ',']).map(|step| step.trim().to_owned()).collect(),
        None => strings(name, value, STEPS_MAX)?,
    };
    let mut steps = Vec::new();
    for text in listed.iter().filter(|text| !text.is_empty()) {
        if text == "top_p_top_k" {
            steps.extend([Step::TopK, Step::TopP]);
        } else if !NOT_IN_ORDER.contains(&text.as_str()) {
            steps.push(Step::from_name(text).ok_or_else(|| {
                let known: Vec<&str> = Step::ALL.iter().map(|step| step.name()).collect();
                let message = format!("{text:?} is no step: choose among {}", known.join(", "));
                ApiError::field(Code::UnsupportedValue, name, message)
            })?);
        }
    }
    Ok(SamplerOrder::completed(&steps))
}

/// The step of llama.cpp's letter.
fn by_letter(letter: char) -> Option<&'static str> {
    let letters = [
        ('d', "dry"),
        ('k', "top_k"),
        ('y', "typical"),
        ('p', "top_p"),
        ('s', "top_n_sigma"),
        ('m', "min_p"),
        ('t', "temperature"),
        ('x', "xtc"),
        ('i', "infill"),
        ('e', "penalties"),
        ('a', "adaptive_p"),
    ];
    letters.iter().find(|(known, _)| *known == letter).map(|(_, step)| *step)
}
