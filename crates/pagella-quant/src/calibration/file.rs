//! The user's calibration: a text file, JSON lines with texts or conversations, or a Parquet file.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::{Duration, SystemTime};

use pagella_text::{AddBos, ChatTemplate, Message, RenderOptions, Tokenizer};
use serde_json::Value;

use super::parquet;
use crate::error::QuantError;

/// Most bytes of a text, or of a line of JSON, that are in memory.
const BYTES_MAX: u64 = 256 << 20;

/// What a file may begin with to say that it is UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

const NOT_UTF8: &str = "not UTF-8: convert it";

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
    match ["jsonl", "ndjson", "json"].into_iter().any(is) {
        true => of_lines(path, dir, tokenizer, needed),
        false => of_text(path, tokenizer, needed),
    }
}

/// A file of calibration, of which as much is read as is needed.
struct Source<'a> {
    path: &'a Path,
    file: BufReader<File>,
}

impl<'a> Source<'a> {
    fn open(path: &'a Path) -> Result<Self, QuantError> {
        let mut file =
            BufReader::new(File::open(path).map_err(QuantError::io(path, "cannot read"))?);
        let begun = file.fill_buf().map_err(QuantError::io(path, "cannot read"))?;
        // Some editors begin files with a mark that is no part of the text.
        let mark = if begun.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        file.consume(mark);
        Ok(Self { path, file })
    }

    fn refuse(&self, problem: String) -> QuantError {
        QuantError::BadCalibration { path: self.path.to_owned(), problem }
    }

    fn io(&self) -> impl FnOnce(std::io::Error) -> QuantError {
        QuantError::io(self.path, "cannot read")
    }
}

/// The first `needed` ids of a file of text and some more, or all of them.
fn of_text(path: &Path, tokenizer: &Tokenizer, needed: usize) -> Result<Vec<u32>, QuantError> {
    let mut source = Source::open(path)?;
    let mut bytes = Vec::new();
    let mut wanted = (needed as u64).saturating_mul(BYTES_PER_TOKEN as u64).min(BYTES_MAX);
    loop {
        let missing = wanted - bytes.len() as u64;
        let read = source.file.by_ref().take(missing).read_to_end(&mut bytes);
        let is_whole = (read.map_err(source.io())? as u64) < missing;
        let text = match std::str::from_utf8(&bytes) {
            // The last character may be cut.
            Err(error) if error.error_len().is_none() && !is_whole => {
                std::str::from_utf8(&bytes[..error.valid_up_to()])
            }
            text => text,
        };
        let text = text.map_err(|_| source.refuse(NOT_UTF8.to_owned()))?;
        let ids = tokenizer.encode_text(text)?;
        // The last ones may be cut where the text was.
        if is_whole || ids.len() > needed.saturating_add(TOKENS_CUT) {
            return Ok(ids);
        }
        if wanted == BYTES_MAX {
            let (mib, tokens) = (BYTES_MAX >> 20, ids.len());
            let problem =
                format!("its first {mib} MiB have only {tokens} tokens: ask for less (--rows)");
            return Err(source.refuse(problem));
        }
        wanted = wanted.saturating_mul(4).min(BYTES_MAX);
    }
}

/// The first `needed` ids of a text and some more, or all of them; what comes later is not encoded.
fn beginning(tokenizer: &Tokenizer, text: &str, needed: usize) -> Result<Vec<u32>, QuantError> {
    let mut bytes = needed.saturating_mul(BYTES_PER_TOKEN);
    loop {
        let end = (bytes..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
        let ids = tokenizer.encode_text(&text[..end])?;
        // The last ones may be cut where the text was.
        if end == text.len() || ids.len() > needed.saturating_add(TOKENS_CUT) {
            return Ok(ids);
        }
        bytes = end.saturating_mul(4);
    }
}

fn of_lines(
    path: &Path,
    dir: &Path,
    tokenizer: &Tokenizer,
    needed: usize,
) -> Result<Vec<u32>, QuantError> {
    let mut source = Source::open(path)?;
    let (mut ids, mut line) = (Vec::new(), Vec::new());
    for number in 1.. {
        line.clear();
        let read = source.file.by_ref().take(BYTES_MAX).read_until(b'\n', &mut line);
        let read = read.map_err(source.io())?;
        if read == 0 {
            break;
        }
        let at = |problem: String| source.refuse(format!("line {number}: {problem}"));
        if read as u64 == BYTES_MAX {
            return Err(at(format!("longer than {} MiB: give less on a line", BYTES_MAX >> 20)));
        }
        let line = std::str::from_utf8(&line).map_err(|_| at(NOT_UTF8.to_owned()))?.trim();
        if line.is_empty() {
            continue;
        }
        let value: Value = serde_json::from_str(line).map_err(|error| {
            // It counts lines of its own.
            let said = error.to_string();
            let fault = said.split(" at line ").next().unwrap_or_default();
            at(format!("{fault} at column {}: give one JSON value per line", error.column()))
        })?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The ids of a file of these bytes, as many as are needed.
    fn ids_of(name: &str, bytes: &[u8], needed: usize) -> Result<Vec<u32>, QuantError> {
        let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo");
        let tokenizer = Tokenizer::from_dir(&demo).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        ids(&path, &demo, &tokenizer, needed)
    }

    #[test]
    fn what_comes_after_the_rows_that_are_needed_is_not_read() {
        let text = "Größe of a ünit. ".repeat(100);
        let line = format!("{{\"text\": \"{text}\"}}\n");
        for (name, whole) in [("a.txt", text.as_str()), ("a.jsonl", line.as_str())] {
            let all = ids_of(name, whole.as_bytes(), usize::MAX).unwrap();
            let mut damaged = whole.as_bytes().repeat(4);
            damaged.push(0xff);
            // One more or less of the needed cuts the text elsewhere, within characters too.
            for needed in 30..40 {
                let found = ids_of(name, &damaged, needed).unwrap();
                assert!(
                    found.len() > needed && found[..needed] == all[..needed],
                    "{name} {needed}"
                );
            }
            let error = ids_of(name, &damaged, usize::MAX).unwrap_err().to_string();
            assert!(error.contains("not UTF-8"), "{error}");
        }
    }

    #[test]
    fn a_line_that_is_no_json_is_named_once() {
        let error = ids_of("a.jsonl", b"\"text\"\n{\"text\":\n", 10).unwrap_err().to_string();
        let (_, said) = error.split_once("a.jsonl: ").unwrap();
        let wanted = "line 2: EOF while parsing a value at column 8: give one JSON value per line";
        assert_eq!(said, wanted);
    }

    #[test]
    fn a_mark_at_the_beginning_is_no_text() {
        for (name, text) in [("a.txt", "some text"), ("a.jsonl", "\"some text\"\n")] {
            let marked = [BYTE_ORDER_MARK, text.as_bytes()].concat();
            let plain = ids_of(name, text.as_bytes(), 10).unwrap();
            assert_eq!(ids_of(name, &marked, 10).unwrap(), plain, "{name}");
        }
    }
}
