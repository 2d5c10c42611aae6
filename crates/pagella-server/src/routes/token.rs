//! Text to ids and back, without generating anything.

use std::sync::Arc;

use pagella_conversation::messages;
use pagella_text::{AddBos, Span, SpecialTokens};
use serde::Serialize;
use serde_json::{Value, json};

use super::model_name::model_for;
use crate::call::{Call, Reply};
use crate::chat::{CONVERSATION, ChatInput, ChatPrompt, REASONING, TOOLS};
use crate::fields::{Fields, Param, any, boolean, ids, out_of_range, text, wrong_type};
use crate::generate::ending::text_error;
use crate::model::ServedModel;
use crate::wire::error::ApiError;

/// Most ids that are decoded at once.
const IDS_MAX: usize = 1 << 20;

/// Fields of `/v1/token/encode`.
pub const ENCODE: &[&[Param]] = &[
    &[
        text("model", 512),
        any("text"),
        boolean("add_bos_token"),
        boolean("encode_special_tokens"),
        boolean("decode_special_tokens"),
        boolean("with_pieces"),
        boolean("with_offsets"),
    ],
    CONVERSATION,
    TOOLS,
    REASONING,
];
/// Fields of `/v1/token/decode`.
pub const DECODE: &[&[Param]] = &[&[
    text("model", 512),
    any("tokens"),
    boolean("add_bos_token"),
    boolean("encode_special_tokens"),
    boolean("decode_special_tokens"),
]];
/// Fields of `/tokenize`.
pub const TOKENIZE: &[&[Param]] = &[&[
    text("model", 512),
    text("content", 32 << 20),
    boolean("add_special"),
    boolean("parse_special"),
    boolean("with_pieces"),
]];
/// Fields of `/detokenize`.
pub const DETOKENIZE: &[&[Param]] = &[&[text("model", 512), any("tokens")]];
/// Fields of `/apply-template`.
pub const TEMPLATE: &[&[Param]] = &[&[text("model", 512)], CONVERSATION, TOOLS, REASONING];

async fn read(
    call: &mut Call,
    tables: &'static [&'static [Param]],
) -> Result<(Fields, Arc<ServedModel>), ApiError> {
    let fields = Fields::read(call.object().await?, tables)?;
    call.settle(&fields)?;
    let model = model_for(call, &fields).await?;
    Ok((fields, model))
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
    let (fields, model) = read(&mut call, ENCODE).await?;
    let bos = match fields.bool("add_bos_token") {
        Some(false) => AddBos::Never,
        _ => AddBos::Auto,
    };
    let special = fields.bool("encode_special_tokens") != Some(false);
    let (with_pieces, with_offsets) = (fields.is("with_pieces"), fields.is("with_offsets"));
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
    match fields.need("text")?.clone() {
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
            let messages = messages(&list, limits.messages)?;
            let mut input = ChatInput::with_messages(messages, &fields, limits)?;
            input.opens = input.opens.or(Some(false));
            let conversation = ChatPrompt::new(&call, input, &model)?;
            let work = move |budget| answer(&model, &conversation.encode(&model, bos, &budget)?);
            call.app.blocking.prepare(call.body_bytes, work).await
        }
        _ => Err(wrong_type("text", "a string or a list of messages")),
    }
}

async fn decoded(call: &mut Call, tables: &'static [&'static [Param]]) -> Result<String, ApiError> {
    let (fields, model) = read(call, tables).await?;
    let value = fields.need("tokens")?;
    if value.as_array().is_some_and(|list| list.len() > IDS_MAX) {
        return Err(out_of_range("tokens", &format!("at most {IDS_MAX} ids")));
    }
    let ids = ids("tokens", value, model.parts.tokenizer.vocab_size())?;
    let specials = match fields.bool("decode_special_tokens") {
        Some(false) => SpecialTokens::Hide,
        _ => SpecialTokens::Show,
    };
    let decode = move || Ok(model.parts.tokenizer.decode(&ids, specials));
    call.app.blocking.run(decode).await
}

/// `/v1/token/decode`.
pub async fn decode(mut call: Call) -> Result<Reply, ApiError> {
    let text = decoded(&mut call, DECODE).await?;
    Reply::json(&json!({ "text": text }))
}

/// `/detokenize`, as llama.cpp has it.
pub async fn detokenize(mut call: Call) -> Result<Reply, ApiError> {
    let text = decoded(&mut call, DETOKENIZE).await?;
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
    let (fields, model) = read(&mut call, TOKENIZE).await?;
    let Some(text) = fields.need("content")?.as_str().map(str::to_owned) else {
        return Err(wrong_type("content", "a string"));
    };
    let special = fields.bool("parse_special") != Some(false);
    let bos = if fields.is("add_special") { AddBos::Auto } else { AddBos::Never };
    let span = if special { Span::Special(text) } else { Span::Text(text) };
    let with_pieces = fields.is("with_pieces");
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
    let (fields, model) = read(&mut call, TEMPLATE).await?;
    let input = ChatInput::read(&fields, &call.app.settings.limits)?;
    let conversation = ChatPrompt::new(&call, input, &model)?;
    let prompt = call.app.blocking.prepare(call.body_bytes, move |_| conversation.render()).await?;
    Reply::json(&json!({ "prompt": prompt }))
}
