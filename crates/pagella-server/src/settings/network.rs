//! Where and how the server listens.

use std::path::PathBuf;
use std::time::Duration;

use super::Subnet;

/// Where and how the server listens.
#[derive(Clone, Debug)]
pub struct Network {
    /// Address or name; `unix:PATH` is a socket in the file system.
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
    /// Addresses of proxies: behind each are many clients.
    pub proxies: Vec<Subnet>,
    /// Web pages of other origins that may ask: origins, `localhost` or `*`.
    pub cors_origins: Vec<String>,
    /// Which families of routes there are.
    pub api_servers: Vec<ApiServer>,
    /// Silence after which a stream says that it is alive; zero is never.
    pub sse_ping_interval: Duration,
    /// How long a client may not read before its request is cancelled.
    pub stall_timeout: Duration,
    /// How long a resumable stream goes on without a reader.
    pub detach_timeout: Duration,
    /// Administrators see where an internal error came from.
    pub send_tracebacks: bool,
    /// What happens to fields that nobody knows.
    pub unknown_fields: UnknownFields,
    /// Certificates and key of TLS; both or neither.
    pub tls: Option<Tls>,
    /// Who may read the description of the routes.
    pub docs_auth: DocsAuth,
    /// Jobs can be read as llama.cpp's slots.
    pub slots: bool,
}

/// A family of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiServer {
    /// OpenAI's.
    OpenAi,
    /// Anthropic's.
    Anthropic,
    /// Ollama's.
    Ollama,
    /// llama.cpp's own routes that generate text.
    LlamaCpp,
    /// KoboldAI's, with KoboldCpp's additions.
    Kobold,
    /// ExLlamaV2's actions over a WebSocket.
    Ws,
}

impl ApiServer {
    /// Every one.
    pub const ALL: [ApiServer; 6] = [
        ApiServer::OpenAi,
        ApiServer::Anthropic,
        ApiServer::Ollama,
        ApiServer::LlamaCpp,
        ApiServer::Kobold,
        ApiServer::Ws,
    ];

    /// Those that are there unless the operator chose others.
    pub const USUAL: [ApiServer; 4] =
        [ApiServer::OpenAi, ApiServer::Anthropic, ApiServer::Ollama, ApiServer::LlamaCpp];

    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            ApiServer::OpenAi => "oai",
            ApiServer::Anthropic => "anthropic",
            ApiServer::Ollama => "ollama",
            ApiServer::LlamaCpp => "llamacpp",
            ApiServer::Kobold => "kobold",
            ApiServer::Ws => "ws",
        }
    }
}

/// Files of TLS, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The server's certificate, then those that vouch for it.
    pub cert: PathBuf,
    /// The key of the first certificate.
    pub key: PathBuf,
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

/// Who may read the description of the routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocsAuth {
    /// Everyone.
    None,
    /// Every valid key.
    Api,
    /// Keys of administrators.
    Admin,
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
            proxies: Vec::new(),
            cors_origins: Vec::new(),
            api_servers: ApiServer::USUAL.to_vec(),
            sse_ping_interval: Duration::from_secs(15),
            stall_timeout: Duration::from_secs(120),
            detach_timeout: Duration::from_secs(60),
            send_tracebacks: false,
            unknown_fields: UnknownFields::Warn,
            tls: None,
            docs_auth: DocsAuth::None,
            slots: false,
        }
    }
}
