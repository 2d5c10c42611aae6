//! How a model is opened: the fields of a load, checked, and what this engine cannot do refused by
//! name.

use pagella_backend::{KvFormat, PAGE_TOKENS};
use pagella_engine::SampleOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::conversation::ConversationOptions;
use super::draft::DraftLoad;
use crate::adapters::{ADAPTERS_MAX, AdapterEntry, AdapterLoad, entries};
use crate::fields::{out_of_range, unsupported, wrong_type};
use crate::name::{self, NameError};
use crate::whole_pages::whole_pages;
use crate::wire::error::{ApiError, Code};

/// Most tokens of a context or a cache.
const TOKENS_MAX: i64 = 1 << 30;
/// The shortest context: a token of a prompt and one of an answer.
const CONTEXT_MIN: i64 = 2;
/// Most GB of a device.
const SHARE_GB_MAX: f64 = 1e6;
/// Most MB that stay free of one.
const RESERVE_MB_MAX: f64 = 1e6;

/// Fields that say how a model is opened; the same in requests, model files and configurations.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "LoadOptions")]
pub struct OptionFields {
    /// Longest context; -1: the model's own
    #[schemars(range(min = -1, max = TOKENS_MAX))]
    max_seq_len: Option<i64>,
    /// Tokens of the cache, whole pages
    #[schemars(range(min = PAGE_TOKENS, max = TOKENS_MAX))]
    cache_size: Option<usize>,
    /// How keys and values are kept: FP16, Q8, Q6, Q4, F8
    #[schemars(length(max = 16))]
    cache_mode: Option<String>,
    /// Stretches positions
    #[schemars(range(min = 0.01, max = 1000.0))]
    rope_scale: Option<f64>,
    /// Raises the rotary base; auto: by the context
    #[schemars(extend("$ref" = "#/components/schemas/NumberOrText"))]
    rope_alpha: Option<Value>,
    /// Most prompt tokens at once
    #[schemars(range(min = 1, max = 8192))]
    chunk_size: Option<usize>,
    /// Most sequences at once
    #[schemars(range(min = 1, max = 4096))]
    max_batch_size: Option<usize>,
    /// Load files with tensors that no part of the model takes
    #[serde(default)]
    ignore_unused_tensors: bool,
    /// The name of a template, in place of the model's own
    #[schemars(length(max = 255), extend("x-empty" = true))]
    prompt_template: Option<String>,
}

/// Fields that say so for engines of several kinds: what this one cannot do is refused.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "ForeignOptions")]
pub struct ForeignFields {
    /// Every layer shared by all devices: with one device the model runs there, several are refused
    tensor_parallel: Option<bool>,
    /// Most GB that the model may take of each of the server's devices, cache included
    #[schemars(extend("$ref" = "#/components/schemas/Numbers"))]
    gpu_split: Option<Value>,
    /// MB of each device that stay free
    #[schemars(extend("$ref" = "#/components/schemas/Numbers"))]
    autosplit_reserve: Option<Value>,
    /// Refused unless it asks for nothing
    cpu_moe_offload_layers: Option<usize>,
    /// Refused unless it asks for nothing
    #[serde(default)]
    vision: bool,
    /// Adapters that requests have which ask for no others, as [{"name", "scaling"}]; without it those of
    /// the configuration, for the model at the start
    #[schemars(extend("$ref" = "#/components/schemas/AdapterLoads"))]
    loras: Option<Value>,
    /// How tokens are guessed: draft_mode, draft_model_name, draft_num_tokens and so on
    draft_model: Option<Map<String, Value>>,
    /// Accepted, without effect
    #[expect(dead_code, reason = "one engine, one way to split work")]
    #[schemars(length(max = 64))]
    backend: Option<String>,
    /// Accepted, without effect
    #[expect(dead_code, reason = "one engine, one way to split work")]
    #[schemars(length(max = 64))]
    tensor_parallel_backend: Option<String>,
    /// Cut the model by what is free on each device, which is so unless gpu_split says otherwise
    gpu_split_auto: Option<bool>,
    /// Accepted, without effect
    #[expect(dead_code, reason = "one engine, one way to split work")]
    output_chunking: Option<bool>,
}

/// All fields that say how a model is opened.
pub type OptionsBody = (OptionFields, ForeignFields, ConversationOptions);

/// How a model is opened. What is not stated is left to the model, or to whoever opens it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct LoadOptions {
    /// Longest sequence, in tokens.
    pub max_seq_len: Option<usize>,
    /// Tokens in the cache, for all sequences together; whole pages.
    pub cache_size: Option<usize>,
    /// How keys and values are stored.
    #[serde(with = "format_name")]
    pub cache_mode: Option<KvFormat>,
    /// Positions are divided by this.
    pub rope_scale: Option<f32>,
    /// The rotary base is raised by this.
    pub rope_alpha: Option<f32>,
    /// Most prompt tokens computed at once.
    pub chunk_size: Option<usize>,
    /// Most sequences computed at once.
    pub max_batch_size: Option<usize>,
    /// Most GB that the model may take of each device; empty: what is free there.
    #[serde(default)]
    pub gpu_split: Vec<f64>,
    /// MB of each device that stay free; empty: as is usual for its kind.
    #[serde(default)]
    pub autosplit_reserve: Vec<f64>,
    /// Whether all devices share every layer; `None`: as the operator says.
    #[serde(default)]
    pub tensor_parallel: Option<bool>,
    /// Load files with tensors that no part of the model takes instead of refusing them.
    #[serde(default)]
    pub ignore_unused_tensors: bool,
    /// The template in place of the model's own.
    pub prompt_template: Option<String>,
    /// What is said about conversations.
    #[serde(default)]
    pub conversation: ConversationOptions,
    /// How its tokens are guessed.
    #[serde(default)]
    pub draft: DraftLoad,
    /// Its adapters; `None`: those that the operator gave it.
    #[serde(default)]
    pub adapters: Option<Vec<AdapterLoad>>,
    /// Sampling in place of what the model recommends, field by field.
    pub sampling: Map<String, Value>,
}

impl LoadOptions {
    /// What the fields say; what this engine cannot do is refused.
    pub fn read((fields, foreign, conversation): OptionsBody) -> Result<Self, ApiError> {
        refuse_foreign(&foreign)?;
        let (gpu_split, autosplit_reserve) = split(&foreign)?;
        let draft = foreign.draft_model.map(DraftLoad::read).transpose()?.unwrap_or_default();
        let max_seq_len = fields.max_seq_len.filter(|n| *n != -1);
        if max_seq_len.is_some_and(|n| n < CONTEXT_MIN) {
            let allowed = format!("at least {CONTEXT_MIN}, or -1 for the model's own");
            return Err(out_of_range("max_seq_len", &allowed));
        }
        let cache_size = fields.cache_size.map(whole_pages).transpose();
        let cache_size =
            cache_size.map_err(|problem| out_of_range("cache_size", &problem.to_string()))?;
        let rope_scale = fields.rope_scale.map(|f| f as f32).filter(|f| *f != 1.0);
        let rope_alpha = rope_alpha("rope_alpha", fields.rope_alpha.as_ref())?;
        if rope_scale.is_some() && rope_alpha.is_some() {
            return Err(stretched_twice("rope_scale", "rope_alpha"));
        }
        let cache_mode = fields.cache_mode.as_deref().map(|name| cache_mode("cache_mode", name));
        Ok(LoadOptions {
            max_seq_len: max_seq_len.and_then(|n| usize::try_from(n).ok()),
            cache_size,
            cache_mode: cache_mode.transpose()?,
            rope_scale,
            rope_alpha,
            chunk_size: fields.chunk_size,
            max_batch_size: fields.max_batch_size,
            gpu_split,
            autosplit_reserve,
            tensor_parallel: foreign.tensor_parallel,
            ignore_unused_tensors: fields.ignore_unused_tensors,
            prompt_template: fields.prompt_template.filter(|name| !name.is_empty()),
            conversation: conversation.checked()?,
            draft,
            adapters: foreign.loras.as_ref().map(adapters).transpose()?.flatten(),
            sampling: Map::new(),
        })
    }

    /// Whether clients mean a model of this id, opened so, or an adapter of it, by a name.
    pub(super) fn is_called(&self, id: &str, name: &str) -> bool {
        let is_model = |name: &str| id == name || id.rsplit('/').next() == Some(name);
        let mut adapters = self.adapters.iter().flatten();
        let (base, own) = name.rsplit_once(':').unzip();
        is_model(name)
            || base.is_some_and(is_model)
            || (own.is_none() && adapters.any(|adapter| adapter.name == name))
    }

    /// The sampling of a model that recommends `own`; `None` where a field does not fit.
    pub fn sampling(&self, own: &SampleOptions) -> Option<SampleOptions> {
        if self.sampling.is_empty() {
            return Some(own.clone());
        }
        let Ok(Value::Object(mut merged)) = serde_json::to_value(own) else { return None };
        merged.extend(self.sampling.clone());
        let merged: SampleOptions = serde_json::from_value(Value::Object(merged)).ok()?;
        merged.validate().is_ok().then_some(merged)
    }
}

/// The adapters that a load names, as its default set.
fn adapters(value: &Value) -> Result<Option<Vec<AdapterLoad>>, ApiError> {
    let Some(entries) = entries("loras", value, ADAPTERS_MAX)? else { return Ok(None) };
    let load = |entry: &AdapterEntry| {
        let name = entry.name()?;
        let bad = |error: NameError| out_of_range(format!("{}.name", entry.at), &error.to_string());
        name::check(name).map_err(bad)?;
        Ok(AdapterLoad::new(name, entry.scale.unwrap_or(1.0)))
    };
    entries.iter().map(load).collect::<Result<_, ApiError>>().map(Some)
}

/// A format by its name.
pub(super) mod format_name {
    use pagella_backend::KvFormat;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "serde gives a reference to the field")]
    pub fn serialize<S: Serializer>(format: &Option<KvFormat>, to: S) -> Result<S::Ok, S::Error> {
        format.map(KvFormat::name).serialize(to)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Option<KvFormat>, D::Error> {
        let name = Option::<String>::deserialize(from)?;
        let unknown = |name: &str| serde::de::Error::custom(format!("unknown format {name}"));
        name.map(|name| KvFormat::from_name(&name).ok_or_else(|| unknown(&name))).transpose()
    }
}

/// `FP16`, `Q8`, `Q6`, `Q4`, `F8`, in any case, or bits of keys and values such as `8,4`.
pub(super) fn cache_mode(field: &str, name: &str) -> Result<KvFormat, ApiError> {
    let bits: String = name.chars().filter(|c| !c.is_whitespace()).collect();
    let known = match bits.to_ascii_lowercase().as_str() {
        "f8" => Some(KvFormat::Fp8),
        "16,16" => Some(KvFormat::F16),
        "8,8" => Some(KvFormat::Q8),
        "8,4" => Some(KvFormat::K8V4),
        "4,4" => Some(KvFormat::Q4),
        lower => KvFormat::from_name(lower),
    };
    known.ok_or_else(|| {
        let message = format!(
            "{field} must be one of FP16, Q8, Q6, Q4, F8, or bits of keys and values: 16,16 or 8,8 or \
             8,4 or 4,4"
        );
        ApiError::field(Code::UnsupportedValue, field, message)
    })
}

/// A number, or `auto` for the model's own.
pub(super) fn rope_alpha(field: &str, value: Option<&Value>) -> Result<Option<f32>, ApiError> {
    let Some(value) = value else { return Ok(None) };
    match (value.as_f64(), value.as_str()) {
        (_, Some("auto")) => Ok(None),
        (Some(alpha), _) if (1.0..=1e6).contains(&alpha) => {
            Ok(Some(alpha as f32).filter(|alpha| *alpha != 1.0))
        }
        (Some(_), _) => Err(out_of_range(field, "from 1 to 1000000, or \"auto\"")),
        _ => Err(wrong_type(field, "a number or \"auto\"")),
    }
}

/// The error for positions that are stretched in two ways.
pub(super) fn stretched_twice(scale: &str, alpha: &str) -> ApiError {
    let message = format!("{scale} and {alpha} both stretch positions: give one");
    ApiError::field(Code::ConflictingParameters, alpha, message)
}

/// Shares of devices in GB and reserves in MB. Values that ask for nothing are none.
fn split(fields: &ForeignFields) -> Result<(Vec<f64>, Vec<f64>), ApiError> {
    let read = |name: &str, value: &Option<Value>, most: f64| {
        let numbers = numbers(name, value.clone())?;
        match numbers.iter().all(|number| (0.0..=most).contains(number)) {
            true => Ok(numbers),
            false => Err(out_of_range(name, &format!("numbers from 0 to {most}"))),
        }
    };
    let mut split = read("gpu_split", &fields.gpu_split, SHARE_GB_MAX)?;
    if split.iter().all(|share| *share == 0.0) {
        split.clear();
    }
    if fields.gpu_split_auto == Some(true) && !split.is_empty() {
        let message = "gpu_split and gpu_split_auto both cut the model: give one";
        return Err(ApiError::field(Code::ConflictingParameters, "gpu_split_auto", message));
    }
    let mut reserve = read("autosplit_reserve", &fields.autosplit_reserve, RESERVE_MB_MAX)?;
    // 96 MB is what clients send that do not care.
    if reserve.iter().all(|mb| [0.0, 96.0].contains(mb)) {
        reserve.clear();
    }
    Ok((split, reserve))
}

/// Refuses ways of sharing work that there are not, and images.
fn refuse_foreign(fields: &ForeignFields) -> Result<(), ApiError> {
    let asked = [
        (
            "cpu_moe_offload_layers",
            fields.cpu_moe_offload_layers.is_some_and(|layers| layers > 0),
            "experts run where their layer is, leave it out",
        ),
        ("vision", fields.vision, "models read text only, leave it out"),
    ];
    match asked.into_iter().find(|(_, asks, _)| *asks) {
        Some((name, _, instead)) => Err(unsupported(name, instead)),
        None => Ok(()),
    }
}

pub(super) fn numbers(name: &str, value: Option<Value>) -> Result<Vec<f64>, ApiError> {
    let wrong = || wrong_type(name, "a list of numbers");
    match value {
        None => Ok(Vec::new()),
        Some(Value::Array(list)) => {
            list.iter().map(|item| item.as_f64().ok_or_else(wrong)).collect()
        }
        Some(value) => value.as_f64().map(|number| vec![number]).ok_or_else(wrong),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Body;
    use serde_json::json;

    fn read(body: Value) -> Result<LoadOptions, ApiError> {
        let Value::Object(map) = body else { panic!() };
        LoadOptions::read(OptionsBody::read::<crate::App>(map)?.body)
    }

    #[test]
    fn options_are_read() {
        let options = read(json!({
            "max_seq_len": 512, "cache_size": 1024, "cache_mode": "Q8", "rope_alpha": 2.5,
            "chunk_size": 64, "max_batch_size": 4, "ignore_unused_tensors": true,
            "gpu_split": [8, 0, 2.5], "autosplit_reserve": 512, "gpu_split_auto": false,
            "tensor_parallel": true,
        }));
        let expected = LoadOptions {
            max_seq_len: Some(512),
            cache_size: Some(1024),
            cache_mode: Some(KvFormat::Q8),
            rope_scale: None,
            rope_alpha: Some(2.5),
            chunk_size: Some(64),
            max_batch_size: Some(4),
            gpu_split: vec![8.0, 0.0, 2.5],
            autosplit_reserve: vec![512.0],
            tensor_parallel: Some(true),
            ignore_unused_tensors: true,
            prompt_template: None,
            conversation: ConversationOptions::default(),
            draft: DraftLoad::default(),
            adapters: None,
            sampling: Map::new(),
        };
        assert_eq!(options.unwrap(), expected);
        for (mode, format) in
            [("fp16", KvFormat::F16), ("8, 4", KvFormat::K8V4), ("F8", KvFormat::Fp8)]
        {
            assert_eq!(read(json!({ "cache_mode": mode })).unwrap().cache_mode, Some(format));
        }
    }

    #[test]
    fn what_asks_for_nothing_is_let_through() {
        let body = json!({
            "max_seq_len": -1, "rope_scale": 1.0, "rope_alpha": "auto", "backend": "exllamav3",
            "tensor_parallel": null, "tensor_parallel_backend": "native", "gpu_split_auto": true,
            "gpu_split": [], "autosplit_reserve": [96], "vision": false, "loras": [],
            "output_chunking": true, "prompt_template": "",
            "draft_model": {"draft_mode": null, "draft_model_name": "", "draft_gpu_split": [0]},
        });
        assert_eq!(read(body).unwrap(), LoadOptions::default());
        assert_eq!(read(json!({"draft_model": {}})).unwrap(), LoadOptions::default());
    }

    #[test]
    fn what_the_engine_lacks_is_refused_by_name() {
        for (field, value) in [("vision", json!(true)), ("cpu_moe_offload_layers", json!(1))] {
            let error = read(json!({ field: value })).unwrap_err();
            let found = (error.code, error.param.as_deref());
            assert_eq!(found, (Code::UnsupportedParameter, Some(field)));
        }
        for (field, value) in [
            ("max_seq_len", json!(-2)),
            ("max_seq_len", json!(0)),
            ("max_seq_len", json!(1)),
            ("cache_size", json!(300)),
            ("cache_mode", json!("Q9")),
            ("rope_alpha", json!("fast")),
            ("rope_alpha", json!(0)),
            ("gpu_split", json!("8")),
            ("gpu_split", json!([8, -1])),
            ("autosplit_reserve", json!([1e9])),
            ("draft_model", json!(1)),
        ] {
            let error = read(json!({ field: value })).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(field), "{}", error.message);
        }
        let partial = read(json!({"cache_size": 1000})).unwrap_err();
        assert!(partial.message.contains("a multiple of 256, such as 1024"), "{}", partial.message);
        let unknown = read(json!({"draft_model": {"draft_modes": 1}})).unwrap_err();
        assert_eq!(unknown.param.as_deref(), Some("draft_model.draft_modes"));
        for both in [
            json!({"rope_scale": 2.0, "rope_alpha": 2.0}),
            json!({"gpu_split": [8, 8], "gpu_split_auto": true}),
        ] {
            assert_eq!(read(both).unwrap_err().code, Code::ConflictingParameters);
        }
    }
}
