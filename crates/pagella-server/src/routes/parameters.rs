//! `/v1/sampling/parameters`: the generation parameters that people are offered, for panels and forms.

use pagella_engine::params::{self, Param, ParamGroup, ParamKind};
use serde_json::{Value, json};

use crate::call::{Call, Reply};
use crate::wire::error::ApiError;

/// Groups besides those of the engine's table, in the place before this one.
const REASONING: (&str, &str, ParamGroup) = ("reasoning", "Reasoning", ParamGroup::Seed);

/// Largest number that a browser counts exactly.
const JS_INTEGER_MAX: f64 = 9_007_199_254_740_991.0;

/// Answers the request.
pub async fn list(_call: Call) -> Result<Reply, ApiError> {
    Reply::json(&document())
}

/// Everything that is offered.
pub fn document() -> Value {
    let mut groups = Vec::new();
    for (group, name, title) in ParamGroup::ALL {
        if *group == REASONING.2 {
            groups.push(json!({ "name": REASONING.0, "title": REASONING.1 }));
        }
        if params::all().any(|param| param.offered && param.group == *group) {
            groups.push(json!({ "name": name, "title": title }));
        }
    }
    let rows = params::all().filter(|param| param.offered && !is_variant(param)).map(describe);
    let parameters: Vec<Value> = rows.chain(of_the_server()).collect();
    json!({ "groups": groups, "parameters": parameters })
}

fn is_variant(param: &Param) -> bool {
    params::VARIANTS.iter().any(|variant| variant.name == param.name)
}

fn describe(param: &Param) -> Value {
    let kind = match param.kind {
        ParamKind::Number(..) => "number",
        ParamKind::Integer(..) => "int",
        ParamKind::Flag | ParamKind::Switch => "bool",
        ParamKind::Choice(_) => "choice",
        ParamKind::Texts => "list",
        ParamKind::Ids => "ids",
        ParamKind::Json => "json",
        ParamKind::Code => "code",
    };
    let flag = matches!(param.kind, ParamKind::Flag | ParamKind::Switch);
    let default = param.default().or(flag.then_some(0.0));
    let mut row = json!({
        "name": param.wire(),
        "group": param.group.name(),
        "kind": kind,
        "help": format!("{}.", param.help_line()),
        "neutral": default.map(|number| param.to_json(number)),
        "needs": param.needs,
    });
    if let ParamKind::Choice(words) = param.kind {
        row["choices"] = json!(words);
    }
    if let (ParamKind::Number(..) | ParamKind::Integer(..), Some((min, max))) =
        (param.kind, param.asked.or(param.range()))
    {
        let whole = matches!(param.kind, ParamKind::Integer(..));
        let bound = |number: f64| if whole { json!(number as i64) } else { json!(number) };
        row["min"] = bound(min.max(-JS_INTEGER_MAX));
        row["max"] = bound(max.min(JS_INTEGER_MAX));
        row["step"] = json!(param.slider.map_or(1.0, |(.., step)| step));
        row["slider"] = json!(param.slider.map(|(low, high, _)| [low, high]));
        row["off"] = json!(param.off);
        row["off_word"] = json!(default.and_then(|number| param.word(number)));
    }
    if param.group == ParamGroup::Constraints {
        row["exclusive"] = "constraint".into();
    }
    row
}

/// What only a server has.
fn of_the_server() -> [Value; 5] {
    let flag = |group: &str, name: &str, help: &str| json!({ "name": name, "group": group, "kind": "bool", "neutral": false, "help": help });
    let whole = |group: &str, name: &str, range: [f64; 2], slider: [f64; 2], help: &str| {
        json!({
            "name": name, "group": group, "kind": "int", "help": help, "step": 1,
            "min": range[0] as i64, "max": range[1] as i64, "slider": slider,
        })
    };
    let kept = "The text that ended the answer is part of it.";
    let thinks = "Asks the model to think first, or not to.";
    let effort = "How much the model should think, if it knows levels.";
    let budget = "Thinking is closed after this many tokens.";
    let priority = "Requests with a higher number start first.";
    let mut thinking = flag("reasoning", "enable_thinking", thinks);
    let mut budget = whole(
        "reasoning",
        "reasoning_budget_tokens",
        [-1.0, JS_INTEGER_MAX],
        [-1.0, 16384.0],
        budget,
    );
    let mut priority = whole("seed", "priority", [-100.0, 100.0], [-100.0, 100.0], priority);
    let mut effort = json!({
        "name": "reasoning_effort", "group": "reasoning", "kind": "choice", "help": effort,
        "choices": ["minimal", "low", "medium", "high"], "neutral": null,
    });
    (thinking["neutral"], priority["neutral"]) = (Value::Null, 0.into());
    (budget["neutral"], budget["off_word"]) = ((-1).into(), "off".into());
    for row in [&mut thinking, &mut effort, &mut budget] {
        row["chat_only"] = true.into();
    }
    [flag("stops", "include_stop_str_in_output", kept), thinking, effort, budget, priority]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Body;
    use crate::routes::chat::ChatBody;
    use serde_json::Map;

    #[test]
    fn every_offered_value_is_one_that_requests_may_have() {
        let document = document();
        let groups = document["groups"].as_array().unwrap();
        for row in document["parameters"].as_array().unwrap() {
            let name = row["name"].as_str().unwrap();
            assert!(groups.iter().any(|group| group["name"] == row["group"]), "{name}");
            assert!(row["help"].as_str().unwrap().ends_with('.'), "{name}");
            let ends = ["neutral", "min", "max"].into_iter().map(|key| row[key].clone());
            let ends = ends.chain(row["choices"].as_array().cloned().unwrap_or_default());
            for value in ends.chain(row["slider"].as_array().cloned().unwrap_or_default()) {
                let messages = ("messages".to_owned(), json!([]));
                let body = Map::from_iter([messages, (name.to_owned(), value.clone())]);
                let read = ChatBody::read::<crate::App>(body);
                assert!(read.is_ok_and(|given| given.unknown.is_empty()), "{name} {value}");
            }
        }
    }
}
