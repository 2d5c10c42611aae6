//! Responses: items, events, and what is kept.

use serde_json::{Value, json};

use crate::support::{API, OTHER, TestServer, demo, keys, settings, wait_for};

const PATH: &str = "/v1/responses";

fn body(extra: Value) -> Value {
    let mut body = json!({"input": "What is an array?", "max_output_tokens": 12, "temperature": 0});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn text(response: &Value) -> String {
    let items = response["output"].as_array().unwrap().iter();
    let messages = items.filter(|item| item["type"] == "message");
    messages.map(|item| item["content"][0]["text"].as_str().unwrap()).collect()
}

/// Reads events as a client does, and checks that each may come where it comes.
#[derive(Default)]
struct Grammar {
    /// How far the response is: nothing, created, queued, in progress, ended.
    stage: usize,
    items: Vec<Value>,
    open: Option<Value>,
    /// The part of the open item, or its arguments.
    text: Option<String>,
    part_done: bool,
    last: Value,
}

impl Grammar {
    fn read(events: &[(String, Value)]) -> Value {
        let mut grammar = Grammar::default();
        for (number, (name, event)) in events.iter().enumerate() {
            assert_eq!(event["type"], name.as_str());
            assert_eq!(event["sequence_number"], number, "{name}");
            assert!(grammar.stage < 4, "{name} after the end");
            grammar.step(name.strip_prefix("response.").unwrap_or(name), event);
        }
        assert_eq!(grammar.stage, 4, "no end");
        assert_eq!(grammar.last["output"], Value::Array(grammar.items));
        grammar.last
    }

    fn step(&mut self, name: &str, event: &Value) {
        if let Some(index) = event.get("output_index") {
            assert_eq!((self.stage, index), (3, &json!(self.items.len())), "{name}");
        }
        if let Some(id) = event.get("item_id") {
            assert_eq!(*id, self.open.as_ref().expect("an item is open")["id"], "{name}");
        }
        match name {
            "created" => self.advance(0, 1, event),
            "queued" => self.advance(1, 2, event),
            "in_progress" => {
                assert!([1, 2].contains(&self.stage));
                self.advance(self.stage, 3, event);
            }
            "completed" | "incomplete" | "failed" => {
                assert!(self.open.is_none(), "an item is open");
                self.advance(3, 4, event);
                self.last = event["response"].clone();
            }
            "output_item.added" => {
                assert!(self.open.is_none(), "two items are open");
                assert_eq!(event["item"]["status"], "in_progress");
                let has_parts = event["item"].get("content").is_some();
                self.text = (!has_parts).then(String::new);
                self.open = Some(event["item"].clone());
                self.part_done = false;
            }
            "content_part.added" => {
                assert!(self.text.is_none(), "two parts are open");
                self.text = Some(event["part"]["text"].as_str().unwrap().to_owned());
            }
            "content_part.done" => {
                assert!(self.part_done);
                assert_eq!(event["part"]["text"], self.text.clone().unwrap());
            }
            "output_item.done" => {
                assert!(self.part_done);
                let item = &event["item"];
                assert_eq!(item["id"], self.open.take().expect("an item is open")["id"]);
                let whole = ["arguments", "input"].into_iter().find_map(|name| item.get(name));
                assert_eq!(
                    *whole.unwrap_or(&item["content"][0]["text"]),
                    self.text.clone().unwrap()
                );
                self.items.push(item.clone());
            }
            delta if delta.ends_with(".delta") => {
                assert!(!self.part_done);
                self.text.as_mut().unwrap().push_str(event["delta"].as_str().unwrap());
            }
            done if done.ends_with(".done") => {
                let said =
                    ["text", "arguments", "input"].into_iter().find_map(|name| event.get(name));
                assert_eq!(*said.unwrap(), self.text.clone().unwrap());
                self.part_done = true;
            }
            other => panic!("an event named {other}"),
        }
    }

    fn advance(&mut self, from: usize, to: usize, event: &Value) {
        assert_eq!(self.stage, from, "{}", event["type"]);
        assert_eq!(event["response"]["object"], "response");
        self.stage = to;
    }
}

/// A response without what differs between two answers to the same request.
fn comparable(mut response: Value) -> Value {
    for name in ["id", "created_at", "completed_at"] {
        assert!(!response[name].is_null(), "{name}");
        response[name] = Value::Null;
    }
    response["usage"]["input_tokens_details"] = Value::Null;
    for item in response["output"].as_array_mut().unwrap() {
        for name in ["id", "call_id"] {
            if item.get(name).is_some() {
                item[name] = Value::Null;
            }
        }
    }
    response
}

#[test]
fn an_answer_has_the_documented_shape() {
    let server = TestServer::demo();
    let client = server.client(API).with("x-request-id", "abc");
    let extra = json!({"instructions": "Be brief.", "metadata": {"a": "b"}, "user": "u"});
    let value = client.post(PATH, &body(extra)).good();
    assert_eq!((&value["id"], &value["object"]), (&json!("resp_abc"), &json!("response")));
    assert_eq!((&value["model"], &value["status"]), (&json!("demo"), &json!("incomplete")));
    assert_eq!(value["incomplete_details"], json!({"reason": "max_output_tokens"}));
    assert_eq!(
        (&value["instructions"], &value["metadata"]["a"]),
        (&json!("Be brief."), &json!("b"))
    );
    assert_eq!((&value["max_output_tokens"], &value["temperature"]), (&json!(12), &json!(0.0)));
    assert_eq!(
        (&value["store"], &value["background"], &value["error"]),
        (&json!(true), &json!(false), &Value::Null)
    );
    let item = &value["output"][0];
    assert_eq!((&item["type"], &item["role"]), (&json!("message"), &json!("assistant")));
    assert!(item["id"].as_str().unwrap().starts_with("msg_"));
    let part = &item["content"][0];
    assert_eq!((&part["type"], &part["annotations"]), (&json!("output_text"), &json!([])));
    let usage = &value["usage"];
    assert_eq!(usage["output_tokens"], 12);
    assert_eq!(usage["total_tokens"], usage["input_tokens"].as_u64().unwrap() + 12);
    assert_eq!(usage["output_tokens_details"]["reasoning_tokens"], 0);
    server.wait_idle();
}

#[test]
fn events_follow_the_grammar_and_say_what_the_whole_answer_says() {
    let server = TestServer::demo();
    let client = server.client(API);
    let schema = json!({"type": "object", "properties": {"a": {"enum": [1, 2]}},
        "required": ["a"], "additionalProperties": false});
    for extra in [
        json!({}),
        json!({"temperature": 1.0, "seed": 5, "stream_granularity": 20}),
        json!({"top_logprobs": 2}),
        json!({"include": ["message.output_text.logprobs"]}),
        json!({"regex_pattern": "yes"}),
        json!({"allowed_tokens": [0], "max_output_tokens": 1}),
        json!({"text": {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": true}},
            "max_output_tokens": 60}),
    ] {
        let whole = client.post(PATH, &body(extra.clone())).good();
        let mut streamed = body(extra.clone());
        streamed["stream"] = true.into();
        let events = client.post(PATH, &streamed).named();
        let last = Grammar::read(&events);
        assert_eq!(comparable(last.clone()), comparable(whole), "{extra}");
        let id = last["id"].as_str().unwrap();
        assert_eq!(client.get(&format!("{PATH}/{id}")).good(), last);
        server.wait_idle();
    }
}

#[test]
fn it_says_what_the_chat_says() {
    let server = TestServer::demo();
    let client = server.client(API);
    let chat = json!({
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is an array?"},
            {"role": "assistant", "content": "A list."},
            {"role": "user", "content": "And CSS?"},
        ],
        "max_tokens": 20, "temperature": 0,
    });
    let expected = client.post("/v1/chat/completions", &chat).good();
    let input = json!([
        {"role": "user", "content": [{"type": "input_text", "text": "What is an array?"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A list."}]},
        {"role": "user", "content": "And CSS?"},
    ]);
    let extra = json!({"input": input, "instructions": "Be brief.", "max_output_tokens": 20});
    let value = client.post(PATH, &body(extra.clone())).good();
    assert_eq!(text(&value), expected["choices"][0]["message"]["content"].as_str().unwrap());
    let counted = client.post("/v1/responses/input_tokens", &body(extra)).good();
    let n = &expected["usage"]["prompt_tokens"];
    assert_eq!(counted, json!({"object": "response.input_tokens", "input_tokens": n}));
}

#[test]
fn a_conversation_is_continued_by_its_last_response() {
    let server = TestServer::demo();
    let client = server.client(API);
    let first = client.post(PATH, &body(json!({"instructions": "Be brief."}))).good();
    let id = first["id"].as_str().unwrap();
    let extra = json!({"previous_response_id": id, "input": "And CSS?"});
    let second = client.post(PATH, &body(extra)).good();
    assert_eq!(second["previous_response_id"], id);
    // The same, spelled out; instructions are not carried over.
    let spelled = json!([
        {"role": "user", "content": "What is an array?"}, first["output"][0],
        {"role": "user", "content": "And CSS?"},
    ]);
    let expected = client.post(PATH, &body(json!({"input": spelled}))).good();
    assert_eq!(text(&second), text(&expected));
    assert_eq!(second["usage"]["input_tokens"], expected["usage"]["input_tokens"]);
    // An item can be named instead of sent.
    let named = json!([
        {"role": "user", "content": "What is an array?"},
        {"type": "item_reference", "id": first["output"][0]["id"]},
        {"role": "user", "content": "And CSS?"},
    ]);
    assert_eq!(text(&client.post(PATH, &body(json!({"input": named}))).good()), text(&expected));
    let third = json!({"previous_response_id": second["id"], "input": "Why?"});
    let third = client.post(PATH, &body(third)).good();
    assert!(third["usage"]["input_tokens"].as_u64() > second["usage"]["input_tokens"].as_u64());
}

#[test]
fn responses_of_others_do_not_exist() {
    let server = TestServer::demo();
    let (client, other) = (server.client(API), server.client(OTHER));
    let value = client.post(PATH, &body(json!({}))).good();
    let id = value["id"].as_str().unwrap();
    let path = format!("{PATH}/{id}");
    let gone = |answer: crate::support::Answer| {
        assert_eq!((answer.status, answer.refusal().1.as_str()), (404, "response_not_found"));
    };
    gone(other.get(&path));
    gone(other.send("DELETE", &path, None));
    gone(other.send("POST", &format!("{path}/cancel"), None));
    gone(other.get(&format!("{path}/input_items")));
    gone(other.post(PATH, &body(json!({"previous_response_id": id}))));
    let item = json!([{"type": "item_reference", "id": value["output"][0]["id"]}]);
    gone(other.post(PATH, &body(json!({"input": item}))));
    let refused = client.send("POST", &format!("{path}/cancel"), None);
    assert_eq!((refused.status, refused.refusal().1.as_str()), (409, "not_background"));
    assert_eq!(refused.header("x-should-retry"), Some("false"));
    assert_eq!(client.get(&path).good(), value);
    let deleted = client.send("DELETE", &path, None).good();
    assert_eq!(deleted, json!({"id": id, "object": "response.deleted", "deleted": true}));
    gone(client.get(&path));
    let unstored = client.post(PATH, &body(json!({"store": false}))).good();
    gone(client.get(&format!("{PATH}/{}", unstored["id"].as_str().unwrap())));
}

#[test]
fn input_items_are_listed_in_pages() {
    let server = TestServer::demo();
    let client = server.client(API);
    let input: Vec<Value> =
        (0..5).map(|i| json!({"role": "user", "content": format!("{i}")})).collect();
    let value = client.post(PATH, &body(json!({"input": input}))).good();
    let path = format!("{PATH}/{}/input_items", value["id"].as_str().unwrap());
    let texts = |list: &Value| -> Vec<String> {
        let items = list["data"].as_array().unwrap().iter();
        items.map(|item| item["content"][0]["text"].as_str().unwrap().to_owned()).collect()
    };
    let all = client.get(&path).good();
    assert_eq!(texts(&all), ["4", "3", "2", "1", "0"]);
    assert_eq!((&all["object"], &all["has_more"]), (&json!("list"), &json!(false)));
    let page = client.get(&format!("{path}?order=asc&limit=2")).good();
    assert_eq!((texts(&page), &page["has_more"]), (vec!["0".into(), "1".into()], &json!(true)));
    let after = page["last_id"].as_str().unwrap();
    let page = client.get(&format!("{path}?order=asc&limit=100&after={after}")).good();
    assert_eq!(texts(&page), ["2", "3", "4"]);
    for query in ["limit=0", "limit=101", "limit=x", "order=up", "after=x"] {
        assert_eq!(client.get(&format!("{path}?{query}")).status, 400, "{query}");
    }
}

#[test]
fn a_response_in_the_background_is_fetched_followed_and_cancelled() {
    let server = TestServer::demo();
    let client = server.client(API);
    let begun = client.post(PATH, &body(json!({"background": true}))).good();
    assert_eq!((&begun["status"], &begun["output"]), (&json!("queued"), &json!([])));
    let path = format!("{PATH}/{}", begun["id"].as_str().unwrap());
    wait_for("the response to end", || client.get(&path).good()["status"] == "incomplete");
    let ended = client.get(&path).good();
    let events = client.get(&format!("{path}?stream=true")).named();
    assert_eq!(Grammar::read(&events), ended);
    let rest = client.get(&format!("{path}?stream=true&starting_after=3")).named();
    assert_eq!(rest, events[4..]);
    let cancelled = client.send("POST", &format!("{path}/cancel"), None).good();
    assert_eq!(cancelled, ended, "what has ended stays as it is");

    let long = json!({"background": true, "stream": true, "max_output_tokens": 1500, "ban_eos_token": true});
    let mut stream = client.with("x-request-id", "long").stream(PATH, &body(long));
    stream.until(|event| event["type"] == "response.output_text.delta");
    drop(stream);
    let client = server.client(API);
    let path = format!("{PATH}/resp_long");
    // Whoever followed has gone, and it goes on.
    assert_eq!(client.get(&path).good()["status"], "in_progress");
    let continued = client.post(PATH, &body(json!({"previous_response_id": "resp_long"})));
    assert_eq!(continued.status, 400);
    let cancelled = client.send("POST", &format!("{path}/cancel"), None).good();
    assert_eq!(cancelled["status"], "cancelled");
    assert!(!text(&cancelled).is_empty());
    let events = client.get(&format!("{path}?stream=true")).named();
    assert_eq!(events.last().unwrap().1["response"], cancelled);
    server.wait_idle();
}

#[test]
fn what_waits_says_so() {
    let server = TestServer::start(settings(), keys(), Some(demo(1)));
    let client = server.client(API);
    let long = json!({"max_output_tokens": 1500, "ban_eos_token": true, "stream": true});
    let mut first = client.stream(PATH, &body(long));
    first.until(|event| event["type"] == "response.output_text.delta");
    let second = body(json!({"stream": true})).to_string();
    let socket = client.open("POST", PATH, Some(second.as_bytes()));
    std::thread::sleep(std::time::Duration::from_millis(400));
    drop(first);
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut { socket }, &mut bytes).unwrap();
    let events = crate::support::parse(&bytes).named();
    assert_eq!(events[1].0, "response.queued");
    Grammar::read(&events);
    server.wait_idle();
}

#[test]
fn old_items_give_way_where_that_is_allowed() {
    let server = TestServer::demo();
    let client = server.client(API);
    let mut input: Vec<Value> = (0..20)
        .map(|i| json!({"role": "user", "content": format!("{i} {}", "word ".repeat(200))}))
        .collect();
    input.insert(0, json!({"role": "system", "content": "Be brief."}));
    let refused = client.post(PATH, &body(json!({"input": input})));
    assert_eq!(refused.refusal(), (400, "context_length_exceeded".into(), Some("input".into())));
    let value = client.post(PATH, &body(json!({"input": input, "truncation": "auto"}))).good();
    let kept = value["usage"]["input_tokens"].as_u64().unwrap();
    assert!((1200..2048).contains(&kept), "{kept}");
    // The last items, and the system's.
    let n = (1..20).find(|n| {
        let mut list = vec![input[0].clone()];
        list.extend_from_slice(&input[21 - n..]);
        let counted =
            client.post("/v1/responses/input_tokens", &body(json!({"input": list}))).good();
        counted["input_tokens"] == kept
    });
    assert!(n.is_some());
}

#[test]
fn a_client_that_leaves_ends_its_job_and_nothing_is_kept() {
    let server = TestServer::demo();
    for stream in [true, false] {
        let long =
            body(json!({"max_output_tokens": 1500, "ban_eos_token": true, "stream": stream}));
        let client = server.client(API).with("x-request-id", "left");
        let socket = client.open("POST", PATH, Some(long.to_string().as_bytes()));
        wait_for("the job to run", || server.stats().queue.active > 0);
        drop(socket);
        server.wait_idle();
        assert_eq!(client.get(&format!("{PATH}/resp_left")).status, 404);
    }
}

#[test]
fn what_a_response_cannot_have_is_refused() {
    let server = TestServer::demo();
    let refused = |extra: Value| server.client(API).post(PATH, &body(extra)).refusal().1;
    assert_eq!(refused(json!({"input": null})), "missing_parameter");
    assert_eq!(refused(json!({"input": []})), "out_of_range");
    assert_eq!(refused(json!({"conversation": "c"})), "unsupported_parameter");
    assert_eq!(refused(json!({"background": true, "store": false})), "conflicting_parameters");
    assert_eq!(refused(json!({"previous_response_id": "resp_x"})), "response_not_found");
    assert_eq!(refused(json!({"max_output_tokens": "x"})), "invalid_type");
    assert_eq!(refused(json!({"truncation": "some"})), "unsupported_value");
    let image = json!([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]);
    assert_eq!(refused(json!({"input": image})), "unsupported_modality");
    let answer = server.client(API).post(PATH, &body(json!({"tools": [{"type": "web_search"}]})));
    answer.good();
    assert_eq!(answer.header("x-ignored-fields"), Some("tools.web_search"));
}

#[test]
fn a_server_that_ends_cancels_what_nobody_waits_for() {
    let mut short = settings();
    short.shutdown.drain_timeout = std::time::Duration::from_millis(100);
    let server = TestServer::start(short, keys(), Some(demo(8)));
    let long = json!({"background": true, "max_output_tokens": 1900, "ban_eos_token": true});
    server.client(API).with("x-request-id", "late").post(PATH, &body(long)).good();
    wait_for("the job to run", || server.stats().queue.active > 0);
    let app = server.app.clone();
    server.stop();
    server.join();
    assert!(app.requests.is_empty());
    let kept = app.responses.find("alice", "resp_late").unwrap();
    assert_eq!(kept.object()["status"], "cancelled");
}

#[test]
fn tools_are_called_answered_and_the_same_in_pieces() {
    let server = TestServer::demo();
    let client = server.client(API);
    let schema = json!({"type": "object", "properties": {"city": {"enum": ["Paris", "Oslo"]}},
        "required": ["city"], "additionalProperties": false});
    let tools = json!([
        {"type": "function", "name": "get_weather", "parameters": schema, "strict": true},
        {"type": "custom", "name": "code",
         "format": {"type": "grammar", "syntax": "regex", "definition": "[0-9]{3}"}},
    ]);
    let ask = |extra: Value| {
        let mut body =
            body(json!({"tools": tools, "max_output_tokens": 200, "parallel_tool_calls": false}));
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        body
    };
    for (extra, kind) in [
        (json!({"tool_choice": {"type": "function", "name": "get_weather"}}), "function_call"),
        (json!({"tool_choice": {"type": "custom", "name": "code"}}), "custom_tool_call"),
        (json!({"tool_choice": "required", "max_output_tokens": 6}), "function_call"),
        (json!({"tool_choice": "none"}), "message"),
        (
            json!({"tool_choice": {"type": "allowed_tools", "mode": "required",
            "tools": [{"type": "function", "name": "get_weather"}]}}),
            "function_call",
        ),
    ] {
        let whole = client.post(PATH, &ask(extra.clone())).good();
        let item = &whole["output"][0];
        let cut = extra.get("max_output_tokens").is_some();
        if !cut {
            assert_eq!(item["type"], kind, "{extra}: {whole}");
        }
        match kind {
            _ if cut => assert_eq!(
                (&whole["status"], &item["status"]),
                (&json!("incomplete"), &json!("incomplete"))
            ),
            "function_call" => {
                let arguments: Value =
                    serde_json::from_str(item["arguments"].as_str().unwrap()).unwrap();
                assert!(["Paris", "Oslo"].contains(&arguments["city"].as_str().unwrap()));
                assert!(item["call_id"].as_str().unwrap().starts_with("call_"));
                assert!(item["id"].as_str().unwrap().starts_with("fc_"));
                assert_eq!(whole["status"], "completed");
            }
            "custom_tool_call" => {
                let input = item["input"].as_str().unwrap();
                assert!(input.len() == 3 && input.bytes().all(|b| b.is_ascii_digit()), "{input}");
            }
            _ => {}
        }
        let mut streamed = ask(extra.clone());
        streamed["stream"] = true.into();
        let last = Grammar::read(&client.post(PATH, &streamed).named());
        assert_eq!(comparable(last.clone()), comparable(whole), "{extra}");
        if kind.ends_with("_call") {
            let output = json!([{"type": format!("{kind}_output"), "call_id": last["output"][0]["call_id"],
                "output": "Rain."}]);
            let next =
                json!({"previous_response_id": last["id"], "input": output, "tool_choice": "none"});
            if !cut {
                assert_eq!(client.post(PATH, &ask(next)).good()["output"][0]["type"], "message");
            }
        }
    }
    server.wait_idle();
}

#[test]
fn a_request_as_coding_agents_send_it_is_answered() {
    let server = TestServer::demo();
    let client = server.client(API);
    let grammar = "start: begin_patch hunk+ end_patch\nbegin_patch: \"*** Begin Patch\" LF\n\
        end_patch: \"*** End Patch\" LF?\n\nhunk: add_hunk | delete_hunk\n\
        add_hunk: \"*** Add File: \" filename LF add_line+\n\
        delete_hunk: \"*** Delete File: \" filename LF\n\nfilename: /([a-z.\\/\"]{1,9})/\n\
        add_line: \"+\" /(.{0,9})/ LF -> line\n\n%import common.LF\n";
    let shell = json!({"type": "object", "properties": {"command": {"type": "array",
        "items": {"type": "string"}}, "workdir": {"type": "string"}}, "required": ["command"]});
    let asked = |extra: Value| {
        let mut body = json!({
            "model": "demo", "instructions": "You are a coding agent.", "store": false,
            "input": [{"type": "message", "role": "user",
                "content": [{"type": "input_text", "text": "Add a file."}]}],
            "tools": [
                {"type": "function", "name": "shell", "description": "Runs a command.",
                 "strict": false, "parameters": shell},
                {"type": "custom", "name": "apply_patch", "description": "Edits files.",
                 "format": {"type": "grammar", "syntax": "lark", "definition": grammar}},
                {"type": "web_search"},
            ],
            "tool_choice": "auto", "parallel_tool_calls": false, "reasoning": {"effort": "low"},
            "include": ["reasoning.encrypted_content"], "prompt_cache_key": "c", "stream": true,
            "temperature": 0, "max_output_tokens": 300,
        });
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        body
    };
    let answer = client.post(PATH, &asked(json!({})));
    assert_eq!(answer.header("x-ignored-fields"), Some("tools.web_search"));
    Grammar::read(&answer.named());
    let named = json!({"tool_choice": {"type": "custom", "name": "apply_patch"}});
    let last = Grammar::read(&client.post(PATH, &asked(named)).named());
    let [item] = last["output"].as_array().unwrap().as_slice() else { panic!("{last}") };
    assert_eq!((&item["type"], &item["name"]), (&json!("custom_tool_call"), &json!("apply_patch")));
    let input = item["input"].as_str().unwrap();
    let lines: Vec<&str> = input.lines().collect();
    assert_eq!(lines[0], "*** Begin Patch", "{input}");
    assert!(lines[1].starts_with("*** Add File: ") || lines[1].starts_with("*** Delete File: "));
    if item["status"] == "completed" {
        assert_eq!(lines.last(), Some(&"*** End Patch"), "{input}");
    }
    // A call that is cut shows what there is of its input, and nothing of how it is written.
    let cut = asked(json!({"max_output_tokens": 24, "stream": false,
        "tool_choice": {"type": "custom", "name": "apply_patch"}}));
    let cut = client.post(PATH, &cut).good();
    assert_eq!(cut["status"], "incomplete");
    for item in cut["output"].as_array().unwrap() {
        match item["type"].as_str().unwrap() {
            "message" => assert_eq!(item["content"][0]["text"], ""),
            _ => assert!(input.starts_with(item["input"].as_str().unwrap()), "{item}"),
        }
    }
}

#[test]
fn reasoning_is_an_item_of_its_own() {
    let mut parts = demo(8);
    parts.template = Some(pagella_text::ChatTemplate::builtin("qwq").unwrap());
    let server = TestServer::start(settings(), keys(), Some(parts));
    let client = server.client(API);
    let extra = json!({"reasoning": {"effort": "low", "max_tokens": 6}, "max_output_tokens": 40, "top_logprobs": 1});
    let whole = client.post(PATH, &body(extra.clone())).good();
    let (thought, said) = (&whole["output"][0], &whole["output"][1]);
    assert_eq!((&thought["type"], &said["type"]), (&json!("reasoning"), &json!("message")));
    assert_eq!(thought["content"][0]["type"], "reasoning_text");
    assert!(!thought["content"][0]["text"].as_str().unwrap().is_empty());
    assert!(whole["usage"]["output_tokens_details"]["reasoning_tokens"].as_u64().unwrap() >= 6);
    // Only what is said has log-probabilities.
    let logprobs = said["content"][0]["logprobs"].as_array().unwrap();
    let tokens: String = logprobs.iter().map(|token| token["token"].as_str().unwrap()).collect();
    assert!(tokens.contains(text(&whole).trim()), "{tokens:?} {:?}", text(&whole));
    let mut streamed = body(extra);
    streamed["stream"] = true.into();
    let last = Grammar::read(&client.post(PATH, &streamed).named());
    assert_eq!(comparable(last), comparable(whole.clone()));
    let next = json!({"previous_response_id": whole["id"], "input": "So?"});
    client.post(PATH, &body(next)).good();
}
