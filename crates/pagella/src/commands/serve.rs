//! `pagella serve`: a model behind HTTP.
//!
//! The socket is bound before the model is loaded, so that a port in use fails at once and health
//! can be asked meanwhile. The server loads models by way of an opener, which is made here.

mod draft;
mod embedding;
mod fetch;
mod folder;
mod open;
mod process;
mod rerank;

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use pagella::Math;
use pagella_server::config::{Config, Source};
use pagella_server::{
    App, Keys, Server, ServerError, Settings, create_keys, keys_in_use, keys_open_to_others,
    load_at_start, load_keys, succeed,
};

use crate::flags::{AdapterFlags, BatchFlags, ConfigFlags, ModelFlags};
use crate::output;
use crate::usage::Usage;
use fetch::HubFetcher;
use process::Hangup;

/// Exit code of a program ended by a second Ctrl-C, as shells expect it.
const EXIT_INTERRUPTED: i32 = 130;
/// How long threads may take to end after the last request.
const RUNTIME_END: Duration = Duration::from_secs(1);

/// A server has the memory for itself, where other commands take little.
const CACHE_TOKENS_HELP: &str = "Tokens in the cache, which all requests share, a multiple of 256 \
                                 [default: model.cache_size, else what memory allows]";

/// Serve a model to OpenAI and Anthropic clients
///
/// Listens on this machine only unless --host says otherwise. Keys are in a file that is made when
/// there is none. Everything can also be said in config.toml: see `pagella config`.
#[derive(Args)]
#[command(mut_arg("cache_tokens", |arg| arg.help(CACHE_TOKENS_HELP)))]
pub struct ServeArgs {
    /// Model: a directory, a hub id in the local cache, or demo [default: model.model_name]
    #[arg(value_name = "MODEL")]
    model: Option<String>,
    /// The name that clients see [default: a hub id as it is, else the last part of MODEL]
    #[arg(long, value_name = "NAME")]
    model_name: Option<String>,
    /// Another name of a model, as NAME=MODEL; can be repeated
    #[arg(long = "alias", value_name = "NAME=MODEL", value_parser = alias)]
    aliases: Vec<(String, String)>,
    /// Refuse requests that name another model
    #[arg(long)]
    reject_unknown_models: bool,
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
    #[command(flatten)]
    adapters: AdapterFlags,
    #[command(flatten)]
    config: ConfigFlags,
}

impl ServeArgs {
    /// Everything that was said, here and elsewhere.
    fn load(&self) -> Result<(Source, Config)> {
        let mut config = self.config.clone();
        let mut say = |path: &str, text: String| config.values.push((path.to_owned(), text));
        if self.reject_unknown_models {
            say("model.unknown", "reject".to_owned());
        }
        if self.json {
            say("logging.format", "json".to_owned());
        }
        if self.no_access_log {
            say("logging.access", "false".to_owned());
        }
        if !self.aliases.is_empty() {
            let pair = |(name, model): &(String, String)| format!("{name:?} = {model:?}");
            let pairs: Vec<String> = self.aliases.iter().map(pair).collect();
            say("model.aliases", format!("{{ {} }}", pairs.join(", ")));
        }
        config.load()
    }
}

/// Threads that move bytes between sockets and the engine. One serves tens of thousands of tokens a
/// second; more than a few only wake each other, and take cores from whatever computes.
fn http_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() / 4).clamp(1, 4)
}

/// Runs the command.
pub fn run(args: &ServeArgs) -> Result<()> {
    // A server lives long, and serves the large beside the small.
    pagella_cpu::return_freed_memory();
    // What the command line says wrongly is said before anything is bound or made.
    let (source, config) = args.load()?;
    let legacy = process::legacy();
    let mut settings = config.settings.clone();
    if let (0, Some(legacy)) = (settings.network.port, &legacy) {
        settings.network.port = legacy.port;
    }
    fit_connections(&mut settings);
    let hangup = process::hangup();
    let opener = opener(args, &config)?;
    let keys = keys(&settings)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(http_threads())
        .thread_name("pagella-http")
        .enable_all()
        .build()
        .context("cannot start the server's threads")?;
    let base_path = settings.network.base_path.clone();
    let server = runtime.block_on(Server::bind(settings, keys)).map_err(blame)?;
    let app = server.app().clone();
    app.configured_by(source, config);
    app.downloads.fetch_with(Arc::new(HubFetcher));
    let what = opener.named.as_ref().map_or("a folder of models", |(id, _)| id.as_str());
    announce(what, &format!("{}{base_path}", server.place()), &app);
    process::notify("READY=1\nSTATUS=listening; /health tells when the model is loaded");
    let named = opener.named.as_ref().map(|(id, _)| id.clone());
    app.model.set_opener(Arc::new(opener));
    app.model.set_replacer(Box::new(process::replace));
    match (legacy, named) {
        (Some(legacy), _) => succeed(&app, legacy).context("cannot start a thread")?,
        (None, Some(id)) => load_at_start(&app, &id),
        (None, None) => {}
    }
    let shutdown = server.shutdown();
    let app = server.app().clone();
    runtime.block_on(async {
        tokio::spawn(async move {
            let mut asked = false;
            while wait_for_signal(&app, hangup).await {
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

/// Allows as many connections as files may be open: more would fail one by one while they are made.
fn fit_connections(settings: &mut Settings) {
    let wanted = settings.limits.connections;
    match process::connections() {
        Some(most) if most < wanted => {
            output::note(&format!(
                "warning: so few files may be open that there is room for {most} connections, not \
                 {wanted}: raise the limit (ulimit -n, LimitNOFILE=) or lower limits.connections"
            ));
            settings.limits.connections = most;
        }
        _ => {}
    }
}

/// Who opens models: the one of the command line or of the configuration, and those of the folder.
fn opener(args: &ServeArgs, config: &Config) -> Result<open::Opener> {
    let settings = &config.settings.model;
    let root = &settings.model_dir;
    let folder = match root.is_dir() {
        true => Some(folder::Folder { root: root.clone(), links: folder::links(settings) }),
        false if config.says("model.model_dir") => {
            let message = format!("model_dir {}: there is no such folder", root.display());
            return Err(Usage::error(message));
        }
        false => None,
    };
    let model_flags = args.model_flags.clone().or(settings)?;
    let named = match (&args.model, &settings.model_name) {
        (Some(model), _) => {
            let dir = model_flags.builder(model, Math::Wide).dir()?;
            let id = args.model_name.clone().unwrap_or_else(|| open::model_id(model, &dir));
            Some((id, dir))
        }
        (None, Some(name)) => {
            let found = folder.as_ref().and_then(|folder| folder.find(name));
            let Some(dir) = found else {
                let message =
                    format!("model_name {name}: there is no such model in {}", root.display());
                return Err(Usage::error(message));
            };
            Some((name.clone(), dir))
        }
        (None, None) => None,
    };
    if named.is_none() && !args.adapters.all().is_empty() {
        return Err(Usage::error("--lora belongs to the model of the command line: give MODEL"));
    }
    if named.is_none() && folder.is_none() {
        return Err(Usage::error(
            "there is nothing to serve: give MODEL, or a folder with --model-dir",
        ));
    }
    let mut batch = args.batch.clone();
    let rows = settings.max_batch_size.map(|rows| u16::try_from(rows).unwrap_or(u16::MAX));
    batch.batch_max = batch.batch_max.or(rows);
    let models_max = settings.max_models;
    if models_max > 1 && model_flags.builder("", Math::Wide).is_placed() {
        let sentence = "max_models: several models share devices only where these are not limited: \
                        set it to 1, or name one device without a limit";
        return Err(Usage::error(sentence));
    }
    let adapters = args.adapters.clone();
    let drafts = draft::Drafts::new(config, folder.as_ref(), named.is_some())?;
    let adapter_bytes_max = config.settings.lora.bytes_max();
    Ok(open::Opener {
        named,
        folder,
        model_flags,
        adapters,
        adapter_dir: config.settings.lora.lora_dir.clone(),
        adapter_bytes_max,
        batch,
        models_max,
        drafts,
        shows_plans: !config.settings.logging.json,
    })
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
fn keys(settings: &Settings) -> Result<Keys> {
    if settings.network.disable_auth {
        return Ok(Keys::none());
    }
    let file = keys_in_use(&settings.auth.keys_file);
    let path = file.display();
    if !file.exists() {
        let (api, admin) = create_keys(&file)?;
        output::note(&format!(
            "Made {path}. These keys are shown once:\n  api    {api}\n  admin  {admin}"
        ));
    }
    let keys = load_keys(&settings.auth)?;
    if keys_open_to_others(&file) {
        output::note(&format!("warning: others can read {path}: chmod 600 {path}"));
    }
    Ok(keys)
}

/// Says where the server is. On a terminal, with a link that opens the page with a key: whoever reads
/// the terminal may do everything anyway.
fn announce(what: &str, place: &str, app: &App) {
    if !std::io::stderr().is_terminal() {
        return output::note(&format!("listening on {place}"));
    }
    let open = app.settings.network.disable_auth;
    let page = match open || !app.bound.ip().is_loopback() {
        true => format!("Page: {place}/"),
        false => {
            let code = app.exchange.offer(Instant::now());
            format!("Page, by a link that works once and for ten minutes: {place}/#c={code}")
        }
    };
    output::note(&format!("Serving {what} at {place}/v1; Ctrl-C ends it.\n{page}"));
    if !open {
        let file = keys_in_use(&app.settings.auth.keys_file);
        output::note(&format!("Keys: {}", std::path::absolute(&file).unwrap_or(file).display()));
    }
}

/// Wrong choices are wrong usage; a port in use is a failure.
fn blame(error: ServerError) -> anyhow::Error {
    match error {
        ServerError::Open { .. }
        | ServerError::Log { .. }
        | ServerError::BasePath { .. }
        | ServerError::Tls { .. }
        | ServerError::Preset { .. } => Usage::error(error.to_string()),
        other => other.into(),
    }
}

/// Waits for a signal that ends the server; reads settings and keys again where SIGHUP means that.
/// False when signals cannot be received.
#[cfg(unix)]
async fn wait_for_signal(app: &Arc<App>, on_hangup: Hangup) -> bool {
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
                if on_hangup == Hangup::Ends {
                    return true;
                }
                if let Err(error) = app.reload_config() {
                    app.issue("config", &error.to_string());
                }
                if let Err(error) = app.reload_keys() {
                    app.issue("keys", &error.to_string());
                }
            }
        }
    }
}

/// Waits for Ctrl-C. False when signals cannot be received.
#[cfg(not(unix))]
async fn wait_for_signal(_: &Arc<App>, _: Hangup) -> bool {
    tokio::signal::ctrl_c().await.is_ok()
}
