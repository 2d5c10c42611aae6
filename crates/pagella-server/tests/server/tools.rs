//! Tools: calls that are asked for are made, can be read, and are the same in pieces.

use pagella_text::ChatTemplate;
use serde_json::{Value, json};

use crate::support::{API, TestServer, demo, keys, settings};

pub const PATH: &str = "/v1/chat/completions";
pub const FORMATS: &[&str] = &[
    "hermes",
    "qwen3-coder",
    "glm-4.5",
    "minimax-m2",
    "mistral",
    "mistral-args",
    "mistral-call-id",
    "deepseek-v3",
    "deepseek-v3.1",
    "command-r",
    "granite",
    "phi-4",
    "functionary-v3.1",
    "llama-3",
    "pythonic",
    "generic",
];

pub fn tool(name: &str) -> Value {
    let parameters = json!({
        "type": "object",
        "properties": {
            "city": {"type": "string", "enum": ["Paris", "Oslo"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 9},
            "hourly": {"type": "boolean"},
        },
        "required": ["city", "days"],
        "additionalProperties": false,
    });
    let function = json!({"name": name, "description": "Tells the weather.", "strict": true,
        "parameters": parameters});
    json!({"type": "function", "function": function})
}

pub fn body(extra: Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "How is the weather in Paris?"}],
        "tools": [tool("get_weather"), tool("get_tides")],
        "max_tokens": 200,
        "temperature": 0,
    });
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

/// Arguments that the schema allows.
pub fn check_arguments(text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert!(["Paris", "Oslo"].contains(&value["city"].as_str().unwrap()), "{text}");
    assert!((1..=9).contains(&value["days"].as_i64().unwrap()), "{text}");
    let optional = value.as_object().unwrap().keys().filter(|key| *key == "hourly").count();
    assert_eq!(value.as_object().unwrap().len(), 2 + optional, "{text}");
}

/// The message that a stream puts together, without the ids of calls; checks the order of pieces.
pub fn joined(chunks: &[Value]) -> (Value, String) {
    let (mut content, mut reasoning) = (String::new(), String::new());
    let mut calls: Vec<(String, String)> = Vec::new();
    let mut finish = String::new();
    for choice in chunks.iter().filter_map(|chunk| chunk["choices"].get(0)) {
        assert!(finish.is_empty(), "nothing follows the end");
        let delta = &choice["delta"];
        content.push_str(delta["content"].as_str().unwrap_or_default());
        reasoning.push_str(delta["reasoning_content"].as_str().unwrap_or_default());
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().unwrap() as usize;
            let function = &call["function"];
            if let Some(id) = call["id"].as_str() {
                assert_eq!((index, &call["type"]), (calls.len(), &json!("function")));
                assert!(!id.is_empty() && function["arguments"] == "");
                calls.push((function["name"].as_str().unwrap().to_owned(), String::new()));
            } else {
                assert_eq!(index + 1, calls.len());
                calls[index].1.push_str(function["arguments"].as_str().unwrap());
            }
        }
        finish.push_str(choice["finish_reason"].as_str().unwrap_or_default());
    }
    (json!({"content": content, "reasoning": reasoning, "calls": calls}), finish)
}

/// The same of a whole answer.
pub fn whole(choice: &Value) -> (Value, String) {
    let message = &choice["message"];
    let call = |call: &Value| json!([call["function"]["name"], call["function"]["arguments"]]);
    let calls = message["tool_calls"].as_array().into_iter().flatten().map(call);
    let said = json!({
        "content": message["content"].as_str().unwrap_or_default(),
        "reasoning": message["reasoning_content"].as_str().unwrap_or_default(),
        "calls": calls.collect::<Vec<_>>(),
    });
    (said, choice["finish_reason"].as_str().unwrap().to_owned())
}

#[test]
fn a_named_tool_is_called() {
    let server = TestServer::demo();
    let choice = json!({"type": "function", "function": {"name": "get_tides"}});
    let asked = body(json!({"tool_choice": choice, "parallel_tool_calls": false}));
    let value = server.client(API).post(PATH, &asked).good();
    let choice = &value["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &choice["message"]["content"]),
        (&json!("tool_calls"), &Value::Null)
    );
    let calls = choice["message"]["tool_calls"].as_array().unwrap();
    assert_eq!((calls.len(), &calls[0]["type"]), (1, &json!("function")));
    assert_eq!(calls[0]["function"]["name"], "get_tides");
    let id = calls[0]["id"].as_str().unwrap();
    assert!(id.starts_with("call_") && id.len() == 29, "{id}");
    check_arguments(calls[0]["function"]["arguments"].as_str().unwrap());
    server.wait_idle();
}

#[test]
fn every_format_is_enforced_and_read() {
    let server = TestServer::demo();
    for format in FORMATS {
        let asked = json!({"tool_format": format, "tool_choice": "required",
            "parallel_tool_calls": false});
        let value = server.client(API).post(PATH, &body(asked.clone())).good();
        let (said, finish) = whole(&value["choices"][0]);
        assert_eq!(finish, "tool_calls", "{format}: {value}");
        assert_eq!(said["calls"].as_array().unwrap().len(), 1, "{format}: {value}");
        assert_eq!(said["content"], "", "{format}");
        check_arguments(said["calls"][0][1].as_str().unwrap());
        let mut streamed = body(asked);
        streamed["stream"] = true.into();
        let chunks = server.client(API).post(PATH, &streamed).chunks();
        assert_eq!(joined(&chunks), (said, finish), "{format}");
    }
}

#[test]
fn several_calls_are_made_where_that_is_allowed() {
    let server = TestServer::demo();
    for seed in 0..4 {
        let asked = json!({"tool_choice": "required", "temperature": 1.5, "seed": seed, "n": 2});
        let value = server.client(API).post(PATH, &body(asked.clone())).good();
        let mut streamed = body(asked);
        streamed["stream"] = true.into();
        let chunks = server.client(API).post(PATH, &streamed).chunks();
        for index in 0..2 {
            let (said, finish) = whole(&value["choices"][index]);
            let calls = said["calls"].as_array().unwrap();
            let complete = calls.len() - usize::from(finish == "length" && !calls.is_empty());
            calls[..complete].iter().for_each(|call| check_arguments(call[1].as_str().unwrap()));
            let own = |chunk: &&Value| chunk["choices"][0]["index"] == index;
            let own: Vec<Value> = chunks.iter().filter(own).cloned().collect();
            assert_eq!(joined(&own), (said, finish));
        }
    }
}

/// A template in the manner of Hermes.
const HERMES: &str = "{% if tools %}<|system|>\nTools:\n{% for tool in tools %}{{ tool | tojson }}\n\
    {% endfor %}Call them with <tool_call>\n{\"name\": …, \"arguments\": …}\n</tool_call>.<|end|>\n\
    {% endif %}{% for message in messages %}<|{{ message.role }}|>\n{{ message.content }}\
    {% for call in message.tool_calls or [] %}<tool_call>\n{{ call.function | tojson }}\n</tool_call>\
    {% endfor %}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}";

fn hermes() -> TestServer {
    let mut parts = demo(16);
    parts.template = Some(ChatTemplate::from_source(HERMES).unwrap());
    TestServer::start(settings(), keys(), Some(parts))
}

#[test]
fn templates_that_know_tools_are_given_them() {
    let server = hermes();
    let client = server.client(API);
    let prompt = |body: &Value| {
        let value = client.post("/apply-template", body).good();
        value["prompt"].as_str().unwrap().to_owned()
    };
    assert!(prompt(&body(json!({}))).contains("\"get_tides\""));
    let value = client.post(PATH, &body(json!({"tool_choice": "required"}))).good();
    let ids = value["choices"][0]["message"]["tool_calls"][0]["id"].as_str();
    assert!(ids.unwrap().starts_with("call_"));
    client.post(PATH, &body(json!({"tool_choice": "auto"}))).good();
    let turns = json!([
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "get_tides", "arguments": "{\"x\": 1}"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "high"},
    ]);
    let shown = prompt(&body(json!({"messages": turns})));
    assert!(shown.contains("{\"name\": \"get_tides\", \"arguments\": {\"x\": 1}}"), "{shown}");
    assert!(shown.contains("<|tool|>\nhigh"), "{shown}");
}

#[test]
fn nothing_is_called_where_nothing_may_be() {
    let server = hermes();
    let client = server.client(API);
    let asked = body(json!({"tool_choice": "none"}));
    let prompt = client.post("/apply-template", &asked).good()["prompt"].clone();
    assert!(prompt.as_str().unwrap().contains("get_tides"), "the prompt stays the same");
    let value = client.post(PATH, &asked).good();
    assert_eq!(value["choices"][0]["message"].get("tool_calls"), None);
    let refused = body(json!({"tool_choice": "none", "regex_pattern": "<tool_call>"}));
    let answer = client.post(PATH, &refused);
    let said = answer.json()["choices"][0]["message"]["content"].clone();
    assert_ne!(said, "<tool_call>", "the mark is denied");
}

#[test]
fn calls_or_the_answer_that_was_asked_for() {
    let server = TestServer::demo();
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {
        "type": "object", "properties": {"answer": {"enum": [1, 2]}}, "required": ["answer"],
        "additionalProperties": false}}});
    for seed in 0..6 {
        let asked = json!({"response_format": format, "temperature": 1.5, "seed": seed,
            "parallel_tool_calls": false});
        let value = server.client(API).post(PATH, &body(asked)).good();
        let (said, finish) = whole(&value["choices"][0]);
        match finish.as_str() {
            "tool_calls" => check_arguments(said["calls"][0][1].as_str().unwrap()),
            "stop" => {
                let answer: Value =
                    serde_json::from_str(said["content"].as_str().unwrap()).unwrap();
                assert!([1, 2].contains(&answer["answer"].as_i64().unwrap()));
            }
            other => panic!("{other}: {value}"),
        }
    }
}

#[test]
fn results_of_tools_reach_models_that_know_none() {
    let server = TestServer::demo();
    let turns = json!([
        {"role": "user", "content": "How is the weather?"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}},
            {"id": "b", "type": "function", "function": {"name": "get_tides", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "b", "content": "high"},
        {"role": "tool", "tool_call_id": "a", "content": "sunny"},
    ]);
    let asked = body(json!({"messages": turns}));
    let prompt = server.client(API).post("/apply-template", &asked).good()["prompt"].clone();
    let prompt = prompt.as_str().unwrap();
    let results = "<|user|>\nResult of get_weather:\nsunny\n\nResult of get_tides:\nhigh<|end|>";
    assert!(prompt.contains(results), "{prompt}");
    assert!(
        prompt.contains("{\"tool_calls\":[{\"name\":\"get_weather\",\"arguments\":{}}"),
        "{prompt}"
    );
    assert!(prompt.contains("You can call tools."), "{prompt}");
    server.client(API).post(PATH, &asked).good();
}

#[test]
fn log_probabilities_are_those_of_content() {
    let server = TestServer::demo();
    let asked = json!({"tool_choice": "required", "logprobs": true, "parallel_tool_calls": false});
    let value = server.client(API).post(PATH, &body(asked)).good();
    assert_eq!(value["choices"][0]["logprobs"]["content"], json!([]));
    let asked = json!({"tool_choice": "auto", "logprobs": true, "max_tokens": 8});
    let value = server.client(API).post(PATH, &body(asked)).good();
    let choice = &value["choices"][0];
    let tokens = choice["logprobs"]["content"].as_array().unwrap();
    let text: String = tokens.iter().map(|token| token["token"].as_str().unwrap()).collect();
    assert_eq!(choice["message"]["content"], text);
}

#[test]
fn what_cannot_be_called_is_refused() {
    let server = TestServer::demo();
    let refused = |extra: Value| {
        let (status, code, param) = server.client(API).post(PATH, &body(extra)).refusal();
        (status, code, param.unwrap_or_default())
    };
    let is = |status: u16, code: &str, param: &str| (status, code.to_owned(), param.to_owned());
    let unknown = json!({"type": "function", "function": {"name": "nothing"}});
    assert_eq!(
        refused(json!({"tool_choice": unknown})),
        is(400, "unsupported_value", "tool_choice.function.name")
    );
    assert_eq!(
        refused(json!({"tools": [], "tool_choice": "required"})),
        is(400, "missing_parameter", "tools")
    );
    assert_eq!(
        refused(json!({"tools": [{"type": "code_interpreter"}]})),
        is(400, "unsupported_value", "tools[0].type")
    );
    let channels = json!({"tool_format": "harmony", "tool_choice": "required"});
    assert_eq!(refused(channels), is(400, "unsupported_parameter", "tool_choice"));
    for format in ["functionary-v3.2", "no-such"] {
        assert_eq!(
            refused(json!({"tool_format": format})),
            is(400, "unsupported_parameter", "tool_format")
        );
    }
    // A schema that cannot be enforced is refused where it was to be, and only there.
    let odd = |strict: bool| {
        json!({"type": "function", "function": {"name": "f", "strict": strict,
            "parameters": {"type": "object", "unevaluatedProperties": false}}})
    };
    let required = json!({"tools": [odd(true)], "tool_choice": "required"});
    assert_eq!(refused(required).1, "invalid_schema");
    let text = json!({"type": "function", "function": {"name": "f", "strict": true, "parameters":
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "[a-z]+"}}}}});
    let tags = json!({"tools": [text], "tool_format": "qwen3-coder"});
    assert_eq!(refused(tags), is(400, "invalid_schema", "tools"));
    let list = json!({"type": "function", "function": {"name": "f", "strict": true, "parameters":
        {"type": "object", "properties": {"a": {"type": "array"}}}}});
    let notation = json!({"tools": [list], "tool_format": "gemma-4"});
    assert_eq!(refused(notation), is(400, "invalid_schema", "tools"));
    let lax = json!({"tools": [odd(false)], "tool_choice": "required", "max_tokens": 4});
    server.client(API).post(PATH, &body(lax)).good();
    let grammar = |definition: &str| {
        json!({"tools": [{"type": "custom", "name": "f", "format": {"type": "grammar",
            "syntax": "lark", "definition": definition}}], "tool_choice": "required"})
    };
    assert_eq!(refused(grammar("start: nothing")), is(400, "invalid_grammar", "tools"));
    let untyped = json!({"tools": [{"type": "custom", "name": "f", "format": {}}]});
    assert_eq!(refused(untyped), is(400, "unsupported_parameter", "tools[0].format.type"));
}

#[test]
fn notations_of_their_own_are_enforced_and_read() {
    let server = TestServer::demo();
    let tool = json!({"type": "function", "function": {"name": "f", "strict": true, "parameters": {
        "type": "object", "required": ["a", "b"], "additionalProperties": false, "properties": {
            "a": {"type": "string", "enum": ["x", "y z"]}, "b": {"type": "integer", "enum": [1, 2]}}}}});
    for format in ["gemma-4", "kimi-k2"] {
        let asked = json!({"tools": [tool], "tool_format": format, "tool_choice": "required",
            "parallel_tool_calls": false, "max_tokens": 200});
        let value = server.client(API).post(PATH, &body(asked)).good();
        let choice = &value["choices"][0];
        assert_eq!(choice["finish_reason"], "tool_calls", "{format}: {value}");
        let call = &choice["message"]["tool_calls"][0]["function"];
        let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
        let expected = [json!("x"), json!("y z")];
        assert!(call["name"] == "f" && expected.contains(&arguments["a"]), "{format}: {value}");
        assert!([json!(1), json!(2)].contains(&arguments["b"]), "{format}: {value}");
    }
}
