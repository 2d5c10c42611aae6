//! Answers for people and for programs.

use anyhow::{Context, Result};
use pagella::{Completion, Record, Tokenizer};
use serde_json::{Value, json};

use crate::output;

/// The last record of an answer, with everything merged into it, as the stable JSON object.
pub fn json(record: &Record, tokenizer: &Tokenizer) -> Result<Value> {
    let done = record.eos.as_ref().context("the answer has no end: please report it")?;
    let mut object = output::completion_json(done);
    if !record.logprobs.is_empty() {
        object["logprobs"] = logprobs(record, tokenizer);
    }
    Ok(object)
}

/// One object per token of the answer.
fn logprobs(record: &Record, tokenizer: &Tokenizer) -> Value {
    let text = |id: u32| String::from_utf8_lossy(tokenizer.token_bytes(id)).into_owned();
    let token = |(&id, logprobs): (&u32, &pagella::TokenLogprobs)| {
        let top = logprobs.top.iter();
        let top: Vec<Value> = top
            .map(|&(id, logprob)| json!({"token_id": id, "token": text(id), "logprob": logprob}))
            .collect();
        json!({"token_id": id, "token": text(id), "logprob": logprobs.logprob, "top": top})
    };
    record.token_ids.iter().zip(&record.logprobs).map(token).collect()
}

/// What people should know of an answer beyond its text.
pub fn note(done: &Completion) {
    for warning in &done.warnings {
        output::note(&format!("warning: {warning}"));
    }
    if output::stderr_is_terminal() {
        output::note(&format!("({})", output::completion_line(done)));
    }
}
