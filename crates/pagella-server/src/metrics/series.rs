//! Which series there are: each under our own name and under those of others, so that their dashboards
//! work.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use pagella_backend::ADAPTER_SLOTS_MAX;
use pagella_engine::{Distribution, DraftStats, EosReason, Stats};
use pagella_http::metrics::{Buckets, Cause, Form, HttpMetrics, Page, STATUSES, escape};

use crate::app::App;
use crate::metrics::Metrics;
use crate::requests::Progress;
use crate::settings::MetricNames;
use crate::wire::error::{Code, Retry};

/// What this build of the server can do.
const FEATURES: &str = "openai,anthropic,tls,http2,ui";
/// Bounds of vLLM's histogram of seconds per token that are only ours.
const OUR_TOKEN_BOUNDS: usize = 3;

/// A histogram that the engine keeps.
fn counted(counted: &Distribution) -> Buckets {
    let bounds = counted.bounds.iter().copied().chain([f64::INFINITY]);
    let mut all = 0;
    let mut add = |count: &u64| {
        all += count;
        all
    };
    let cumulative =
        bounds.zip(&counted.counts).map(|(bound, count)| (bound, add(count))).collect();
    Buckets { cumulative, sum: counted.sum }
}

/// Everything, as text.
pub fn render(app: &App, form: Form) -> String {
    let model = app.model.loaded().map(|model| model.parts.id.clone()).unwrap_or_default();
    let mut page = Page::new(&model, app.settings.metrics.names.clone());
    write(app, &mut page);
    form.of_text(page.text)
}

fn write(app: &App, page: &mut Page) {
    let metrics = &app.metrics;
    let stats = app.model.loaded().and_then(|model| model.stats());
    gauges(app, page, stats.as_ref());
    counters(metrics, page, stats.as_ref());
    histograms(metrics, page, stats.as_ref());
    native(app, page, stats.as_ref());
    if page.tells(MetricNames::LlamaCpp) {
        llama_cpp(app, page, stats.as_ref());
    }
    routes(&app.http_metrics, page);
}

fn value(counter: &AtomicU64) -> f64 {
    counter.load(Ordering::Relaxed) as f64
}

/// Jobs in the batch, and those that wait.
fn work(app: &App, stats: Option<&Stats>) -> (f64, f64) {
    let queue = stats.map_or((0, 0), |stats| (stats.queue.active, stats.queue.pending));
    (queue.0 as f64, queue.1.max(app.admission.counts().queued) as f64)
}

fn gauges(app: &App, page: &mut Page, stats: Option<&Stats>) {
    let (running, waiting) = work(app, stats);
    page.both("num_requests_running", "gauge", &[("", running)]);
    page.both("num_requests_waiting", "gauge", &[("", waiting)]);
    let named = app.requests.adapters();
    let [running, waiting] =
        named.map(|names| escape(&names.into_iter().collect::<Vec<_>>().join(",")));
    let adapters = format!(
        "max_lora=\"{ADAPTER_SLOTS_MAX}\",running_lora_adapters=\"{running}\",waiting_lora_adapters=\"{waiting}\""
    );
    page.both("lora_requests_info", "gauge", &[(adapters.as_str(), 1.0)]);
    let adapter_bytes = stats.map_or(0.0, |stats| stats.adapter_bytes as f64);
    page.own("adapter_bytes", "gauge", &[("", adapter_bytes)]);
    let Some((stats, model)) = stats.zip(app.model.loaded()) else { return };
    let pages = &stats.pages;
    let usage = pages.referenced as f64 / pages.total.max(1) as f64;
    page.both("kv_cache_usage_perc", "gauge", &[("", usage)]);
    page.both("gpu_cache_usage_perc", "gauge", &[("", usage)]);
    let mode = escape(&model.parts.facts.cache_mode);
    let info = format!(
        "block_size=\"256\",num_gpu_blocks=\"{}\",cache_dtype=\"{mode}\",enable_prefix_caching=\"True\"",
        pages.total
    );
    page.both("cache_config_info", "gauge", &[(info.as_str(), 1.0)]);
    let states = [("free", pages.free), ("cached", pages.cached), ("referenced", pages.referenced)];
    let states = states.map(|(state, n)| (format!("state=\"{state}\""), n as f64));
    let samples: Vec<(&str, f64)> = states.iter().map(|(l, n)| (l.as_str(), *n)).collect();
    page.own("kv_pages", "gauge", &samples);
}

fn counters(metrics: &Metrics, page: &mut Page, stats: Option<&Stats>) {
    let prompt = value(&metrics.prompt_tokens_total);
    let cached = value(&metrics.cached_tokens_total);
    let draft = stats.map_or(DraftStats::default(), |stats| stats.draft);
    for (name, value) in [
        ("prompt_tokens_total", prompt),
        ("prompt_tokens_cached_total", cached),
        ("prefix_cache_queries_total", prompt),
        ("prefix_cache_hits_total", cached),
        ("generation_tokens_total", value(&metrics.generation_tokens_total)),
        ("num_preemptions_total", stats.map_or(0.0, |stats| stats.preemptions as f64)),
        ("spec_decode_num_drafts_total", draft.steps as f64),
        ("spec_decode_num_draft_tokens_total", draft.guessed as f64),
        ("spec_decode_num_accepted_tokens_total", draft.accepted as f64),
    ] {
        page.both(name, "counter", &[("", value)]);
    }
    accepted_by_place(page, &draft);
    let called = value(&metrics.called);
    // The engine does not know of calls: for it, an answer that ends with one just stops.
    let mut reasons = [
        ("stop", -called),
        ("length", 0.0),
        ("tool_calls", called),
        ("abort", 0.0),
        ("error", 0.0),
    ];
    for (reason, count) in EosReason::ALL.iter().zip(&metrics.finished) {
        let word = match reason {
            EosReason::MaxNewTokens | EosReason::LengthLimit => "length",
            EosReason::Cancelled | EosReason::Deadline => "abort",
            EosReason::FilterDeadEnd | EosReason::NoCandidates | EosReason::Error => "error",
            _ => "stop",
        };
        let entry = reasons.iter_mut().find(|(name, _)| *name == word);
        entry.into_iter().for_each(|(_, sum)| *sum += value(count));
    }
    let labels = reasons.map(|(word, n)| (format!("finished_reason=\"{word}\""), n.max(0.0)));
    let samples: Vec<(&str, f64)> = labels.iter().map(|(l, n)| (l.as_str(), *n)).collect();
    page.both("request_success_total", "counter", &samples);
}

/// How many guesses were right at every place that one was right at, and at the first in any case.
fn accepted_by_place(page: &mut Page, draft: &DraftStats) {
    let known = draft.accepted_at.iter().take_while(|count| **count > 0).count().max(1);
    let counts = draft.accepted_at.iter().take(known).enumerate();
    let labels: Vec<(String, f64)> =
        counts.map(|(place, n)| (format!("position=\"{place}\""), *n as f64)).collect();
    let samples: Vec<(&str, f64)> = labels.iter().map(|(l, n)| (l.as_str(), *n)).collect();
    page.both("spec_decode_num_accepted_tokens_per_pos_total", "counter", &samples);
}

fn histograms(metrics: &Metrics, page: &mut Page, stats: Option<&Stats>) {
    for (name, histogram, ours) in [
        ("time_to_first_token_seconds", &metrics.time_to_first_token, 0),
        ("request_time_per_output_token_seconds", &metrics.time_per_token, OUR_TOKEN_BOUNDS),
        ("time_per_output_token_seconds", &metrics.time_per_token, OUR_TOKEN_BOUNDS),
        ("e2e_request_latency_seconds", &metrics.request_time, 0),
        ("request_queue_time_seconds", &metrics.queue_time, 0),
        ("request_inference_time_seconds", &metrics.inference_time, 0),
        ("request_prefill_time_seconds", &metrics.prefill_time, 0),
        ("request_decode_time_seconds", &metrics.decode_time, 0),
        ("request_prompt_tokens", &metrics.prompt_tokens, 0),
        ("request_generation_tokens", &metrics.generation_tokens, 0),
        ("request_max_num_generation_tokens", &metrics.most_generation_tokens, 0),
        ("request_params_max_tokens", &metrics.max_tokens, 0),
        ("request_params_n", &metrics.choices, 0),
    ] {
        page.histogram(name, &histogram.into(), ours);
    }
    let Some(stats) = stats else { return };
    page.histogram("inter_token_latency_seconds", &counted(&stats.token_seconds), OUR_TOKEN_BOUNDS);
    page.histogram("iteration_tokens_total", &counted(&stats.step_tokens), 0);
    page.own_histogram("iteration_seconds", &counted(&stats.step_seconds));
    page.own_histogram("constraint_mask_seconds", &counted(&stats.mask_seconds));
}

fn native(app: &App, page: &mut Page, stats: Option<&Stats>) {
    let metrics = &app.metrics;
    let model = app.model.loaded();
    let name = model.as_ref().map_or(String::new(), |model| escape(&model.parts.id));
    let loaded = format!("model_name=\"{name}\"");
    page.own("model_loaded", "gauge", &[(loaded.as_str(), f64::from(u8::from(model.is_some())))]);
    let age = model.as_ref().and_then(|model| model.silence());
    page.own(
        "heartbeat_age_seconds",
        "gauge",
        &[("", age.map_or(f64::NAN, |age| age.as_secs_f64()))],
    );
    let device = model.as_ref().map_or(String::new(), |model| escape(&model.parts.facts.device));
    let bytes = model.as_ref().and_then(|model| model.parts.facts.weight_bytes).unwrap_or(0);
    let memory = format!("device=\"{device}\",kind=\"weights\"");
    page.own("device_memory_bytes", "gauge", &[(memory.as_str(), bytes as f64)]);
    let build = format!(
        "version=\"{}\",commit=\"{}\",features=\"{FEATURES}\"",
        env!("CARGO_PKG_VERSION"),
        env!("PAGELLA_COMMIT")
    );
    page.own("build_info", "gauge", &[(build.as_str(), 1.0)]);
    // Pages that are evicted are gone: the host keeps none.
    page.own("host_cache_bytes", "gauge", &[("", 0.0)]);
    let http = &app.http_metrics;
    for (name, value) in [
        ("panics_total", value(&http.panics)),
        ("restarts_total", value(&metrics.restarts)),
        ("stream_stalls_total", value(&http.stalls)),
        ("connections_refused_total", value(&http.refused_connections)),
        ("numeric_errors_total", stats.map_or(0.0, |stats| stats.numeric_errors as f64)),
        ("draft_seconds_total", stats.map_or(0.0, |stats| stats.draft.seconds)),
        ("ban_rewinds_total", stats.map_or(0.0, |stats| stats.rewinds as f64)),
        ("kv_page_evictions_total", stats.map_or(0.0, |stats| stats.evictions as f64)),
    ] {
        page.own(name, "counter", &[("", value)]);
    }
    if !page.tells(MetricNames::Native) {
        return;
    }
    refusals(http, page);
    let formats = metrics.tool_parse_failures.iter();
    let formats: Vec<(String, f64)> =
        formats.map(|(name, count)| (format!("format=\"{name}\""), value(count))).collect();
    let samples: Vec<(&str, f64)> = formats.iter().map(|(l, n)| (l.as_str(), *n)).collect();
    page.own("tool_parse_failures_total", "counter", &samples);
    for (name, histogram) in [
        ("pagella_template_render_seconds", &*metrics.template_time),
        ("pagella_constraint_compile_seconds", &*metrics.constraint_time),
        ("pagella_model_load_seconds", &metrics.load_time),
    ] {
        page.distributions(name, std::iter::once((String::new(), histogram)));
    }
    let keys = http.keys.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let labels: Vec<(String, u64, u64)> = keys
        .iter()
        .map(|(key, (requests, tokens))| (format!("key=\"{}\"", escape(key)), *requests, *tokens))
        .collect();
    if !labels.is_empty() {
        let requests: Vec<_> = labels.iter().map(|(l, n, _)| (l.as_str(), *n as f64)).collect();
        page.own("key_requests_total", "counter", &requests);
        let tokens: Vec<_> = labels.iter().map(|(l, _, n)| (l.as_str(), *n as f64)).collect();
        page.own("key_tokens_total", "counter", &tokens);
    }
}

/// Why requests were refused, failed or ended early.
fn refusals(http: &HttpMetrics, page: &mut Page) {
    let reasons = Code::ALL.iter().zip(&http.rejected);
    let labels: Vec<(Code, String, f64)> = reasons
        .map(|(code, count)| (*code, format!("reason=\"{}\"", code.name()), value(count)))
        .collect();
    let of = |wanted: &dyn Fn(Code) -> bool| -> Vec<(&str, f64)> {
        let chosen = labels.iter().filter(|(code, ..)| wanted(*code));
        chosen.map(|(_, label, n)| (label.as_str(), *n)).collect()
    };
    let is_auth = |code: Code| code.status().as_u16() == 401;
    page.own("auth_failures_total", "counter", &of(&is_auth));
    let is_busy = |code: Code| code.retry() == Retry::Later;
    page.own("requests_rejected_total", "counter", &of(&is_busy));
    let mut early = Vec::new();
    for (phase, causes) in Progress::ALL.iter().zip(&http.cancelled) {
        for (cause, count) in Cause::ALL.iter().zip(causes) {
            let labels = format!("phase=\"{}\",cause=\"{}\"", phase.name(), cause.name());
            early.push((labels, value(count)));
        }
    }
    let samples: Vec<(&str, f64)> = early.iter().map(|(l, n)| (l.as_str(), *n)).collect();
    page.own("requests_cancelled_total", "counter", &samples);
}

/// llama.cpp's names.
fn llama_cpp(app: &App, page: &mut Page, stats: Option<&Stats>) {
    let metrics = &app.metrics;
    let (running, waiting) = work(app, stats);
    let prompt = value(&metrics.prompt_tokens_total);
    let cached = value(&metrics.cached_tokens_total);
    let written = value(&metrics.generation_tokens_total);
    let steps = stats.map_or(0.0, |stats| stats.steps as f64);
    let draft = stats.map_or(DraftStats::default(), |stats| stats.draft);
    let rates = stats.map_or((0.0, 0.0), |stats| {
        (stats.prefill_tokens_per_second, stats.decode_tokens_per_second)
    });
    for (name, kind, value) in [
        ("prompt_tokens_total", "counter", prompt - cached),
        ("prompt_tokens_cached_total", "counter", cached),
        ("prompt_seconds_total", "counter", metrics.prefill_time.sum()),
        ("prompt_tokens_seconds", "gauge", rates.0),
        ("tokens_predicted_total", "counter", written),
        ("tokens_predicted_seconds_total", "counter", metrics.decode_time.sum()),
        ("predicted_tokens_seconds", "gauge", rates.1),
        ("requests_processing", "gauge", running),
        ("requests_deferred", "gauge", waiting),
        ("n_tokens_max", "counter", value(&metrics.sequence_tokens_max)),
        ("n_decode_total", "counter", steps),
        ("n_busy_slots_per_decode", "gauge", stats.map_or(0.0, |stats| stats.batch_occupancy)),
        ("spec_decode_num_drafts_total", "counter", draft.steps as f64),
        ("spec_decode_num_draft_tokens_total", "counter", draft.guessed as f64),
        ("spec_decode_num_accepted_tokens_total", "counter", draft.accepted as f64),
    ] {
        page.plain(&format!("llamacpp:{name}"), kind, &[("", value)]);
    }
}

fn routes(http: &HttpMetrics, page: &mut Page) {
    let mut requests = Vec::new();
    let mut in_flight = Vec::new();
    for route in http.used() {
        let (method, path) = route.labels;
        for (status, count) in STATUSES.iter().zip(&route.statuses) {
            let n = value(count);
            if n > 0.0 {
                let status = if *status == 0 { "other".to_owned() } else { status.to_string() };
                let labels = format!("method=\"{method}\",path=\"{path}\",status=\"{status}\"");
                requests.push((labels, n));
            }
        }
        let labels = format!("method=\"{method}\",path=\"{path}\"");
        in_flight.push((labels, value(&route.in_flight)));
    }
    for (name, kind, list) in [
        ("http_requests_total", "counter", requests),
        ("http_requests_in_flight", "gauge", in_flight),
    ] {
        let list: Vec<(&str, f64)> = list.iter().map(|(l, n)| (l.as_str(), *n)).collect();
        page.plain(name, kind, &list);
    }
    let times = http.used().map(|route| {
        let (method, path) = route.labels;
        (format!("method=\"{method}\",path=\"{path}\","), &route.time)
    });
    page.distributions("http_request_duration_seconds", times);
    let bytes = std::iter::once((String::new(), &http.body_bytes));
    page.distributions("http_request_body_bytes", bytes);
}
