//! Arguments of calls: they follow their schema or grammar, whoever asks and however, and a call that
//! is cut is not taken for a whole one.

use serde_json::{Value, json};

use crate::support::{API, TestServer};
use crate::tools::{FORMATS, PATH, body, check_arguments, joined, tool, whole};

/// A tool as most clients send it: not strict, and silent about other properties.
fn plain_tool(name: &str) -> Value {
    let mut tool = tool(name);
    let function = tool["function"].as_object_mut().unwrap();
    function.remove("strict");
    function["parameters"].as_object_mut().unwrap().remove("additionalProperties");
    tool
}

#[test]
fn arguments_follow_their_schema_without_strict_in_every_format() {
    let server = TestServer::demo();
    let tools = json!([plain_tool("get_weather"), plain_tool("get_tides")]);
    for format in FORMATS {
        let asked = json!({"tool_format": format, "tool_choice": "required", "tools": tools,
            "parallel_tool_calls": false, "temperature": 1.5, "seed": 5});
        let answer = server.client(API).post(PATH, &body(asked));
        assert_eq!(answer.header("x-ignored-fields"), None);
        let (said, finish) = whole(&answer.good()["choices"][0]);
        assert_eq!((finish.as_str(), &said["content"]), ("tool_calls", &json!("")), "{format}");
        check_arguments(said["calls"][0][1].as_str().unwrap());
    }
}

#[test]
fn a_named_tool_is_called_exactly_once_in_every_dialect() {
    let server = TestServer::demo();
    let client = server.client(API);
    let function = plain_tool("get_tides")["function"].clone();
    let (name, schema) = (&function["name"], &function["parameters"]);
    let user = json!([{"role": "user", "content": "How are the tides?"}]);
    for seed in 0..4 {
        let with = |extra: Value| {
            let mut body = json!({"max_tokens": 300, "temperature": 1.5, "seed": seed});
            body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            body
        };
        let chat = client.post(
            PATH,
            &with(json!({"messages": user, "parallel_tool_calls": true,
            "tools": [plain_tool("get_weather"), plain_tool("get_tides")],
            "tool_choice": {"type": "function", "function": {"name": name}}})),
        );
        let (said, finish) = whole(&chat.good()["choices"][0]);
        assert_eq!((said["calls"].as_array().unwrap().len(), finish.as_str()), (1, "tool_calls"));
        check_arguments(said["calls"][0][1].as_str().unwrap());
        let message = client
            .post(
                "/v1/messages",
                &with(json!({"messages": user,
            "tools": [{"name": name, "input_schema": schema}],
            "tool_choice": {"type": "tool", "name": name}})),
            )
            .good();
        assert_eq!(message["stop_reason"], "tool_use", "{message}");
        let [block] = message["content"].as_array().unwrap().as_slice() else { panic!() };
        assert_eq!((&block["type"], &block["name"]), (&json!("tool_use"), name));
        check_arguments(&block["input"].to_string());
        let response = client
            .post(
                "/v1/responses",
                &with(json!({"input": user,
            "tools": [{"type": "function", "name": name, "parameters": schema}],
            "tool_choice": {"type": "function", "name": name}})),
            )
            .good();
        assert_eq!(response["status"], "completed", "{response}");
        let [item] = response["output"].as_array().unwrap().as_slice() else { panic!() };
        assert_eq!((&item["type"], &item["name"]), (&json!("function_call"), name));
        check_arguments(item["arguments"].as_str().unwrap());
    }
}

#[test]
fn what_cannot_be_enforced_of_a_schema_is_told_unless_it_is_strict() {
    let server = TestServer::demo();
    let client = server.client(API);
    let odd = |strict: bool| {
        let mut tool = plain_tool("f");
        tool["function"]["strict"] = strict.into();
        let parameters = &mut tool["function"]["parameters"];
        parameters["properties"]["city"]["not"] = json!({"const": "Rome"});
        parameters["unevaluatedProperties"] = false.into();
        tool
    };
    let with = |tool: Value| {
        body(json!({"tools": [tool], "tool_choice": "required",
        "parallel_tool_calls": false, "temperature": 1.5, "seed": 2}))
    };
    let answer = client.post(PATH, &with(odd(false)));
    let told = answer.header("x-ignored-fields").unwrap_or_default().to_owned();
    let mut told: Vec<&str> = told.split(',').collect();
    told.sort_unstable();
    assert_eq!(told, ["tools.f.properties.city.not", "tools.f.unevaluatedProperties"]);
    let (said, finish) = whole(&answer.good()["choices"][0]);
    assert_eq!(finish, "tool_calls");
    check_arguments(said["calls"][0][1].as_str().unwrap());
    assert_eq!(client.post(PATH, &with(odd(true))).refusal().1, "invalid_schema");
    // What is good alone and impossible together is found later; names and types remain.
    let mut impossible = plain_tool("f");
    let days = json!({"type": "integer", "allOf": [{"minimum": 5}, {"maximum": 2}]});
    impossible["function"]["parameters"]["properties"]["days"] = days;
    let answer = client.post(PATH, &with(impossible.clone()));
    assert_eq!(answer.header("x-ignored-fields"), Some("tools.f"));
    let (said, _) = whole(&answer.good()["choices"][0]);
    let call = said["calls"][0][1].as_str().unwrap();
    if let Ok(arguments) = serde_json::from_str::<Value>(call) {
        assert!(arguments["days"].is_i64() && arguments["city"].is_string(), "{arguments}");
    }
    impossible["function"]["strict"] = true.into();
    assert_eq!(client.post(PATH, &with(impossible)).refusal().0, 400);
}

/// A grammar as coding agents send it.
const PATCH: &str = "start: begin hunk+ end\nbegin: \"*** Begin Patch\" LF\n\
    end: \"*** End Patch\" LF?\nhunk: \"*** Add File: \" NAME LF line+\nNAME: /[a-z]{1,8}/\n\
    line: \"+\" /[a-z \\\"]{1,12}/ LF -> line\n%import common.LF\n";

fn is_patch(text: &str) -> bool {
    let lines: Vec<&str> = text.lines().collect();
    lines.first() == Some(&"*** Begin Patch")
        && lines.get(1).is_some_and(|line| line.starts_with("*** Add File: "))
        && lines.last() == Some(&"*** End Patch")
        && lines.len() >= 4
}

#[test]
fn the_grammar_of_a_custom_tool_is_enforced_in_every_format() {
    let server = TestServer::demo();
    let client = server.client(API);
    let grammar = json!({"syntax": "lark", "definition": PATCH});
    let custom = json!({"name": "apply_patch", "description": "Edits files.",
        "format": {"type": "grammar", "grammar": grammar}});
    let tools = json!([{"type": "custom", "custom": custom}, plain_tool("get_tides")]);
    let choice = json!({"type": "custom", "custom": {"name": "apply_patch"}});
    let mut whole_ones = 0;
    for format in FORMATS.iter().chain(&["gemma-4", "kimi-k2"]) {
        let asked = json!({"tools": tools, "tool_choice": choice, "tool_format": format,
            "max_tokens": 400, "temperature": 1.0, "seed": 4});
        let value = client.post(PATH, &body(asked.clone())).good();
        let choice = &value["choices"][0];
        let [call] = choice["message"]["tool_calls"].as_array().unwrap().as_slice() else {
            panic!("{format}: {value}")
        };
        assert_eq!(
            (&call["type"], &call["custom"]["name"]),
            (&json!("custom"), &json!("apply_patch"))
        );
        let input = call["custom"]["input"].as_str().unwrap();
        assert!("*** Begin Patch\n*** Add File: ".starts_with(&input[..input.len().min(20)]));
        if choice["finish_reason"] == "tool_calls" {
            assert!(is_patch(input), "{format}: {input}");
            whole_ones += 1;
        }
        let mut streamed = body(asked);
        streamed["stream"] = true.into();
        let chunks = client.post(PATH, &streamed).chunks();
        let deltas =
            chunks.iter().flat_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"].as_array());
        let pieces: String =
            deltas.flatten().filter_map(|call| call["custom"]["input"].as_str()).collect();
        assert_eq!(pieces, input, "{format}");
    }
    assert!(whole_ones > 0, "some call was not cut");
    // The call and its result come back in the next turn.
    let turns = json!([{"role": "user", "content": "?"}, {"role": "assistant", "tool_calls": [
        {"id": "a", "type": "custom", "custom": {"name": "apply_patch", "input": "*** \"x\""}}]},
        {"role": "tool", "tool_call_id": "a", "content": "done"}]);
    let asked = body(json!({"messages": turns, "tools": tools}));
    let prompt = client.post("/apply-template", &asked).good()["prompt"].clone();
    let prompt = prompt.as_str().unwrap();
    assert!(prompt.contains("{\"input\":\"*** \\\"x\\\"\"}") && prompt.contains("LF"), "{prompt}");
}

#[test]
fn a_call_that_is_cut_goes_as_far_as_it_goes_and_leaks_nothing() {
    let server = TestServer::demo();
    let client = server.client(API);
    let asked = |extra: Value| {
        let mut body = body(json!({"tool_choice": "required", "parallel_tool_calls": false}));
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        body
    };
    let full = client.post(PATH, &asked(json!({}))).good();
    let tokens = full["usage"]["completion_tokens"].as_u64().unwrap();
    let full = full["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"].clone();
    let full = full.as_str().unwrap();
    let mut partial = 0;
    for max_tokens in 1..tokens {
        let value = client.post(PATH, &asked(json!({"max_tokens": max_tokens}))).good();
        let (said, finish) = whole(&value["choices"][0]);
        assert_eq!((finish.as_str(), &said["content"]), ("length", &json!("")), "{value}");
        if let Some(call) = said["calls"].as_array().unwrap().first() {
            let arguments = call[1].as_str().unwrap();
            assert!(!arguments.is_empty() && full.starts_with(arguments), "{arguments}");
            partial += usize::from(arguments.len() < full.len());
        }
        let streamed = asked(json!({"max_tokens": max_tokens, "stream": true}));
        assert_eq!(joined(&client.post(PATH, &streamed).chunks()), (said, finish));
    }
    assert!(partial > 0, "some call was cut inside its arguments");
}

#[test]
fn a_call_that_is_cut_is_no_call_in_other_dialects() {
    let server = TestServer::demo();
    let client = server.client(API);
    let function = plain_tool("get_tides")["function"].clone();
    let (name, schema) = (&function["name"], &function["parameters"]);
    let user = json!([{"role": "user", "content": "How are the tides?"}]);
    for max_tokens in 1..24 {
        let message = json!({"messages": user, "max_tokens": max_tokens, "temperature": 0,
            "tools": [{"name": name, "input_schema": schema}], "tool_choice": {"type": "any"}});
        let message = client.post("/v1/messages", &message).good();
        for block in message["content"].as_array().unwrap() {
            assert_eq!(block["type"], "tool_use", "{message}");
            check_arguments(&block["input"].to_string());
        }
        assert_eq!(message["stop_reason"], "max_tokens");
        let response = json!({"input": user, "max_output_tokens": max_tokens, "temperature": 0,
            "tools": [{"type": "function", "name": name, "parameters": schema}],
            "tool_choice": "required"});
        let response = client.post("/v1/responses", &response).good();
        assert_eq!(response["status"], "incomplete");
        for item in response["output"].as_array().unwrap() {
            match item["type"].as_str().unwrap() {
                "message" => assert_eq!(item["content"][0]["text"], "", "{response}"),
                _ if item["status"] == "completed" => {
                    check_arguments(item["arguments"].as_str().unwrap());
                }
                _ => assert_eq!(item["status"], "incomplete"),
            }
        }
    }
}
