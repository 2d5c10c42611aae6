//! How the tokens of a model are guessed: the fields of a load that say so, checked.

use pagella_backend::KvFormat;
use pagella_engine::{DraftDepth, DraftOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::options::{self, format_name, numbers, rope_alpha};
use crate::app::App;
use crate::fields::{Body, out_of_range, unsupported, wrong_type};
use crate::name;
use crate::settings::{DRAFT_TOKENS_MAX, DraftMode, DraftSettings, DraftTokens};
use crate::wire::error::{ApiError, Code};

/// Shortest match in texts that were seen, in tokens.
const NGRAM_MATCH_MIN: usize = 2;
// Settings know no engine, and say the same.
const _: () = assert!(DRAFT_TOKENS_MAX == DraftOptions::GUESSES_MAX);

/// Fields of `draft_model`, by TabbyAPI's names.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "DraftLoadOptions")]
struct DraftFields {
    /// Where guesses come from: model, ngram, disabled
    #[schemars(length(max = 16))]
    draft_mode: Option<String>,
    /// A small model that guesses, by its name
    #[schemars(length(max = 255))]
    draft_model_name: Option<String>,
    /// Stretches positions
    #[schemars(range(min = 0.01, max = 1000.0))]
    draft_rope_scale: Option<f64>,
    /// Raises the rotary base
    #[schemars(extend("$ref" = "#/components/schemas/NumberOrText"))]
    draft_rope_alpha: Option<Value>,
    /// How keys and values are kept; as those of the model unless stated
    #[schemars(length(max = 16))]
    draft_cache_mode: Option<String>,
    /// Refused unless it asks for nothing
    #[schemars(extend("$ref" = "#/components/schemas/Numbers"))]
    draft_gpu_split: Option<Value>,
    /// Tokens guessed at once, or auto, or off
    #[schemars(extend("$ref" = "#/components/schemas/NumberOrText"))]
    draft_num_tokens: Option<Value>,
    /// As many as pay; draft_num_tokens is then the most
    #[serde(default)]
    dynamic_draft: bool,
    /// Refused unless it is 2
    ngram_match_min: Option<usize>,
}

/// How the tokens of a model are guessed. What is not stated is left to whoever opens it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct DraftLoad {
    /// Where guesses come from.
    pub mode: Option<DraftMode>,
    /// How many are made at once.
    pub tokens: Option<DraftTokens>,
    /// The model that guesses, by its name.
    pub model: Option<String>,
    /// How it stores keys and values.
    #[serde(with = "format_name")]
    pub cache_mode: Option<KvFormat>,
    /// Its positions are divided by this.
    pub rope_scale: Option<f32>,
    /// Its rotary base is raised by this.
    pub rope_alpha: Option<f32>,
}

impl DraftLoad {
    /// What an operator chose. The error says which settings exclude each other.
    pub fn of(settings: &DraftSettings) -> Result<Self, String> {
        if let Some(problem) = settings.contradiction() {
            return Err(problem);
        }
        let tokens = match settings.dynamic_draft {
            true => settings.draft_num_tokens.at_most(),
            false => settings.draft_num_tokens,
        };
        let cache_mode = settings.draft_cache_mode.as_ref().map(|name| name.to_lowercase());
        let cache_mode = cache_mode.as_deref().and_then(|name| match name {
            "f8" => Some(KvFormat::Fp8),
            name => KvFormat::from_name(name),
        });
        Ok(DraftLoad {
            mode: Some(settings.draft_mode),
            tokens: Some(tokens),
            model: settings.draft_model_name.clone(),
            cache_mode,
            rope_scale: Some(settings.draft_rope_scale).filter(|scale| *scale != 1.0),
            rope_alpha: settings.draft_rope_alpha.filter(|alpha| *alpha != 1.0),
        })
    }

    /// What the fields of `draft_model` say.
    pub(super) fn read(fields: Map<String, Value>) -> Result<Self, ApiError> {
        Self::read_fields(fields).map_err(|error| {
            let param = error.param.as_ref().map(|param| format!("draft_model.{param}"));
            ApiError { param, ..error }
        })
    }

    fn read_fields(fields: Map<String, Value>) -> Result<Self, ApiError> {
        let given = <(DraftFields,)>::read::<App>(fields)?;
        if let Some(name) = given.unknown.first() {
            return Err(given.refuse_unknown(name));
        }
        let (fields,) = given.body;
        refuse_foreign(&fields)?;
        let mode = fields.draft_mode.as_deref().map(mode).transpose()?;
        let tokens = fields.draft_num_tokens.as_ref().map(tokens).transpose()?;
        let tokens = match (tokens, fields.dynamic_draft) {
            (tokens, false) => tokens,
            (tokens, true) => Some(tokens.unwrap_or_default().at_most()),
        };
        if let Some(name) = &fields.draft_model_name {
            name::check(name).map_err(|error| {
                ApiError::field(Code::OutOfRange, "draft_model_name", error.to_string())
            })?;
        }
        let rope_scale = fields.draft_rope_scale.map(|f| f as f32).filter(|f| *f != 1.0);
        let rope_alpha = rope_alpha("draft_rope_alpha", fields.draft_rope_alpha.as_ref())?;
        if rope_scale.is_some() && rope_alpha.is_some() {
            return Err(options::stretched_twice("draft_rope_scale", "draft_rope_alpha"));
        }
        let cache_mode = fields.draft_cache_mode.as_deref();
        let cache_mode = cache_mode.map(|name| options::cache_mode("draft_cache_mode", name));
        Ok(DraftLoad {
            mode,
            tokens,
            model: fields.draft_model_name,
            cache_mode: cache_mode.transpose()?,
            rope_scale,
            rope_alpha,
        })
    }

    /// With what `usual` says where this says nothing. What belongs to another draft model does not
    /// count for the one that is named here.
    pub fn or(&self, usual: &DraftLoad) -> DraftLoad {
        let of_model = match &self.model {
            Some(_) => DraftLoad::default(),
            None => usual.clone(),
        };
        let stretched = self.rope_scale.is_some() || self.rope_alpha.is_some();
        DraftLoad {
            mode: self.mode.or(usual.mode),
            tokens: self.tokens.or(usual.tokens),
            model: self.model.clone().or(of_model.model),
            cache_mode: self.cache_mode.or(of_model.cache_mode),
            rope_scale: self.rope_scale.or(of_model.rope_scale.filter(|_| !stretched)),
            rope_alpha: self.rope_alpha.or(of_model.rope_alpha.filter(|_| !stretched)),
        }
    }

    /// Without what concerns one draft model.
    pub fn of_any_model(&self) -> DraftLoad {
        DraftLoad { mode: self.mode, tokens: self.tokens, ..DraftLoad::default() }
    }

    /// The model that guesses, where one is wanted.
    pub fn drafting_model(&self) -> Option<&str> {
        let by_model = matches!(self.mode, None | Some(DraftMode::Model));
        let off = self.tokens == Some(DraftTokens::Exactly(0));
        self.model.as_deref().filter(|_| by_model && !off)
    }

    /// What the engine is told.
    pub fn options(&self) -> DraftOptions {
        let usual = DraftOptions::default();
        let (depth, guesses_max) = match (self.mode, self.tokens.unwrap_or_default()) {
            // Not even where a request asks for it.
            (Some(DraftMode::Disabled), _) => (DraftDepth::Off, 0),
            (_, DraftTokens::Exactly(0)) => (DraftDepth::Off, usual.guesses_max),
            (_, DraftTokens::Auto) => (DraftDepth::Adaptive, usual.guesses_max),
            (_, DraftTokens::Exactly(tokens)) => (DraftDepth::Fixed(tokens), usual.guesses_max),
            (_, DraftTokens::UpTo(tokens)) => (DraftDepth::Adaptive, tokens),
        };
        DraftOptions { depth, guesses_max, ..usual }
    }
}

fn refuse_foreign(fields: &DraftFields) -> Result<(), ApiError> {
    let split = numbers("draft_gpu_split", fields.draft_gpu_split.clone())?;
    if split.iter().any(|share| *share > 0.0) {
        let instead = "a draft model is on one device, leave it out";
        return Err(unsupported("draft_gpu_split", instead));
    }
    match fields.ngram_match_min {
        None | Some(NGRAM_MATCH_MIN) => Ok(()),
        Some(_) => {
            let message = "matches count from 2 tokens on, and by how often such ones were right: \
                           leave it out";
            Err(unsupported("ngram_match_min", message))
        }
    }
}

fn mode(name: &str) -> Result<DraftMode, ApiError> {
    let words = DraftMode::ALL.map(DraftMode::name);
    let known = DraftMode::ALL.into_iter().find(|mode| name.eq_ignore_ascii_case(mode.name()));
    known.ok_or_else(|| match name.to_ascii_lowercase().as_str() {
        "mtp" => {
            unsupported("draft_mode", "models do not guess for themselves, use model or ngram")
        }
        _ => {
            let message = format!("draft_mode must be one of {}", words.join(", "));
            ApiError::field(Code::UnsupportedValue, "draft_mode", message)
        }
    })
}

fn tokens(value: &Value) -> Result<DraftTokens, ApiError> {
    DraftTokens::read(value).ok_or_else(|| match value {
        Value::Number(_) | Value::String(_) => {
            out_of_range("draft_num_tokens", &DraftTokens::allowed())
        }
        _ => wrong_type("draft_num_tokens", "a number, auto or off"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Settings, entries};
    use serde_json::json;

    fn read(fields: Value) -> Result<DraftLoad, ApiError> {
        let Value::Object(map) = fields else { panic!() };
        DraftLoad::read(map)
    }

    fn depth(fields: Value) -> (DraftDepth, usize) {
        let options = read(fields).unwrap().options();
        (options.depth, options.guesses_max)
    }

    #[test]
    fn guesses_are_adaptive_unless_a_load_says_otherwise() {
        let most = DraftOptions::GUESSES_MAX;
        for fields in [
            json!({}),
            json!({"draft_mode": "ngram"}),
            json!({"draft_num_tokens": "auto"}),
            json!({"draft_num_tokens": -1, "dynamic_draft": true}),
            json!({"draft_model_name": "small", "dynamic_draft": false}),
        ] {
            assert_eq!(depth(fields.clone()), (DraftDepth::Adaptive, most), "{fields}");
        }
        assert_eq!(depth(json!({"draft_num_tokens": 4})), (DraftDepth::Fixed(4), most));
        assert_eq!(depth(json!({"draft_num_tokens": "4"})), (DraftDepth::Fixed(4), most));
        let up_to = json!({"draft_num_tokens": 4, "dynamic_draft": true});
        assert_eq!(depth(up_to), (DraftDepth::Adaptive, 4));
        for fields in [
            json!({"draft_mode": "disabled", "draft_num_tokens": 4, "draft_model_name": "x"}),
            json!({"draft_num_tokens": 0, "dynamic_draft": true, "draft_model_name": "x"}),
            json!({"draft_num_tokens": "off", "draft_model_name": "x"}),
        ] {
            assert_eq!(depth(fields.clone()).0, DraftDepth::Off, "{fields}");
            assert_eq!(read(fields).unwrap().drafting_model(), None);
        }
        let named = read(json!({"draft_mode": "ngram", "draft_model_name": "x"})).unwrap();
        assert_eq!(named.drafting_model(), None);
        assert_eq!(read(json!({"draft_model_name": "x"})).unwrap().drafting_model(), Some("x"));
    }

    #[test]
    fn what_asks_for_nothing_is_let_through_and_the_rest_is_refused_by_name() {
        let nothing = json!({"draft_rope_scale": 1, "draft_rope_alpha": "auto", "draft_gpu_split": [],
            "draft_model_name": "", "ngram_match_min": 2, "dynamic_draft": false,
            "draft_cache_mode": null, "draft_num_tokens": null});
        assert_eq!(read(nothing).unwrap(), DraftLoad::default());
        for (field, value) in [
            ("draft_mode", json!("mtp")),
            ("draft_mode", json!("fast")),
            ("draft_model_name", json!("../x")),
            ("draft_num_tokens", json!(32)),
            ("draft_num_tokens", json!("many")),
            ("draft_num_tokens", json!([4])),
            ("draft_cache_mode", json!("Q9")),
            ("draft_rope_alpha", json!(0.5)),
            ("draft_gpu_split", json!([8])),
            ("ngram_match_min", json!(3)),
            ("draft_modes", json!(1)),
        ] {
            let error = read(json!({ field: value })).unwrap_err();
            let expected = format!("draft_model.{field}");
            assert_eq!(error.param.as_deref(), Some(expected.as_str()), "{}", error.message);
        }
        let both = read(json!({"draft_rope_scale": 2, "draft_rope_alpha": 2})).unwrap_err();
        assert_eq!(both.code, Code::ConflictingParameters);
    }

    #[test]
    fn what_a_load_does_not_say_the_server_does() {
        let server = read(json!({"draft_model_name": "small", "draft_cache_mode": "Q4",
            "draft_rope_alpha": 2, "draft_num_tokens": 3}));
        let server = server.unwrap();
        assert_eq!(DraftLoad::default().or(&server), server);
        let other = read(json!({"draft_model_name": "other"})).unwrap().or(&server);
        assert_eq!((other.model.as_deref(), other.cache_mode), (Some("other"), None));
        assert_eq!((other.rope_alpha, other.tokens), (None, Some(DraftTokens::Exactly(3))));
        let linear = read(json!({"draft_rope_scale": 2})).unwrap().or(&server);
        assert_eq!((linear.rope_scale, linear.rope_alpha), (Some(2.0), None));
        let any = server.of_any_model();
        assert_eq!((any.model, any.tokens), (None, Some(DraftTokens::Exactly(3))));
    }

    fn set(pairs: &[(&str, &str)]) -> Result<DraftLoad, String> {
        let mut settings = Settings::default();
        for (key, text) in pairs {
            let key = format!("draft_model.{key}");
            let setting = entries().find(|setting| setting.path() == key).unwrap();
            setting.set(&mut settings, &setting.parse(text)?)?;
        }
        DraftLoad::of(&settings.draft_model)
    }

    #[test]
    fn keys_and_flags_say_how_tokens_are_guessed() {
        let usual = set(&[]).unwrap();
        assert_eq!((usual.model, usual.tokens), (None, Some(DraftTokens::Auto)));
        let tokens = |text: &str| set(&[("draft_num_tokens", text)]).map(|load| load.tokens);
        assert_eq!(tokens("auto"), Ok(Some(DraftTokens::Auto)));
        assert_eq!(tokens("off"), Ok(Some(DraftTokens::Exactly(0))));
        assert_eq!(tokens("6"), Ok(Some(DraftTokens::Exactly(6))));
        assert!(tokens("32").unwrap_err().contains("0 to 31") && tokens("some").is_err());
        let most = set(&[("draft_num_tokens", "6"), ("dynamic_draft", "true")]).unwrap();
        assert_eq!(most.tokens, Some(DraftTokens::UpTo(6)));
        let small = set(&[("draft_model_name", "small"), ("draft_cache_mode", "f8")]).unwrap();
        assert_eq!(small.cache_mode, Some(KvFormat::Fp8));
        assert!(set(&[("draft_cache_mode", "q9")]).is_err());
        assert!(set(&[("draft_mode", "mtp")]).unwrap_err().contains("ngram"));
        assert!(set(&[("draft_rope_scale", "2"), ("draft_rope_alpha", "2")]).is_err());
    }
}
