//! A prompt in Python as a prompt of the library.

use pagella::{Complete, Engine, Message};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use serde_json::Value;

use crate::{error, ids, json, settings};

/// A prompt with its settings: a text, a conversation (a list of messages), or token ids.
pub fn request(
    engine: &Engine,
    prompt: &Bound<'_, PyAny>,
    given: &Bound<'_, PyDict>,
) -> PyResult<Complete> {
    let complete = if let Ok(text) = prompt.cast::<PyString>() {
        engine.complete(text.to_str()?)
    } else if is_conversation(prompt)? {
        engine.complete_chat(messages(prompt)?)
    } else {
        engine.complete_ids(ids::ids(prompt)?)
    };
    settings::apply(engine, complete, given)
}

fn is_conversation(prompt: &Bound<'_, PyAny>) -> PyResult<bool> {
    let list = prompt.is_instance_of::<PyList>() || prompt.is_instance_of::<PyTuple>();
    Ok(list && prompt.len()? > 0 && prompt.get_item(0)?.is_instance_of::<PyDict>())
}

/// Messages: dictionaries with `role`, `content` and what else templates read. A content of parts is the text
/// of all of them.
pub fn messages(list: &Bound<'_, PyAny>) -> PyResult<Vec<Message>> {
    let read = |(idx, message): (usize, PyResult<Bound<'_, PyAny>>)| {
        let value = json::from_python(&message?)?;
        if value.get("content").is_some_and(Value::is_array) {
            let read = pagella_conversation::message(&format!("messages[{idx}]"), &value);
            return read.map_err(|problem| error::request(list.py(), &problem.to_string()));
        }
        let sentence = |problem| format!("a message needs role and content: {problem}");
        serde_json::from_value(value).map_err(|e| error::request(list.py(), &sentence(e)))
    };
    list.try_iter()?.enumerate().map(read).collect()
}
