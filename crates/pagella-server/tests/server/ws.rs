//! ExLlamaV2's actions over a WebSocket, by a client that writes its frames itself.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use pagella_server::settings::ApiServer;
use pagella_server::{Keys, Settings};
use serde_json::{Map, Value, json};

use crate::support::{ADMIN, API, Client, OTHER, TestServer, demo, keys, settings, wait_for};

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const STALLS: &str = "pagella_stream_stalls_total";
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

fn with_ws() -> Settings {
    let mut settings = settings();
    settings.network.api_servers.push(ApiServer::Ws);
    settings
}

fn server() -> TestServer {
    TestServer::start(with_ws(), keys(), Some(demo(256)))
}

fn greeting(client: &Client) -> Client {
    client
        .clone()
        .with("upgrade", "websocket")
        .with("sec-websocket-version", "13")
        .with("sec-websocket-key", KEY)
}

/// A WebSocket, seen from the client.
pub struct Ws {
    reader: BufReader<TcpStream>,
}

/// What a socket says: a message, or why it was closed.
#[derive(Debug, PartialEq)]
enum Said {
    Message(Value),
    Pong(Vec<u8>),
    Closed(Option<u16>),
}

impl Ws {
    pub fn open(client: &Client) -> Self {
        let client = greeting(client);
        let mut head = format!("GET /ws HTTP/1.1\r\nhost: {}\r\n", client.address);
        head.push_str("connection: keep-alive, Upgrade\r\n");
        for (name, value) in &client.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let mut socket = TcpStream::connect(client.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket.write_all(head.as_bytes()).unwrap();
        let mut reader = BufReader::new(socket);
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            assert!(reader.read_line(&mut line).unwrap() > 0, "{lines:?}");
            if line == "\r\n" {
                break;
            }
            lines.push(line.trim_end().to_ascii_lowercase());
        }
        assert!(lines[0].starts_with("http/1.1 101"), "{lines:?}");
        let accept = "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=";
        assert!(lines.iter().any(|line| line == accept), "{lines:?}");
        Ws { reader }
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).unwrap();
    }

    fn frame(&mut self, kind: u8, payload: &[u8]) {
        let mut frame = vec![0x80 | kind];
        match payload.len() {
            n @ 0..126 => frame.push(0x80 | n as u8),
            n @ 126..65536 => {
                frame.push(0x80 | 126);
                frame.extend((n as u16).to_be_bytes());
            }
            n => {
                frame.push(0x80 | 127);
                frame.extend((n as u64).to_be_bytes());
            }
        }
        let mask = [7, 1, 90, 33];
        frame.extend(mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.raw(&frame);
    }

    fn send(&mut self, message: &Value) {
        self.frame(TEXT, message.to_string().as_bytes());
    }

    fn next(&mut self) -> Said {
        loop {
            let mut head = [0; 2];
            if self.reader.read_exact(&mut head).is_err() {
                return Said::Closed(None);
            }
            let mut size = u64::from(head[1]);
            assert!(head[0] & 0x80 != 0 && size < 128, "a server's frames are whole and unmasked");
            if size >= 126 {
                let mut bytes = [0; 8];
                let n = if size == 126 { 2 } else { 8 };
                self.reader.read_exact(&mut bytes[8 - n..]).unwrap();
                size = u64::from_be_bytes(bytes);
            }
            let mut payload = vec![0; size as usize];
            self.reader.read_exact(&mut payload).unwrap();
            match head[0] & 15 {
                TEXT => return Said::Message(serde_json::from_slice(&payload).unwrap()),
                PONG => return Said::Pong(payload),
                CLOSE => {
                    let code = payload.get(..2).map(|two| u16::from_be_bytes([two[0], two[1]]));
                    return Said::Closed(code);
                }
                PING => {}
                other => panic!("a frame of kind {other}"),
            }
        }
    }

    fn message(&mut self) -> Value {
        match self.next() {
            Said::Message(message) => message,
            other => panic!("{other:?}"),
        }
    }

    pub fn ask(&mut self, message: &Value) -> Value {
        self.send(message);
        self.message()
    }

    /// The code of an error that answers a message.
    fn refusal(&mut self, message: &Value) -> (String, Option<String>) {
        let answer = self.ask(message);
        assert_eq!(answer["response_type"], "error", "{answer}");
        let param = answer["error"]["param"].as_str().map(str::to_owned);
        (answer["error"]["code"].as_str().unwrap().to_owned(), param)
    }

    /// Reads to the last part of the answer to a message.
    fn full(&mut self, request_id: &str) -> (String, Value) {
        let mut chunks = String::new();
        loop {
            let message = self.message();
            assert_eq!(message["request_id"], request_id, "{message}");
            match message["response_type"].as_str() {
                Some("chunk") => chunks.push_str(message["chunk"].as_str().unwrap()),
                Some("full") => return (chunks, message),
                _ => panic!("{message}"),
            }
        }
    }
}

fn infer(id: &str, extra: Value) -> Value {
    let mut body = Map::from_iter([
        ("action".to_owned(), json!("infer")),
        ("request_id".to_owned(), json!(id)),
        ("text".to_owned(), json!("CSS is")),
        ("max_new_tokens".to_owned(), json!(12)),
        ("temperature".to_owned(), json!(0)),
        ("stream".to_owned(), json!(false)),
    ]);
    body.extend(extra.as_object().unwrap().clone());
    Value::Object(body)
}

/// One that still runs while a test does something.
fn long(id: &str) -> Value {
    infer(id, json!({"max_new_tokens": 1500, "ban_eos_token": true, "stream": true}))
}

/// What completions say to the same.
fn completion(client: &Client, prompt: &str, tokens: usize) -> String {
    let body = json!({
        "prompt": prompt, "max_tokens": tokens, "temperature": 0, "top_p": 0.8, "top_k": 100,
        "repetition_penalty": 1.05,
    });
    let answer = client.post("/v1/completions", &body).good();
    answer["choices"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn names_come_back_and_text_is_counted_and_trimmed() {
    let server = server();
    let client = server.client(API);
    let mut ws = Ws::open(&client);
    let echo = json!({"action": "echo", "request_id": "r", "response_id": 7});
    assert_eq!(ws.ask(&echo), echo);
    let text = "An array is a list of values";
    let encoded = client.post("/v1/token/encode", &json!({"text": text, "add_bos_token": false}));
    let encoded = encoded.good();
    let n = encoded["length"].as_u64().unwrap();
    let counted = ws.ask(&json!({"action": "estimate_token", "text": text, "request_id": "c"}));
    let expected = json!({"action": "estimate_token", "request_id": "c", "num_tokens": n});
    assert_eq!(counted, expected);
    let last = &encoded["tokens"].as_array().unwrap()[n as usize - 3..];
    let decoded = client.post("/v1/token/decode", &json!({"tokens": last})).good();
    let mut trim = |length: u64| {
        let message = json!({"action": "lefttrim_token", "text": text, "trimmed_length": length});
        ws.ask(&message)["trimmed_text"].clone()
    };
    assert_eq!(trim(3), decoded["text"]);
    assert_eq!((trim(n), trim(1000), trim(0)), (json!(text), json!(text), json!("")));
    let info = client.get("/.well-known/serviceinfo").good();
    assert_eq!(info["api"]["exllamav2"]["relative_url"], "/ws");
}

#[test]
fn answers_are_those_of_completions_whole_and_in_pieces() {
    let server = server();
    let client = server.client(API);
    let expected = completion(&client, "CSS is", 12);
    let mut ws = Ws::open(&client);
    let whole = ws.ask(&infer("a", json!({"tag": {"k": 1}, "response_id": "b"})));
    let same = json!({
        "action": "infer", "request_id": "a", "response_id": "b", "tag": {"k": 1},
        "response_type": "full", "util_text": "CSS is", "response": expected,
        "stop_reason": "num_tokens",
    });
    assert_eq!(whole, same);
    ws.send(&infer("s", json!({"stream": true})));
    let (chunks, full) = ws.full("s");
    assert_eq!((chunks.as_str(), &full["response"]), (expected.as_str(), &json!(expected)));
    ws.send(&infer("f", json!({"stream": true, "stream_full": true})));
    let mut so_far = String::new();
    loop {
        let message = ws.message();
        if message["response_type"] == "full" {
            break;
        }
        so_far.push_str(message["chunk"].as_str().unwrap());
        assert_eq!(message["response"], so_far.as_str());
        assert_eq!(message["util_text"], "CSS is");
    }
    assert_eq!(so_far, expected);
    // A stop condition ends it, as text or as id.
    let word = expected.split_whitespace().nth(1).unwrap();
    let ended = ws.ask(&infer("e", json!({"stop_conditions": word})));
    assert_eq!(ended["stop_reason"], "eos");
    assert_eq!(ended["response"], expected.split(word).next().unwrap());
    let tokens = json!({"text": expected, "add_bos_token": false});
    let first = client.post("/v1/token/encode", &tokens).good()["tokens"][0].clone();
    let ended = ws.ask(&infer("e", json!({"stop_conditions": [first]})));
    assert_eq!((&ended["stop_reason"], &ended["response"]), (&json!("eos"), &json!("")));
    let banned = ws.ask(&infer("n", json!({"bann_bann": [first]})));
    assert_ne!(banned["response"], json!(expected));
    server.wait_idle();
}

#[test]
fn several_run_at_once_and_say_what_each_says_alone() {
    let server = server();
    let client = server.client(API);
    let mut ws = Ws::open(&client);
    ws.send(&long("slow"));
    ws.message();
    let prompts = ["CSS is", "An array is", "The `map()` method"];
    for prompt in prompts {
        ws.send(&infer(prompt, json!({"text": prompt, "max_new_tokens": 20})));
    }
    let mut seen = Map::new();
    while seen.len() < prompts.len() {
        let message = ws.message();
        let id = message["request_id"].as_str().unwrap().to_owned();
        if message["response_type"] == "full" {
            assert_ne!(id, "slow", "the others ended while it ran");
            seen.insert(id, message["response"].clone());
        }
    }
    for prompt in prompts {
        assert_eq!(seen[prompt], completion(&client, prompt, 20).as_str(), "{prompt}");
    }
}

#[test]
fn stop_ends_what_it_names_and_nothing_of_others() {
    let server = server();
    let (alice, bob) = (server.client(API), server.client(OTHER));
    let (mut one, mut two, mut other) = (Ws::open(&alice), Ws::open(&alice), Ws::open(&bob));
    let begin = |ws: &mut Ws, id: &str| {
        ws.send(&long(id));
        assert_eq!(ws.message()["response_type"], "chunk");
    };
    for (ws, id) in [(&mut one, "a"), (&mut two, "b"), (&mut other, "c")] {
        begin(ws, id);
    }
    one.send(&long("z"));
    wait_for("four jobs", || server.stats().queue.active == 4);
    let ended = |ws: &mut Ws| loop {
        let message = ws.message();
        if message["response_type"] == "full" {
            assert_eq!(message["stop_reason"], "interrupted");
            return message["request_id"].as_str().unwrap().to_owned();
        }
    };
    one.send(&json!({"action": "stop", "request_id": "z"}));
    assert_eq!(ended(&mut one), "z");
    wait_for("three jobs", || server.stats().queue.active == 3);
    one.send(&json!({"action": "stop"}));
    assert_eq!(ended(&mut one), "a");
    wait_for("two jobs", || server.stats().queue.active == 2);
    // Everything of the key, on whichever socket.
    one.send(&json!({"action": "stop", "all": true}));
    assert_eq!(ended(&mut two), "b");
    wait_for("one job", || server.stats().queue.active == 1);
    let mut root = Ws::open(&server.client(ADMIN));
    root.send(&json!({"action": "stop", "all": true}));
    assert_eq!(ended(&mut other), "c");
    server.wait_idle();
}

#[test]
fn whoever_leaves_costs_nothing() {
    let server = server();
    let client = server.client(API);
    for polite in [true, false] {
        let mut ws = Ws::open(&client);
        ws.send(&long("a"));
        ws.message();
        ws.send(&long("b"));
        wait_for("both jobs", || server.stats().queue.active == 2);
        if polite {
            ws.frame(CLOSE, &1000_u16.to_be_bytes());
            while ws.next() != Said::Closed(Some(1000)) {}
        } else {
            ws.reader.get_ref().shutdown(Shutdown::Both).unwrap();
        }
        server.wait_idle();
    }
}

#[test]
fn a_long_text_loses_its_beginning() {
    let server = server();
    let client = server.client(API);
    let context = client.get("/v1/model").good()["max_model_len"].as_u64().unwrap();
    let mut ws = Ws::open(&client);
    let count = |ws: &mut Ws, text: &str| {
        ws.ask(&json!({"action": "estimate_token", "text": text}))["num_tokens"].as_u64().unwrap()
    };
    let text = format!("{} The end", " word".repeat(context as usize));
    let cut = ws.ask(&infer("c", json!({"text": text, "max_new_tokens": 10})));
    let used = cut["util_text"].as_str().unwrap().to_owned();
    assert!(used.ends_with(" word The end") && used.len() < text.len(), "{}", used.len());
    assert_eq!(count(&mut ws, &used), context - 10);
    let begun = json!({"text": text, "max_new_tokens": 10, "customBos": "Begin:"});
    let begun = ws.ask(&infer("d", begun));
    let used = begun["util_text"].as_str().unwrap().to_owned();
    assert!(used.starts_with("Begin:") && used.ends_with("The end"), "{}", &used[..40]);
    let too_many = ws.refusal(&infer("e", json!({ "max_new_tokens": context })));
    assert_eq!(too_many, ("out_of_range".to_owned(), Some("max_new_tokens".to_owned())));
    server.wait_idle();
}

#[test]
fn what_cannot_be_done_is_refused_and_the_socket_goes_on() {
    let server = server();
    let mut ws = Ws::open(&server.client(API));
    let mut refused = |message: Value| ws.refusal(&message);
    let at = |code: &str, param: &str| (code.to_owned(), Some(param.to_owned()));
    assert_eq!(refused(json!({})), at("missing_parameter", "action"));
    assert_eq!(refused(json!({"action": "dance"})), at("unsupported_value", "action"));
    assert_eq!(refused(json!([1])).0, "invalid_type");
    assert_eq!(refused(json!({"action": "estimate_token"})), at("missing_parameter", "text"));
    let half = json!({"action": "infer", "text": "x"});
    assert_eq!(refused(half), at("missing_parameter", "max_new_tokens"));
    assert_eq!(refused(infer("n", json!({"n": 2}))), at("unsupported_parameter", "n"));
    let ids = json!({"return_token_ids": true});
    assert_eq!(refused(infer("i", ids)), at("unsupported_parameter", "return_token_ids"));
    assert_eq!(refused(infer("t", json!({"top_p": 2}))), at("out_of_range", "top_p"));
    assert_eq!(refused(infer("g", json!({"tag": "x".repeat(2000)}))), at("out_of_range", "tag"));
    ws.frame(TEXT, b"{\"action\": ");
    assert_eq!(ws.message()["error"]["code"], "invalid_json");
    let refused = ws.ask(&infer("who", json!({"top_k": "many"})));
    assert_eq!((&refused["request_id"], &refused["action"]), (&json!("who"), &json!("infer")));
    let ignored = ws.ask(&infer("u", json!({"unheard_of": 1})));
    assert_eq!(ignored["ignored_fields"], json!(["unheard_of"]));
    ws.frame(PING, b"hello");
    assert_eq!(ws.next(), Said::Pong(b"hello".to_vec()));
    assert_eq!(ws.ask(&json!({"action": "echo"})), json!({"action": "echo"}));
    server.wait_idle();
}

#[test]
fn a_key_comes_in_a_header_or_first() {
    let server = server();
    let mut ws = Ws::open(&server.stranger().with("authorization", &format!("Bearer {API}")));
    assert_eq!(ws.ask(&json!({"action": "echo"})), json!({"action": "echo"}));
    let mut ws = Ws::open(&server.stranger());
    ws.send(&json!({ "auth": API }));
    assert_eq!(ws.ask(&infer("a", json!({})))["stop_reason"], "num_tokens");
    // A wrong key, no key, a large message without one.
    for first in [
        json!({"auth": "wrong"}),
        json!({"auth": 7}),
        json!({"action": "echo"}),
        json!({"auth": "x".repeat(100_000)}),
    ] {
        let mut ws = Ws::open(&server.stranger());
        ws.send(&first);
        assert_eq!(ws.next(), Said::Closed(Some(1008)), "{first:.40}");
    }
    let mut silent = Ws::open(&server.stranger());
    assert_eq!(silent.next(), Said::Closed(Some(1008)));
    let wrong = greeting(&server.client("wrong-secret"));
    assert_eq!(wrong.with("connection", "upgrade").get("/ws").status, 401);
    let mut open = with_ws();
    open.network.disable_auth = true;
    let server = TestServer::start(open, Keys::none(), None);
    let mut ws = Ws::open(&server.stranger());
    assert_eq!(ws.ask(&json!({"action": "echo"})), json!({"action": "echo"}));
    let page = greeting(&server.stranger()).with("origin", "http://evil.example");
    assert_eq!(page.get("/ws").refusal().1, "origin_not_allowed");
    let rebound = greeting(&server.stranger()).with("host", "evil.example");
    assert_eq!(rebound.get("/ws").refusal().1, "host_not_allowed");
}

#[test]
fn frames_that_are_wrong_close_the_socket() {
    let mut small = with_ws();
    small.limits.generation_body_bytes = 100_000;
    let server = TestServer::start(small, keys(), Some(demo(4)));
    let closed = |send: &dyn Fn(&mut Ws)| {
        let mut ws = Ws::open(&server.client(API));
        send(&mut ws);
        ws.next()
    };
    let large = json!({"action": "estimate_token", "text": "x".repeat(200_000)}).to_string();
    assert_eq!(closed(&|ws| ws.frame(TEXT, large.as_bytes())), Said::Closed(Some(1009)));
    assert_eq!(closed(&|ws| ws.frame(BINARY, b"{}")), Said::Closed(Some(1003)));
    assert_eq!(closed(&|ws| ws.frame(TEXT, b"\xff\xfe")), Said::Closed(Some(1007)));
    // A reserved bit, a reserved kind, no mask, an announced size that nothing has.
    for bytes in [&[0xf1, 0x80, 0, 0, 0, 0][..], &[0x83, 0x80, 0, 0, 0, 0], &[0x81, 2, b'{', b'}']]
    {
        assert_eq!(closed(&|ws| ws.raw(bytes)), Said::Closed(Some(1002)), "{bytes:?}");
    }
    let vast = [&[0x81, 0xff][..], &u64::MAX.to_be_bytes(), &[0; 4]].concat();
    let Said::Closed(Some(1002 | 1009)) = closed(&|ws| ws.raw(&vast)) else { panic!() };
    server.wait_idle();
    assert_eq!(server.client(API).get("/v1/models").status, 200);
}

#[test]
fn there_is_none_unless_it_was_chosen_and_only_for_sockets() {
    let off = TestServer::start(settings(), keys(), None);
    let ask = |client: Client| greeting(&client).get("/ws");
    assert_eq!(ask(off.client(API)).refusal().1, "feature_disabled");
    assert_eq!(ask(off.stranger()).refusal().1, "missing_api_key");
    let on = TestServer::start(with_ws(), keys(), None);
    let plain = on.client(API).get("/ws");
    assert_eq!(plain.refusal(), (426, "upgrade_required".to_owned(), None));
    assert_eq!(plain.header("upgrade"), Some("websocket"));
    assert_eq!(on.stranger().get("/ws").refusal().1, "missing_api_key");
    let mut ws = Ws::open(&on.client(API));
    assert_eq!(ws.refusal(&infer("a", json!({}))).0, "no_model_loaded");
}

#[test]
fn limits_hold_and_the_end_is_told() {
    let mut small = with_ws();
    small.limits.max_tokens = 5;
    let server = TestServer::start(small, keys(), Some(demo(4)));
    let mut ws = Ws::open(&server.client(API));
    ws.send(&infer("a", json!({"max_new_tokens": 100, "ban_eos_token": true})));
    let five = completion(&server.client(API), "CSS is", 5);
    assert_eq!(ws.message()["response"], five.as_str());
    let mut waiting = Ws::open(&server.stranger());
    server.stop();
    assert_eq!(ws.next(), Said::Closed(Some(1001)));
    assert_eq!(waiting.next(), Said::Closed(Some(1001)));
}

#[test]
fn what_runs_at_the_end_is_finished_first() {
    let server = server();
    let mut ws = Ws::open(&server.client(API));
    ws.send(&infer("a", json!({"max_new_tokens": 60, "ban_eos_token": true, "stream": true})));
    ws.message();
    server.stop();
    let (_, full) = ws.full("a");
    assert_eq!(full["stop_reason"], "num_tokens");
    assert_eq!(ws.next(), Said::Closed(Some(1001)));
}

#[test]
fn a_client_that_does_not_read_is_given_up() {
    let mut impatient = with_ws();
    impatient.network.stall_timeout = Duration::from_millis(300);
    let server = TestServer::start(impatient, keys(), Some(demo(64)));
    let mut ws = Ws::open(&server.client(API));
    // Much more than sockets hold: every part repeats the text.
    let text = " word".repeat(500);
    for id in ["a", "b", "c", "d"] {
        let mut message = long(id);
        message["text"] = json!(text);
        message["stream_full"] = json!(true);
        ws.send(&message);
    }
    let stalls = || {
        let page = server.client(ADMIN).get("/metrics");
        let line = page.text().lines().find(|line| line.starts_with(STALLS)).unwrap().to_owned();
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    wait_for("the stall", || stalls() > 0.0);
    server.wait_idle();
}

#[test]
fn every_message_leaves_a_line_and_no_key() {
    let dir = tempfile::tempdir().unwrap();
    let mut logging = with_ws();
    logging.logging.json = true;
    logging.logging.log_requests = true;
    logging.logging.file = Some(dir.path().join("log"));
    let server = TestServer::start(logging, keys(), Some(demo(4)));
    let log = || std::fs::read_to_string(dir.path().join("log")).unwrap_or_default();
    let lines = |status: u16| {
        let lines = log();
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let ours = |line: &Value| line["route"] == "/ws" && line["status"] == status;
        lines.filter(|line| line["event"] == "request" && ours(line)).collect::<Vec<_>>()
    };
    let mut ws = Ws::open(&server.stranger());
    ws.send(&json!({ "auth": API }));
    ws.ask(&infer("a", json!({})));
    wait_for("the line of an answer", || lines(200).len() == 1);
    let line = &lines(200)[0];
    assert_eq!((&line["key"], &line["completion"]), (&json!("alice"), &json!(12)), "{line}");
    ws.refusal(&infer("a", json!({"top_p": 7})));
    wait_for("the line of a refusal", || lines(400).len() == 1);
    ws.send(&long("b"));
    ws.message();
    drop(ws);
    wait_for("the line of who left", || lines(499).len() == 1);
    assert_eq!(lines(101).len(), 1);
    assert!(log().contains("CSS is") && !log().contains(API), "{}", log());
}
