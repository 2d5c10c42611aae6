//! Where the server listens, who may ask, what is written down.

use crate::config::entry::{Entry, Kind, checked, entry, unbuilt};
use crate::settings::{
    ApiServer, CacheIsolation, DocsAuth, LogLevel, PeerName, Settings, Tls, UnknownFields,
};

const N: &str = "network";
const A: &str = "auth";
const L: &str = "logging";

/// The files of TLS, to be filled in; that both are there is checked at the end.
fn tls(settings: &mut Settings) -> &mut Tls {
    let empty = || Tls { cert: Default::default(), key: Default::default() };
    settings.network.tls.get_or_insert_with(empty)
}

pub(super) const ROWS: &[Entry] = &[
    entry((N, "host"), Kind::Text, "127.0.0.1", "Address to listen on, or unix:PATH", |s, v| {
        s.network.host = v.text();
    }),
    entry(
        (N, "port"),
        Kind::Int { min: 0, max: 65535 },
        "5000",
        "Port to listen on; 0 lets the system choose",
        |s, v| s.network.port = u16::try_from(v.int()).unwrap_or(0),
    ),
    entry((N, "base_path"), Kind::Text, "", "What every path begins with", |s, v| {
        s.network.base_path = v.text();
    }),
    entry((N, "disable_auth"), Kind::Bool, "false", "GenerationRequest for no key", |s, v| {
        s.network.disable_auth = v.bool();
    }),
    entry(
        (N, "allow_open"),
        Kind::Bool,
        "false",
        "Allow disable_auth on an address that other machines can reach",
        |s, v| s.network.allow_open = v.bool(),
    ),
    entry(
        (N, "hosts"),
        Kind::Texts,
        "[]",
        "Further host names under which the server is reached",
        |s, v| s.network.hosts = v.texts(),
    )
    .live()
    .flag("allow-host"),
    checked(
        (N, "proxies"),
        Kind::Texts,
        "[]",
        "Addresses of reverse proxies, as 10.0.0.7 or 10.0.0.0/8: not limited by address",
        |s, v| {
            s.network.proxies =
                v.texts().iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
            Ok(())
        },
    )
    .live(),
    unbuilt(N, "fetch", &["false"], "Fetch images that requests name by address"),
    unbuilt(N, "fetch_allow", &["[]"], "Hosts from which images may be fetched"),
    checked(
        (N, "api_servers"),
        Kind::Texts,
        "[\"oai\", \"anthropic\", \"ollama\", \"llamacpp\"]",
        "Which families of routes there are: oai, anthropic, ollama, llamacpp, kobold, ws",
        |s, v| {
            let names = ApiServer::ALL.map(ApiServer::name).join(", ");
            let one = |name: &String| {
                let lower = name.to_ascii_lowercase();
                let lower = match lower.as_str() {
                    "openai" => "oai",
                    "llama.cpp" => "llamacpp",
                    other => other,
                };
                let known = ApiServer::ALL.into_iter().find(|server| server.name() == lower);
                known.ok_or_else(|| format!("some of {names}, not {name:?}"))
            };
            s.network.api_servers = v.texts().iter().map(one).collect::<Result<_, _>>()?;
            Ok(())
        },
    ),
    entry(
        (N, "sse_ping_interval"),
        Kind::Seconds,
        "15",
        "Silence after which a stream says that it is alive; 0 is never",
        |s, v| s.network.sse_ping_interval = v.seconds(),
    )
    .live(),
    entry(
        (N, "stall_timeout"),
        Kind::Seconds,
        "120",
        "How long a client may not read before its request is cancelled",
        |s, v| s.network.stall_timeout = v.seconds(),
    )
    .live(),
    entry(
        (N, "detach_timeout"),
        Kind::Seconds,
        "60",
        "How long a resumable stream goes on without a reader",
        |s, v| s.network.detach_timeout = v.seconds(),
    )
    .live(),
    entry(
        (N, "send_tracebacks"),
        Kind::Bool,
        "false",
        "Tell administrators where an internal error came from",
        |s, v| s.network.send_tracebacks = v.bool(),
    )
    .live(),
    entry(
        (N, "unknown_fields"),
        Kind::OneOf(&["warn", "reject", "ignore"]),
        "warn",
        "What happens to fields of requests that nobody knows",
        |s, v| {
            s.network.unknown_fields = match v.text().as_str() {
                "reject" => UnknownFields::Reject,
                "ignore" => UnknownFields::Ignore,
                _ => UnknownFields::Warn,
            };
        },
    )
    .live(),
    entry((N, "tls_cert"), Kind::Text, "", "Certificates for TLS, a PEM file", |s, v| {
        if let Some(path) = v.maybe_path() {
            tls(s).cert = path;
        }
    }),
    entry((N, "tls_key"), Kind::Text, "", "Key for TLS, a PEM file", |s, v| {
        if let Some(path) = v.maybe_path() {
            tls(s).key = path;
        }
    }),
    entry(
        (N, "docs_auth"),
        Kind::OneOf(&["none", "api", "admin"]),
        "none",
        "Who may read the description of the routes",
        |s, v| {
            s.network.docs_auth = match v.text().as_str() {
                "api" => DocsAuth::Api,
                "admin" => DocsAuth::Admin,
                _ => DocsAuth::None,
            };
        },
    ),
    entry((N, "slots"), Kind::Bool, "false", "Show jobs at /slots, as llama.cpp has it", |s, v| {
        s.network.slots = v.bool();
    })
    .live(),
    entry((A, "keys_file"), Kind::Text, "keys.toml", "File of keys", |s, v| {
        s.auth.keys_file = v.path();
    })
    .live()
    .flag("keys"),
    entry(
        (A, "strict_key_file"),
        Kind::Bool,
        "false",
        "Refuse a file of keys that others can read, instead of warning",
        |s, v| s.auth.strict_key_file = v.bool(),
    ),
    entry(
        (A, "cache_isolation"),
        Kind::OneOf(&["auto", "none", "key"]),
        "auto",
        "Who shares cached prompts: auto keeps keys apart where others can reach the server",
        |s, v| {
            s.auth.cache_isolation = match v.text().as_str() {
                "none" => CacheIsolation::None,
                "key" => CacheIsolation::Key,
                _ => CacheIsolation::Auto,
            };
        },
    ),
    entry(
        ("cors", "origins"),
        Kind::Texts,
        "[]",
        "Web pages of other origins that may ask: origins, localhost or *",
        |s, v| s.network.cors_origins = v.texts(),
    )
    .live()
    .flag("cors-origin"),
    entry(
        (L, "level"),
        Kind::OneOf(&["debug", "info", "warn", "error"]),
        "info",
        "The least that is written down",
        |s, v| {
            s.logging.level = match v.text().as_str() {
                "debug" => LogLevel::Debug,
                "warn" => LogLevel::Warn,
                "error" => LogLevel::Error,
                _ => LogLevel::Info,
            };
        },
    )
    .live(),
    entry((L, "format"), Kind::OneOf(&["text", "json"]), "text", "Form of the lines", |s, v| {
        s.logging.json = v.text() == "json";
    }),
    entry((L, "file"), Kind::Text, "", "A log file beside standard error", |s, v| {
        s.logging.file = v.maybe_path();
    }),
    entry((L, "log_prompt"), Kind::Bool, "false", "Write prompts down", |s, v| {
        s.logging.log_prompt = v.bool();
    })
    .live(),
    entry(
        (L, "log_generation_params"),
        Kind::Bool,
        "false",
        "Write down how each answer was sampled",
        |s, v| s.logging.log_generation_params = v.bool(),
    )
    .live(),
    entry(
        (L, "log_requests"),
        Kind::Bool,
        "false",
        "Write down headers and bodies of requests, without keys",
        |s, v| s.logging.log_requests = v.bool(),
    )
    .live(),
    entry(
        (L, "log_chat_completion_requests"),
        Kind::Text,
        "",
        "A folder for conversations and their rendered prompts, one file each",
        |s, v| s.logging.log_chat_completion_requests = v.maybe_path(),
    )
    .live(),
    entry((L, "access"), Kind::Bool, "true", "One line per request", |s, v| {
        s.logging.access = v.bool();
    })
    .live(),
    entry(
        (L, "peer"),
        Kind::OneOf(&["full", "hash", "none"]),
        "full",
        "How clients are named in the log",
        |s, v| {
            s.logging.peer = match v.text().as_str() {
                "hash" => PeerName::Hash,
                "none" => PeerName::None,
                _ => PeerName::Full,
            };
        },
    )
    .live(),
];
