//! A configuration as text: a sample with every key, and what holds with its origins.

use std::fmt::Write;

use toml::Value;

use super::entry::Entry;
use super::load::{Config, Origin};
use super::table::entries;

/// A file with every key at its default, commented out.
pub fn sample() -> String {
    let mut text =
        "# Every key of `pagella serve`, at its default. Keys marked * take effect while it \
        runs.\n"
            .to_owned();
    sections(&mut text, |text, entry| {
        if !entry.is_built() {
            return;
        }
        let mark = if entry.live { " *" } else { "" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# {}{mark}", entry.doc);
        let _ = match default(entry) {
            Some(value) => writeln!(text, "#{} = {value}", entry.key),
            None => writeln!(text, "#{} =", entry.key),
        };
    });
    text
}

impl Config {
    /// What holds, as a file, with the origin of each value.
    pub fn show(&self) -> String {
        let mut text = String::new();
        sections(&mut text, |text, entry| {
            let (value, origin) = match self.said.get(&entry.path()) {
                Some((value, origin)) => (Some(value.clone()), origin.clone()),
                None => (default(entry), Origin::Default),
            };
            if let Some(value) = value.filter(|_| entry.is_built() || origin != Origin::Default) {
                let _ = writeln!(text, "{} = {value}  # {origin}", entry.key);
            }
        });
        text
    }
}

fn default(entry: &Entry) -> Option<Value> {
    match entry.default {
        "" => None,
        text => entry.parse(text).ok(),
    }
}

/// Writes every row under the name of its section; sections without rows are left out.
fn sections(text: &mut String, mut write: impl FnMut(&mut String, &Entry)) {
    let mut section = "";
    let mut rows = String::new();
    for entry in entries() {
        if entry.section != section {
            close(text, section, &mut rows);
            section = entry.section;
        }
        write(&mut rows, entry);
    }
    close(text, section, &mut rows);
}

fn close(text: &mut String, section: &str, rows: &mut String) {
    if !rows.is_empty() {
        let gap = if text.is_empty() { "" } else { "\n" };
        let _ = writeln!(text, "{gap}[{section}]\n{}", rows.trim_end());
    }
    rows.clear();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Source;

    fn load(file: &str, flags: &[(&str, &str)]) -> Config {
        let mut named = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
        std::io::Write::write_all(&mut named, file.as_bytes()).unwrap();
        let own = flags.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        let file = Some(named.path().to_owned());
        Source { file, variables: Vec::new(), flags: own.collect() }.load().unwrap()
    }

    #[test]
    fn a_sample_can_be_read_and_says_nothing_new() {
        assert!(load(&sample(), &[]).said.is_empty());
        // Also with all keys that have a default switched on.
        let lines = sample();
        let on = |line: &str| {
            let key = line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line);
            if key.ends_with(" =") { String::new() } else { key.to_owned() }
        };
        let text: String = lines.lines().map(|line| on(line) + "\n").collect();
        let config = load(&text, &[]);
        assert!(config.said.len() > 80, "{}", config.said.len());
        let usual = format!("{:?}", crate::Settings::default());
        assert_eq!(format!("{:?}", config.settings), usual);
    }

    #[test]
    fn what_is_shown_can_be_read_again() {
        let config = load("[network]\nhosts = ['a']", &[("network.port", "7")]);
        let shown = config.show();
        assert!(shown.contains("port = 7  # --network.port"), "{shown}");
        assert!(!shown.contains("base_path") && shown.contains("# default"), "{shown}");
        assert_eq!(format!("{:?}", load(&shown, &[]).settings), format!("{:?}", config.settings));
    }
}
