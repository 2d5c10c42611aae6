//! How the server is run: what it fetches, what it tells, how it ends.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::declare::{choice, section};

section! {
    /// What may be fetched from hubs.
    Downloads at downloads {
        /// Models may be fetched
        enabled: bool = true, live;
        /// Hosts that may be asked for models
        hosts: Vec<String> = vec!["huggingface.co".into(), "*.hf.co".into()], live;
        /// Folder for what was fetched, instead of model_dir
        dir: Option<PathBuf> = None;
    }
}

section! {
    /// What is counted for others to read.
    MetricSettings at metrics {
        /// Counts can be read
        enabled: bool = true;
        /// Who may read them: auto asks for an admin key where others can reach the server
        auth: MetricsAuth = MetricsAuth::Auto;
        /// Address and port of a socket for counts alone
        listen: Option<SocketAddr> = None;
        /// Under whose names counts are told
        names: Vec<MetricNames> = vec![MetricNames::Native, MetricNames::Vllm];
        /// Some counts by key
        per_key: bool = false;
    }
}

section! {
    /// When the engine counts as dead.
    Health at health {
        /// Silence after which the engine counts as dead
        timeout: Duration = Duration::from_secs(30);
        /// Ready without a model
        ready_without_model: bool = false;
    }
}

section! {
    /// How the server ends.
    Shutdown at shutdown {
        /// How long running requests may go on when the server ends, or their model makes room
        drain_timeout: Duration = Duration::from_secs(30);
        /// How long the server still accepts while it says that it is not ready
        drain_delay: Duration = Duration::ZERO;
    }
}

section! {
    /// The built-in page.
    Ui at ui {
        /// Serve the built-in page
        enabled: bool = true;
        /// The page may keep conversations on the server
        server_store: bool = false;
        /// Folder for them
        store_dir: PathBuf = "ui_store".into();
        /// Most of them, per key
        store_max_entries: usize = 1000, at_least(1);
        /// Bytes of them, per key
        store_max_bytes: u64 = 256 << 20, at_least(1);
    }
}

choice! {
    /// Who may read what is counted.
    MetricsAuth {
        /// Everyone on this machine; from other machines, keys of administrators.
        Auto = "auto",
        /// Everyone.
        None = "none",
        /// Keys of administrators.
        Admin = "admin",
    }
}

choice! {
    /// Under whose names something is counted.
    MetricNames {
        /// Our own.
        Native = "native",
        /// vLLM's.
        Vllm = "vllm",
        /// llama.cpp's.
        LlamaCpp = "llamacpp",
    }
}
