//! Values by key from one place: a file, the environment, flags.

use toml::{Table, Value};

use super::entry::Entry;
use super::import::{self, Mapped};
use super::load::Origin;
use super::table::entries;
use crate::wire::nearest::nearest;

/// Prefix of environment variables.
const PREFIX: &str = "PAGELLA_";
/// TabbyAPI's.
const TABBY_PREFIX: &str = "TABBY_";
/// Short names of some variables.
const SHORT: &[(&str, &str)] = &[
    ("HOST", "network.host"),
    ("PORT", "network.port"),
    ("KEYS", "auth.keys_file"),
    ("MODEL_DIR", "model.model_dir"),
];

/// One value and where it came from.
pub(super) struct Said {
    pub entry: &'static Entry,
    pub value: Value,
    pub origin: Origin,
}

/// The row of `section.key`.
pub(super) fn find(path: &str) -> Option<&'static Entry> {
    let (section, key) = path.split_once('.')?;
    entries().find(|entry| entry.section == section && entry.key == key)
}

/// What is said of a key that nobody knows.
pub(super) fn unknown(path: &str) -> String {
    let paths: Vec<String> = entries().map(Entry::path).collect();
    // The right key in the wrong section is the likeliest slip.
    let key = path.rsplit('.').next().unwrap_or(path);
    let elsewhere = entries().find(|entry| entry.key == key).map(Entry::path);
    let near =
        elsewhere.or_else(|| nearest(path, paths.iter().map(String::as_str)).map(str::to_owned));
    match near {
        Some(near) => format!("there is no key {path:?}: did you mean {near:?}?"),
        None => format!("there is no key {path:?}: see `pagella config sample`"),
    }
}

/// The values of a TOML file.
pub(super) fn from_toml(text: &str, origin: &Origin) -> Result<Vec<Said>, Vec<String>> {
    let table: Table = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(0, |span| text[..span.start].matches('\n').count() + 1);
        vec![format!("{origin}: line {line}: {}", error.message())]
    })?;
    let (mut said, mut problems) = (Vec::new(), Vec::new());
    for (section, keys) in table {
        let Value::Table(keys) = keys else {
            problems.push(format!("{origin}: {section} stands outside of a [section]"));
            continue;
        };
        for (key, value) in keys {
            let path = format!("{section}.{key}");
            match find(&path) {
                Some(entry) => said.push(Said { entry, value, origin: origin.clone() }),
                None => problems.push(format!("{origin}: {}", unknown(&path))),
            }
        }
    }
    if problems.is_empty() { Ok(said) } else { Err(problems) }
}

/// The values of environment variables; others' variables are left alone.
pub(super) fn from_environment(variables: &[(String, String)]) -> Result<Vec<Said>, Vec<String>> {
    let (mut said, mut problems) = (Vec::new(), Vec::new());
    // Ours are later, so they win over TabbyAPI's.
    let tabby = variables.iter().filter(|(name, _)| name.starts_with(TABBY_PREFIX));
    let ours = variables.iter().filter(|(name, _)| name.starts_with(PREFIX));
    for (name, text) in tabby.chain(ours) {
        let origin = Origin::Variable(name.clone());
        let found = match name.strip_prefix(PREFIX) {
            Some(rest) => variable(rest, text),
            None => {
                name.strip_prefix(TABBY_PREFIX).map_or(Ok(None), |rest| tabby_variable(rest, text))
            }
        };
        match found {
            Ok(Some((entry, value))) => said.push(Said { entry, value, origin }),
            Ok(None) => {}
            Err(problem) => problems.push(format!("{origin}: {problem}")),
        }
    }
    if problems.is_empty() { Ok(said) } else { Err(problems) }
}

type Found = Result<Option<(&'static Entry, Value)>, String>;

fn variable(rest: &str, text: &str) -> Found {
    let short = SHORT.iter().find(|(name, _)| *name == rest).and_then(|(_, path)| find(path));
    let entry = short.or_else(|| entries().find(|entry| entry.variable() == rest));
    if let Some(entry) = entry {
        return entry.parse(text).map(|value| Some((entry, value)));
    }
    // Other parts of the program have variables too; a known section with an unknown key is a slip.
    let of_section = |entry: &&Entry| {
        let section = entry.section.to_uppercase();
        rest.strip_prefix(&section).is_some_and(|key| key.starts_with('_'))
    };
    match entries().find(of_section) {
        None => Ok(None),
        Some(entry) => {
            let key = rest[entry.section.len() + 1..].to_lowercase();
            Err(unknown(&format!("{}.{key}", entry.section)))
        }
    }
}

fn tabby_variable(rest: &str, text: &str) -> Found {
    let sections = import::SECTIONS.iter().filter_map(|section| {
        let key = rest.strip_prefix(&section.to_uppercase())?.strip_prefix('_')?;
        Some((*section, key.to_lowercase()))
    });
    for (section, key) in sections {
        let plain = Value::String(text.to_owned());
        let value = match find(&format!("{section}.{key}")) {
            Some(entry) => entry.parse(text)?,
            None => text.parse::<bool>().map_or(plain, Value::Boolean),
        };
        match import::map(section, &key, value) {
            Mapped::To(entry, value) => return Ok(Some((entry, value))),
            Mapped::Nothing => return Ok(None),
            Mapped::Unknown => {}
        }
    }
    Ok(None)
}

/// The values of flags, `section.key` and text.
pub(super) fn from_flags(flags: &[(String, String)]) -> Result<Vec<Said>, Vec<String>> {
    let one = |(path, text): &(String, String)| -> Result<Said, String> {
        let origin = Origin::Flag(format!("--{path}"));
        let entry = find(path).ok_or_else(|| unknown(path))?;
        let value = entry.parse(text).map_err(|problem| format!("{origin}: {problem}"))?;
        Ok(Said { entry, value, origin })
    };
    let (mut said, mut problems) = (Vec::new(), Vec::new());
    for result in flags.iter().map(one) {
        match result {
            Ok(value) => said.push(value),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(said) } else { Err(problems) }
}
