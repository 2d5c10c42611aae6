//! What the operator chooses about conversations.

use pagella_server::Settings;
use pagella_server::settings::{ReasoningField, Toggle};
use serde_json::{Value, json};

use crate::support::{API, TestServer, demo, keys, settings};

const PATH: &str = "/v1/chat/completions";

fn server(choose: impl FnOnce(&mut Settings)) -> TestServer {
    let mut settings = settings();
    choose(&mut settings);
    TestServer::start(settings, keys(), Some(demo(8)))
}

fn body(extra: Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "What is an array?"}],
        "max_tokens": 24,
        "temperature": 0,
    });
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn prompt(server: &TestServer, extra: Value) -> String {
    let value = server.client(API).post("/apply-template", &body(extra)).good();
    value["prompt"].as_str().unwrap().to_owned()
}

#[test]
fn reasoning_has_the_names_tags_and_budget_of_the_operator() {
    let server = server(|settings| {
        settings.chat.reasoning_field = ReasoningField::Both;
        let reasoning = &mut settings.model.conversation.reasoning;
        (reasoning.start_token, reasoning.end_token) = ("<a>".into(), "</a>".into());
        (reasoning.budget_tokens, reasoning.budget_message) = (Some(3), Some(" Enough.".into()));
        reasoning.start_in_reasoning = Toggle::On;
    });
    let value = server.client(API).post(PATH, &body(json!({}))).good();
    let message = &value["choices"][0]["message"];
    let reasoning = message["reasoning_content"].as_str().unwrap();
    assert!(reasoning.ends_with("Enough."), "{value}");
    assert_eq!(message["reasoning"], reasoning);
    assert!(!message["content"].as_str().unwrap().contains("</a>"));
    let streamed = server.client(API).post(PATH, &body(json!({"stream": true}))).chunks();
    let joined: String = streamed
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["reasoning"].as_str())
        .collect();
    assert_eq!(joined, reasoning);
    // A request's own budget counts for more.
    let longer = body(json!({"reasoning_budget_tokens": 9}));
    let longer = server.client(API).post(PATH, &longer).good();
    let tokens = |value: &Value| {
        value["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap()
    };
    assert_eq!(tokens(&longer), tokens(&value) + 6);
}

#[test]
fn reasoning_can_be_left_in_the_answer() {
    let server = server(|settings| settings.model.conversation.reasoning.reasoning = Toggle::Off);
    let asked = json!({"prompt_template": "qwq", "reasoning_budget_tokens": 0});
    let value = server.client(API).post(PATH, &body(asked)).good();
    assert_eq!(value["choices"][0]["message"].get("reasoning_content"), None);
    assert_eq!(value["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
}

#[test]
fn templates_and_their_variables_are_the_operators() {
    let server = server(|settings| {
        settings.chat.allow_request_template = true;
        let own = json!({"x": "default", "y": "default"});
        settings.model.conversation.template_vars_default = own.as_object().unwrap().clone();
        settings.model.conversation.template_vars_force.insert("y".into(), "forced".into());
    });
    let template = "{{ x }} {{ y }}";
    assert_eq!(prompt(&server, json!({"chat_template": template})), "default forced");
    let asked = json!({"chat_template": template, "template_vars": {"x": "asked", "y": "asked"}});
    assert_eq!(prompt(&server, asked), "asked forced");
    let broken = body(json!({"chat_template": "{% if"}));
    assert_eq!(server.client(API).post(PATH, &broken).refusal().1, "template_error");
}

#[test]
fn an_answer_that_has_begun_is_continued_where_that_is_the_rule() {
    let messages =
        json!([{"role": "user", "content": "?"}, {"role": "assistant", "content": "An array"}]);
    let rule = server(|settings| settings.chat.prefill_assistant = true);
    assert!(prompt(&rule, json!({"messages": messages})).ends_with("An array"));
    let opens = json!({"messages": messages, "add_generation_prompt": true});
    assert!(prompt(&rule, opens).ends_with("<|assistant|>\n"));
    let usual = TestServer::demo();
    assert!(prompt(&usual, json!({"messages": messages})).ends_with("<|assistant|>\n"));
}

#[test]
fn a_stamp_does_not_change_the_prompt() {
    let messages = |stamp: &str| {
        let system = format!("header: cch={stamp};\nYou are an agent.");
        json!({"messages": [{"role": "system", "content": system}, {"role": "user", "content": "?"}]})
    };
    let usual = TestServer::demo();
    assert_eq!(prompt(&usual, messages("aaaaa")), prompt(&usual, messages("bbbbb")));
    let plain = server(|settings| settings.developer.prompt_normalizers.clear());
    assert_ne!(prompt(&plain, messages("aaaaa")), prompt(&plain, messages("bbbbb")));
}

#[test]
fn tools_follow_their_schema_always() {
    let server = server(|settings| {
        settings.tools.enforce_always = true;
        settings.model.conversation.tool_format = "hermes".into();
    });
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"],
        "additionalProperties": false}}});
    let asked = json!({"tools": [tool], "tool_choice": "required", "parallel_tool_calls": false,
        "max_tokens": 100});
    let value = server.client(API).post(PATH, &body(asked.clone())).good();
    let call = &value["choices"][0]["message"]["tool_calls"][0]["function"];
    assert!(["{\"a\": 1}", "{\"a\": 2}"].contains(&call["arguments"].as_str().unwrap()), "{value}");
    // The format is the operator's too: without reading it, the answer shows its marks.
    let mut none = asked;
    none["tool_choice"] = "none".into();
    none["regex_pattern"] = "<tool_cal".into();
    server.client(API).post(PATH, &body(none)).good();
}

#[test]
fn counts_come_with_the_last_choice_and_streams_as_one_body() {
    let tabby = server(|settings| settings.developer.usage_in_last_choice = true);
    let asked = json!({"stream": true, "stream_options": {"include_usage": true}, "n": 2});
    for (path, body) in [
        (PATH, body(asked.clone())),
        ("/v1/completions", {
            let mut body = body(asked);
            body["prompt"] = "CSS is".into();
            body.as_object_mut().unwrap().remove("messages");
            body
        }),
    ] {
        let chunks = tabby.client(API).post(path, &body).chunks();
        let (last, others) = chunks.split_last().unwrap();
        assert_eq!(last["choices"].as_array().unwrap().len(), 1, "{path}: {last}");
        assert!(last["usage"]["total_tokens"].as_u64() > Some(0), "{path}: {last}");
        assert!(others.iter().all(|chunk| chunk["usage"].is_null()));
    }
    let whole = server(|settings| settings.developer.disable_request_streaming = true);
    let value = whole.client(API).post(PATH, &body(json!({"stream": true}))).good();
    assert_eq!(value["object"], "chat.completion");
}

#[test]
fn answers_in_channels_are_taken_apart() {
    let server = server(|settings| {
        settings.chat.allow_request_template = true;
        settings.model.conversation.reasoning.harmony = Toggle::On;
    });
    let template = |channel: &str| {
        let begun = format!("<|start|>assistant<|channel|>{channel}<|message|>");
        json!({"chat_template": format!("{{{{ messages[0].content }}}}{begun}"), "logprobs": true})
    };
    let ask = |extra: Value| server.client(API).post(PATH, &body(extra));
    let thought = ask(template("analysis")).good();
    let message = &thought["choices"][0]["message"];
    assert_eq!(message["content"], "");
    assert!(!message["reasoning_content"].as_str().unwrap().is_empty());
    assert_eq!(thought["choices"][0]["logprobs"]["content"], json!([]));
    // All of it, but for a token that ended it.
    let usage = &thought["usage"];
    let counted = usage["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap();
    let written = usage["completion_tokens"].as_u64().unwrap();
    assert!(counted == written || counted + 1 == written, "{thought}");
    let said = ask(template("final")).good();
    let message = &said["choices"][0]["message"];
    assert!(!message["content"].as_str().unwrap().is_empty());
    assert_eq!(message.get("reasoning_content"), None);
    let mut refused = template("final");
    refused["regex_pattern"] = "x".into();
    assert_eq!(ask(refused).refusal().1, "unsupported_parameter");
    let mut refused = template("final");
    refused["reasoning_budget_tokens"] = 5.into();
    assert_eq!(ask(refused).refusal().1, "unsupported_parameter");
}
