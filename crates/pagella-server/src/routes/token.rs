//! Text to ids and back, without generating anything.

use std::sync::Arc;

use pagella_conversation::messages;
use pagella_text::{AddBos, Span, SpecialTokens};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::call::{Call, Reply};
use crate::chat::{ChatInput, ChatPrompt, ConversationFields, Messages, ReasoningFields};
use crate::fields::{Body, InertList, NoEffect, ids, out_of_range, wrong_type};
use crate::generate::ending::text_error;
use crate::model::{ServedModel, resolve};
use crate::refused::Refused;
use crate::wire::error::ApiError;

/// Most ids that are decoded at once.
const IDS_MAX: usize = 1 << 20;

/// Which model counts and names tokens.
#[derive(Deserialize, JsonSchema)]
pub struct ModelName {
    /// Which model; without it the one that is loaded
    #[schemars(length(max = 512))]
    model: Option<String>,
}

/// The fields of `/v1/token/encode` beside those of a conversation.
#[derive(Deserialize, JsonSchema)]
pub struct EncodeFields {
    /// A text, or the messages of a conversation
    #[schemars(extend("$ref" = "#/components/schemas/InputItems"))]
    text: Value,
    /// Whether the ids begin with the model's first token; without it as the model wants it
    add_bos_token: Option<bool>,
    /// Names of special tokens in the text mean these tokens
    #[schemars(extend("default" = true))]
    encode_special_tokens: Option<bool>,
    /// The text of each token
    #[serde(default)]
    with_pieces: bool,
    /// Where each token begins, in bytes
    #[serde(default)]
    with_offsets: bool,
}

/// The ids of `/v1/token/decode` and `/detokenize`.
#[derive(Deserialize, JsonSchema)]
pub struct DecodeFields {
    /// Token ids
    #[schemars(with = "Vec<u32>", length(max = IDS_MAX))]
    tokens: Value,
    /// Special tokens are part of the text
    #[schemars(extend("default" = true))]
    decode_special_tokens: Option<bool>,
}

/// The text of `/tokenize`.
#[derive(Deserialize, JsonSchema)]
pub struct TokenizeFields {
    /// A text
    #[schemars(length(max = 33_554_432))]
    content: String,
    /// Begin with the model's first token
    #[serde(default)]
    add_special: bool,
    /// Names of special tokens in the text mean these tokens
    #[schemars(extend("default" = true))]
    parse_special: Option<bool>,
    /// The text of each token
    #[serde(default)]
    with_pieces: bool,
}

/// What TabbyAPI's clients send to both of its routes, though each uses a part of it.
pub enum OfTokens {}

impl InertList for OfTokens {
    const NAME: &'static str = "TokenInert";
    const ACCEPTED: &'static str =
        "add_bos_token encode_special_tokens decode_special_tokens messages";
}

/// What the routes read.
pub type EncodeBody =
    (ModelName, EncodeFields, ConversationFields, ReasoningFields, NoEffect<OfTokens>);
pub type DecodeBody = (ModelName, DecodeFields, NoEffect<OfTokens>);
pub type TokenizeBody = (ModelName, TokenizeFields);
pub type TemplateBody = (ModelName, Messages, ConversationFields, ReasoningFields);

async fn read<B: Body>(
    call: &mut Call,
    name: fn(&B) -> &ModelName,
) -> Result<(B, Arc<ServedModel>), ApiError> {
    let (body, _) = call.read::<B>().await?;
    let model = resolve(call, name(&body).model.as_deref(), false).await?;
    Ok((body, model))
}

/// A token as text, or as bytes where it is none alone.
#[derive(Serialize)]
#[serde(untagged)]
enum Piece<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl<'a> Piece<'a> {
    fn of(model: &'a ServedModel, id: u32) -> Self {
        let bytes = model.parts.tokenizer.token_bytes(id);
        std::str::from_utf8(bytes).map_or(Piece::Bytes(bytes), Piece::Text)
    }
}

/// What `/v1/token/encode` answers.
#[derive(Serialize)]
struct Encoded<'a> {
    tokens: &'a [u32],
    length: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pieces: Option<Vec<Piece<'a>>>,
    /// Where each token begins, in bytes of the text that the ids stand for.
    #[serde(skip_serializing_if = "Option::is_none")]
    offsets: Option<Vec<usize>>,
}

/// `/v1/token/encode`: a text or a conversation. A large text has millions of ids, so the answer is
/// written where they are found, on the threads for large requests.
pub async fn encode(mut call: Call) -> Result<Reply, ApiError> {
    let (body, model) = read::<EncodeBody>(&mut call, |body| &body.0).await?;
    let (_, own, conversation, reasoning, _) = body;
    let bos = if own.add_bos_token == Some(false) { AddBos::Never } else { AddBos::Auto };
    let special = own.encode_special_tokens != Some(false);
    let EncodeFields { with_pieces, with_offsets, .. } = own;
    let answer = move |model: &ServedModel, ids: &[u32]| {
        let bytes = |id: &u32| model.parts.tokenizer.token_bytes(*id).len();
        let begin = |at: &mut usize, id: &u32| Some(std::mem::replace(at, *at + bytes(id)));
        Reply::json(&Encoded {
            tokens: ids,
            length: ids.len(),
            pieces: with_pieces.then(|| ids.iter().map(|id| Piece::of(model, *id)).collect()),
            offsets: with_offsets.then(|| ids.iter().scan(0, begin).collect()),
        })
    };
    match own.text {
        Value::String(text) => {
            let span = if special { Span::Special(text) } else { Span::Text(text) };
            let work = move |budget| {
                let ids = model.parts.tokenizer.encode_within(&[span], bos, &budget);
                answer(&model, &ids.map_err(|error| text_error(&error))?)
            };
            call.app.blocking.prepare(call.body_bytes, work).await
        }
        list @ Value::Array(_) => {
            let limits = &call.app.settings.limits;
            let messages = messages(&list, limits.messages).map_err(Refused::from)?;
            let mut input = ChatInput::read(messages, conversation, &reasoning, limits)?;
            input.opens = input.opens.or(Some(false));
            let conversation = ChatPrompt::new(&call, input, &model)?;
            let work = move |budget| answer(&model, &conversation.encode(&model, bos, &budget)?);
            call.app.blocking.prepare(call.body_bytes, work).await
        }
        _ => Err(wrong_type("text", "a string or a list of messages")),
    }
}

async fn decoded(call: &mut Call) -> Result<String, ApiError> {
    let ((_, own, _), model) = read::<DecodeBody>(call, |body| &body.0).await?;
    let value = &own.tokens;
    if value.as_array().is_some_and(|list| list.len() > IDS_MAX) {
        return Err(out_of_range("tokens", &format!("at most {IDS_MAX} ids")));
    }
    let ids = ids("tokens", value, model.parts.tokenizer.vocab_size())?;
    let specials = match own.decode_special_tokens {
        Some(false) => SpecialTokens::Hide,
        _ => SpecialTokens::Show,
    };
    let decode = move || Ok(model.parts.tokenizer.decode(&ids, specials));
    call.app.blocking.run(decode).await
}

/// `/v1/token/decode`.
pub async fn decode(mut call: Call) -> Result<Reply, ApiError> {
    let text = decoded(&mut call).await?;
    Reply::json(&json!({ "text": text }))
}

/// `/detokenize`, as llama.cpp has it.
pub async fn detokenize(mut call: Call) -> Result<Reply, ApiError> {
    let text = decoded(&mut call).await?;
    Reply::json(&json!({ "content": text }))
}

/// What `/tokenize` answers: ids, or tokens with their pieces.
#[derive(Serialize)]
struct Tokens<T> {
    tokens: Vec<T>,
}

#[derive(Serialize)]
struct Token<'a> {
    id: u32,
    piece: Piece<'a>,
}

/// `/tokenize`, as llama.cpp has it.
pub async fn tokenize(mut call: Call) -> Result<Reply, ApiError> {
    let ((_, own), model) = read::<TokenizeBody>(&mut call, |body| &body.0).await?;
    let TokenizeFields { content: text, add_special, parse_special, with_pieces } = own;
    let bos = if add_special { AddBos::Auto } else { AddBos::Never };
    let span = if parse_special == Some(false) { Span::Text(text) } else { Span::Special(text) };
    let work = move |budget| {
        let ids = model.parts.tokenizer.encode_within(&[span], bos, &budget);
        let ids = ids.map_err(|error| text_error(&error))?;
        let token = |id: &u32| Token { id: *id, piece: Piece::of(&model, *id) };
        match with_pieces {
            true => Reply::json(&Tokens { tokens: ids.iter().map(token).collect() }),
            false => Reply::json(&Tokens { tokens: ids }),
        }
    };
    call.app.blocking.prepare(call.body_bytes, work).await
}

/// `/apply-template`, as llama.cpp has it: the prompt of a conversation as text.
pub async fn apply_template(mut call: Call) -> Result<Reply, ApiError> {
    let (body, model) = read::<TemplateBody>(&mut call, |body| &body.0).await?;
    let (_, Messages { messages: list }, conversation, reasoning) = body;
    let limits = &call.app.settings.limits;
    let list = messages(&list, limits.messages).map_err(Refused::from)?;
    let input = ChatInput::read(list, conversation, &reasoning, limits)?;
    let conversation = ChatPrompt::new(&call, input, &model)?;
    let prompt = call.app.blocking.prepare(call.body_bytes, move |_| conversation.render()).await?;
    Reply::json(&json!({ "prompt": prompt }))
}
