//! Models that judge: every document becomes a prompt that ends where the verdict comes.

use std::sync::Arc;

use pagella_engine::{Record, SampleOptions};
use pagella_text::{AddBos, ChatTemplate, EncodeBudget, Message, RenderOptions, Span, Tokenizer};

use super::ask::RerankRequest;
use crate::call::Call;
use crate::generate::ending::{no_template, text_error};
use crate::generate::fields::GenerationFields;
use crate::generate::parameters::Parameters;
use crate::generate::request::GenerationRequest;
use crate::generate::sampling::ZeroTopP;
use crate::generate::submit::{Prompt, enter};
use crate::model::{Judge, JudgeForm, ServedModel, Verdict};
use crate::wire::error::{ApiError, Code};

/// Scores of all documents, and how many tokens they took.
pub async fn scores(
    call: &Call,
    model: &Arc<ServedModel>,
    ask: &RerankRequest,
) -> Result<(Vec<f32>, usize), ApiError> {
    let judge = judge(model)?;
    let tokenizer = &model.parts.tokenizer;
    let (yes, no) = (token(tokenizer, &judge.yes)?, token(tokenizer, &judge.no)?);
    let fields = GenerationFields { model: ask.model.clone(), ..GenerationFields::default() };
    let plain = (&fields, &Parameters::default());
    let mut job = GenerationRequest::read(call, plain, model, ZeroTopP::Off)?;
    // The two verdicts alone, as the model finds them: what is reported is their share of both.
    job.job.sampling = SampleOptions { allow: Some(vec![yes, no]), ..SampleOptions::default() };
    job.job.max_new_tokens = Some(1);
    job.job.stop_ids.clear();
    job.job.return_probs = true;
    job.job.return_top_tokens = 2;
    let prompts = prompts(call, model, judge, ask).await?;
    let tokens = prompts.iter().map(Vec::len).sum();
    let mut scores = Vec::with_capacity(prompts.len());
    for group in prompts.chunks(call.app.settings.limits.max_choices.max(1)) {
        let prompt = |ids: &Vec<u32>| Prompt { ids: ids.clone(), negative: None };
        let group = group.iter().map(prompt).collect();
        let mut running = enter(call)?.submit(call, model, job.clone(), group, "documents").await?;
        let records = running.finish().await?;
        for record in &records {
            scores.push(share(record, yes).ok_or_else(ApiError::internal)?);
        }
    }
    Ok((scores, tokens))
}

/// How a model judges, if it does.
fn judge(model: &ServedModel) -> Result<&Judge, ApiError> {
    let facts = &model.parts.facts.rerank;
    let message = match (&facts.judge, &facts.problem) {
        (Some(judge), None) => return Ok(judge),
        (_, Some(problem)) => format!("the model's files do not say how it ranks: {problem}"),
        (None, None) => {
            "this model does not rank texts: load one whose files say how it judges (a \
                         LogitScore module of sentence-transformers, classifier_from_token in \
                         config.json, or [rerank] in model.toml), or set rerank.method to \
                         \"embeddings\""
                .to_owned()
        }
    };
    Err(ApiError::field(Code::UnsupportedParameter, "model", message))
}

fn token(tokenizer: &Tokenizer, verdict: &Verdict) -> Result<u32, ApiError> {
    let id = match verdict {
        Verdict::Id(id) => Some(*id).filter(|id| (*id as usize) < tokenizer.vocab_size()),
        Verdict::Text(text) => match tokenizer.encode_text(text).as_deref() {
            Ok([one]) => Some(*one),
            _ => None,
        },
    };
    let message = "the model's files name a verdict that is not one token of it";
    id.ok_or_else(|| ApiError::field(Code::UnsupportedParameter, "model", message))
}

/// How much of the probability of both verdicts the first one has.
fn share(record: &Record, yes: u32) -> Option<f32> {
    let candidates = record.top_k.first()?;
    let found = candidates.iter().find(|(id, _)| *id == yes);
    // A verdict without any probability is not among the candidates.
    Some(found.map_or(0.0, |(_, share)| *share))
}

async fn prompts(
    call: &Call,
    model: &Arc<ServedModel>,
    judge: &Judge,
    ask: &RerankRequest,
) -> Result<Vec<Vec<u32>>, ApiError> {
    let usual = call.app.settings.rerank.instruction.clone();
    let instruction = ask.instruction.clone().or(judge.instruction.clone()).or(usual);
    let template = match judge.form {
        JudgeForm::Text(_) => None,
        JudgeForm::Template => Some(model.template().ok_or_else(no_template)?),
    };
    let (form, query, documents) = (judge.form.clone(), ask.query.clone(), ask.documents.clone());
    let (model, limits) = (model.clone(), call.app.settings.limits.template());
    let encode = move |budget: EncodeBudget| {
        let budget = budget.within(model.capacity());
        let tokenizer = &model.parts.tokenizer;
        let options = RenderOptions {
            tokens: tokenizer.template_tokens().clone(),
            add_generation_prompt: true,
            limits,
            ..RenderOptions::default()
        };
        let instruction = instruction.as_deref();
        let encode = |document: &String| {
            let spans = match (&form, &template) {
                (JudgeForm::Text(text), _) => filled(text, instruction, &query, document),
                (JudgeForm::Template, Some(active)) => {
                    rendered(&active.template, &options, instruction, &query, document)?
                }
                (JudgeForm::Template, None) => return Err(no_template()),
            };
            let encoded = tokenizer.encode_within(&spans, AddBos::Auto, &budget);
            encoded.map_err(|error| text_error(&error).at("documents"))
        };
        documents.iter().map(encode).collect()
    };
    call.app.blocking.prepare(call.body_bytes, encode).await
}

fn rendered(
    template: &ChatTemplate,
    options: &RenderOptions,
    instruction: Option<&str>,
    query: &str,
    document: &str,
) -> Result<Vec<Span>, ApiError> {
    let system = instruction.map(|text| Message::new("system", text));
    let pair = [Message::new("query", query), Message::new("document", document)];
    let messages: Vec<Message> = system.into_iter().chain(pair).collect();
    template.render(&messages, options).map_err(|error| text_error(&error))
}

/// A text with its places filled: only the text itself can write special tokens.
fn filled(text: &str, instruction: Option<&str>, query: &str, document: &str) -> Vec<Span> {
    let places = [
        ("{instruction}", instruction.unwrap_or_default()),
        ("{query}", query),
        ("{document}", document),
    ];
    let mut spans = Vec::new();
    let mut rest = text;
    loop {
        let found = places.iter().filter_map(|place| Some((rest.find(place.0)?, place)));
        let Some((at, (name, value))) = found.min_by_key(|(at, _)| *at) else { break };
        spans.push(Span::Special(rest[..at].to_owned()));
        spans.push(Span::Text((*value).to_owned()));
        rest = &rest[at + name.len()..];
    }
    spans.push(Span::Special(rest.to_owned()));
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_filled_once_and_as_text() {
        let text = "<s>{query}|{document}</s>{instruction}";
        let spans = filled(text, Some("i"), "{document}", "<s>");
        let expected = [
            Span::Special("<s>".into()),
            Span::Text("{document}".into()),
            Span::Special("|".into()),
            Span::Text("<s>".into()),
            Span::Special("</s>".into()),
            Span::Text("i".into()),
            Span::Special(String::new()),
        ];
        assert_eq!(spans, expected);
    }
}
