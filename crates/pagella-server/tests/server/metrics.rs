//! What is counted, and under which names.

use std::collections::BTreeSet;

use pagella_server::settings::MetricNames;
use serde_json::json;

use crate::support::{ADMIN, API, TestServer, demo, keys, settings};

/// Series of vLLM's published dashboards, as they are queried.
const DASHBOARD: &[&str] = &[
    "vllm:e2e_request_latency_seconds_bucket",
    "vllm:e2e_request_latency_seconds_sum",
    "vllm:e2e_request_latency_seconds_count",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:inter_token_latency_seconds_bucket",
    "vllm:inter_token_latency_seconds_sum",
    "vllm:inter_token_latency_seconds_count",
    "vllm:time_per_output_token_seconds_bucket",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "vllm:time_to_first_token_seconds_bucket",
    "vllm:request_prompt_tokens_bucket",
    "vllm:request_generation_tokens_bucket",
    "vllm:request_success_total",
    "vllm:request_queue_time_seconds_sum",
    "vllm:request_prefill_time_seconds_sum",
    "vllm:request_decode_time_seconds_sum",
    "vllm:request_inference_time_seconds_bucket",
    "vllm:request_max_num_generation_tokens_sum",
    "vllm:request_params_max_tokens_bucket",
    "vllm:request_params_n_bucket",
    "vllm:iteration_tokens_total_bucket",
    "vllm:num_preemptions_total",
    "vllm:prefix_cache_hits_total",
    "vllm:prefix_cache_queries_total",
    "vllm:cache_config_info",
    "vllm:lora_requests_info",
    "vllm:spec_decode_num_drafts_total",
    "vllm:spec_decode_num_accepted_tokens_per_pos_total",
];

/// Series that only we have.
const NATIVE: &[&str] = &[
    "kv_pages{state=\"free\"}",
    "kv_page_evictions_total",
    "host_cache_bytes",
    "requests_cancelled_total{phase=\"decode\",cause=\"disconnect\"}",
    "requests_rejected_total{reason=\"queue_full\"}",
    "auth_failures_total{reason=\"invalid_api_key\"}",
    "stream_stalls_total",
    "template_render_seconds_count",
    "constraint_compile_seconds_count",
    "constraint_mask_seconds_count",
    "tool_parse_failures_total{format=\"hermes\"}",
    "ban_rewinds_total",
    "numeric_errors_total",
    "restarts_total",
    "heartbeat_age_seconds",
    "model_loaded{model_name=\"demo\"}",
    "model_load_seconds_count",
    "device_memory_bytes{device=\"\",kind=\"weights\"}",
    "iteration_seconds_count",
];

/// llama.cpp's.
const LLAMA_CPP: &[&str] = &[
    "prompt_tokens_total",
    "prompt_tokens_cached_total",
    "prompt_seconds_total",
    "prompt_tokens_seconds",
    "tokens_predicted_total",
    "tokens_predicted_seconds_total",
    "predicted_tokens_seconds",
    "requests_processing",
    "requests_deferred",
    "n_tokens_max",
    "n_decode_total",
    "n_busy_slots_per_decode",
    "spec_decode_num_drafts_total",
    "spec_decode_num_draft_tokens_total",
    "spec_decode_num_accepted_tokens_total",
];

fn page(server: &TestServer) -> String {
    server.stranger().get("/metrics").text().to_owned()
}

/// The value of a series.
fn value(page: &str, series: &str) -> f64 {
    let line = page
        .lines()
        .find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')));
    line.unwrap_or_else(|| panic!("no {series} in {page}"))
        .rsplit(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn counts_are_the_sums_of_usage_and_dashboards_find_their_series() {
    let mut all = settings();
    all.metrics.names = vec![MetricNames::Native, MetricNames::Vllm, MetricNames::LlamaCpp];
    all.metrics.per_key = true;
    let server = TestServer::start(all, keys(), Some(demo(8)));
    let client = server.client(API);
    let (mut prompt, mut written) = (0, 0);
    for stream in [true, false] {
        let body = json!({"prompt": "The array is", "max_tokens": 9, "n": 2, "stream": stream,
            "stream_options": {"include_usage": true}, "ban_eos_token": true});
        let answer = client.post("/v1/completions", &body);
        let usage = match stream {
            true => answer.chunks().last().unwrap()["usage"].clone(),
            false => answer.good()["usage"].clone(),
        };
        prompt += usage["prompt_tokens"].as_u64().unwrap();
        written += usage["completion_tokens"].as_u64().unwrap();
    }
    server.wait_idle();
    // The engine is asked for its counts a few times a second.
    let latencies = "pagella_inter_token_latency_seconds_count";
    crate::support::wait_for("the engine's counts", || {
        page(&server).contains("pagella_iteration_seconds")
            && value(&page(&server), latencies) + 4.0 >= written as f64
    });
    let text = page(&server);
    // Every token but the first of each of the four answers.
    assert_eq!(value(&text, latencies), written as f64 - 4.0);
    let per_answer = value(&text, "pagella_request_time_per_output_token_seconds_count");
    assert_eq!(per_answer, 4.0);
    assert_eq!(value(&text, "pagella_time_to_first_token_seconds_count"), 4.0);
    for name in NATIVE {
        value(&text, &format!("pagella_{name}"));
    }
    for name in LLAMA_CPP {
        value(&text, &format!("llamacpp:{name}"));
    }
    assert_eq!(value(&text, "llamacpp:tokens_predicted_total"), written as f64);
    let build = text.lines().find(|line| line.starts_with("pagella_build_info{")).unwrap();
    for label in ["version=\"", "commit=\"", "features=\""] {
        assert!(build.contains(label), "{build}");
    }
    assert_eq!(value(&text, "pagella_prompt_tokens_total"), prompt as f64);
    assert_eq!(value(&text, "pagella_generation_tokens_total"), written as f64);
    assert_eq!(value(&text, "pagella_key_tokens_total{key=\"alice\"}"), (prompt + written) as f64);
    assert_eq!(value(&text, "pagella_request_success_total{finished_reason=\"length\"}"), 4.0);
    assert_eq!(value(&text, "pagella_request_params_n_count"), 2.0);
    let path = "{method=\"POST\",path=\"/v1/completions\"";
    assert_eq!(value(&text, &format!("http_requests_total{path},status=\"200\"}}")), 2.0);
    assert_eq!(value(&text, &format!("http_request_duration_seconds_count{path}}}")), 2.0);
    assert_eq!(value(&text, &format!("http_requests_in_flight{path}}}")), 0.0);
    assert_eq!(value(&text, "http_request_body_bytes_count"), 2.0);
    for series in DASHBOARD {
        let found = text.lines().any(|line| {
            line.strip_prefix(series).is_some_and(|rest| rest.starts_with("{model_name=\"demo\""))
        });
        assert!(found, "{series}");
    }
    let first =
        text.lines().find(|line| line.starts_with("vllm:inter_token_latency_seconds_bucket"));
    assert!(first.unwrap().contains("le=\"0.01\""), "vLLM's own first bound: {first:?}");
    assert!(!text.contains("/health"), "probes are not counted");
}

#[test]
fn templates_constraints_and_calls_are_counted_as_they_happen() {
    let server = TestServer::demo();
    let client = server.client(API);
    let count = |name: &str| value(&page(&server), &format!("pagella_{name}"));
    let ask = |extra: serde_json::Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 300});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        client.post("/v1/chat/completions", &body).good()
    };
    let rendered = count("template_render_seconds_count");
    ask(json!({"max_tokens": 1}));
    assert_eq!(count("template_render_seconds_count"), rendered + 1.0);
    assert_eq!(count("constraint_compile_seconds_count"), 0.0, "nothing was compiled");
    // Compiled once, used twice.
    for _ in 0..2 {
        ask(json!({"regex_pattern": "yes|no"}));
    }
    assert_eq!(count("constraint_compile_seconds_count"), 1.0);
    let masks = || count("constraint_mask_seconds_count");
    crate::support::wait_for("the engine's counts", || masks() >= 2.0);
    let called = ask(json!({
        "tools": [crate::tools::tool("f")], "tool_choice": "required", "parallel_tool_calls": false,
    }));
    assert_eq!(called["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(count("request_success_total{finished_reason=\"tool_calls\"}"), 1.0);
    assert_eq!(count("numeric_errors_total"), 0.0);
}

/// Names and labels of all series.
fn series(page: &str) -> BTreeSet<String> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
}

#[test]
fn metrics_cardinality() {
    let server = TestServer::demo();
    let client = server.client(API);
    let provoke = |seed: usize| {
        let body = json!({"prompt": "x", "max_tokens": 1, "model": format!("m{seed}"), "user": format!("u{seed}")});
        client
            .clone()
            .with("x-request-id", &format!("r{seed}"))
            .post("/v1/completions", &body)
            .good();
        client.get(&format!("/nowhere/{seed}"));
        client.get(&format!("/v1/models/{seed}"));
        client.send(&format!("M{seed}"), "/v1/models", None);
        server.stranger().with("x-api-key", &format!("k{seed}")).get("/v1/models");
        client.clone().with("user-agent", &format!("ua{seed}")).get("/v1/requests");
    };
    provoke(0);
    crate::support::wait_for("the engine's counts", || page(&server).contains("iteration_tokens"));
    let before = series(&page(&server));
    (1..6).for_each(provoke);
    let after = series(&page(&server));
    let new: Vec<&String> = after.difference(&before).collect();
    assert!(new.is_empty(), "{new:?}");
}

#[test]
fn counts_are_told_in_the_form_that_is_asked_for() {
    let server = TestServer::demo();
    let plain = server.stranger().get("/metrics");
    assert_eq!(plain.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let open = server
        .stranger()
        .with("accept", "application/openmetrics-text;version=1.0.0")
        .get("/metrics");
    assert!(open.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    assert!(open.text().ends_with("# EOF\n"));
    assert!(open.text().contains("# TYPE pagella_generation_tokens counter"));
    let mut few = settings();
    few.metrics.names = vec![MetricNames::Native];
    let server = TestServer::start(few, keys(), Some(demo(8)));
    assert!(!page(&server).contains("vllm:") && page(&server).contains("pagella_"));
    let mut off = settings();
    off.metrics.enabled = false;
    let server = TestServer::start(off, keys(), None);
    assert_eq!(server.client(ADMIN).get("/metrics").refusal().1, "feature_disabled");
}
