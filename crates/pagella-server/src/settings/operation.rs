//! How the server is run: what it fetches, what it tells, how it ends.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What may be fetched from hubs.
#[derive(Clone, Debug)]
pub struct Downloads {
    /// Whether anything may.
    pub enabled: bool,
    /// Hosts that may be asked.
    pub hosts: Vec<String>,
    /// The folder for what was fetched; the folder of models unless stated.
    pub dir: Option<PathBuf>,
}

impl Default for Downloads {
    fn default() -> Self {
        let hosts = ["huggingface.co", "*.hf.co"].map(str::to_owned).to_vec();
        Downloads { enabled: true, hosts, dir: None }
    }
}

/// What is counted for others to read.
#[derive(Clone, Debug)]
pub struct MetricSettings {
    /// Whether it can be read.
    pub enabled: bool,
    /// Who may read it.
    pub auth: MetricsAuth,
    /// A socket of its own.
    pub listen: Option<SocketAddr>,
    /// Under whose names.
    pub names: Vec<MetricNames>,
    /// Some counts by key.
    pub per_key: bool,
}

/// Who may read what is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsAuth {
    /// Everyone on this machine; from other machines, keys of administrators.
    Auto,
    /// Everyone.
    None,
    /// Keys of administrators.
    Admin,
}

/// Under whose names something is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricNames {
    /// Our own.
    Native,
    /// vLLM's.
    Vllm,
    /// llama.cpp's.
    LlamaCpp,
}

impl Default for MetricSettings {
    fn default() -> Self {
        MetricSettings {
            enabled: true,
            auth: MetricsAuth::Auto,
            listen: None,
            names: vec![MetricNames::Native, MetricNames::Vllm],
            per_key: false,
        }
    }
}

/// How the server ends.
#[derive(Clone, Debug)]
pub struct Shutdown {
    /// How long running requests may go on.
    pub drain_timeout: Duration,
    /// How long the server still accepts while it says that it is not ready.
    pub drain_delay: Duration,
}

impl Default for Shutdown {
    fn default() -> Self {
        Shutdown { drain_timeout: Duration::from_secs(30), drain_delay: Duration::ZERO }
    }
}

/// When the engine counts as dead.
#[derive(Clone, Debug)]
pub struct Health {
    /// Longest time without a sign of life.
    pub timeout: Duration,
    /// Ready without a model.
    pub ready_without_model: bool,
}

impl Default for Health {
    fn default() -> Self {
        Health { timeout: Duration::from_secs(30), ready_without_model: false }
    }
}

/// The built-in page.
#[derive(Clone, Debug)]
pub struct Ui {
    /// Whether it is served.
    pub enabled: bool,
    /// It may keep conversations here.
    pub server_store: bool,
    /// In this folder.
    pub store_dir: PathBuf,
    /// Most documents of a key.
    pub store_max_entries: usize,
    /// Most bytes of a key.
    pub store_max_bytes: u64,
}

impl Default for Ui {
    fn default() -> Self {
        Ui {
            enabled: true,
            server_store: false,
            store_dir: PathBuf::from("ui_store"),
            store_max_entries: 1000,
            store_max_bytes: 256 << 20,
        }
    }
}
