//! Files that are read again when they change: keys, settings, certificates. One that is wrong keeps
//! what was there before.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::tls::Certificates;
use crate::HttpState;
use crate::auth;

/// How often files are looked at.
const INTERVAL: Duration = Duration::from_secs(2);

/// When files were last written, and how long they are.
#[derive(PartialEq)]
struct Stamp(Vec<Option<(SystemTime, u64)>>);

impl Stamp {
    fn of(files: &[PathBuf]) -> Self {
        let one = |path: &PathBuf| {
            let meta = std::fs::metadata(Path::new(path)).ok()?;
            Some((meta.modified().ok()?, meta.len()))
        };
        Stamp(files.iter().map(one).collect())
    }
}

fn keys(http: &HttpState) -> Stamp {
    Stamp::of(&[auth::file_in_use(&http.settings.auth.keys_file)])
}

fn config(http: &HttpState) -> Stamp {
    Stamp::of(http.config_file().as_slice())
}

fn certificates(files: Option<&Arc<Certificates>>) -> Stamp {
    let files = files.map(|certificates| certificates.files());
    Stamp::of(&files.map_or_else(Vec::new, |tls| vec![tls.cert.clone(), tls.key.clone()]))
}

/// Looks at files for as long as the server runs.
pub async fn watch(http: Arc<HttpState>, tls: Option<Arc<Certificates>>) {
    let (mut seen_keys, mut seen_config) = (keys(&http), config(&http));
    let mut seen_tls = certificates(tls.as_ref());
    loop {
        tokio::time::sleep(INTERVAL).await;
        let now = config(&http);
        if now != seen_config {
            seen_config = now;
            if let Err(error) = http.reload_config() {
                http.issue("config", &error.to_string());
            }
        }
        let now = keys(&http);
        if now != seen_keys {
            seen_keys = now;
            if let Err(error) = http.reload_keys() {
                http.issue("keys", &error.to_string());
            }
        }
        let now = certificates(tls.as_ref());
        if let Some(tls) = tls.as_ref().filter(|_| now != seen_tls) {
            seen_tls = now;
            match tls.reload() {
                Ok(()) => http.log.info("tls_reload", &[]),
                Err(problem) => http.issue("tls", &problem),
            }
        }
    }
}
