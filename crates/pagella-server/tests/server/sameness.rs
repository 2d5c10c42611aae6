//! For random requests of every dialect: a stream says what the whole answer says, field by field, and
//! its events come in the order that the dialect has.

use serde_json::{Value, json};

use crate::support::{API, Answer, Client, TestServer};

/// Requests per dialect and number of choices.
const REQUESTS: u64 = 8;

/// A random number generator that gives the same numbers every time.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn pick(&mut self, values: &[Value]) -> Value {
        values[self.below(values.len() as u64) as usize].clone()
    }

    /// Settings that every dialect has.
    fn settings(&mut self) -> Value {
        let mut body = json!({
            "seed": self.below(1000),
            "temperature": self.pick(&[json!(0), json!(0.7), json!(1.3)]),
            "top_p": self.pick(&[json!(1.0), json!(0.8)]),
            "min_p": self.pick(&[json!(0.0), json!(0.1)]),
            "repetition_penalty": self.pick(&[json!(1.0), json!(1.2)]),
        });
        match self.below(4) {
            0 => body["regex_pattern"] = "[a-z]{2,9}( [a-z]{2,9}){2}".into(),
            1 => body["banned_strings"] = json!(["the", "is"]),
            _ => {}
        }
        body
    }
}

fn join(mut one: Value, other: Value) -> Value {
    one.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
    one
}

/// The whole answer and the stream of one request.
fn ask(client: &Client, path: &str, body: &Value) -> (Value, Answer) {
    let whole = client.post(path, &join(body.clone(), json!({"stream": false}))).good();
    (whole, client.post(path, &join(body.clone(), json!({"stream": true}))))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Chat and completions: pieces by choice, one last piece each, then the counts, then the mark.
fn check_choices(client: &Client, path: &str, body: &Value) {
    let body = join(body.clone(), json!({"stream_options": {"include_usage": true}}));
    let mut plain = body.clone();
    plain.as_object_mut().unwrap().remove("stream_options");
    let whole = client.post(path, &plain).good();
    let mut chunks = client.post(path, &join(body, json!({"stream": true}))).chunks();
    let last = chunks.pop().unwrap();
    assert_eq!(last["choices"], json!([]), "the counts come last");
    for count in ["prompt_tokens", "completion_tokens", "total_tokens"] {
        assert_eq!(last["usage"][count], whole["usage"][count], "{plain}");
    }
    for choice in whole["choices"].as_array().unwrap() {
        let pieces: Vec<&Value> = chunks
            .iter()
            .flat_map(|chunk| chunk["choices"].as_array().unwrap())
            .filter(|piece| piece["index"] == choice["index"])
            .collect();
        let (end, before) = pieces.split_last().unwrap();
        assert!(before.iter().all(|piece| piece["finish_reason"].is_null()), "one end: {plain}");
        assert_eq!(end["finish_reason"], choice["finish_reason"], "{plain}");
        let said = |piece: &&Value| {
            format!("{}{}", text(&piece["delta"]["content"]), text(&piece["text"]))
        };
        let expected = format!("{}{}", text(&choice["message"]["content"]), text(&choice["text"]));
        assert_eq!(pieces.iter().map(said).collect::<String>(), expected, "{plain}");
        for list in ["content", "tokens", "token_logprobs", "text_offset"] {
            let Some(wanted) = choice["logprobs"][list].as_array() else { continue };
            let pieces = pieces.iter().filter_map(|piece| piece["logprobs"][list].as_array());
            let found: Vec<Value> = pieces.flatten().cloned().collect();
            assert_eq!(&found, wanted, "{list}: {plain}");
        }
        let roles = pieces.iter().filter(|piece| piece["delta"]["role"].is_string()).count();
        assert_eq!(roles, usize::from(choice.get("message").is_some()), "the role is said once");
    }
}

#[test]
fn streams_say_what_whole_answers_say() {
    let server = TestServer::demo();
    let client = server.client(API);
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for n in [1, 3] {
        for _ in 0..REQUESTS {
            let shared =
                join(random.settings(), json!({"n": n, "max_tokens": 1 + random.below(12)}));
            let stop = random.pick(&[json!([]), json!(["e"]), json!(["a b", "\n"])]);
            let shared = join(shared, json!({ "stop": stop }));
            let logprobs = random.pick(&[json!(false), json!(true)]);
            let messages = json!([{"role": "user", "content": "What is an array?"}]);
            let chat = json!({"messages": messages, "logprobs": logprobs});
            check_choices(&client, "/v1/chat/completions", &join(shared.clone(), chat));
            let logprobs = random.pick(&[json!(null), json!(2)]);
            let completion = json!({"prompt": "CSS is", "logprobs": logprobs});
            check_choices(&client, "/v1/completions", &join(shared, completion));
        }
    }
    server.wait_idle();
}

#[test]
fn streams_of_responses_say_what_whole_ones_say() {
    let server = TestServer::demo();
    let client = server.client(API);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..REQUESTS {
        let own = json!({"input": "What is an array?", "max_output_tokens": 16 + random.below(9)});
        let body = join(random.settings(), own);
        let (whole, stream) = ask(&client, "/v1/responses", &body);
        let events = stream.named();
        let (mut said, mut open) = (String::new(), 0);
        let waited = usize::from(events.iter().any(|(name, _)| name == "response.queued"));
        for (place, (name, event)) in events.iter().enumerate() {
            assert_eq!(
                (event["type"].as_str().unwrap(), &event["sequence_number"]),
                (&**name, &json!(place))
            );
            match name.as_str() {
                "response.created" => assert_eq!(place, 0),
                "response.queued" => assert_eq!(place, 1),
                "response.in_progress" => assert_eq!(place, 1 + waited),
                "response.output_item.added" => open += 1,
                "response.output_item.done" => open -= 1,
                "response.output_text.delta" => {
                    assert_eq!(open, 1, "text belongs to an item");
                    said += text(&event["delta"]);
                }
                "response.completed" | "response.incomplete" => {
                    assert_eq!((place + 1, open), (events.len(), 0), "one end, at the end");
                    let last = &event["response"];
                    assert_eq!(last["status"], whole["status"], "{body}");
                    assert_eq!(last["usage"]["output_tokens"], whole["usage"]["output_tokens"]);
                }
                _ => assert!(name.starts_with("response."), "{name}"),
            }
        }
        let expected = &whole["output"][0]["content"][0]["text"];
        assert_eq!(said, text(expected), "{body}");
    }
    server.wait_idle();
}

#[test]
fn streams_of_messages_say_what_whole_ones_say() {
    let server = TestServer::demo();
    let client = server.client(API);
    let mut random = Random(0xd1b5_4a32_d192_ed03);
    for _ in 0..REQUESTS {
        let own = json!({"messages": [{"role": "user", "content": "What is an array?"}],
            "max_tokens": 1 + random.below(12)});
        let body = join(random.settings(), own);
        let (whole, stream) = ask(&client, "/v1/messages", &body);
        let events = stream.named();
        let mut names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
        names.retain(|name| *name != "ping");
        names.dedup();
        let grammar = [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ];
        let silent = whole["content"][0]["text"].as_str().is_none_or(str::is_empty);
        assert!(names == grammar || silent, "{body}: {names:?}");
        let said: String = events.iter().map(|(_, event)| text(&event["delta"]["text"])).collect();
        assert_eq!(said, text(&whole["content"][0]["text"]), "{body}");
        let (_, end) = events.iter().find(|(name, _)| name == "message_delta").unwrap();
        assert_eq!(end["delta"]["stop_reason"], whole["stop_reason"]);
        assert_eq!(end["usage"]["output_tokens"], whole["usage"]["output_tokens"]);
    }
    server.wait_idle();
}
