//! The user's calibration: a text file, JSON lines with texts or conversations, or a Parquet file.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, SystemTime};

use pagella_text::{AddBos, ChatTemplate, Message, RenderOptions, Tokenizer};
use serde_json::Value;

use super::parquet;
use crate::error::QuantError;

/// Largest file, in bytes.
const BYTES_MAX: u64 = 256 << 20;

/// Bytes of a text that are encoded for each token that is needed, at first.
const BYTES_PER_TOKEN: usize = 8;

/// Ids at the end of a piece of text that may be others in the whole.
const TOKENS_CUT: usize = 32;

/// Fewest tokens that calibrate anything.
pub(super) const TOKENS_MIN: usize = 32;

/// The ids of what is in the file, one text after the other: all, or the first `needed` and a few more.
pub(super) fn ids(
    path: &Path,
    dir: &Path,
    tokenizer: &Tokenizer,
    needed: usize,
) -> Result<Vec<u32>, QuantError> {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let is = |known: &str| extension.eq_ignore_ascii_case(known);
    if is("parquet") {
        let mut ids = Vec::new();
        parquet::texts(path, &mut |text| {
            ids.extend(beginning(tokenizer, text, needed)?);
            Ok(ids.len() < needed)
        })?;
        return Ok(ids);
    }
    let text = read(path)?;
    match ["jsonl", "ndjson", "json"].into_iter().any(is) {
        true => of_lines(path, dir, tokenizer, &text, needed),
        false => beginning(tokenizer, &text, needed),
    }
}

/// A file of text, whole.
fn read(path: &Path) -> Result<String, QuantError> {
    let refuse = |problem: String| QuantError::BadCalibration { path: path.to_owned(), problem };
    let mut bytes = Vec::new();
    let opened = File::open(path).map_err(QuantError::io(path, "cannot read"))?;
    let read = opened.take(BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(QuantError::io(path, "cannot read"))?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(refuse(format!("larger than {} MiB: a part of it is enough", BYTES_MAX >> 20)));
    }
    String::from_utf8(bytes).map_err(|_| refuse("not UTF-8: convert it".to_owned()))
}

/// The first `needed` ids of a text and some more, or all of them; what comes later is not encoded.
fn beginning(tokenizer: &Tokenizer, text: &str, needed: usize) -> Result<Vec<u32>, QuantError> {
    let mut bytes = needed.saturating_mul(BYTES_PER_TOKEN);
    loop {
        let end = (bytes..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
        let ids = tokenizer.encode_text(&text[..end])?;
        // The last ones may be cut where the text was.
        if end == text.len() || ids.len() > needed + TOKENS_CUT {
            return Ok(ids);
        }
        bytes = end.saturating_mul(4);
    }
}

fn of_lines(
    path: &Path,
    dir: &Path,
    tokenizer: &Tokenizer,
    text: &str,
    needed: usize,
) -> Result<Vec<u32>, QuantError> {
    let mut ids = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let at = |problem: String| QuantError::BadCalibration {
            path: path.to_owned(),
            problem: format!("line {}: {problem}", index + 1),
        };
        let value: Value = serde_json::from_str(line)
            .map_err(|error| at(format!("{error}: give one JSON value per line")))?;
        match record(&value) {
            Some(Record::Text(text)) => ids.extend(beginning(tokenizer, text, needed)?),
            Some(Record::Messages(messages)) => {
                ids.extend(conversation(dir, tokenizer, &messages)?);
            }
            None => {
                let problem = "neither a string nor an object with `text` or `messages`";
                return Err(at(format!("{problem}: name the field `text`")));
            }
        }
        if ids.len() >= needed {
            break;
        }
    }
    Ok(ids)
}

/// A line of a JSON file.
enum Record<'a> {
    Text(&'a str),
    Messages(Vec<Message>),
}

fn record(value: &Value) -> Option<Record<'_>> {
    match value {
        Value::String(text) => Some(Record::Text(text)),
        Value::Object(fields) => match (fields.get("text"), fields.get("messages")) {
            (Some(Value::String(text)), _) => Some(Record::Text(text)),
            (None, Some(messages)) => {
                serde_json::from_value(messages.clone()).ok().map(Record::Messages)
            }
            _ => None,
        },
        _ => None,
    }
}

/// A conversation as the model's template writes it.
pub(super) fn conversation(
    dir: &Path,
    tokenizer: &Tokenizer,
    messages: &[Message],
) -> Result<Vec<u32>, QuantError> {
    let template = ChatTemplate::from_dir(dir)?;
    let options = RenderOptions {
        tokens: tokenizer.template_tokens().clone(),
        // Dates in a template must not make a difference from day to day.
        now: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)),
        ..RenderOptions::default()
    };
    Ok(tokenizer.encode(&template.render(messages, &options)?, AddBos::Auto)?)
}
