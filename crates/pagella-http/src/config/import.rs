//! TabbyAPI's `config.yml`: its keys under our names, and notes on what has no counterpart.

use toml::Value;

use super::yaml;
use crate::settings::{Setting, find};
use crate::whole_pages::whole_pages;

/// Its sections.
pub(super) const SECTIONS: &[&str] = &[
    "network",
    "logging",
    "model",
    "draft_model",
    "sampling",
    "lora",
    "embeddings",
    "memory",
    "developer",
];
/// Keys that only concern how that program runs.
const OF_THE_PROGRAM: &[(&str, &str)] = &[
    ("developer", "unsafe_launch"),
    ("developer", "cuda_malloc_backend"),
    ("developer", "uvloop"),
    ("developer", "backend"),
    ("model", "backend"),
    ("model", "use_as_default"),
    ("memory", "cuda_malloc_async"),
];

/// What a key of TabbyAPI is here.
pub(super) enum Mapped {
    /// This value of this setting.
    To(&'static Setting, Value),
    /// It changes nothing here.
    Nothing,
    /// There is no such thing.
    Unknown,
}

/// A file of TabbyAPI's, understood.
#[derive(Default)]
pub struct Imported {
    /// Values by setting.
    pub values: Vec<(&'static Setting, Value)>,
    /// What could not be taken over, one sentence each.
    pub notes: Vec<String>,
}

impl Imported {
    /// As our own file.
    pub fn to_toml(&self) -> String {
        let mut file = toml::Table::new();
        for (setting, value) in &self.values {
            let section =
                file.entry(setting.section).or_insert_with(|| Value::Table(Default::default()));
            if let Some(section) = section.as_table_mut() {
                section.insert(setting.key.to_owned(), value.clone());
            }
        }
        file.to_string()
    }
}

/// Reads a file of TabbyAPI's.
pub fn import(text: &str) -> Result<Imported, String> {
    let mut imported = Imported::default();
    for (section, keys) in yaml::read(text)? {
        match keys {
            Value::Table(keys) => {
                for (key, value) in keys {
                    imported.take(&section, &key, value);
                }
            }
            // Its sample file begins with a number that says how new it is.
            _ if section == "config_version" => {}
            _ => imported.notes.push(format!("{section} is not a section and was left out")),
        }
    }
    Ok(imported)
}

impl Imported {
    fn take(&mut self, section: &str, key: &str, value: Value) {
        let shown = value.to_string();
        match map(section, key, value) {
            Mapped::Nothing => {}
            Mapped::Unknown => {
                self.notes.push(format!("{section}.{key} has no counterpart and was left out"));
            }
            Mapped::To(setting, value) => match setting.check(&value) {
                Ok(()) if !setting.built => {}
                Ok(()) => self.values.push((setting, value)),
                Err(problem) => {
                    let path = setting.path();
                    let note =
                        format!("{section}.{key} = {shown} was left out: {path} must be {problem}");
                    self.notes.push(note);
                }
            },
        }
    }
}

/// What a key of TabbyAPI is here.
pub(super) fn map(section: &str, key: &str, value: Value) -> Mapped {
    if OF_THE_PROGRAM.contains(&(section, key)) {
        return Mapped::Nothing;
    }
    let to = |path: &str, value: Value| {
        find(path).map_or(Mapped::Unknown, |setting| Mapped::To(setting, value))
    };
    match (section, key, &value) {
        ("network", "disable_fetch_requests", Value::Boolean(off)) => {
            to("network.fetch", Value::Boolean(!off))
        }
        ("network", "api_servers", Value::Array(names)) => {
            let lower = |name: &Value| match name.as_str() {
                Some(text) => Value::String(text.to_lowercase()),
                None => name.clone(),
            };
            to("network.api_servers", names.iter().map(lower).collect::<Vec<_>>().into())
        }
        // A number below one is how it says "not set".
        (
            "model",
            "max_seq_len" | "cache_size" | "max_batch_size" | "chunk_size",
            Value::Integer(..=0),
        ) => Mapped::Nothing,
        // It rounds up what we refuse.
        ("model", "cache_size", Value::Integer(tokens)) => {
            let tokens = usize::try_from(*tokens).unwrap_or(0);
            let pages = whole_pages(tokens).unwrap_or_else(|partial| partial.next);
            to("model.cache_size", i64::try_from(pages).map_or(value, Value::Integer))
        }
        ("model", "rope_alpha", Value::String(text))
        | ("draft_model", "draft_rope_alpha", Value::String(text))
            if text == "auto" =>
        {
            Mapped::Nothing
        }
        ("model", "cache_mode", Value::String(text))
        | ("draft_model", "draft_cache_mode", Value::String(text)) => {
            to(&format!("{section}.{key}"), Value::String(text.to_uppercase()))
        }
        // It reads reasoning only when told to; here that is found out.
        ("model", "reasoning", Value::Boolean(false)) => Mapped::Nothing,
        ("model", "force_enable_thinking", Value::Boolean(on)) => {
            let mut variables = toml::Table::new();
            variables.insert("enable_thinking".to_owned(), Value::Boolean(*on));
            to("model.template_vars_force", Value::Table(variables))
        }
        ("logging", "log_chat_completion_requests", Value::Boolean(false)) => Mapped::Nothing,
        ("logging", "log_chat_completion_requests", Value::Boolean(true)) => {
            to("logging.log_chat_completion_requests", Value::String("logs".to_owned()))
        }
        ("developer", key, _) if key.starts_with("seqlog") => Mapped::Nothing,
        _ => to(&format!("{section}.{key}"), value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter_entry::AdapterLoad;
    use crate::config::Source;

    /// As its sample file is laid out.
    const FILE: &str = "\
network:
  host: 0.0.0.0
  port: 5001
  disable_auth: false
  disable_fetch_requests: true
  send_tracebacks: false
  api_servers: [\"OAI\"]
logging:
  log_prompt: true
  log_generation_params: false
model:
  model_dir: models
  inline_model_loading: false
  model_name: my-model
  max_seq_len: -1
  tensor_parallel: true
  gpu_split_auto: true
  autosplit_reserve: [96]
  gpu_split: []
  rope_scale: 1.0
  rope_alpha: auto
  cache_mode: q4
  cache_size: 6000
  chunk_size: 2048
  force_enable_thinking: false
  new_thing: 3
draft_model:
  draft_model_dir: models
  draft_model_name: tiny
  draft_cache_mode: q8
  draft_rope_alpha: auto
  draft_gpu_split: [8]
lora:
  lora_dir: adapters
  loras:
    - name: poet
      scaling: 0.5
developer:
  unsafe_launch: true
";

    #[test]
    fn a_file_of_tabbyapi_is_taken_over_with_notes_on_the_rest() {
        let imported = import(FILE).unwrap();
        let notes = imported.notes.join("\n");
        assert_eq!(imported.notes.len(), 2, "{notes}");
        for part in ["model.new_thing", "draft_model.draft_gpu_split"] {
            assert!(notes.contains(part), "{notes}");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        std::fs::write(&path, imported.to_toml()).unwrap();
        let settings = Source { file: Some(path), ..Source::default() }.load().unwrap().settings;
        assert_eq!((settings.network.host.as_str(), settings.network.port), ("0.0.0.0", 5001));
        assert_eq!(settings.model.model_name.as_deref(), Some("my-model"));
        assert_eq!(
            (settings.model.cache_mode.as_str(), settings.model.chunk_size),
            ("Q4", Some(2048))
        );
        assert_eq!((settings.model.max_seq_len, settings.model.cache_size), (None, Some(6144)));
        assert_eq!(settings.model.conversation.template_vars_force["enable_thinking"], false);
        assert!(settings.logging.log_prompt && settings.model.tensor_parallel);
        let lora = &settings.lora;
        assert_eq!(lora.lora_dir.to_str(), Some("adapters"));
        assert_eq!(lora.loras.0, [AdapterLoad::new("poet", 0.5)]);
    }

    #[test]
    fn a_file_in_place_is_read_with_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yml");
        std::fs::write(&path, FILE).unwrap();
        let config = Source { file: Some(path), ..Source::default() }.load().unwrap();
        assert_eq!(config.settings.network.port, 5001);
        assert!(config.warnings[0].contains("config import"), "{:?}", config.warnings);
        assert_eq!(config.warnings.len(), 3, "{:?}", config.warnings);
    }
}
