//! Where the server listens and who may ask.

use std::path::PathBuf;
use std::time::Duration;

use toml::Value;

use super::Subnet;
use super::declare::{choice, section};
use super::value::SettingValue;

section! {
    /// Where and how the server listens.
    Network at network {
        /// Address to listen on, or unix:PATH
        host: String = "127.0.0.1".into(), variable("HOST"), common;
        /// Port to listen on; 0 lets the system choose
        port: u16 = 5000, variable("PORT"), common;
        /// What every path begins with
        base_path: String = String::new();
        /// Ask for no key
        disable_auth: bool = false, common;
        /// Allow disable_auth on an address that other machines can reach
        allow_open: bool = false;
        /// Further host names under which the server is reached
        hosts: Vec<String> = vec![], live, flag("allow-host");
        /// Addresses of reverse proxies, as 10.0.0.7 or 10.0.0.0/8: not limited by address
        proxies: Vec<Subnet> = vec![], live;
        /// Which families of routes there are: oai, anthropic, ollama, llamacpp, kobold, ws
        api_servers: Vec<ApiServer> = ApiServer::USUAL.to_vec(), by(families);
        /// Silence after which a stream says that it is alive; 0 is never
        sse_ping_interval: Duration = Duration::from_secs(15), live;
        /// How long a client may not read before its request is cancelled
        stall_timeout: Duration = Duration::from_secs(120), live;
        /// How long a resumable stream goes on without a reader
        detach_timeout: Duration = Duration::from_secs(60), live;
        /// Tell administrators where an internal error came from
        send_tracebacks: bool = false, live;
        /// What happens to fields of requests that nobody knows
        unknown_fields: UnknownFields = UnknownFields::Warn, live;
        /// Certificates for TLS, a PEM file
        tls_cert: Option<PathBuf> = None;
        /// Key for TLS, a PEM file
        tls_key: Option<PathBuf> = None;
        /// Who may read the description of the routes
        docs_auth: DocsAuth = DocsAuth::None;
        /// Show jobs at /slots, as llama.cpp has it
        slots: bool = false, live;
        /// Web pages of other origins that may ask: origins, localhost or *
        cors_origins: Vec<String> = vec![],
            section("cors"), key("origins"), live, flag("cors-origin");
    }
}

section! {
    /// Who may ask.
    Auth at auth {
        /// File of keys
        keys_file: PathBuf = "keys.toml".into(), live, flag("keys"), variable("KEYS"), common;
        /// Refuse a file of keys that others can read, instead of warning
        strict_key_file: bool = false;
        /// Who shares cached prompts: auto keeps keys apart where others can reach the server
        cache_isolation: CacheIsolation = CacheIsolation::Auto;
    }
}

choice! {
    /// What happens to fields that nobody knows.
    UnknownFields {
        /// The response names them.
        Warn = "warn",
        /// The request is refused.
        Reject = "reject",
        /// Nothing.
        Ignore = "ignore",
    }
}

choice! {
    /// Who may read the description of the routes.
    DocsAuth {
        /// Everyone.
        None = "none",
        /// Every valid key.
        Api = "api",
        /// Keys of administrators.
        Admin = "admin",
    }
}

choice! {
    /// Who shares cached pages with whom.
    CacheIsolation {
        /// `Key`, except on a loopback address or with a single key.
        Auto = "auto",
        /// Everyone with everyone.
        None = "none",
        /// Each key only with itself, or with its group.
        Key = "key",
    }
}

impl Network {
    /// The files of TLS, if it is used.
    pub fn tls(&self) -> Option<Tls> {
        Some(Tls { cert: self.tls_cert.clone()?, key: self.tls_key.clone()? })
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

choice! {
    /// A family of routes.
    ApiServer {
        /// OpenAI's.
        OpenAi = "oai",
        /// Anthropic's.
        Anthropic = "anthropic",
        /// Ollama's.
        Ollama = "ollama",
        /// llama.cpp's own routes that generate text.
        LlamaCpp = "llamacpp",
        /// KoboldAI's, with KoboldCpp's additions.
        Kobold = "kobold",
        /// ExLlamaV2's actions over a WebSocket.
        Ws = "ws",
    }
}

impl ApiServer {
    /// Those that are there unless the operator chose others.
    pub const USUAL: [ApiServer; 4] =
        [ApiServer::OpenAi, ApiServer::Anthropic, ApiServer::Ollama, ApiServer::LlamaCpp];
}

/// Names of families, also as others write them.
fn families(value: &Value) -> Result<Vec<ApiServer>, String> {
    let one = |name: &String| {
        let lower = name.to_ascii_lowercase();
        let lower = match lower.as_str() {
            "openai" => "oai",
            "llama.cpp" => "llamacpp",
            other => other,
        };
        let known = ApiServer::ALL.into_iter().find(|family| family.name() == lower);
        let names = || ApiServer::ALL.map(ApiServer::name).join(", ");
        known.ok_or_else(|| format!("some of {}, not {name:?}", names()))
    };
    Vec::<String>::read(value)?.iter().map(one).collect()
}
