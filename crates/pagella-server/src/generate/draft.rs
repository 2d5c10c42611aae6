//! What a request says about guesses: how many are made, and what the answer is expected to be.
//! Nothing here changes an answer.

use pagella_engine::{DraftDepth, DraftOptions};
use serde_json::Value;

use super::fields::GenerationFields;
use super::parameters::Parameters;
use crate::fields::{as_integer, missing, out_of_range, wrong_type};
use crate::wire::error::{ApiError, Code};

/// How many tokens a request wants guessed; `None` where it leaves that to the server.
pub fn depth(
    fields: &GenerationFields,
    parameters: &Parameters,
) -> Result<Option<DraftDepth>, ApiError> {
    let asked = fields.draft.as_ref().map(choice).transpose()?.flatten();
    let tokens = parameters.int("draft_tokens").and_then(|tokens| usize::try_from(tokens).ok());
    if let (Some(one), Some(other)) = (asked, tokens)
        && one != other
    {
        let message = "draft and draft_tokens have different values: give one";
        return Err(ApiError::field(Code::ConflictingParameters, "draft", message));
    }
    Ok(asked.or(tokens).map(|tokens| match tokens {
        0 => DraftDepth::Off,
        tokens => DraftDepth::Fixed(tokens),
    }))
}

/// What `draft` says: no guesses, so many, or as the server was told.
fn choice(draft: &Value) -> Result<Option<usize>, ApiError> {
    let most = DraftOptions::GUESSES_MAX;
    match draft {
        Value::Bool(on) => Ok((!on).then_some(0)),
        Value::Object(fields) => {
            let known = |name: &String| name == "tokens";
            if let Some(name) = fields.keys().find(|name| !known(name)) {
                return Err(ApiError::unknown_field(
                    &format!("draft.{name}"),
                    ["draft.tokens"].into_iter(),
                ));
            }
            let Some(value) = fields.get("tokens").filter(|value| !value.is_null()) else {
                return Ok(None);
            };
            let tokens =
                as_integer(value).ok_or_else(|| wrong_type("draft.tokens", "an integer"))?;
            let tokens = usize::try_from(tokens).ok().filter(|tokens| *tokens <= most);
            let allowed = format!("from 0 to {most}");
            tokens.map(Some).ok_or_else(|| out_of_range("draft.tokens", &allowed))
        }
        _ => Err(wrong_type("draft", "true, false or an object with tokens")),
    }
}

/// The text that an answer is expected to be, in OpenAI's form: of type `content`, as one text or as
/// parts with text.
pub fn prediction(value: &Value) -> Result<Option<String>, ApiError> {
    let fields = match value {
        Value::Bool(false) => return Ok(None),
        Value::Object(fields) => fields,
        _ => return Err(wrong_type("prediction", "an object with type and content")),
    };
    let given = |name: &str| fields.get(name).filter(|value| !value.is_null());
    match given("type").map(|kind| kind.as_str()) {
        Some(Some("content")) => {}
        None => return Err(missing("prediction.type")),
        Some(_) => {
            let message = "prediction.type must be content";
            return Err(ApiError::field(Code::UnsupportedValue, "prediction.type", message));
        }
    }
    let text = match given("content").ok_or_else(|| missing("prediction.content"))? {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().enumerate().map(|(idx, part)| text_of(idx, part));
            texts.collect::<Result<String, ApiError>>()?
        }
        _ => return Err(wrong_type("prediction.content", "a text or a list of parts")),
    };
    Ok(Some(text).filter(|text| !text.is_empty()))
}

fn text_of(idx: usize, part: &Value) -> Result<&str, ApiError> {
    let path = format!("prediction.content[{idx}]");
    match (part["type"].as_str(), part["text"].as_str()) {
        (Some("text"), Some(text)) => Ok(text),
        _ => Err(wrong_type(path, "a part of type text, with text")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(draft: Value, tokens: Value) -> Result<Option<DraftDepth>, ApiError> {
        let draft = Some(draft).filter(|draft| !draft.is_null());
        let fields = GenerationFields { draft, ..GenerationFields::default() };
        let mut parameters = Parameters::default();
        if !tokens.is_null() {
            parameters.set("draft_tokens", tokens);
        }
        depth(&fields, &parameters)
    }

    #[test]
    fn a_request_may_say_how_many_tokens_are_guessed_in_several_ways() {
        let (none, off) = (Value::Null, Some(DraftDepth::Off));
        assert_eq!(read(none.clone(), none.clone()).unwrap(), None);
        assert_eq!(read(none.clone(), json!(-1)).unwrap(), None);
        assert_eq!(read(none.clone(), json!(0)).unwrap(), off);
        assert_eq!(read(json!(false), none.clone()).unwrap(), off);
        assert_eq!(read(json!(true), none.clone()).unwrap(), None);
        let four = Some(DraftDepth::Fixed(4));
        assert_eq!(read(none.clone(), json!(4)).unwrap(), four);
        assert_eq!(read(json!({"tokens": 4.0}), json!(4)).unwrap(), four);
        for (draft, param) in [
            (json!({"tokens": 32}), "draft.tokens"),
            (json!({"tokens": "x"}), "draft.tokens"),
            (json!({"depth": 3}), "draft.depth"),
            (json!(4), "draft"),
        ] {
            let error = read(draft, none.clone()).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{}", error.message);
        }
        let both = read(json!(false), json!(4)).unwrap_err();
        assert_eq!(both.code, Code::ConflictingParameters);
    }

    #[test]
    fn a_prediction_is_a_text_or_parts_with_text() {
        let of = |content: Value| prediction(&json!({"type": "content", "content": content}));
        assert_eq!(of(json!("a b")).unwrap().as_deref(), Some("a b"));
        let parts = json!([{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]);
        assert_eq!(of(parts).unwrap().as_deref(), Some("a b"));
        assert_eq!(of(json!("")).unwrap(), None);
        assert_eq!(prediction(&json!(false)).unwrap(), None);
        for (value, param) in [
            (json!("text"), "prediction"),
            (json!({"content": "x"}), "prediction.type"),
            (json!({"type": "image", "content": "x"}), "prediction.type"),
            (json!({"type": "content"}), "prediction.content"),
            (json!({"type": "content", "content": 1}), "prediction.content"),
            (json!({"type": "content", "content": [{"type": "text"}]}), "prediction.content[0]"),
        ] {
            let error = prediction(&value).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{}", error.message);
        }
    }
}
