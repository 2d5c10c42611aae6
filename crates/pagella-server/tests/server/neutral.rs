//! A value that asks for nothing is the same as its absence: every parameter of the engine's table, in
//! every dialect.

use pagella_engine::params::{self, Param, ParamKind};
use pagella_server::settings::ApiServer;
use serde_json::{Map, Value, json};

use crate::support::{API, Client, TestServer, demo, keys, settings};
use crate::ws::Ws;

/// What the bodies of these tests set themselves.
const FIXED: [&str; 3] = ["temperature", "seed", "max_tokens"];

/// One way to ask for text.
struct Dialect {
    path: &'static str,
    body: Value,
    /// Where the text stands in the answer.
    text: &'static str,
    /// `top_p: 0` leaves one candidate here, as in OpenAI's interface.
    top_p_zero_is_one: bool,
}

fn dialects() -> Vec<Dialect> {
    let messages = json!([{"role": "user", "content": "What is CSS?"}]);
    let ways = [
        ("/v1/completions", json!({"prompt": "CSS is"}), "/choices/0/text", false),
        (
            "/v1/chat/completions",
            json!({ "messages": messages }),
            "/choices/0/message/content",
            true,
        ),
        ("/v1/responses", json!({"input": "What is CSS?"}), "/output/0/content/0/text", true),
        ("/v1/messages", json!({ "messages": messages }), "/content/0/text", true),
        ("/api/v1/generate", json!({"prompt": "CSS is"}), "/results/0/text", false),
    ];
    let dialect = |(path, mut body, text, top_p_zero_is_one): (_, Value, _, _)| {
        body["seed"] = 11.into();
        body["temperature"] = 0.9.into();
        body["max_tokens"] = 5.into();
        Dialect { path, body, text, top_p_zero_is_one }
    };
    ways.into_iter().map(dialect).collect()
}

fn server() -> TestServer {
    let mut settings = settings();
    settings.network.api_servers.extend([ApiServer::Kobold, ApiServer::Ws]);
    TestServer::start(settings, keys(), Some(demo(16)))
}

fn text(client: &Client, dialect: &Dialect, extra: &Map<String, Value>) -> String {
    let mut body = dialect.body.clone();
    body.as_object_mut().unwrap().extend(extra.clone());
    let answer = client.post(dialect.path, &body);
    assert_eq!(answer.status, 200, "{} {extra:?}: {}", dialect.path, answer.text());
    assert_eq!(answer.header("x-ignored-fields"), None, "{} {extra:?}", dialect.path);
    let answer = answer.json();
    let text = answer.pointer(dialect.text).and_then(Value::as_str);
    text.unwrap_or_else(|| panic!("{}: {answer}", dialect.path)).to_owned()
}

/// Every value by which a parameter asks for nothing.
fn neutral(param: &Param) -> Vec<Value> {
    let whole = matches!(param.kind, ParamKind::Integer(..));
    let number = |n: &f64| if whole { json!(*n as i64) } else { json!(n) };
    let mut values: Vec<Value> = match param.kind {
        ParamKind::Flag => vec![json!(param.off.contains(&1.0))],
        ParamKind::Switch => vec![json!(false), json!(0)],
        ParamKind::Choice(words) => vec![json!(words[0]), json!("")],
        ParamKind::Texts | ParamKind::Ids => vec![json!([]), json!("")],
        ParamKind::Json => vec![json!({}), json!([]), json!("")],
        ParamKind::Code => vec![json!("")],
        _ => param.off.iter().map(number).collect(),
    };
    if param.negative_is_off {
        values.extend([json!(-0.01), json!(-1)]);
    }
    values.push(Value::Null);
    values
}

fn spellings(param: &Param) -> Vec<&'static str> {
    let own = (param.wire() != param.name).then_some(param.name);
    [param.wire()].into_iter().chain(own).chain(param.aliases.iter().copied()).collect()
}

fn walked() -> impl Iterator<Item = &'static Param> {
    params::all().filter(|param| !FIXED.contains(&param.name))
}

#[test]
fn a_neutral_value_of_any_parameter_answers_as_none_does() {
    let server = server();
    let client = server.client(API);
    for (place, dialect) in dialects().iter().enumerate() {
        let plain = text(&client, dialect, &Map::new());
        for (row, param) in walked().enumerate() {
            let names = spellings(param);
            for (idx, value) in neutral(param).into_iter().enumerate() {
                if dialect.top_p_zero_is_one && param.name == "top_p" && value == json!(0.0) {
                    continue;
                }
                // Every dialect has some of the pairs; together they have them all.
                if (row + idx) % 5 != place {
                    continue;
                }
                let name = names[(idx + place) % names.len()];
                let extra = Map::from_iter([(name.to_owned(), value)]);
                assert_eq!(text(&client, dialect, &extra), plain, "{} {extra:?}", dialect.path);
            }
        }
    }
    server.wait_idle();
}

#[test]
fn all_neutral_values_together_answer_as_none_do() {
    let server = server();
    let client = server.client(API);
    let longest = walked().map(|param| spellings(param).len()).max().unwrap();
    // First all first names, then all second ones, …, then everything at once.
    let mut bodies = vec![Map::new(); longest + 1];
    for param in walked() {
        let value = neutral(param).swap_remove(0);
        for (idx, name) in spellings(param).into_iter().enumerate() {
            bodies[idx].insert(name.to_owned(), value.clone());
            bodies[longest].insert(name.to_owned(), value.clone());
        }
    }
    for dialect in dialects() {
        let plain = text(&client, &dialect, &Map::new());
        for body in &bodies {
            assert_eq!(text(&client, &dialect, body), plain, "{} {body:?}", dialect.path);
        }
    }
    let mut ws = Ws::open(&client);
    let mut infer = |extra: &Map<String, Value>| {
        let mut body = json!({"action": "infer", "request_id": "1", "text": "CSS is", "seed": 11,
            "max_new_tokens": 5, "temperature": 0.9, "stream": false, "top_p": 1, "top_k": 0,
            "repetition_penalty": 1});
        body.as_object_mut().unwrap().extend(extra.clone());
        ws.ask(&body)
    };
    let plain = infer(&Map::new());
    assert!(plain["response"].is_string(), "{plain}");
    for body in &bodies {
        assert_eq!(infer(body)["response"], plain["response"], "{body:?}");
    }
    server.wait_idle();
}

#[test]
fn a_neutral_value_gives_way_to_another_spelling_that_asks_for_something() {
    let server = TestServer::demo();
    let client = server.client(API);
    let text = |extra: Value| {
        let mut body = json!({"prompt": "CSS is", "max_tokens": 6, "temperature": 0.9, "seed": 3});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        client.post("/v1/completions", &body).good()["choices"][0]["text"].clone()
    };
    let same = [
        (json!({"typical": 1, "typical_p": 0.2}), json!({"typical": 0.2})),
        (json!({"typical_p": 0.2, "typ_p": 0}), json!({"typical": 0.2})),
        (json!({"stop": [], "stop_sequence": ["e"]}), json!({"stop": ["e"]})),
        (json!({"ban_eos_token": true, "ignore_eos": false}), json!({"ban_eos_token": true})),
        (
            json!({"rep_pen": 5, "rep_pen_range": 0, "penalty_range": 2, "repeat_last_n": -1}),
            json!({"rep_pen": 5, "penalty_range": 2}),
        ),
        (json!({"cfg_scale": 1, "negative_prompt": "x"}), json!({})),
        (json!({"guidance_scale": 1.0, "negative_prompt": ""}), json!({})),
        (json!({"stop": ["", "e"]}), json!({"stop": "e"})),
    ];
    for (given, plain) in same {
        assert_eq!(text(given.clone()), text(plain), "{given}");
    }
    let both = json!({"prompt": "x", "rep_pen": 2, "rep_pen_range": 3, "penalty_range": 2});
    let refused = client.post("/v1/completions", &both).refusal();
    assert_eq!(refused.1, "conflicting_parameters");
}

#[test]
fn what_has_no_effect_is_named_and_refused_where_that_was_asked_for() {
    let server = TestServer::demo();
    let client = server.client(API);
    let slope = || json!(2.5);
    for (path, name, value) in [
        ("/v1/completions", "rep_pen_slope", slope()),
        ("/v1/chat/completions", "rep_pen_slope", slope()),
        ("/v1/responses", "rep_pen_slope", slope()),
    ] {
        let mut body = json!({"prompt": "x", "input": "x", "max_tokens": 1, name: value,
            "messages": [{"role": "user", "content": "x"}]});
        let others = ["prompt", "input", "messages"].into_iter().filter(|field| {
            let own = [("/v1/completions", "prompt"), ("/v1/responses", "input")];
            let is_own = own.contains(&(path, *field));
            let is_talk = path.contains("chat") && *field == "messages";
            !is_own && !is_talk
        });
        for other in others.collect::<Vec<_>>() {
            body.as_object_mut().unwrap().remove(other);
        }
        let answer = client.post(path, &body);
        assert_eq!((answer.status, answer.header("x-ignored-fields")), (200, Some(name)), "{path}");
        let strict = client.clone().with("x-strict", "1").post(path, &body).refusal();
        assert_eq!(strict, (400, "unsupported_parameter".into(), Some(name.into())), "{path}");
        for nothing in [json!(false), json!(null), json!(""), json!({})] {
            body[name] = nothing;
            let silent = client.clone().with("x-strict", "1").post(path, &body);
            assert_eq!((silent.status, silent.header("x-ignored-fields")), (200, None), "{body}");
        }
    }
}

#[test]
fn samplers_that_are_not_built_are_accepted_at_their_neutral_value_alone() {
    let server = TestServer::demo();
    let client = server.client(API);
    for (name, neutral, other) in [
        ("penalty_alpha", json!(0), json!(0.6)),
        ("num_beams", json!(1), json!(4)),
        ("use_beam_search", json!(false), json!(true)),
        ("encoder_repetition_penalty", json!(1.0), json!(1.2)),
    ] {
        let ask = |value: &Value| {
            client.post("/v1/completions", &json!({"prompt": "x", "max_tokens": 1, name: value}))
        };
        ask(&neutral).good();
        let expected = (400, "unsupported_parameter".to_owned(), Some(name.to_owned()));
        assert_eq!(ask(&other).refusal(), expected);
    }
}

#[test]
fn adaptive_sampling_and_what_only_the_command_line_had_reach_the_sampler() {
    let server = TestServer::demo();
    let client = server.client(API);
    let text = |extra: Value| {
        let mut body = json!({"prompt": "CSS is", "max_tokens": 24, "temperature": 1, "seed": 3});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        client.post("/v1/completions", &body).good()["choices"][0]["text"].clone()
    };
    let plain = text(json!({}));
    for extra in [
        json!({"adaptive_target": 0.05}),
        json!({"epsilon_cutoff": 0.4}),
        json!({"eta_cutoff": 0.9}),
        json!({"no_repeat_ngram_size": 1}),
        json!({"top_p": 0.01, "min_keep": 2}),
    ] {
        assert_ne!(text(extra.clone()), plain, "{extra}");
    }
    assert_ne!(text(json!({"top_k": 1, "min_keep": 40})), text(json!({"top_k": 1})));
}

#[test]
fn an_empty_value_of_another_type_is_no_value_either() {
    let server = server();
    let client = server.client(API);
    let fields = [
        (
            "/v1/chat/completions",
            vec!["chat_template_kwargs", "stream_options", "reasoning", "tools"],
        ),
        ("/v1/responses", vec!["text", "tools", "reasoning", "include"]),
        ("/v1/messages", vec!["thinking", "output_config", "output_format", "tools", "system"]),
        ("/v1/completions", vec!["structured_outputs", "grammar_string", "suffix"]),
        ("/api/v1/generate", vec!["memory", "negative_prompt", "sampler_order"]),
    ];
    for (path, names) in fields {
        let ways = dialects();
        let dialect = ways.iter().find(|dialect| dialect.path == path).unwrap();
        let expected = text(&client, dialect, &Map::new());
        for empty in [json!(""), json!([]), json!({}), json!(null)] {
            let extra = names.iter().map(|name| ((*name).to_owned(), empty.clone())).collect();
            assert_eq!(text(&client, dialect, &extra), expected, "{path} {empty}");
        }
    }
}

#[test]
fn spellings_of_a_dialect_and_of_all_routes_are_one_parameter() {
    let server = TestServer::demo();
    let client = server.client(API);
    let asked = |path: &str, body: Value| client.post(path, &body);
    // Of two spellings the one counts that asks for something; two that do must agree.
    let llama = |extra: Value| {
        let mut body = json!({"prompt": "CSS is", "n_predict": 5, "seed": 3});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        asked("/completion", body)
    };
    let expected = llama(json!({"temperature": 0.4})).good();
    for extra in [json!({"temp": 1.0, "temperature": 0.4}), json!({"temp": 0.4, "temperature": 1})]
    {
        assert_eq!(llama(extra.clone()).good()["content"], expected["content"], "{extra}");
    }
    let refused = llama(json!({"temp": 0.5, "temperature": 0.4}));
    assert_eq!(refused.refusal().1, "conflicting_parameters");
    let refused = llama(json!({"rep_pen_range": 5, "repeat_last_n": 6}));
    let refused = refused.text();
    assert!(refused.contains("rep_pen_range") && refused.contains("repeat_last_n"), "{refused}");
    // The length of a message, under any of its names.
    let messages = json!([{"role": "user", "content": "Hi"}]);
    for name in ["max_tokens", "max_completion_tokens", "max_new_tokens"] {
        let answer = asked("/v1/messages", json!({"messages": messages, name: 3})).good();
        assert_eq!(answer["usage"]["output_tokens"], 3, "{name}");
        let refused = asked("/v1/messages", json!({"messages": messages, name: -1}));
        assert_eq!(refused.status, 400, "{name}");
    }
    let options = json!({"num_predict": 3, "n_predict": -1, "seed": 1});
    let body = json!({"prompt": "CSS is", "raw": true, "stream": false, "options": options});
    assert_eq!(asked("/api/generate", body).good()["eval_count"], 3);
}
