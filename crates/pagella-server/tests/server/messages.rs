//! Messages, as Anthropic's clients have them.

use serde_json::{Value, json};

use crate::support::{API, TestServer, demo, keys, settings, wait_for};

const PATH: &str = "/v1/messages";

fn body(extra: Value) -> Value {
    let mut body = json!({
        "model": "claude-something",
        "messages": [{"role": "user", "content": "What is an array?"}],
        "max_tokens": 12,
        "temperature": 0,
    });
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

/// Reads events as a client does, and checks that each may come where it comes.
#[derive(Default)]
pub struct Grammar {
    message: Value,
    open: Option<Value>,
    arguments: String,
    ended: bool,
}

impl Grammar {
    fn read(events: &[(String, Value)]) -> Value {
        let mut grammar = Grammar::default();
        for (name, event) in events {
            assert_eq!(event["type"], name.as_str());
            assert!(!grammar.ended, "{name} after the end");
            grammar.step(name, event);
        }
        assert!(grammar.ended, "no end");
        grammar.message
    }

    fn step(&mut self, name: &str, event: &Value) {
        let started = !self.message.is_null();
        assert_eq!(started, name != "message_start", "{name}");
        let stopped = started && !self.message["stop_reason"].is_null();
        assert_eq!(stopped, name == "message_stop", "{name}");
        match name {
            "message_start" => {
                self.message = event["message"].clone();
                assert_eq!(self.message["content"], json!([]));
            }
            "ping" => {}
            "content_block_start" => {
                assert!(self.open.is_none(), "two blocks are open");
                assert_eq!(event["index"], self.blocks().len());
                self.open = Some(event["content_block"].clone());
            }
            "content_block_delta" => self.delta(event),
            "content_block_stop" => {
                assert_eq!(event["index"], self.blocks().len());
                let mut block = self.open.take().expect("a block is open");
                let arguments = std::mem::take(&mut self.arguments);
                if let Ok(input @ Value::Object(_)) = serde_json::from_str(&arguments) {
                    block["input"] = input;
                }
                self.blocks().push(block);
            }
            "message_delta" => {
                assert!(self.open.is_none(), "a block is open");
                for field in ["stop_reason", "stop_sequence"] {
                    self.message[field] = event["delta"][field].clone();
                }
                self.message["usage"] = event["usage"].clone();
            }
            "message_stop" => self.ended = true,
            other => panic!("an event named {other}"),
        }
    }

    fn blocks(&mut self) -> &mut Vec<Value> {
        self.message["content"].as_array_mut().unwrap()
    }

    fn delta(&mut self, event: &Value) {
        assert_eq!(event["index"], self.blocks().len());
        let block = self.open.as_mut().expect("a block is open");
        let delta = &event["delta"];
        let (field, kind) = match delta["type"].as_str().unwrap() {
            "text_delta" => ("text", "text"),
            "thinking_delta" => ("thinking", "thinking"),
            "signature_delta" => ("signature", "thinking"),
            "input_json_delta" => {
                assert_eq!(block["type"], "tool_use");
                self.arguments.push_str(delta["partial_json"].as_str().unwrap());
                return;
            }
            other => panic!("a delta named {other}"),
        };
        assert_eq!(block["type"], kind);
        let joined =
            format!("{}{}", block[field].as_str().unwrap(), delta[field].as_str().unwrap());
        block[field] = joined.into();
    }
}

/// A message without what differs between two answers to the same request.
pub fn comparable(mut message: Value) -> Value {
    message["id"] = Value::Null;
    for block in message["content"].as_array_mut().unwrap() {
        if !block["id"].is_null() {
            block["id"] = "toolu".into();
        }
    }
    let usage = &mut message["usage"];
    let prompt =
        ["input_tokens", "cache_read_input_tokens"].map(|name| usage[name].as_u64().unwrap());
    usage["input_tokens"] = (prompt[0] + prompt[1]).into();
    usage["cache_read_input_tokens"] = 0.into();
    message
}

#[test]
fn an_answer_has_the_documented_shape() {
    let server = TestServer::demo();
    let client =
        server.client(API).with("x-request-id", "abc").with("anthropic-version", "2023-06-01");
    let answer =
        client.post(PATH, &body(json!({"system": "Be brief.", "metadata": {"user_id": "u"}})));
    let value = answer.good();
    assert_eq!(answer.header("request-id"), Some("abc"));
    let shape = (&value["id"], &value["type"], &value["role"], &value["model"]);
    assert_eq!(shape, (&json!("msg_abc"), &json!("message"), &json!("assistant"), &json!("demo")));
    assert_eq!(value["content"][0]["type"], "text");
    assert!(!value["content"][0]["text"].as_str().unwrap().is_empty());
    assert_eq!(
        (&value["stop_reason"], &value["stop_sequence"]),
        (&json!("max_tokens"), &Value::Null)
    );
    let usage = &value["usage"];
    assert_eq!(
        (&usage["output_tokens"], &usage["cache_creation_input_tokens"]),
        (&json!(12), &json!(0))
    );
    assert_eq!(usage["output_tokens_details"]["thinking_tokens"], 0);
    server.wait_idle();
}

#[test]
fn it_says_what_the_chat_says() {
    let server = TestServer::demo();
    let chat = json!({
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is an array?\nAnd CSS?"},
        ],
        "max_tokens": 20, "temperature": 0,
    });
    let expected = server.client(API).post("/v1/chat/completions", &chat).good();
    let messages = json!([
        {"role": "user", "content": [{"type": "text", "text": "What is an array?",
            "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": "And CSS?"},
    ]);
    let extra = json!({"messages": messages, "max_tokens": 20,
        "system": [{"type": "text", "text": "Be brief."}]});
    let value = server.client(API).post(PATH, &body(extra.clone())).good();
    assert_eq!(value["content"][0]["text"], expected["choices"][0]["message"]["content"]);
    let counted = server.client(API).post("/v1/messages/count_tokens", &{
        let mut body = body(extra);
        body.as_object_mut().unwrap().shift_remove("max_tokens");
        body
    });
    assert_eq!(counted.good(), json!({"input_tokens": expected["usage"]["prompt_tokens"]}));
}

#[test]
fn events_follow_the_grammar_and_say_what_the_whole_answer_says() {
    let server = TestServer::demo();
    let client = server.client(API);
    for extra in [
        json!({}),
        json!({"stop_sequences": ["the"], "max_tokens": 60}),
        json!({"temperature": 1.0, "seed": 5, "stream_granularity": 20}),
        json!({"max_tokens": 0}),
        json!({"max_tokens": 1500, "ban_eos_token": false}),
        json!({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "An array"}]}),
        json!({"output_config": {"format": {"type": "json_schema", "schema": {
            "type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"],
            "additionalProperties": false}}}, "max_tokens": 60}),
    ] {
        let whole = client.post(PATH, &body(extra.clone())).good();
        let mut streamed = body(extra.clone());
        streamed["stream"] = true.into();
        let events = client.post(PATH, &streamed).named();
        assert_eq!(comparable(Grammar::read(&events)), comparable(whole), "{extra}");
    }
    server.wait_idle();
}

#[test]
fn ends_are_told_apart() {
    let server = TestServer::demo();
    let ask = |extra: Value| server.client(API).post(PATH, &body(extra)).good();
    let stopped = ask(json!({"stop_sequences": ["the", " "], "max_tokens": 60}));
    assert_eq!(stopped["stop_reason"], "stop_sequence");
    assert!(["the", " "].contains(&stopped["stop_sequence"].as_str().unwrap()));
    let silent = ask(json!({"max_tokens": 0}));
    assert_eq!((&silent["content"], &silent["usage"]["output_tokens"]), (&json!([]), &json!(0)));
    assert_eq!(silent["stop_reason"], "max_tokens");
    // A prompt that leaves little room.
    let prompt = |words: usize| {
        json!({"messages": [{"role": "user", "content": "word ".repeat(words)}],
            "max_tokens": 100_000, "ban_eos_token": true})
    };
    let count = |words: usize| {
        let counted = server.client(API).post("/v1/messages/count_tokens", &body(prompt(words)));
        counted.good()["input_tokens"].as_u64().unwrap() as usize
    };
    let per_word = (count(200) - count(100)) / 100;
    let full = ask(prompt((2048 - count(0) - 40) / per_word.max(1)));
    assert_eq!(full["stop_reason"], "model_context_window_exceeded");
    let complete = ask(json!({"regex_pattern": "yes", "max_tokens": 60}));
    assert_eq!(
        (&complete["content"][0]["text"], &complete["stop_reason"]),
        (&json!("yes"), &json!("end_turn"))
    );
}

#[test]
fn cached_tokens_are_not_input() {
    let server = TestServer::demo();
    let long =
        json!({"messages": [{"role": "user", "content": "word ".repeat(600)}], "max_tokens": 1});
    let usage = |streamed: bool| {
        let mut body = body(long.clone());
        body["stream"] = streamed.into();
        let answer = server.client(API).post(PATH, &body);
        match streamed {
            false => answer.good()["usage"].clone(),
            true => answer.named()[0].1["message"]["usage"].clone(),
        }
    };
    let first = usage(false);
    assert_eq!(first["cache_read_input_tokens"], 0);
    let again = usage(false);
    let cached = again["cache_read_input_tokens"].as_u64().unwrap();
    assert!(cached >= 256, "{again}");
    let total = first["input_tokens"].as_u64().unwrap();
    assert_eq!(again["input_tokens"].as_u64().unwrap() + cached, total);
    // A stream says so when it begins.
    let begun = usage(true);
    let found = begun["cache_read_input_tokens"].as_u64().unwrap();
    assert!(found >= 256 && begun["input_tokens"].as_u64().unwrap() + found == total, "{begun}");
}

#[test]
fn errors_have_their_own_shape() {
    let server = TestServer::demo();
    let client = server.client(API).with("x-request-id", "err");
    let refused = |body: &Value| {
        let answer = client.post(PATH, body);
        let value = answer.json();
        assert_eq!((&value["type"], &value["request_id"]), (&json!("error"), &json!("err")));
        assert!(value["error"]["message"].is_string());
        (answer.status, value["error"]["type"].as_str().unwrap().to_owned())
    };
    let invalid = (400, "invalid_request_error".to_owned());
    assert_eq!(refused(&json!({"messages": []})), invalid);
    assert_eq!(refused(&body(json!({"max_tokens": null}))), invalid);
    assert_eq!(refused(&body(json!({"max_tokens": -1}))), invalid);
    assert_eq!(refused(&body(json!({"top_p": 5}))), invalid);
    let image = json!([{"role": "user", "content": [{"type": "image"}]}]);
    assert_eq!(refused(&body(json!({"messages": image}))), invalid);
    let long = json!({"messages": [{"role": "user", "content": "word ".repeat(4000)}]});
    assert_eq!(refused(&body(long)), invalid);
    let stranger = server.stranger().post(PATH, &body(json!({})));
    assert_eq!(
        (stranger.status, &stranger.json()["error"]["type"]),
        (401, &json!("authentication_error"))
    );
    let empty = TestServer::start(settings(), keys(), None);
    let answer = empty.client(API).post(PATH, &body(json!({})));
    assert_eq!((answer.status, &answer.json()["error"]["type"]), (529, &json!("overloaded_error")));
    assert_eq!(answer.header("x-should-retry"), Some("false"));
}

#[test]
fn fields_that_have_no_effect_are_named() {
    let server = TestServer::demo();
    let tools =
        json!({"tools": [{"type": "web_search_20250305", "name": "web_search"}], "container": "x"});
    let answer = server.client(API).post(PATH, &body(tools.clone()));
    answer.good();
    assert_eq!(answer.header("x-ignored-fields"), Some("container,tools.web_search_20250305"));
    let strict =
        server.client(API).with("x-strict", "1").post(PATH, &body(json!({"container": "x"})));
    assert_eq!(strict.status, 400);
    let mut rejecting = settings();
    rejecting.responses.hosted_tools = pagella_server::settings::HostedTools::Reject;
    let server = TestServer::start(rejecting, keys(), Some(demo(8)));
    assert_eq!(server.client(API).post(PATH, &body(tools)).status, 400);
}

#[test]
fn a_client_that_leaves_ends_its_job() {
    let server = TestServer::demo();
    for stream in [true, false] {
        let long = body(json!({"max_tokens": 1500, "ban_eos_token": true, "stream": stream}));
        let socket = server.client(API).open("POST", PATH, Some(long.to_string().as_bytes()));
        wait_for("the job to run", || server.stats().queue.active > 0);
        drop(socket);
        server.wait_idle();
    }
    assert_eq!(server.stats().finished.get("cancelled"), Some(&2));
}

#[test]
fn silence_is_broken_by_pings() {
    // One job at a time: the second waits, and its stream says so in comments.
    let server = TestServer::start(settings(), keys(), Some(demo(1)));
    let client = server.client(API);
    let long = json!({"max_tokens": 1500, "ban_eos_token": true, "stream": true});
    let mut first = client.stream(PATH, &body(long));
    first.until(|event| event["type"] == "content_block_delta");
    let socket = client.open(
        "POST",
        PATH,
        Some(body(json!({"stream": true, "sse_ping_interval": 1})).to_string().as_bytes()),
    );
    std::thread::sleep(std::time::Duration::from_millis(1300));
    drop(first);
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut { socket }, &mut bytes).unwrap();
    let answer = crate::support::parse(&bytes);
    let text = answer.text();
    let (comment, start) = (text.find(": keep-alive"), text.find("event: message_start"));
    assert!(comment.is_some_and(|at| start.is_some_and(|start| at < start)), "{text}");
    Grammar::read(&answer.named());
    server.wait_idle();
}

fn tool(name: &str) -> Value {
    let schema = json!({
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city", "days"],
        "additionalProperties": false,
    });
    json!({"name": name, "description": "Tells the weather.", "input_schema": schema, "strict": true})
}

#[test]
fn tools_are_called_answered_and_the_same_in_pieces() {
    let server = TestServer::demo();
    let client = server.client(API);
    let tools = json!([tool("get_weather"), tool("get_tides")]);
    let one = |choice: Value| {
        let mut choice = choice;
        choice["disable_parallel_tool_use"] = true.into();
        json!({"tools": tools, "tool_choice": choice, "max_tokens": 200})
    };
    for (extra, reason) in [
        (one(json!({"type": "tool", "name": "get_tides"})), "tool_use"),
        (one(json!({"type": "any"})), "tool_use"),
        // Cut in the middle of a call, and calls without end.
        (json!({"tools": tools, "tool_choice": {"type": "any"}, "max_tokens": 10}), "max_tokens"),
        (json!({"tools": tools, "tool_choice": {"type": "any"}, "max_tokens": 120}), ""),
        (json!({"tools": tools, "tool_choice": {"type": "none"}}), "max_tokens"),
    ] {
        let whole = client.post(PATH, &body(extra.clone())).good();
        if !reason.is_empty() {
            assert_eq!(whole["stop_reason"], reason, "{extra}: {whole}");
        }
        if reason == "tool_use" {
            let block = &whole["content"][0];
            assert_eq!(block["type"], "tool_use", "{whole}");
            assert!(block["id"].as_str().unwrap().starts_with("toolu_"));
            assert!(["Paris", "Oslo"].contains(&block["input"]["city"].as_str().unwrap()));
            if !extra["tool_choice"]["name"].is_null() {
                assert_eq!(block["name"], extra["tool_choice"]["name"]);
            }
        }
        let mut streamed = body(extra.clone());
        streamed["stream"] = true.into();
        let events = client.post(PATH, &streamed).named();
        assert_eq!(comparable(Grammar::read(&events)), comparable(whole), "{extra}");
    }
    let mut talk = body(one(json!({"type": "any"})));
    let called = client.post(PATH, &talk).good();
    let result = json!({"type": "tool_result", "tool_use_id": called["content"][0]["id"],
        "content": [{"type": "text", "text": "Rain."}]});
    let turns = talk["messages"].as_array_mut().unwrap();
    turns.push(json!({"role": "assistant", "content": called["content"]}));
    turns.push(json!({"role": "user", "content": [result, {"type": "text", "text": "So?"}]}));
    talk["tool_choice"] = json!({"type": "none"});
    assert_eq!(client.post(PATH, &talk).good()["content"][0]["type"], "text");
    server.wait_idle();
}

#[test]
fn thinking_is_a_block_of_its_own() {
    let mut parts = demo(8);
    parts.template = Some(pagella_text::ChatTemplate::builtin("qwq").unwrap());
    let server = TestServer::start(settings(), keys(), Some(parts));
    let client = server.client(API);
    for display in ["summarized", "omitted"] {
        let thinking = json!({"type": "enabled", "budget_tokens": 6, "display": display});
        let extra = json!({"thinking": thinking, "max_tokens": 40});
        let whole = client.post(PATH, &body(extra.clone())).good();
        let blocks = whole["content"].as_array().unwrap();
        let kinds: Vec<&str> = blocks.iter().map(|block| block["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["thinking", "text"], "{whole}");
        assert_eq!(blocks[0]["signature"], "");
        assert_eq!(blocks[0]["thinking"] == "", display == "omitted", "{whole}");
        let thought = &whole["usage"]["output_tokens_details"]["thinking_tokens"];
        assert!(thought.as_u64().unwrap() >= 6, "{whole}");
        let mut streamed = body(extra);
        streamed["stream"] = true.into();
        let events = client.post(PATH, &streamed).named();
        assert_eq!(comparable(Grammar::read(&events)), comparable(whole.clone()));
        // What was thought can be sent back.
        let mut next = body(json!({}));
        let turns = next["messages"].as_array_mut().unwrap();
        turns.push(json!({"role": "assistant", "content": whole["content"]}));
        turns.push(json!({"role": "user", "content": "So?"}));
        client.post("/v1/messages/count_tokens", &next).good();
    }
}
