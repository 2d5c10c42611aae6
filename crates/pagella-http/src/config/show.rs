//! A configuration as text: a sample with every key, and what holds with its provenance.

use std::fmt::Write;

use super::load::{Config, Provenance};
use crate::settings::{Setting, entries};

/// A file with every key at its default, commented out.
pub fn sample() -> String {
    let mut text =
        "# Every key of `pagella serve`, at its default. Keys marked * take effect while it \
        runs.\n"
            .to_owned();
    sections(&mut text, |text, setting| {
        if !setting.built {
            return;
        }
        let mark = if setting.live { " *" } else { "" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# {}{mark}", setting.doc);
        let _ = match setting.default_value() {
            Some(value) => writeln!(text, "#{} = {value}", setting.key),
            None => writeln!(text, "#{} =", setting.key),
        };
    });
    text
}

impl Config {
    /// What holds, as a file, with the provenance of each value.
    pub fn show(&self) -> String {
        let mut text = String::new();
        sections(&mut text, |text, setting| {
            let said = self.said.get(&setting.path()).cloned();
            let usual = || Some((setting.default_value()?, Provenance::Default));
            if let Some((value, from)) = said.or_else(usual) {
                let _ = writeln!(text, "{} = {value}  # {from}", setting.key);
            }
        });
        text
    }
}

/// Writes every setting under the name of its section; sections with nothing to write are left out.
fn sections(text: &mut String, mut write: impl FnMut(&mut String, &Setting)) {
    let all: Vec<&Setting> = entries().collect();
    for section in all.chunk_by(|one, next| one.section == next.section) {
        let mut lines = String::new();
        section.iter().for_each(|setting| write(&mut lines, setting));
        if !lines.is_empty() {
            let gap = if text.is_empty() { "" } else { "\n" };
            let _ = write!(text, "{gap}[{}]\n{lines}", section[0].section);
        }
    }
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
