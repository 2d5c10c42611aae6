//! The fields of a request: those beside `options` and those within.

use pagella_engine::constraint::ConstraintSpec;
use serde_json::{Map, Value};

use crate::call::{Call, Ignored};
use crate::fields::{
    Fields, Param, any, boolean, integer, number, out_of_range, text, unsupported, wrong_type,
};
use crate::generate::logprobs::LogprobRequest;
use crate::generate::params::{GENERATION, SAMPLING};
use crate::generate::request::GenerationRequest;
use crate::llamacpp;
use crate::wire::error::{ApiError, Code};

/// Longest prompt as text, in bytes; the body is limited before.
const PROMPT_BYTES_MAX: usize = 32 << 20;

/// What every route has that generates text.
const SHARED: &[Param] = &[
    text("model", 512),
    boolean("stream"),
    any("format"),
    any("keep_alive"),
    any("options"),
    any("think"),
    boolean("truncate"),
    boolean("shift"),
    boolean("logprobs"),
    integer("top_logprobs", 0, i64::MAX),
];

/// Every field of `/api/chat`.
pub const CHAT: &[&[Param]] = &[&[any("messages"), any("tools")], SHARED];

/// Every field of `/api/generate`.
pub const GENERATE: &[&[Param]] = &[
    &[
        text("prompt", PROMPT_BYTES_MAX),
        text("suffix", PROMPT_BYTES_MAX),
        text("system", PROMPT_BYTES_MAX),
        text("template", PROMPT_BYTES_MAX),
        any("context"),
        boolean("raw"),
        any("images"),
    ],
    SHARED,
];

/// Every field of `/api/embed`.
pub const EMBED: &[&[Param]] = &[&[
    text("model", 512),
    any("input"),
    boolean("truncate"),
    integer("dimensions", 0, i64::MAX),
    any("keep_alive"),
    any("options"),
]];

/// Every field of `/api/embeddings`.
pub const EMBEDDINGS: &[&[Param]] =
    &[&[text("model", 512), text("prompt", PROMPT_BYTES_MAX), any("keep_alive"), any("options")]];

/// Every field of `/api/show`.
pub const SHOW: &[&[Param]] = &[&[text("model", 512).or(&["name"]), boolean("verbose")]];

/// Every field of `/api/pull`.
pub const PULL: &[&[Param]] =
    &[&[text("model", 512).or(&["name"]), boolean("insecure"), boolean("stream")]];

/// Options that say how a model is opened, or what is forgotten when the context is full. The operator
/// opens models and nothing is ever forgotten, so they change no text.
const OF_LOADING: &[Param] = &[
    any("num_keep"),
    any("num_batch"),
    any("num_gpu"),
    any("main_gpu"),
    any("num_thread"),
    any("numa"),
    any("low_vram"),
    any("f16_kv"),
    any("logits_all"),
    any("vocab_only"),
    any("use_mmap"),
    any("use_mlock"),
    any("embedding_only"),
    any("draft_num_predict"),
    any("penalize_newline"),
];

/// What may stand in `options`: Ollama's words, and those of all routes. The first that knows a field
/// counts.
const OPTIONS: &[&[Param]] = &[
    &[
        integer("max_tokens", i64::MIN, i64::MAX).or(&["num_predict"]),
        integer("num_ctx", 0, i64::MAX),
        number("tfs", 0.0, 1.0).or(&["tfs_z"]),
    ],
    OF_LOADING,
    SAMPLING,
    GENERATION,
];

/// `options`, in the fields of all routes. `capacity` is the longest sequence of the model.
pub fn options(
    call: &Call,
    fields: &Fields,
    capacity: usize,
    ignored: &mut Ignored,
) -> Result<Fields, ApiError> {
    let options = match fields.value("options") {
        None => Map::new(),
        Some(Value::Object(options)) => options.clone(),
        Some(_) => return Err(wrong_type("options", "an object")),
    };
    let mut options = Fields::read(options, OPTIONS)?;
    call.settle(&options)?;
    ignored.add(options.unknown().iter().map(|name| format!("options.{name}")).collect());
    // A longer context than there is cannot be had by asking.
    let wanted = options.int("num_ctx").and_then(|tokens| usize::try_from(tokens).ok());
    if wanted.is_some_and(|tokens| tokens > capacity) {
        ignored.add(vec!["options.num_ctx".to_owned()]);
    }
    // Below 1 there is no limit.
    if options.int("max_tokens").is_some_and(|tokens| tokens < 1) {
        options.set("max_tokens", (-1).into());
    }
    if options.int("n").is_some_and(|n| n != 1) {
        return Err(out_of_range("options.n", "1, as there is one answer"));
    }
    llamacpp::set_defaults(call, &mut options);
    Ok(options)
}

/// What stands beside `options` and concerns every answer.
pub fn shape_answer(
    call: &Call,
    fields: &Fields,
    generation: &mut GenerationRequest,
) -> Result<(), ApiError> {
    generation.delivery.stream = call.streams(fields.bool("stream") != Some(false));
    // Lines that say nothing are no JSON, and no client reads them.
    generation.delivery.ping = None;
    match format(fields)? {
        Some(spec) => generation.constrain("format", spec),
        None => Ok(()),
    }
}

/// What the text must look like: `json`, or a schema.
fn format(fields: &Fields) -> Result<Option<ConstraintSpec>, ApiError> {
    match fields.value("format") {
        None => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) if text == "json" => Ok(Some(ConstraintSpec::JsonObject)),
        Some(Value::Object(schema)) if schema.is_empty() => Ok(None),
        Some(schema @ Value::Object(_)) => Ok(Some(ConstraintSpec::JsonSchema(schema.clone()))),
        Some(_) => {
            let message = "format must be \"json\" or a JSON schema";
            Err(ApiError::field(Code::UnsupportedValue, "format", message))
        }
    }
}

/// Which log-probabilities are reported, of at most `most` alternatives.
pub fn logprobs(fields: &Fields, most: usize) -> Result<Option<LogprobRequest>, ApiError> {
    let top = fields.is("logprobs").then(|| fields.int("top_logprobs").unwrap_or(0));
    LogprobRequest::within(fields, top, false, most)
}

/// Whether the model thinks, and how hard, as templates read it.
pub fn thinking(fields: &Fields) -> Result<Map<String, Value>, ApiError> {
    let mut variables = Map::new();
    match fields.value("think") {
        None => {}
        Some(Value::Bool(on)) => {
            variables.insert("enable_thinking".into(), (*on).into());
        }
        Some(Value::String(effort)) if effort.is_empty() => {}
        Some(Value::String(effort)) => {
            variables.insert("enable_thinking".into(), true.into());
            variables.insert("reasoning_effort".into(), effort.as_str().into());
        }
        Some(_) => return Err(wrong_type("think", "true, false, \"low\", \"medium\" or \"high\"")),
    }
    Ok(variables)
}

/// Refuses a field that nothing here can do, unless it asks for nothing.
pub fn only_neutral(fields: &Fields, name: &str, instead: &str) -> Result<(), ApiError> {
    let asks = match fields.value(name) {
        None => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(list)) => !list.is_empty(),
        Some(_) => true,
    };
    if asks { Err(unsupported(name, instead)) } else { Ok(()) }
}

/// Whether a request without a prompt wants the model gone: it is to be kept for no time.
pub fn ends_the_model(fields: &Fields) -> bool {
    match fields.value("keep_alive") {
        Some(Value::Number(seconds)) => seconds.as_f64() == Some(0.0),
        Some(Value::String(time)) => {
            let digits = time.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
            digits.parse::<f64>() == Ok(0.0)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(body: Value) -> Fields {
        let Value::Object(map) = body else { panic!() };
        Fields::read(map, GENERATE).unwrap()
    }

    #[test]
    fn no_time_is_told_in_every_form() {
        for zero in [json!(0), json!(0.0), json!("0"), json!("0s"), json!("0m")] {
            assert!(ends_the_model(&read(json!({ "keep_alive": zero }))), "{zero}");
        }
        for other in
            [json!(-1), json!("5m"), json!("-1"), json!(300), json!("forever"), json!(null)]
        {
            assert!(!ends_the_model(&read(json!({ "keep_alive": other }))), "{other}");
        }
    }

    #[test]
    fn what_asks_for_nothing_is_not_refused() {
        for nothing in [json!(null), json!([]), json!("")] {
            assert!(only_neutral(&read(json!({ "images": nothing })), "images", "").is_ok());
        }
        assert!(only_neutral(&read(json!({"images": ["aGk="]})), "images", "").is_err());
    }

    #[test]
    fn form_and_thinking_are_told_in_several_ways() {
        assert_eq!(
            format(&read(json!({"format": "json"}))).unwrap(),
            Some(ConstraintSpec::JsonObject)
        );
        let schema = json!({"type": "object"});
        let expected = Some(ConstraintSpec::JsonSchema(schema.clone()));
        assert_eq!(format(&read(json!({ "format": schema }))).unwrap(), expected);
        let expected = json!({"enable_thinking": true, "reasoning_effort": "high"});
        assert_eq!(Value::Object(thinking(&read(json!({"think": "high"}))).unwrap()), expected);
        for neutral in [json!({"format": ""}), json!({"format": {}}), json!({"think": ""})] {
            assert_eq!(format(&read(neutral.clone())).unwrap(), None);
            assert!(thinking(&read(neutral)).unwrap().is_empty());
        }
        assert!(format(&read(json!({"format": "xml"}))).is_err());
        assert!(thinking(&read(json!({"think": 3}))).is_err());
    }
}
