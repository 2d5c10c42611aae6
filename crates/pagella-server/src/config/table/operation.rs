//! How the server is run.

use crate::config::entry::{Entry, Kind, checked, entry};
use crate::settings::{MetricNames, MetricsAuth};

const SOME: Kind = Kind::Int { min: 1, max: i64::MAX };

pub(super) const ROWS: &[Entry] = &[
    entry(("downloads", "enabled"), Kind::Bool, "true", "Models may be fetched", |s, v| {
        s.downloads.enabled = v.bool();
    })
    .live(),
    entry(
        ("downloads", "hosts"),
        Kind::Texts,
        "[\"huggingface.co\", \"*.hf.co\"]",
        "Hosts that may be asked for models",
        |s, v| s.downloads.hosts = v.texts(),
    )
    .live(),
    entry(
        ("downloads", "dir"),
        Kind::Text,
        "",
        "Folder for what was fetched, instead of model_dir",
        |s, v| s.downloads.dir = v.maybe_path(),
    ),
    entry(("metrics", "enabled"), Kind::Bool, "true", "Counts can be read", |s, v| {
        s.metrics.enabled = v.bool();
    }),
    entry(
        ("metrics", "auth"),
        Kind::OneOf(&["auto", "none", "admin"]),
        "auto",
        "Who may read them: auto asks for an admin key where others can reach the server",
        |s, v| {
            s.metrics.auth = match v.text().as_str() {
                "none" => MetricsAuth::None,
                "admin" => MetricsAuth::Admin,
                _ => MetricsAuth::Auto,
            };
        },
    ),
    checked(
        ("metrics", "listen"),
        Kind::Text,
        "",
        "Address and port of a socket for counts alone",
        |s, v| {
            let parsed = v.maybe_text().map(|text| text.parse()).transpose();
            s.metrics.listen =
                parsed.map_err(|_| "an address such as 127.0.0.1:9090".to_owned())?;
            Ok(())
        },
    ),
    entry(
        ("metrics", "names"),
        Kind::Names(&["native", "vllm", "llamacpp"]),
        "[\"native\", \"vllm\"]",
        "Under whose names counts are told",
        |s, v| {
            let one = |name: &String| match name.as_str() {
                "vllm" => MetricNames::Vllm,
                "llamacpp" => MetricNames::LlamaCpp,
                _ => MetricNames::Native,
            };
            s.metrics.names = v.texts().iter().map(one).collect();
        },
    ),
    entry(("metrics", "per_key"), Kind::Bool, "false", "Some counts by key", |s, v| {
        s.metrics.per_key = v.bool();
    }),
    entry(
        ("health", "timeout"),
        Kind::Seconds,
        "30",
        "Silence after which the engine counts as dead",
        |s, v| s.health.timeout = v.seconds(),
    ),
    entry(
        ("health", "ready_without_model"),
        Kind::Bool,
        "false",
        "Ready without a model",
        |s, v| s.health.ready_without_model = v.bool(),
    ),
    entry(
        ("shutdown", "drain_timeout"),
        Kind::Seconds,
        "30",
        "How long running requests may go on when the server ends, or their model makes room",
        |s, v| s.shutdown.drain_timeout = v.seconds(),
    ),
    entry(
        ("shutdown", "drain_delay"),
        Kind::Seconds,
        "0",
        "How long the server still accepts while it says that it is not ready",
        |s, v| s.shutdown.drain_delay = v.seconds(),
    ),
    entry(("ui", "enabled"), Kind::Bool, "true", "Serve the built-in page", |s, v| {
        s.ui.enabled = v.bool();
    }),
    entry(
        ("ui", "server_store"),
        Kind::Bool,
        "false",
        "The page may keep conversations on the server",
        |s, v| s.ui.server_store = v.bool(),
    ),
    entry(("ui", "store_dir"), Kind::Text, "ui_store", "Folder for them", |s, v| {
        s.ui.store_dir = v.path();
    }),
    entry(("ui", "store_max_entries"), SOME, "1000", "Most of them, per key", |s, v| {
        s.ui.store_max_entries = v.count();
    }),
    entry(("ui", "store_max_bytes"), SOME, "268435456", "Bytes of them, per key", |s, v| {
        s.ui.store_max_bytes = v.count() as u64;
    }),
];
