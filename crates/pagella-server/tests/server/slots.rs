//! Jobs as llama.cpp's slots.

use serde_json::{Value, json};

use crate::support::{ADMIN, API, TestServer, demo, keys, settings};

#[test]
fn slots_show_jobs_and_nothing_of_their_text() {
    let mut shown = settings();
    shown.network.slots = true;
    let mut parts = demo(2);
    parts.facts.batch_max = 2;
    let server = TestServer::start(shown, keys(), Some(parts));
    let slots = || server.client(ADMIN).get("/slots").good();
    let busy = |slots: &Value| -> Vec<bool> {
        slots.as_array().unwrap().iter().map(|s| s["is_processing"].as_bool().unwrap()).collect()
    };
    let idle = slots();
    assert_eq!(busy(&idle), [false, false]);
    assert_eq!(
        idle[1],
        json!({"id": 1, "id_task": -1, "n_ctx": idle[0]["n_ctx"],
        "speculative": false, "is_processing": false})
    );
    let client = server.client(API).with("x-request-id", "mine");
    let body = json!({"prompt": "Some secret words", "max_tokens": 1500, "ban_eos_token": true,
        "stream": true});
    let mut stream = client.stream("/v1/completions", &body);
    stream.until_text();
    let one = slots();
    assert_eq!(busy(&one), [true, false]);
    assert_eq!((&one[0]["request"], &one[0]["key"]), (&json!("mine"), &json!("alice")));
    assert_eq!(one[0]["params"]["n_predict"], 1500);
    let next = &one[0]["next_token"];
    let (written, left) = (next["n_decoded"].as_u64().unwrap(), next["n_remain"].as_u64().unwrap());
    assert!(written >= 1 && written + left == 1500, "{one}");
    assert!(!one.to_string().contains("secret"), "{one}");
    let free = || server.client(ADMIN).get("/slots?fail_on_no_slot=1");
    free().good();
    let mut second = server.client(API).stream("/v1/completions", &body);
    second.until_text();
    assert_eq!(free().refusal().1, "queue_full");
    drop((stream, second));
    server.wait_idle();
    assert_eq!(busy(&slots()), [false, false]);
}

#[test]
fn slots_are_switched_off_and_for_administrators() {
    let server = TestServer::demo();
    assert_eq!(server.client(ADMIN).get("/slots").refusal().1, "feature_disabled");
    assert_eq!(server.client(API).get("/slots").refusal().1, "admin_key_required");
    let mut shown = settings();
    shown.network.slots = true;
    let empty = TestServer::start(shown, keys(), None);
    assert_eq!(empty.client(ADMIN).get("/slots").refusal().1, "no_model_loaded");
}
