//! What an operator can choose, with defaults. Plain data; who reads it from where is not its
//! business.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::auth::Role;

/// Everything that can be chosen.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Where and how the server listens.
    pub network: Network,
    /// Who may ask.
    pub auth: Auth,
    /// How much.
    pub limits: Limits,
    /// What is written down.
    pub logging: Logging,
    /// Which models there are, and which names stand for them.
    pub model: ModelSettings,
    /// How the server ends.
    pub shutdown: Shutdown,
    /// When the engine counts as dead.
    pub health: Health,
}

/// Where and how the server listens.
#[derive(Clone, Debug)]
pub struct Network {
    /// Address or name.
    pub host: String,
    /// Port; 0 lets the system choose.
    pub port: u16,
    /// What every path begins with.
    pub base_path: String,
    /// Everyone may do everything.
    pub disable_auth: bool,
    /// Allow that on addresses that others can reach.
    pub allow_open: bool,
    /// Further names under which the server is reached.
    pub hosts: Vec<String>,
    /// Web pages of other origins that may ask: origins, `localhost` or `*`.
    pub cors_origins: Vec<String>,
    /// Silence after which a stream says that it is alive; zero is never.
    pub sse_ping_interval: Duration,
    /// How long a client may not read before its request is cancelled.
    pub stall_timeout: Duration,
    /// What happens to fields that nobody knows.
    pub unknown_fields: UnknownFields,
}

/// What happens to fields that nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownFields {
    /// The response names them.
    Warn,
    /// The request is refused.
    Reject,
    /// Nothing.
    Ignore,
}

impl Default for Network {
    fn default() -> Self {
        Network {
            host: "127.0.0.1".to_owned(),
            port: 5000,
            base_path: String::new(),
            disable_auth: false,
            allow_open: false,
            hosts: Vec::new(),
            cors_origins: Vec::new(),
            sse_ping_interval: Duration::from_secs(15),
            stall_timeout: Duration::from_secs(120),
            unknown_fields: UnknownFields::Warn,
        }
    }
}

/// Who may ask.
#[derive(Clone, Debug)]
pub struct Auth {
    /// The file of keys.
    pub keys_file: PathBuf,
    /// Refuse a file that others can read, instead of warning.
    pub strict_key_file: bool,
    /// Who shares cached pages with whom.
    pub cache_isolation: CacheIsolation,
}

/// Who shares cached pages with whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheIsolation {
    /// `Key`, except on a loopback address or with a single key.
    Auto,
    /// Everyone with everyone.
    None,
    /// Each key only with itself, or with its group.
    Key,
}

impl Default for Auth {
    fn default() -> Self {
        Auth {
            keys_file: PathBuf::from("keys.toml"),
            strict_key_file: false,
            cache_isolation: CacheIsolation::Auto,
        }
    }
}

/// How much a client may ask for, and how slowly.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections in all.
    pub connections: usize,
    /// Connections of one peer address.
    pub connections_per_peer: usize,
    /// Bytes of all headers of a request.
    pub header_bytes: usize,
    /// Headers of a request.
    pub headers: usize,
    /// Bytes of a URL.
    pub url_bytes: usize,
    /// From the first byte of a request to the end of its headers.
    pub header_time: Duration,
    /// For reading a body.
    pub body_time: Duration,
    /// Slowest body, in bytes per second, after the first seconds.
    pub body_rate: u64,
    /// Idle time after which a connection is closed.
    pub keep_alive: Duration,
    /// Bytes of a body on routes that generate text.
    pub generation_body_bytes: usize,
    /// Bytes of a body on other routes.
    pub body_bytes: usize,
    /// Messages of a conversation.
    pub messages: usize,
    /// Prompts of a completion request.
    pub prompts: usize,
    /// Choices per prompt.
    pub max_n: usize,
    /// Choices of a request in all.
    pub max_choices: usize,
    /// Most tokens of an answer; 0 is the context.
    pub max_tokens: usize,
    /// Requests that wait.
    pub max_queue: usize,
    /// Longest estimated wait; zero is any.
    pub max_queue_wait: Duration,
    /// Longest time of a request; zero is any.
    pub request_time: Duration,
    /// Threads that render, tokenize and compile; 0 is one per core.
    pub blocking_threads: usize,
    /// Work that waits for them.
    pub blocking_queue: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 1024,
            connections_per_peer: 64,
            header_bytes: 32 << 10,
            headers: 100,
            url_bytes: 8 << 10,
            header_time: Duration::from_secs(10),
            body_time: Duration::from_secs(60),
            body_rate: 1 << 10,
            keep_alive: Duration::from_secs(75),
            generation_body_bytes: 32 << 20,
            body_bytes: 1 << 20,
            messages: 20_000,
            prompts: 64,
            max_n: 8,
            max_choices: 64,
            max_tokens: 0,
            max_queue: 256,
            max_queue_wait: Duration::ZERO,
            request_time: Duration::ZERO,
            blocking_threads: 0,
            blocking_queue: 256,
        }
    }
}

/// What is written down, on standard error.
#[derive(Clone, Debug)]
pub struct Logging {
    /// Lines of JSON instead of text.
    pub json: bool,
    /// One line per request.
    pub access: bool,
    /// Nothing at all.
    pub quiet: bool,
}

impl Default for Logging {
    fn default() -> Self {
        Logging { json: false, access: true, quiet: false }
    }
}

/// Which models there are, and which names stand for them.
#[derive(Clone, Debug)]
pub struct ModelSettings {
    /// Requests may name a model that is then opened.
    pub inline_model_loading: bool,
    /// Whose requests may.
    pub inline_roles: Vec<Role>,
    /// After how long a stream that waits for its model begins with signs of life.
    pub inline_patience: Duration,
    /// Further names are listed, all of which mean the model there is.
    pub use_dummy_models: bool,
    /// These names.
    pub dummy_model_names: Vec<String>,
    /// Fields of a load for models opened by request, where the request does not say.
    pub load_defaults: Map<String, Value>,
    /// Idle time after which the model is given up; zero is never.
    pub idle_unload: Duration,
    /// Refuse names that are not the model's, instead of answering with the model there is.
    pub reject_unknown: bool,
    /// Further names of models.
    pub aliases: BTreeMap<String, String>,
    /// Most models that answer at once.
    pub max_models: usize,
    /// Most bytes they may take together; 0 is what the devices have.
    pub memory_budget: u64,
}

impl Default for ModelSettings {
    fn default() -> Self {
        ModelSettings {
            inline_model_loading: false,
            inline_roles: vec![Role::Admin],
            inline_patience: Duration::from_secs(10),
            use_dummy_models: false,
            dummy_model_names: vec!["gpt-3.5-turbo".to_owned()],
            load_defaults: Map::new(),
            idle_unload: Duration::ZERO,
            reject_unknown: false,
            aliases: BTreeMap::new(),
            max_models: 1,
            memory_budget: 0,
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
