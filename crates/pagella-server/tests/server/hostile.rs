//! What clients can send to the parts behind the server (tokenizer, template, constraints, tools,
//! sampling) to hurt it: each is answered or refused, soon, and everyone else is served.

use std::time::{Duration, Instant};

use pagella_text::ChatTemplate;
use serde_json::{Value, json};

use crate::support::{API, OTHER, TestServer, demo, keys, settings};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

/// Others are served as ever.
fn check_served(server: &TestServer) {
    let body = json!({"prompt": "CSS is", "max_tokens": 2});
    server.client(OTHER).post(COMPLETIONS, &body).good();
    server.wait_idle();
}

fn chat(extra: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

/// A tenth of it: what is not linear takes hours all the same, and this is a debug build.
#[test]
fn ten_megabyte_single_class_run() {
    let server = TestServer::demo();
    for class in [" ", "a", "1", "語", "👍\u{200d}", "\n", "\u{301}", "."] {
        let prompt = class.repeat((1 << 20) / class.len());
        let refused = server.client(API).post(COMPLETIONS, &json!({"prompt": prompt})).refusal();
        assert_eq!((refused.0, refused.1.as_str()), (400, "context_length_exceeded"), "{class:?}");
    }
    check_served(&server);
}

#[test]
fn template_variables_cannot_shadow() {
    let server = TestServer::demo();
    for name in [
        "messages",
        "tools",
        "functions",
        "documents",
        "add_generation_prompt",
        "continue_final_message",
        "raise_exception",
        "strftime_now",
        "namespace",
        "bos_token",
        "eos_token",
        "pad_token",
        "chat_template",
        "tokenize",
        "range",
        "dict",
    ] {
        for field in ["template_vars", "chat_template_kwargs"] {
            let answer = server.client(API).post(CHAT, &chat(json!({field: {name: "x"}})));
            let (status, code, _) = answer.refusal();
            assert_eq!((status, code.as_str()), (400, "reserved_template_variable"), "{name}");
        }
    }
    server.client(API).post(CHAT, &chat(json!({"template_vars": {"mood": "x"}}))).good();
}

#[test]
fn template_time_bombs() {
    let big = "{% set a = 'x' * 30000000 %}{% set b = a ~ 'y' %}{% set c = a ~ 'z' %}";
    let slow = format!("{big}{}", "{% if b == c %}{% endif %}".repeat(9_000));
    for source in [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}".to_owned(),
        "{% set x = namespace(s='x') %}{% for i in range(99) %}{% set x.s = x.s ~ x.s %}{% endfor %}"
            .to_owned(),
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}".to_owned(),
        slow,
    ] {
        let mut parts = demo(8);
        parts.template = Some(ChatTemplate::from_source(&source).unwrap());
        let server = TestServer::start(settings(), keys(), Some(parts));
        std::thread::scope(|scope| {
            let begun = Instant::now();
            let bomb = scope.spawn(|| server.client(API).post(CHAT, &chat(json!({}))));
            // Templates are rendered beside everything else.
            for _ in 0..5 {
                assert_eq!(server.stranger().get("/health").status, 200);
            }
            let (status, code, _) = bomb.join().unwrap().refusal();
            assert_eq!((status, code.as_str()), (400, "template_error"), "{}", &source[..40]);
            assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        });
        check_served(&server);
    }
}

#[test]
fn continuation_sentinel_not_forgeable() {
    let server = TestServer::demo();
    let private: String = ('\u{e000}'..'\u{e040}').chain('\u{f0000}'..'\u{f0020}').collect();
    for text in [
        private.as_str(),
        "CONTINUE_FINAL_MESSAGE_TAG",
        "<|continue|>",
        "{{ cut }} {% endgeneration %}",
        "\u{0}\u{1}\u{fffe}\u{ffff}",
        "ends here\u{e000}and not here",
    ] {
        let body = json!({
            "messages": [
                {"role": "user", "content": format!("{text} first")},
                {"role": "assistant", "content": format!("{text} last")},
            ],
            "continue_final_message": true,
        });
        let prompt = server.client(API).post("/apply-template", &body).good()["prompt"].clone();
        let prompt = prompt.as_str().unwrap();
        assert!(prompt.contains(&format!("{text} first")), "{prompt:?}");
        assert!(prompt.ends_with(&format!("{text} last")), "{prompt:?}");
    }
}

#[test]
fn tool_schema_malformed_corpus() {
    let server = TestServer::demo();
    let many: serde_json::Map<String, Value> =
        (0..100_000).map(|i| (format!("p{i}"), json!({"type": "string"}))).collect();
    for (schema, obeyed) in [
        (json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}), false),
        (json!({"type": 5}), false),
        (json!({"type": "objekt"}), false),
        (json!({"type": "object", "required": "a"}), false),
        (json!({"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}), false),
        (json!({"type": "object", "properties": {"a": {"$ref": "https://example.com/a"}}}), false),
        (json!({"type": "object", "properties": {"a": {"enum": []}}, "required": ["a"]}), false),
        (
            json!({"type": "object", "required": ["a"],
                "properties": {"a": {"type": "string", "minLength": 5, "maxLength": 2}}}),
            false,
        ),
        (json!(true), false),
        (json!({"type": "object", "properties": many}), false),
        (json!({"type": "object", "properties": {"a": {"type": "integer"}}}), true),
    ] {
        let tool = json!({"type": "function", "function":
            {"name": "f", "strict": true, "parameters": schema}});
        let extra = json!({"tools": [tool], "tool_choice": "required", "max_tokens": 8});
        let answer = server.client(API).post(CHAT, &chat(extra));
        let shown: String = schema.to_string().chars().take(100).collect();
        match obeyed {
            true => assert_eq!(answer.status, 200, "{shown}"),
            false => {
                let (status, _, param) = answer.refusal();
                assert_eq!(status, 400, "{shown}: {}", answer.text());
                assert!(param.is_some_and(|param| param.starts_with("tools")), "{shown}");
                assert!(answer.body.len() < 4096, "an error is short");
            }
        }
    }
    check_served(&server);
}

/// Constraints that are cheap to compile and dear to follow: that request alone may fail, and says so.
#[test]
fn mask_step_budget() {
    let server = TestServer::demo();
    let sibling = json!({"prompt": "The `map()` method", "max_tokens": 20, "temperature": 0});
    let alone = server.client(OTHER).post(COMPLETIONS, &sibling).good()["choices"].clone();
    for extra in [
        json!({"grammar_string": "root ::= a\na ::= \"a\" | \"b\" | a a | a a a"}),
        json!({"grammar_string": "root ::= x x x x x x x x\nx ::= \"\" | \"a\" x | x \"a\""}),
        json!({"regex_pattern": "(a?){200}a{200}"}),
        json!({"regex_pattern": "(.*a.*b.*c.*d.*e.*){20}"}),
        json!({"json_schema": {"type": "array", "items": {"anyOf": [{"type": "string"},
            {"type": "string", "maxLength": 3000}, {"type": "array", "maxItems": 3000}]}}}),
    ] {
        let mut body = json!({"prompt": "a", "max_tokens": 60, "temperature": 0});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        std::thread::scope(|scope| {
            let dear = scope.spawn(|| server.client(API).post(COMPLETIONS, &body));
            let others = server.client(OTHER).post(COMPLETIONS, &sibling).good()["choices"].clone();
            assert_eq!(others, alone, "{extra}");
            let answer = dear.join().unwrap();
            match answer.status {
                200 => {}
                400 | 500 => {
                    let code = answer.refusal().1;
                    let known =
                        ["constraint_too_complex", "constraint_dead_end", "invalid_grammar"];
                    assert!(known.contains(&code.as_str()), "{extra}: {}", answer.text());
                }
                status => panic!("{extra}: {status}"),
            }
        });
    }
    check_served(&server);
}

#[test]
fn nan_inf_never_reach_device() {
    let server = TestServer::demo();
    for field in [
        "temperature",
        "top_p",
        "min_p",
        "repetition_penalty",
        "frequency_penalty",
        "presence_penalty",
        "cfg_scale",
        "dry_multiplier",
        "mirostat_tau",
        "smoothing_factor",
    ] {
        for value in ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "\"NaN\"", "\"inf\""] {
            let body = format!("{{\"prompt\": \"x\", \"max_tokens\": 1, \"{field}\": {value}}}");
            let answer = server.client(API).send("POST", COMPLETIONS, Some(body.as_bytes()));
            assert_eq!(answer.status, 400, "{field}: {value}: {}", answer.text());
        }
    }
    for bias in ["1e999", "NaN", "\"NaN\""] {
        let body = format!("{{\"prompt\": \"x\", \"logit_bias\": {{\"5\": {bias}}}}}");
        let answer = server.client(API).send("POST", COMPLETIONS, Some(body.as_bytes()));
        assert_eq!(answer.status, 400, "{bias}: {}", answer.text());
    }
    check_served(&server);
}

#[test]
fn every_id_masked() {
    let server = TestServer::demo();
    let vocab = 1 << 20;
    for extra in [
        json!({"allowed_tokens": [5], "banned_tokens": [5]}),
        json!({"allowed_tokens": [5], "logit_bias": {"5": -100}}),
        json!({"allowed_tokens": [5, 6], "regex_pattern": "[^\\x00-\\x7f]{5}"}),
        json!({"allowed_tokens": [], "min_tokens": 3}),
        json!({"regex_pattern": "a", "min_tokens": 50, "ban_eos_token": true}),
        json!({"banned_tokens": [vocab]}),
        json!({"regex_pattern": "abc", "banned_strings": ["a"]}),
    ] {
        let mut body = json!({"prompt": "x", "max_tokens": 60, "temperature": 0});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let answer = server.client(API).post(COMPLETIONS, &body);
        match answer.status {
            200 => assert!(answer.json()["choices"][0]["finish_reason"].is_string(), "{extra}"),
            400 => {
                // Either a field is at fault, or what several ask for together.
                let (_, code, field) = answer.refusal();
                let told = field.is_some() || code == "constraint_dead_end";
                assert!(told, "{extra}: {}", answer.text());
            }
            status => panic!("{extra}: {status}"),
        }
        check_served(&server);
    }
}
