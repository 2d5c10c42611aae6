//! Structured events on standard error and in a file: `level event key=value ...`, or lines of JSON.
//!
//! What comes from a client is escaped and cut, so no value can look like another line.

pub mod conversation;
mod file;
pub mod secret;

use std::fmt::Write as _;
use std::io::{self, Write as _};
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

/// How much of a value is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Length {
    /// The beginning.
    Cut,
    /// All of it: what an operator asked to see.
    Whole,
}

/// Where events go.
pub struct Log {
    settings: RwLock<Arc<Logging>>,
    file: Option<LogFile>,
    /// Hashed with addresses, so that they cannot be guessed.
    salt: [u8; 16],
}

impl Log {
    /// A log with these settings. Its file is tried: one that cannot be written is noticed now, not
    /// when someone looks for what it should hold.
    pub fn open(settings: Logging) -> io::Result<Self> {
        let file = settings.file.clone().map(LogFile::open).transpose()?;
        let log = Log { settings: RwLock::new(Arc::new(settings)), file, salt: random_bytes() };
        if let Some(file) = &log.file {
            let fields = [("version", env!("CARGO_PKG_VERSION").into())];
            if let Some(line) = log.line(LogLevel::Info, "start", &fields, Length::Cut) {
                file.write(&line);
            }
        }
        match log.trouble() {
            Some((_, why)) => Err(io::Error::other(why)),
            None => Ok(log),
        }
    }

    /// Since when lines of the file are lost, and why.
    pub fn trouble(&self) -> Option<(SystemTime, String)> {
        self.file.as_ref()?.trouble()
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
            PeerName::Hash => Some(self.hash(peer.ip().to_string().as_bytes())),
        }
    }

    /// Tells texts apart without showing them; another one after a restart.
    pub fn hash(&self, text: &[u8]) -> String {
        let hash = Blake2b::<U8>::new().chain_update(self.salt).chain_update(text).finalize();
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Something an operator may want to know.
    pub fn info(&self, event: &str, fields: &[(&str, Value)]) {
        self.write(LogLevel::Info, event, fields, Length::Cut);
    }

    /// What an operator asked to see of requests, uncut.
    pub fn show(&self, event: &str, fields: &[(&str, Value)]) {
        self.write(LogLevel::Info, event, fields, Length::Whole);
    }

    /// Something an operator should look at.
    pub fn warn(&self, event: &str, fields: &[(&str, Value)]) {
        self.write(LogLevel::Warn, event, fields, Length::Cut);
    }

    fn write(&self, level: LogLevel, event: &str, fields: &[(&str, Value)], length: Length) {
        let quiet = self.settings().quiet;
        if quiet && self.file.is_none() {
            return;
        }
        let Some(line) = self.line(level, event, fields, length) else { return };
        if !quiet {
            // With standard error gone there is nobody left to tell.
            let _ = std::io::stderr().lock().write_all(line.as_bytes());
        }
        if let Some(file) = &self.file {
            file.write(&line);
        }
    }

    /// An event as a line; `None` where the operator does not want it.
    fn line(
        &self,
        level: LogLevel,
        event: &str,
        fields: &[(&str, Value)],
        length: Length,
    ) -> Option<String> {
        let settings = self.settings();
        if level < settings.level {
            return None;
        }
        let level = match level {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(match settings.json {
            true => json_line(now.as_millis(), level, event, fields, length),
            false => text_line(now.as_secs(), level, event, fields, length),
        })
    }
}

fn json_line(
    millis: u128,
    level: &str,
    event: &str,
    fields: &[(&str, Value)],
    length: Length,
) -> String {
    let mut map = Map::new();
    map.insert("ts".into(), Value::from(millis as f64 / 1000.0));
    map.insert("level".into(), level.into());
    map.insert("event".into(), event.into());
    for (name, value) in fields {
        let value = match value {
            Value::String(text) => Value::String(cut(text, length)),
            other => other.clone(),
        };
        map.insert((*name).into(), value);
    }
    format!("{}\n", tame(&Value::Object(map)))
}

fn text_line(
    seconds: u64,
    level: &str,
    event: &str,
    fields: &[(&str, Value)],
    length: Length,
) -> String {
    let day = seconds % 86_400;
    let (hour, minute, second) = (day / 3600, day / 60 % 60, day % 60);
    let mut line = format!("{hour:02}:{minute:02}:{second:02} {level} {event}");
    for (name, value) in fields {
        // Writing to a string cannot fail.
        let _ = match value {
            Value::Null => continue,
            Value::String(text) if is_plain(text) => write!(line, " {name}={text}"),
            Value::String(text) => write!(line, " {name}={:?}", cut(text, length)),
            other => write!(line, " {name}={}", tame(other)),
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

/// JSON in which nothing is left that a terminal obeys or that turns the direction of reading.
fn tame(value: &Value) -> String {
    let is_wild = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let json = value.to_string();
    if !json.contains(is_wild) {
        return json;
    }
    let mut tamed = String::with_capacity(json.len());
    for c in json.chars() {
        match is_wild(c) {
            // All of them are within the first plane, so four digits hold them.
            true => _ = write!(tamed, "\\u{:04x}", u32::from(c)),
            false => tamed.push(c),
        }
    }
    tamed
}

fn cut(text: &str, length: Length) -> String {
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) if length == Length::Cut => format!("{}…", &text[..end]),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_injection() {
        let evil = format!("a\nwarn fake\u{1b}[31m\u{202e}{}", "x".repeat(1 << 20));
        let nested = Value::from(vec!["\u{9b}31m\u{202e}\r\n"]);
        let fields = [("ua", Value::from(evil)), ("n", Value::from(3)), ("warn", nested)];
        let text = |length| text_line(3661, "info", "request", &fields, length);
        let json = |length| json_line(0, "info", "r", &fields, length);
        for line in [text(Length::Cut), json(Length::Cut), text(Length::Whole), json(Length::Whole)]
        {
            assert_eq!(line.matches(char::is_control).count(), 1, "the line's own end");
            assert!(!line.contains('\u{202e}'));
        }
        assert!(text(Length::Cut).len() < 2000 && json(Length::Cut).len() < 2000);
        assert!(text(Length::Whole).len() > 1 << 20 && json(Length::Whole).len() > 1 << 20);
        assert!(text(Length::Cut).starts_with("01:01:01 info request ua="));
        let read: Value = serde_json::from_str(&json(Length::Whole)).unwrap();
        assert_eq!(read["warn"][0], "\u{9b}31m\u{202e}\r\n", "nothing is lost");
    }

    #[test]
    fn peers_are_named_as_the_operator_wants() {
        let named = |peer| Log::open(Logging { peer, ..Logging::default() }).unwrap();
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
        assert_eq!(
            text_line(0, "info", "x", &fields, Length::Cut),
            "00:00:00 info x id=01J t=\"a b\"\n"
        );
    }
}
