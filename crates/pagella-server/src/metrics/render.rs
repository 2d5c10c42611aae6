//! The text that Prometheus reads: each series under our own name and under vLLM's, so that its
//! dashboards work.

use std::fmt::Write;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use pagella_engine::{EosReason, Stats};

use super::Metrics;
use super::histogram::Histogram;
use crate::app::App;
use crate::model::Slot;

/// A page of text that grows. Writing to a string cannot fail, so results are not looked at.
struct Page {
    text: String,
    /// What vLLM's dashboards filter by.
    labels: String,
}

/// Everything, as text.
pub fn render(app: &App) -> String {
    let metrics = &app.metrics;
    let slot = app.model.now();
    let (name, stats, silence) = match &slot {
        Slot::Loaded(model) => (model.parts.id.as_str(), model.stats(), model.silence()),
        _ => ("", None, None),
    };
    let labels = format!("model_name=\"{}\",engine=\"0\"", escape(name));
    let mut page = Page { text: String::new(), labels };
    page.gauges(app, stats.as_ref());
    page.counters(metrics, stats.as_ref());
    page.histograms(metrics);
    page.http(metrics);
    let loaded = u8::from(matches!(slot, Slot::Loaded(_)));
    page.own("model_loaded", "gauge", &format!("{{model_name=\"{}\"}} {loaded}", escape(name)));
    let age = silence.map_or(f64::NAN, |silence| silence.as_secs_f64());
    page.own("heartbeat_age_seconds", "gauge", &format!(" {age}"));
    let version = env!("CARGO_PKG_VERSION");
    page.own("build_info", "gauge", &format!("{{version=\"{version}\"}} 1"));
    let failures = metrics.auth_failures.load(Ordering::Relaxed);
    page.own("auth_failures_total", "counter", &format!(" {failures}"));
    let panics = metrics.panics.load(Ordering::Relaxed);
    page.own("panics_total", "counter", &format!(" {panics}"));
    let restarts = metrics.restarts.load(Ordering::Relaxed);
    page.own("restarts_total", "counter", &format!(" {restarts}"));
    page.text
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

impl Page {
    /// A series that only we have; `sample` is what follows its name.
    fn own(&mut self, name: &str, kind: &str, sample: &str) {
        let _ = writeln!(self.text, "# TYPE pagella_{name} {kind}\npagella_{name}{sample}");
    }

    /// A series under both names. `extra` is a further label, or nothing.
    fn both(&mut self, name: &str, kind: &str, samples: &[(&str, f64)]) {
        let _ = writeln!(self.text, "# TYPE pagella_{name} {kind}");
        for (extra, value) in samples {
            let braces = if extra.is_empty() { String::new() } else { format!("{{{extra}}}") };
            let _ = writeln!(self.text, "pagella_{name}{braces} {value}");
        }
        let _ = writeln!(self.text, "# TYPE vllm:{name} {kind}");
        for (extra, value) in samples {
            let comma = if extra.is_empty() { "" } else { "," };
            let _ = writeln!(self.text, "vllm:{name}{{{}{comma}{extra}}} {value}", self.labels);
        }
    }

    fn gauges(&mut self, app: &App, stats: Option<&Stats>) {
        let counts = app.admission.counts();
        let (active, pending) = stats.map_or((0, 0), |s| (s.queue.active, s.queue.pending));
        let waiting = pending.max(counts.queued);
        self.both("num_requests_running", "gauge", &[("", active as f64)]);
        self.both("num_requests_waiting", "gauge", &[("", waiting as f64)]);
        let Some(stats) = stats else { return };
        let pages = &stats.pages;
        let usage = pages.referenced as f64 / pages.total.max(1) as f64;
        self.both("kv_cache_usage_perc", "gauge", &[("", usage)]);
        self.both("gpu_cache_usage_perc", "gauge", &[("", usage)]);
        let info = format!("block_size=\"256\",num_gpu_blocks=\"{}\"", pages.total);
        self.both("cache_config_info", "gauge", &[(info.as_str(), 1.0)]);
        let states =
            [("free", pages.free), ("cached", pages.cached), ("referenced", pages.referenced)];
        let _ = writeln!(self.text, "# TYPE pagella_kv_pages gauge");
        for (state, n) in states {
            let _ = writeln!(self.text, "pagella_kv_pages{{state=\"{state}\"}} {n}");
        }
    }

    fn counters(&mut self, metrics: &Metrics, stats: Option<&Stats>) {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let prompt = value(&metrics.prompt_tokens_total);
        let cached = value(&metrics.cached_tokens_total);
        for (name, value) in [
            ("prompt_tokens_total", prompt),
            ("prompt_tokens_cached_total", cached),
            ("prefix_cache_queries_total", prompt),
            ("prefix_cache_hits_total", cached),
            ("generation_tokens_total", value(&metrics.generation_tokens_total)),
            ("num_preemptions_total", stats.map_or(0.0, |stats| stats.preemptions as f64)),
        ] {
            self.both(name, "counter", &[("", value)]);
        }
        let mut reasons = [("stop", 0.0), ("length", 0.0), ("abort", 0.0), ("error", 0.0)];
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
        let labels = reasons.map(|(word, n)| (format!("finished_reason=\"{word}\""), n));
        let samples: Vec<(&str, f64)> = labels.iter().map(|(l, n)| (l.as_str(), *n)).collect();
        self.both("request_success_total", "counter", &samples);
        let rewinds = stats.map_or(0, |stats| stats.rewinds);
        self.own("ban_rewinds_total", "counter", &format!(" {rewinds}"));
    }

    fn histograms(&mut self, metrics: &Metrics) {
        for (name, histogram) in [
            ("time_to_first_token_seconds", &metrics.time_to_first_token),
            ("inter_token_latency_seconds", &metrics.time_per_token),
            ("request_time_per_output_token_seconds", &metrics.time_per_token),
            ("time_per_output_token_seconds", &metrics.time_per_token),
            ("e2e_request_latency_seconds", &metrics.request_time),
            ("request_queue_time_seconds", &metrics.queue_time),
            ("request_inference_time_seconds", &metrics.inference_time),
            ("request_prefill_time_seconds", &metrics.prefill_time),
            ("request_decode_time_seconds", &metrics.decode_time),
            ("request_prompt_tokens", &metrics.prompt_tokens),
            ("request_generation_tokens", &metrics.generation_tokens),
            ("request_params_n", &metrics.choices),
        ] {
            let labels = format!("{},", self.labels);
            self.histogram(&format!("pagella_{name}"), "", histogram);
            self.histogram(&format!("vllm:{name}"), &labels, histogram);
        }
    }

    fn histogram(&mut self, name: &str, labels: &str, histogram: &Histogram) {
        let _ = writeln!(self.text, "# TYPE {name} histogram");
        let cumulative = histogram.cumulative();
        for (bound, count) in &cumulative {
            let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
            let _ = writeln!(self.text, "{name}_bucket{{{labels}le=\"{bound}\"}} {count}");
        }
        let all = cumulative.last().map_or(0, |(_, count)| *count);
        let labels = labels.trim_end_matches(',');
        let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(
            self.text,
            "{name}_sum{braces} {}\n{name}_count{braces} {all}",
            histogram.sum()
        );
    }

    fn http(&mut self, metrics: &Metrics) {
        let requests = metrics.requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let _ = writeln!(self.text, "# TYPE http_requests_total counter");
        for ((method, path, status), n) in requests {
            let _ = writeln!(
                self.text,
                "http_requests_total{{method=\"{method}\",path=\"{path}\",status=\"{status}\"}} {n}"
            );
        }
        self.histogram("http_request_duration_seconds", "", &metrics.http_time);
    }
}
