//! Structured events on standard error and in a file: `level event key=value ...`, or lines of JSON.
//!
//! What comes from a client is escaped and cut, so no value can look like another line.

mod file;

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use blake2::digest::consts::U8;
use blake2::{Blake2b, Digest};
use serde_json::{Map, Value};

use crate::settings::{LogLevel, Logging, PeerName};
use crate::wire::id::random_bytes;
use file::LogFile;

/// Longest value, in characters.
const VALUE_CHARS_MAX: usize = 256;

/// Where events go.
pub struct Log {
    settings: RwLock<Arc<Logging>>,
    file: Option<LogFile>,
    /// Hashed with addresses, so that they cannot be guessed.
    salt: [u8; 16],
}

impl Log {
    /// A log with these settings.
    pub fn new(settings: Logging) -> Self {
        let file = settings.file.clone().map(LogFile::new);
        Log { settings: RwLock::new(Arc::new(settings)), file, salt: random_bytes() }
    }

    /// Follows changed settings.
    pub fn set(&self, settings: &Logging) {
        let settings = Arc::new(settings.clone());
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
    }

    fn settings(&self) -> Arc<Logging> {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether requests are logged.
    pub fn access(&self) -> bool {
        self.settings().access
    }

    /// What a peer is called.
    pub fn peer(&self, peer: SocketAddr) -> Option<String> {
        match self.settings().peer {
            PeerName::Full => Some(peer.to_string()),
            PeerName::None => None,
            PeerName::Hash => {
                let hash = Blake2b::<U8>::new().chain_update(self.salt);
                let hash = hash.chain_update(peer.ip().to_string()).finalize();
                Some(hash.iter().map(|byte| format!("{byte:02x}")).collect())
            }
        }
    }

    /// Something an operator may want to know.
    pub fn info(&self, event: &str, fields: &[(&str, Value)]) {
        self.write(LogLevel::Info, event, fields);
    }

    /// Something an operator should look at.
    pub fn warn(&self, event: &str, fields: &[(&str, Value)]) {
        self.write(LogLevel::Warn, event, fields);
    }

    fn write(&self, level: LogLevel, event: &str, fields: &[(&str, Value)]) {
        let settings = self.settings();
        if settings.quiet || level < settings.level {
            return;
        }
        let level = match level {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = match settings.json {
            true => json_line(now.as_millis(), level, event, fields),
            false => text_line(now.as_secs(), level, event, fields),
        };
        // With standard error gone there is nobody left to tell.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
        if let Some(file) = &self.file {
            file.write(&line);
        }
    }
}

fn json_line(millis: u128, level: &str, event: &str, fields: &[(&str, Value)]) -> String {
    let mut map = Map::new();
    map.insert("ts".into(), Value::from(millis as f64 / 1000.0));
    map.insert("level".into(), level.into());
    map.insert("event".into(), event.into());
    for (name, value) in fields {
        let value = match value {
            Value::String(text) => Value::String(cut(text)),
            other => other.clone(),
        };
        map.insert((*name).into(), value);
    }
    format!("{}\n", Value::Object(map))
}

fn text_line(seconds: u64, level: &str, event: &str, fields: &[(&str, Value)]) -> String {
    let day = seconds % 86_400;
    let (hour, minute, second) = (day / 3600, day / 60 % 60, day % 60);
    let mut line = format!("{hour:02}:{minute:02}:{second:02} {level} {event}");
    for (name, value) in fields {
        // Writing to a string cannot fail.
        let _ = match value {
            Value::Null => continue,
            Value::String(text) if is_plain(text) => write!(line, " {name}={text}"),
            Value::String(text) => write!(line, " {name}={:?}", cut(text)),
            other => write!(line, " {name}={other}"),
        };
    }
    line.push('\n');
    line
}

/// Shown as it is: no spaces, no quotes, nothing that a terminal obeys.
fn is_plain(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_graphic() && !b"\"=\\".contains(&b);
    !text.is_empty() && text.len() <= VALUE_CHARS_MAX && text.bytes().all(plain)
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_injection() {
        let evil = format!("a\nwarn fake\u{1b}[31m\u{202e}{}", "x".repeat(1 << 20));
        let fields = [("ua", Value::from(evil)), ("n", Value::from(3))];
        for line in
            [text_line(3661, "info", "request", &fields), json_line(0, "info", "r", &fields)]
        {
            assert_eq!(line.matches('\n').count(), 1);
            assert!(!line.contains('\u{1b}') && line.len() < 2000, "{line}");
        }
        assert!(
            text_line(3661, "info", "request", &fields).starts_with("01:01:01 info request ua=")
        );
    }

    #[test]
    fn peers_are_named_as_the_operator_wants() {
        let named = |peer| Log::new(Logging { peer, ..Logging::default() });
        let [one, other] = ["10.0.0.1:5", "10.0.0.2:5"].map(|peer| peer.parse().unwrap());
        assert_eq!(named(PeerName::Full).peer(one).as_deref(), Some("10.0.0.1:5"));
        assert_eq!(named(PeerName::None).peer(one), None);
        let hashed = named(PeerName::Hash);
        assert_eq!(hashed.peer(one), hashed.peer("10.0.0.1:6".parse().unwrap()));
        assert_ne!(hashed.peer(one), hashed.peer(other));
        assert_ne!(hashed.peer(one), named(PeerName::Hash).peer(one), "another after a restart");
    }

    #[test]
    fn plain_values_stay_plain_and_absent_ones_are_left_out() {
        let fields = [("id", Value::from("01J")), ("key", Value::Null), ("t", Value::from("a b"))];
        assert_eq!(text_line(0, "info", "x", &fields), "00:00:00 info x id=01J t=\"a b\"\n");
    }
}
