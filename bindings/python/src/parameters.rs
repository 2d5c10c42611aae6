//! What a request may say besides its prompt: the engine's table, and what only this package has.

use pagella_engine::params::{self, Param, ParamKind};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// A setting of this package: what the library has as methods of a prompt.
pub struct Extra {
    /// Its name.
    pub name: &'static str,
    /// Its type, as Python writes it.
    pub annotation: &'static str,
    /// What it does, in one line.
    pub help: &'static str,
}

const fn extra(name: &'static str, annotation: &'static str, help: &'static str) -> Extra {
    Extra { name, annotation, help }
}

/// Settings beside the engine's table, in reading order.
pub const EXTRAS: &[Extra] = &[
    extra("greedy", "bool", "Always the most likely token"),
    extra("n", "int", "How many answers to give, with seeds counting up"),
    extra(
        "recommended",
        "bool",
        "False: sampling starts from neutral settings, not the model's own",
    ),
    extra("default_stops", "bool", "False: the model's own end tokens do not end the answer"),
    extra(
        "add_bos",
        "bool | None",
        "Whether a text begins with the begin token; None: as the model wants it",
    ),
    extra(
        "length_policy",
        "Literal['clamp', 'error', 'truncate']",
        "When prompt and answer do not fit: fewer new tokens, an error, or the beginning of the prompt is left out",
    ),
    extra("show_special_tokens", "bool", "Control tokens appear in the text"),
    extra("json_object", "bool", "The answer is a JSON object"),
    extra("regex", "str", "The answer matches this regular expression"),
    extra("choice", "Sequence[str]", "The answer is one of these texts"),
    extra("prefix", "str | Sequence[str]", "The answer begins with one of these texts"),
    extra(
        "allowed_next",
        "Callable[[list[int]], tuple[Iterable[int] | None, Iterable[int] | None]]",
        "A function of the ids so far: which may come next (None: all), and which of these end the answer",
    ),
    extra("prefer_end", "bool", "The answer ends as soon as its constraint allows it"),
    extra("logprobs", "int", "Report the model's own log-probabilities, with so many alternatives"),
    extra("prompt_logprobs", "int", "The same of the prompt, which is computed anew"),
    extra("probabilities", "bool", "Report the final probability of every token"),
    extra("top_tokens", "int", "Report so many of the most likely final candidates"),
    extra("return_logits", "bool", "Report the model's logits of every token"),
    extra("negative_ids", "Ids", "As negative_prompt, as token ids"),
    extra(
        "adapters",
        "Sequence[tuple[Adapter, float]]",
        "Adapters with their scales, in place of the engine's own",
    ),
    extra("prediction", "Ids", "What the answer is expected to be: guesses are looked for there"),
    extra("healing_ids", "int", "So many ids of the prompt's end are written again"),
    extra("priority", "int", "Higher starts earlier"),
    extra("max_skips", "int | None", "How often later jobs may start before this one"),
    extra("timeout", "float", "Seconds after which the answer ends with what is there"),
    extra("cache_salt", "str", "Cached pages are shared with prompts of the same salt only"),
    extra("identifier", "str", "A name that every record carries"),
    extra("rewinds_max", "int", "How often the answer may go back for a banned string"),
    extra("loop_repeats", "int", "Ends the answer when it repeats the same ids so often"),
    extra("backpressure", "int", "The model rests while so many records wait to be read"),
];

/// The type of a row, as Python writes it.
fn annotation(param: &Param) -> String {
    let text = match param.kind {
        ParamKind::Number(..) => "float",
        ParamKind::Integer(..) => "int",
        ParamKind::Flag => "bool",
        ParamKind::Switch => "bool | int",
        ParamKind::Choice(words) => {
            let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
            return format!("Literal[{}]", words.join(", "));
        }
        ParamKind::Texts => match param.name {
            "stop" | "dry_breakers" => "str | Sequence[str | int]",
            _ => "str | Sequence[str]",
        },
        ParamKind::Ids => "Ids",
        ParamKind::Json => match param.name {
            "logit_bias" => "Mapping[int, float]",
            "sampler_order" => "str | Sequence[str]",
            _ => "Mapping[str, Any] | str",
        },
        ParamKind::Code => "str",
    };
    text.to_owned()
}

/// Every setting of a request, as dictionaries: `name`, `spellings`, `annotation`, `help`, `default`,
/// and `range` where there is one.
#[pyfunction]
pub fn parameters(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let rows = PyList::empty(py);
    for param in params::all() {
        let row = PyDict::new(py);
        let mut spellings = vec![param.name];
        spellings.extend(param.wire_name);
        spellings.extend(param.aliases);
        row.set_item("name", param.name)?;
        row.set_item("spellings", spellings)?;
        row.set_item("annotation", annotation(param))?;
        row.set_item("help", param.help_line())?;
        row.set_item("default", param.default())?;
        row.set_item("range", param.range())?;
        rows.append(row)?;
    }
    for Extra { name, annotation, help } in EXTRAS {
        let row = PyDict::new(py);
        row.set_item("name", name)?;
        row.set_item("spellings", [name])?;
        row.set_item("annotation", annotation)?;
        row.set_item("help", help)?;
        row.set_item("default", py.None())?;
        row.set_item("range", py.None())?;
        rows.append(row)?;
    }
    Ok(rows)
}
