//! llama.cpp's routes that generate text.

use std::sync::Arc;
use std::time::Duration;

use pagella_text::{AddBos, EncodeBudget, Span, SpecialTokens};
use serde_json::Value;

use crate::call::{Call, Ignored, Reply};
use crate::fields::{strings, unsupported};
use crate::generate::ending::text_error;
use crate::generate::given::GivenPrompt;
use crate::generate::logprobs::LogprobRequest;
use crate::generate::request::GenerationRequest;
use crate::generate::sampling::ZeroTopP;
use crate::generate::submit::{Prompt, enter};
use crate::llamacpp::{
    InfillFields, LlamaAnswer, LlamaBody, LlamaFields, LlamaPrompt, Prompted, generation_settings,
    infill_spans, prompts,
};
use crate::model::ServedModel;
use crate::routes::model_name::model_for;
use crate::wire::error::ApiError;
use crate::wire::id::random_u128;

/// Names in `response_fields`, at most.
const RESPONSE_FIELDS_MAX: usize = 64;

/// What is to be continued.
enum Source {
    /// Prompts, and whether they came as a list.
    Prompts(Vec<GivenPrompt>, bool),
    /// The text before a gap.
    Gap(Vec<Span>),
}

/// `/completion` and `/completions`.
pub async fn completion(mut call: Call) -> Result<Reply, ApiError> {
    let most = call.app.settings.limits.prompts;
    let (body, ignored) = call.read::<LlamaBody<LlamaPrompt>>().await?;
    let source = |own: LlamaPrompt, model: &ServedModel| {
        let (given, listed) = prompts(&own.prompt, model.id_bounds(), most)?;
        Ok(Source::Prompts(given, listed))
    };
    answer(call, body, ignored, source).await
}

/// `/infill`.
pub async fn infill(mut call: Call) -> Result<Reply, ApiError> {
    let (body, ignored) = call.read::<LlamaBody<InfillFields>>().await?;
    let source = |own: InfillFields, model: &ServedModel| {
        Ok(Source::Gap(infill_spans(&model.parts.tokenizer, own)?))
    };
    answer(call, body, ignored, source).await
}

async fn answer<P>(
    call: Call,
    (prompt, own, _, mut fields, mut parameters, _): LlamaBody<P>,
    ignored: Ignored,
    source: impl FnOnce(P, &ServedModel) -> Result<Source, ApiError>,
) -> Result<Reply, ApiError> {
    own.settle(&call, &mut fields, &mut parameters)?;
    let model = model_for(&call, &fields).await?;
    let mut generation =
        GenerationRequest::read(&call, (&fields, &parameters), &model, ZeroTopP::One)?;
    if generation.negative.is_some() {
        return Err(unsupported("negative_prompt", "use /v1/completions"));
    }
    let probs = probs(&own, call.app.settings.limits.top_logprobs)?;
    if let Some(probs) = probs {
        probs.apply(&mut generation.job);
    }
    if own.cache_prompt == Some(false) {
        // Nobody else has pages of this name.
        generation.job.cache_salt = Some(format!("none:{:032x}", random_u128()));
    }
    let response_fields = own.response_fields.as_ref();
    let response_fields =
        response_fields.map(|list| strings("response_fields", list, RESPONSE_FIELDS_MAX));
    let source = source(prompt, &model)?;
    let listed = matches!(source, Source::Prompts(_, true));
    let entered = enter(&call)?;
    let (prompts, texts) = encode(&call, &model, source, parameters.add_bos()).await?;
    let time = own.t_max_predict_ms.and_then(|millis| u64::try_from(millis).ok());
    let completion = LlamaAnswer {
        prompted: Prompted {
            prompts: texts,
            settings: generation_settings(&generation.job),
            n: generation.n,
            listed,
        },
        delivery: generation.delivery.clone(),
        probs,
        slot: own.id_slot.unwrap_or(-1),
        response_fields: response_fields.transpose()?,
        time: time.filter(|millis| *millis > 0).map(Duration::from_millis),
        begun: call.begun,
        model: model.clone(),
    };
    let mut running = entered.submit(&call, &model, generation, prompts, "prompt").await?;
    let stream = completion.delivery.stream;
    call.access.note(|facts| facts.stream = stream);
    let mut headers = http::HeaderMap::new();
    running.ticket.write_headers(&mut headers);
    ignored.write_header(&mut headers);
    let mut reply = match stream {
        true => Reply::events(move |sink| completion.stream(running, sink)),
        false => Reply::json(&completion.whole(&mut running).await?)?,
    };
    reply.headers.extend(headers);
    Ok(reply)
}

/// Which probabilities are told: none, or those of at most so many alternatives.
fn probs(own: &LlamaFields, most: usize) -> Result<Option<LogprobRequest>, ApiError> {
    let top = Some(own.n_probs).filter(|top| *top > 0);
    LogprobRequest::within("n_probs", top, own.post_sampling_probs, most)
}

/// Prompts as ids and as the text that these stand for.
async fn encode(
    call: &Call,
    model: &Arc<ServedModel>,
    source: Source,
    add_bos: AddBos,
) -> Result<(Vec<Prompt>, Vec<String>), ApiError> {
    let model = model.clone();
    let encode = move |budget: EncodeBudget| {
        let tokenizer = &model.parts.tokenizer;
        let budget = budget.within(model.capacity());
        let too_long = |error: ApiError| error.at("prompt");
        let ids = match source {
            Source::Gap(spans) => {
                let encoded = tokenizer.encode_within(&spans, add_bos, &budget);
                vec![encoded.map_err(|error| too_long(text_error(&error)))?]
            }
            Source::Prompts(given, _) => {
                let encode = |given: GivenPrompt| {
                    given.encode(tokenizer, add_bos, &budget).map_err(too_long)
                };
                given.into_iter().map(encode).collect::<Result<Vec<_>, _>>()?
            }
        };
        let text = |ids: &Vec<u32>| tokenizer.decode(ids, SpecialTokens::Show);
        let texts = ids.iter().map(text).collect();
        let prompts = ids.into_iter().map(|ids| Prompt { ids, negative: None }).collect();
        Ok((prompts, texts))
    };
    call.app.blocking.prepare(call.body_bytes, encode).await
}

/// What `/props` says of sampling where a request does not say.
pub fn default_settings(model: &ServedModel) -> Value {
    generation_settings(&pagella_engine::JobOptions {
        sampling: model.parts.sampling.clone(),
        stop_ids: model.parts.tokenizer.eos_ids().to_vec(),
        ..Default::default()
    })
}
