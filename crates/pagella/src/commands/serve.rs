//! `pagella serve`: a model behind HTTP.
//!
//! The socket is bound before the model is loaded, so that a port in use fails at once and health
//! can be asked meanwhile. The server loads models by way of an opener, which is made here.

mod embedding;
mod folder;
mod notify;
mod open;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use pagella::Math;
use pagella_server::name::Links;
use pagella_server::settings::{CacheIsolation, Settings, UnknownFields};
use pagella_server::{App, Keys, Server, ServerError, create_keys, load_at_start, load_keys};

use crate::flags::{BatchFlags, ModelFlags};
use crate::output;
use crate::usage::Usage;

/// Exit code of a program ended by a second Ctrl-C, as shells expect it.
const EXIT_INTERRUPTED: i32 = 130;
/// How long threads may take to end after the last request.
const RUNTIME_END: Duration = Duration::from_secs(1);

/// Serve a model to OpenAI clients
///
/// Listens on this machine only unless --host says otherwise. Keys are in a file that is made when
/// there is none.
#[derive(Args)]
pub struct ServeArgs {
    /// Model: a directory, a hub id in the local cache, or demo; may be left out with --model-dir
    #[arg(value_name = "MODEL", required_unless_present = "model_dir")]
    model: Option<String>,
    /// Folder of models that administrators can load while the server runs
    #[arg(long, value_name = "DIR", env = "PAGELLA_MODEL_DIR")]
    model_dir: Option<PathBuf>,
    /// Do not follow links that lead out of the folder of models
    #[arg(long, requires = "model_dir")]
    no_follow_links: bool,
    /// Most models that are loaded at once; the least recently used goes for a new one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    max_models: u16,
    /// Most memory that models may take together, in GiB [default: what the devices have]
    #[arg(long, value_name = "GIB", value_parser = clap::value_parser!(u32).range(1..))]
    memory_budget: Option<u32>,
    /// Load the model that a request of an administrator names
    #[arg(long, requires = "model_dir")]
    inline_model_loading: bool,
    /// Seconds without requests after which a model is unloaded; the next request loads it again
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    idle_unload: u64,
    /// Another name of a model, as NAME=MODEL; can be repeated
    #[arg(long = "alias", value_name = "NAME=MODEL", value_parser = alias)]
    aliases: Vec<(String, String)>,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", env = "PAGELLA_HOST")]
    host: String,
    /// Port to listen on; 0 lets the system choose
    #[arg(long, value_name = "N", default_value_t = 5000, env = "PAGELLA_PORT")]
    port: u16,
    /// File of keys; made with two new keys when there is none
    #[arg(long, value_name = "FILE", default_value = "keys.toml", env = "PAGELLA_KEYS")]
    keys: PathBuf,
    /// Ask for no key: everyone who reaches the address may do everything
    #[arg(long)]
    disable_auth: bool,
    /// Allow --disable-auth on an address that other machines can reach
    #[arg(long, requires = "disable_auth")]
    allow_open: bool,
    /// The name that clients see [default: the last part of MODEL]
    #[arg(long, value_name = "NAME")]
    model_name: Option<String>,
    /// Refuse requests that name another model
    #[arg(long)]
    reject_unknown_models: bool,
    /// Further host name under which the server is reached; can be repeated
    #[arg(long = "allow-host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Web pages that may ask: an origin, localhost or *; can be repeated
    #[arg(long = "cors-origin", value_name = "ORIGIN")]
    cors_origins: Vec<String>,
    /// What every path begins with
    #[arg(long, value_name = "PATH", default_value = "")]
    base_path: String,
    /// What happens to fields that nobody knows
    #[arg(long, value_name = "POLICY", default_value = "warn")]
    unknown_fields: FieldPolicy,
    /// Who shares cached prompts
    #[arg(long, value_name = "SCOPE", default_value = "auto")]
    cache_isolation: Isolation,
    /// Most requests that wait
    #[arg(long, value_name = "N", default_value_t = 256)]
    max_queue: usize,
    /// Seconds for which running requests may go on after the server was told to end
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    drain_timeout: u64,
    /// Log lines of JSON, on standard error
    #[arg(long)]
    json: bool,
    /// Do not log requests
    #[arg(long)]
    no_access_log: bool,
    #[command(flatten)]
    batch: BatchFlags,
    #[command(flatten)]
    model_flags: ModelFlags,
}

/// What happens to fields that nobody knows.
#[derive(Clone, Copy, ValueEnum)]
enum FieldPolicy {
    /// The answer names them
    Warn,
    /// The request is refused
    Reject,
    /// Nothing
    Ignore,
}

/// Who shares cached prompts.
#[derive(Clone, Copy, ValueEnum)]
enum Isolation {
    /// Each key alone, except on a loopback address or with a single key
    Auto,
    /// Everyone with everyone
    None,
    /// Each key alone
    Key,
}

impl ServeArgs {
    fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        let network = &mut settings.network;
        network.host = self.host.clone();
        network.port = self.port;
        network.base_path = self.base_path.clone();
        network.disable_auth = self.disable_auth;
        network.allow_open = self.allow_open;
        network.hosts = self.hosts.clone();
        network.cors_origins = self.cors_origins.clone();
        network.unknown_fields = match self.unknown_fields {
            FieldPolicy::Warn => UnknownFields::Warn,
            FieldPolicy::Reject => UnknownFields::Reject,
            FieldPolicy::Ignore => UnknownFields::Ignore,
        };
        settings.auth.keys_file = self.keys.clone();
        settings.auth.cache_isolation = match self.cache_isolation {
            Isolation::Auto => CacheIsolation::Auto,
            Isolation::None => CacheIsolation::None,
            Isolation::Key => CacheIsolation::Key,
        };
        settings.limits.max_queue = self.max_queue;
        settings.logging.json = self.json;
        settings.logging.access = !self.no_access_log;
        let model = &mut settings.model;
        model.reject_unknown = self.reject_unknown_models;
        model.inline_model_loading = self.inline_model_loading;
        model.idle_unload = Duration::from_secs(self.idle_unload);
        model.max_models = usize::from(self.max_models);
        model.memory_budget = u64::from(self.memory_budget.unwrap_or(0)) << 30;
        model.aliases = self.aliases.iter().cloned().collect();
        settings.shutdown.drain_timeout = Duration::from_secs(self.drain_timeout);
        settings
    }
}

/// Runs the command.
pub fn run(args: &ServeArgs) -> Result<()> {
    // What the command line says wrongly is said before anything is bound or made.
    let opener = opener(args)?;
    let keys = keys(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("pagella-http")
        .enable_all()
        .build()
        .context("cannot start the server's threads")?;
    let server = runtime.block_on(Server::bind(args.settings(), keys)).map_err(blame)?;
    let app = server.app().clone();
    announce(args, &app);
    notify::notify("READY=1\nSTATUS=listening; /health/ready tells when the model is loaded");
    let named = opener.named.as_ref().map(|(id, _)| id.clone());
    app.model.set_opener(Arc::new(opener));
    if let Some(id) = named {
        load_at_start(&app, &id);
    }
    let shutdown = server.shutdown();
    let app = server.app().clone();
    runtime.block_on(async {
        tokio::spawn(async move {
            let mut asked = false;
            while wait_for_signal(&app).await {
                if asked {
                    std::process::exit(EXIT_INTERRUPTED);
                }
                asked = true;
                shutdown.begin();
            }
        });
        server.run().await;
    });
    runtime.shutdown_timeout(RUNTIME_END);
    Ok(())
}

/// Who opens models: the one of the command line, and those of the folder.
fn opener(args: &ServeArgs) -> Result<open::Opener> {
    let folder = match &args.model_dir {
        None => None,
        Some(dir) if dir.is_dir() => {
            let links = if args.no_follow_links { Links::Refuse } else { Links::Follow };
            Some(folder::Folder { root: dir.clone(), links })
        }
        Some(dir) => {
            let message = format!("--model-dir {}: there is no such folder", dir.display());
            return Err(Usage::error(message));
        }
    };
    let named = match &args.model {
        None => None,
        Some(model) => {
            let dir = args.model_flags.builder(model, Math::Wide).dir()?;
            let id = args.model_name.clone().unwrap_or_else(|| open::model_id(model, &dir));
            Some((id, dir))
        }
    };
    let (model_flags, batch) = (args.model_flags.clone(), args.batch.clone());
    Ok(open::Opener { named, folder, model_flags, batch })
}

/// `NAME=MODEL`.
fn alias(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, model)) if !name.is_empty() && !model.is_empty() => {
            Ok((name.to_owned(), model.to_owned()))
        }
        _ => Err("give NAME=MODEL".to_owned()),
    }
}

/// The keys of the file; a new file when there is none, whose keys are shown this once.
fn keys(args: &ServeArgs) -> Result<Keys> {
    if args.disable_auth {
        return Ok(Keys::none());
    }
    if !args.keys.exists() {
        let (api, admin) = create_keys(&args.keys)?;
        let path = args.keys.display();
        output::note(&format!(
            "Made {path}. These keys are shown once:\n  api    {api}\n  admin  {admin}"
        ));
    }
    let keys = load_keys(&args.keys)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&args.keys).map(|meta| meta.permissions().mode());
        if mode.is_ok_and(|mode| mode & 0o077 != 0) {
            let path = args.keys.display();
            output::note(&format!("warning: others can read {path}: chmod 600 {path}"));
        }
    }
    Ok(keys)
}

/// Says where the server is. On a terminal, with a link that opens the page with a key: whoever reads
/// the terminal may do everything anyway.
fn announce(args: &ServeArgs, app: &App) {
    let url = format!("http://{}{}", app.bound, args.base_path);
    if !std::io::stderr().is_terminal() {
        return output::note(&format!("listening on {url}"));
    }
    let page = match args.disable_auth || !app.bound.ip().is_loopback() {
        true => format!("Page: {url}/"),
        false => {
            let code = app.exchange.offer(Instant::now());
            format!("Page, by a link that works once and for ten minutes: {url}/#c={code}")
        }
    };
    let model = args.model.as_deref().unwrap_or("a folder of models");
    output::note(&format!("Serving {model} at {url}/v1; Ctrl-C ends it.\n{page}"));
}

/// Wrong choices are wrong usage; a port in use is a failure.
fn blame(error: ServerError) -> anyhow::Error {
    match error {
        ServerError::Open { .. } | ServerError::BasePath { .. } => Usage::error(error.to_string()),
        other => other.into(),
    }
}

/// Waits for a signal that ends the server; reads the keys again on SIGHUP. False when signals
/// cannot be received.
#[cfg(unix)]
async fn wait_for_signal(app: &Arc<App>) -> bool {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = signals.map(signal) else {
        return false;
    };
    loop {
        tokio::select! {
            _ = interrupt.recv() => return true,
            _ = terminate.recv() => return true,
            _ = hangup.recv() => {
                if let Err(error) = app.reload_keys() {
                    app.issue("keys", &error.to_string());
                }
            }
        }
    }
}

/// Waits for Ctrl-C. False when signals cannot be received.
#[cfg(not(unix))]
async fn wait_for_signal(_: &Arc<App>) -> bool {
    tokio::signal::ctrl_c().await.is_ok()
}
