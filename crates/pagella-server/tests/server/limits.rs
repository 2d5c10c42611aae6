//! Every limit of a request: one below, at it, one above.

use pagella_server::Settings;
use serde_json::{Value, json};

use crate::support::{API, TestServer, demo, keys, settings};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

/// The limit in these tests.
const MOST: usize = 12;

/// A limit: how it is set, whom it holds for, a request that has so many of it, and the refusal.
struct Limit {
    set: fn(&mut Settings),
    path: &'static str,
    body: fn(usize) -> Value,
    refusal: (&'static str, Option<&'static str>),
}

fn complete(extra: Value) -> Value {
    let mut body = json!({"prompt": "The", "max_tokens": 1});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn talk(extra: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn texts(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("no such text {i}")).collect()
}

/// A conversation that its own template renders to so many bytes.
fn rendered(n: usize) -> Value {
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let messages = json!([{"role": "user", "content": "x".repeat(n)}]);
    talk(json!({"chat_template": template, "messages": messages}))
}

/// A template whose macros call each other so deep.
fn nested(n: usize) -> Value {
    let template =
        "{% macro m(n) %}{% if n > 1 %}{{ m(n - 1) }}{% endif %}.{% endmacro %}{{ m(N) }}";
    talk(json!({"chat_template": template.replace('N', &n.to_string())}))
}

const RANGE: &str = "out_of_range";

const LIMITS: &[Limit] = &[
    Limit {
        set: |s| s.limits.stop = MOST,
        path: COMPLETIONS,
        body: |n| complete(json!({ "stop": texts(n) })),
        refusal: (RANGE, Some("stop")),
    },
    Limit {
        set: |s| s.limits.banned_strings = MOST,
        path: COMPLETIONS,
        body: |n| complete(json!({ "banned_strings": texts(n) })),
        refusal: (RANGE, Some("banned_strings")),
    },
    Limit {
        set: |s| s.limits.logit_bias = MOST,
        path: COMPLETIONS,
        body: |n| complete(json!({ "logit_bias": vec![json!([5, 1.0]); n] })),
        refusal: (RANGE, Some("logit_bias")),
    },
    Limit {
        set: |s| s.limits.top_logprobs = MOST,
        path: COMPLETIONS,
        body: |n| complete(json!({ "logprobs": n })),
        refusal: (RANGE, Some("logprobs")),
    },
    Limit {
        set: |s| s.limits.top_logprobs = MOST,
        path: CHAT,
        body: |n| talk(json!({ "logprobs": true, "top_logprobs": n })),
        refusal: (RANGE, Some("top_logprobs")),
    },
    Limit {
        set: |s| s.limits.prompts = MOST,
        path: COMPLETIONS,
        body: |n| complete(json!({ "prompt": vec!["The"; n] })),
        refusal: (RANGE, Some("prompt")),
    },
    Limit {
        set: |s| s.limits.max_n = MOST,
        path: COMPLETIONS,
        body: |n| complete(json!({ "n": n })),
        refusal: (RANGE, Some("n")),
    },
    Limit {
        set: |s| (s.limits.max_choices, s.limits.prompts) = (2 * MOST, 64),
        path: COMPLETIONS,
        body: |n| complete(json!({ "n": 2, "prompt": vec!["The"; n] })),
        refusal: (RANGE, Some("n")),
    },
    Limit {
        set: |s| s.limits.messages = MOST,
        path: CHAT,
        body: |n| talk(json!({ "messages": vec![json!({"role": "user", "content": "a"}); n] })),
        refusal: (RANGE, Some("messages")),
    },
    Limit {
        set: |s| s.limits.tools = MOST,
        path: CHAT,
        body: |n| {
            let tool = |i| json!({"type": "function", "function": {"name": format!("f{i}")}});
            talk(json!({ "tools": (0..n).map(tool).collect::<Vec<_>>(), "tool_choice": "none" }))
        },
        refusal: (RANGE, Some("tools")),
    },
    Limit {
        set: |s| s.limits.template_output_bytes = MOST,
        path: CHAT,
        body: rendered,
        refusal: ("template_error", Some("messages")),
    },
    Limit {
        set: |s| s.limits.template_recursion = MOST,
        path: CHAT,
        body: nested,
        refusal: ("template_error", Some("messages")),
    },
    Limit {
        set: |s| s.limits.template_bytes = MOST,
        path: CHAT,
        body: |n| talk(json!({ "chat_template": "x".repeat(n) })),
        refusal: ("template_error", Some("messages")),
    },
    Limit {
        set: |s| s.limits.constraint_bytes = MOST,
        path: COMPLETIONS,
        // A grammar of twelve bytes, and spaces.
        body: |n| complete(json!({ "grammar_string": format!("{:1$}", "root::=\"y\"", n) })),
        refusal: ("constraint_too_complex", Some("grammar_string")),
    },
];

#[test]
fn each_limit_holds_exactly() {
    for (idx, limit) in LIMITS.iter().enumerate() {
        let mut own = settings();
        own.chat.allow_request_template = true;
        (limit.set)(&mut own);
        let server = TestServer::start(own, keys(), Some(demo(32)));
        let ask = |n: usize| server.client(API).post(limit.path, &(limit.body)(n));
        for n in [MOST - 1, MOST] {
            let answer = ask(n);
            assert_eq!(answer.status, 200, "{idx} with {n}: {}", answer.text());
        }
        let (status, code, param) = ask(MOST + 1).refusal();
        let expected = (400, limit.refusal.0, limit.refusal.1);
        assert_eq!((status, code.as_str(), param.as_deref()), expected, "{idx}");
    }
}

#[test]
fn limits_of_work_hold_for_templates_and_constraints() {
    let loop_template = "{% for i in range(2000) %}{% endfor %}x";
    let template = talk(json!({ "chat_template": loop_template }));
    let pattern =
        complete(json!({ "regex_pattern": "([a-z]{1,40} ){20}[0-9]{3}", "max_tokens": 4 }));
    let with = |set: fn(&mut Settings), path: &str, body: &Value| {
        let mut own = settings();
        own.chat.allow_request_template = true;
        set(&mut own);
        let server = TestServer::start(own, keys(), Some(demo(8)));
        let answer = server.client(API).post(path, body);
        let code = answer.json()["error"]["code"].as_str().map(str::to_owned);
        (answer.status, code.unwrap_or_default())
    };
    let fine = (200, String::new());
    assert_eq!(with(|_| {}, CHAT, &template), fine);
    assert_eq!(with(|_| {}, COMPLETIONS, &pattern), fine);
    let refused = |code: &str| (400, code.to_owned());
    let steps: fn(&mut Settings) = |s| s.limits.template_steps = 1000;
    assert_eq!(with(steps, CHAT, &template), refused("template_error"));
    let time: fn(&mut Settings) = |s| s.limits.template_time = std::time::Duration::ZERO;
    assert_eq!(with(time, CHAT, &template), refused("template_error"));
    let memory: fn(&mut Settings) = |s| s.limits.constraint_memory_bytes = 1;
    assert_eq!(with(memory, COMPLETIONS, &pattern), refused("constraint_too_complex"));
    let mask: fn(&mut Settings) = |s| s.limits.mask_time = std::time::Duration::from_micros(1);
    assert_eq!(with(mask, COMPLETIONS, &pattern), refused("constraint_too_complex"));
}
