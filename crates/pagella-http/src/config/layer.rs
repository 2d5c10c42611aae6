//! What files, the environment and flags say, one place over the other.

use std::collections::BTreeMap;
use std::path::Path;

use toml::{Table, Value};

use super::import::{self, Mapped};
use super::load::{FILE, Provenance, read_text};
use crate::settings::{Setting, entries, find};
use crate::wire::nearest::nearest;

/// Prefix of environment variables.
const PREFIX: &str = "PAGELLA_";
/// TabbyAPI's.
const TABBY_PREFIX: &str = "TABBY_";

/// What was said so far.
#[derive(Default)]
pub(super) struct Layers {
    /// The last word on every key, by path.
    pub said: BTreeMap<String, (Value, Provenance)>,
    /// What is wrong, one sentence each.
    pub problems: Vec<String>,
    /// What an operator should know.
    pub warnings: Vec<String>,
}

impl Layers {
    fn say(&mut self, setting: &Setting, value: Value, from: &Provenance) {
        self.said.insert(setting.path(), (value, from.clone()));
    }

    /// What a file says, ours or TabbyAPI's.
    pub fn file(&mut self, path: &Path) {
        let yaml = path.extension().is_some_and(|ending| ending == "yml" || ending == "yaml");
        let from = Provenance::File(path.to_owned());
        let read = read_text(path).and_then(|text| match yaml {
            true => self.yaml(&text, &from),
            false => self.toml(&text, &from),
        });
        if let Err(problem) = read {
            self.problems.push(format!("{from}: {problem}"));
        }
    }

    fn toml(&mut self, text: &str, from: &Provenance) -> Result<(), String> {
        let table: Table = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(0, |span| text[..span.start].matches('\n').count() + 1);
            format!("line {line}: {}", error.message())
        })?;
        for (section, keys) in table {
            let Value::Table(keys) = keys else {
                self.problems.push(format!("{from}: {section} stands outside of a [section]"));
                continue;
            };
            for (key, value) in keys {
                let path = format!("{section}.{key}");
                match find(&path) {
                    Some(setting) => self.say(setting, value, from),
                    None => self.problems.push(format!("{from}: {}", unknown(&path))),
                }
            }
        }
        Ok(())
    }

    fn yaml(&mut self, text: &str, from: &Provenance) -> Result<(), String> {
        let imported = import::import(text)?;
        self.warnings.push(format!(
            "{from} is read as TabbyAPI's: turn it into {FILE} with `pagella config import {from}`"
        ));
        self.warnings.extend(imported.notes.iter().map(|note| format!("{from}: {note}")));
        for (setting, value) in imported.values {
            self.say(setting, value, from);
        }
        Ok(())
    }

    /// What environment variables say; others' variables are left alone.
    pub fn environment(&mut self, variables: &[(String, String)]) {
        // Ours are later, so they win over TabbyAPI's.
        for (prefix, read) in
            [(TABBY_PREFIX, tabby_variable as fn(&str, &str) -> Found), (PREFIX, own_variable)]
        {
            for (name, text) in variables {
                let Some(rest) = name.strip_prefix(prefix) else { continue };
                match read(rest, text) {
                    Ok(Some((setting, value))) => {
                        self.say(setting, value, &Provenance::Variable(name.clone()));
                    }
                    Ok(None) => {}
                    Err(problem) => self.problems.push(format!("{name}: {problem}")),
                }
            }
        }
    }

    /// What flags say, `section.key` and text.
    pub fn flags(&mut self, flags: &[(String, String)]) {
        for (path, text) in flags {
            let from = Provenance::Flag(format!("--{path}"));
            match find(path).map(|setting| (setting, setting.parse(text))) {
                Some((setting, Ok(value))) => self.say(setting, value, &from),
                Some((_, Err(problem))) => self.problems.push(format!("{from}: {problem}")),
                None => self.problems.push(unknown(path)),
            }
        }
    }
}

/// What is said of a key that nobody knows.
fn unknown(path: &str) -> String {
    let paths: Vec<String> = entries().map(Setting::path).collect();
    // The right key in the wrong section is the likeliest slip.
    let key = path.rsplit('.').next().unwrap_or(path);
    let elsewhere = entries().find(|known| known.key == key).map(Setting::path);
    let near =
        elsewhere.or_else(|| nearest(path, paths.iter().map(String::as_str)).map(str::to_owned));
    match near {
        Some(near) => format!("there is no key {path:?}: did you mean {near:?}?"),
        None => format!("there is no key {path:?}: see `pagella config sample`"),
    }
}

type Found = Result<Option<(&'static Setting, Value)>, String>;

fn own_variable(rest: &str, text: &str) -> Found {
    if let Some(setting) = entries().find(|known| known.is_variable(rest)) {
        return setting.parse(text).map(|value| Some((setting, value)));
    }
    // Other parts of the program have variables too; a known section with an unknown key is a slip.
    let slip = entries().find_map(|known| {
        let key = rest.strip_prefix(&known.section.to_uppercase())?.strip_prefix('_')?;
        Some(format!("{}.{}", known.section, key.to_lowercase()))
    });
    slip.map_or(Ok(None), |path| Err(unknown(&path)))
}

fn tabby_variable(rest: &str, text: &str) -> Found {
    let sections = import::SECTIONS.iter().filter_map(|section| {
        let key = rest.strip_prefix(&section.to_uppercase())?.strip_prefix('_')?;
        Some((*section, key.to_lowercase()))
    });
    for (section, key) in sections {
        let plain = Value::String(text.to_owned());
        let value = match find(&format!("{section}.{key}")) {
            Some(setting) => setting.parse(text)?,
            None => text.parse::<bool>().map_or(plain, Value::Boolean),
        };
        match import::map(section, &key, value) {
            Mapped::To(setting, value) => return Ok(Some((setting, value))),
            Mapped::Nothing => return Ok(None),
            Mapped::Unknown => {}
        }
    }
    Ok(None)
}
