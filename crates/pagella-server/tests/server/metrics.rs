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
    crate::support::wait_for("the engine's counts", || {
        page(&server).lines().any(|line| {
            line.starts_with("pagella_iteration_tokens_total_count") && !line.ends_with(" 0")
        })
    });
    let text = page(&server);
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
    for series in
        ["llamacpp:tokens_predicted_total", "llamacpp:n_decode_total", "llamacpp:requests_deferred"]
    {
        value(&text, series);
    }
    assert!(!text.contains("/health"), "probes are not counted");
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
