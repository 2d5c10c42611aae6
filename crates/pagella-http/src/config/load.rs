//! All layers put together: the settings, and where each value came from.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use toml::Value;

use super::layer::Layers;
use crate::Settings;
use crate::settings::entries;

/// The file that is read when none is named.
pub(super) const FILE: &str = "config.toml";
/// TabbyAPI's, which is read when ours is not there.
const TABBY_FILE: &str = "config.yml";
/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// Nobody said anything.
    Default,
    /// A file.
    File(PathBuf),
    /// An environment variable.
    Variable(String),
    /// A flag.
    Flag(String),
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Provenance::Default => f.write_str("default"),
            Provenance::File(path) => write!(f, "{}", path.display()),
            Provenance::Variable(name) | Provenance::Flag(name) => f.write_str(name),
        }
    }
}

/// Why a configuration cannot be used: everything that is wrong with it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", problems.join("\n"))]
pub struct ConfigError {
    /// One sentence each.
    pub problems: Vec<String>,
}

/// Where values are looked for. Kept, so that they can be read again.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// The file that was named; `config.toml` here unless one was.
    pub file: Option<PathBuf>,
    /// Environment variables.
    pub variables: Vec<(String, String)>,
    /// Flags: `section.key` and text.
    pub flags: Vec<(String, String)>,
}

/// A configuration that can be used.
#[derive(Clone, Debug)]
pub struct Config {
    /// The settings.
    pub settings: Settings,
    /// What an operator should know.
    pub warnings: Vec<String>,
    /// The file that was read, if there is one.
    pub file: Option<PathBuf>,
    /// What was said, by path.
    pub(super) said: BTreeMap<String, (Value, Provenance)>,
}

impl Source {
    /// The environment of this process, and flags.
    pub fn of_process(file: Option<PathBuf>, flags: Vec<(String, String)>) -> Self {
        // Names and values that are not text are nobody's keys.
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Source { file, variables: std::env::vars_os().filter_map(text).collect(), flags }
    }

    /// The file that is read, if one is there or was named.
    pub fn path(&self) -> Option<PathBuf> {
        let usual = || [FILE, TABBY_FILE].map(PathBuf::from).into_iter().find(|path| path.exists());
        self.file.clone().or_else(usual)
    }

    /// Reads everything.
    pub fn load(&self) -> Result<Config, ConfigError> {
        let mut layers = Layers::default();
        let file = self.path();
        if let Some(path) = &file {
            layers.file(path);
        }
        layers.environment(&self.variables);
        layers.flags(&self.flags);
        let Layers { said, mut problems, warnings } = layers;
        let mut settings = Settings::default();
        for setting in entries() {
            let path = setting.path();
            if let Some((value, from)) = said.get(&path)
                && let Err(problem) = setting.set(&mut settings, value)
            {
                problems.push(format!("{from}: {path} must be {problem}"));
            }
        }
        settings.model.load_defaults = load_defaults(&settings, &said);
        problems.extend(contradiction(&settings));
        match problems.is_empty() {
            true => Ok(Config { settings, warnings, file, said }),
            false => Err(ConfigError { problems }),
        }
    }
}

impl Config {
    /// Whether anyone said something of a key.
    pub fn says(&self, path: &str) -> bool {
        self.said.contains_key(path)
    }
}

/// What the keys say that also hold for models opened by request.
pub(super) fn load_defaults(
    settings: &Settings,
    said: &BTreeMap<String, (Value, Provenance)>,
) -> serde_json::Map<String, serde_json::Value> {
    let of_section = |section: &str| {
        let said = |key: &String| {
            let (value, _) = said.get(&format!("{section}.{key}"))?;
            Some((key.clone(), serde_json::to_value(value).ok()?))
        };
        settings.model.use_as_default.iter().filter_map(said).collect()
    };
    let (mut fields, draft): (serde_json::Map<_, _>, serde_json::Map<_, _>) =
        (of_section("model"), of_section("draft_model"));
    if !draft.is_empty() {
        fields.insert("draft_model".to_owned(), draft.into());
    }
    fields
}

/// What no setting alone can see.
fn contradiction(settings: &Settings) -> Option<String> {
    let one = settings.network.tls_cert.is_some() != settings.network.tls_key.is_some();
    let tls =
        one.then(|| "network.tls_cert and network.tls_key belong together: give both".to_owned());
    tls.or_else(|| {
        settings.draft_model.contradiction().map(|problem| format!("draft_model: {problem}"))
    })
}

/// A file as text, if it is small enough to have been written by a person.
pub fn read_text(path: &Path) -> Result<String, String> {
    let size = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > FILE_BYTES_MAX {
        return Err(format!("{size} bytes are too many for a configuration"));
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(
        file: &str,
        variables: &[(&str, &str)],
        flags: &[(&str, &str)],
    ) -> Result<Config, ConfigError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        std::fs::write(&path, file).unwrap();
        let own = |list: &[(&str, &str)]| -> Vec<(String, String)> {
            list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
        };
        Source { file: Some(path), variables: own(variables), flags: own(flags) }.load()
    }

    fn problems(file: &str) -> String {
        load(file, &[], &[]).unwrap_err().to_string()
    }

    #[test]
    fn what_is_said_later_wins() {
        let file = "[network]\nport = 1\nhost = 'a'\n[limits]\nmax_queue = 3\n";
        let variables = [
            ("PAGELLA_NETWORK_PORT", "2"),
            ("PAGELLA_SHARED", "/elsewhere"),
            ("TABBY_NETWORK_PORT", "9"),
            ("TABBY_LOGGING_LOG_PROMPT", "true"),
        ];
        let flags = [("network.hosts", "x, y"), ("limits.max_queue", "4")];
        let config = load(file, &variables, &flags).unwrap();
        let settings = &config.settings;
        assert_eq!((settings.network.port, settings.network.host.as_str()), (2, "a"));
        assert_eq!((settings.limits.max_queue, settings.logging.log_prompt), (4, true));
        assert_eq!(settings.network.hosts, ["x", "y"]);
        assert_eq!(
            config.said["limits.max_queue"].1,
            Provenance::Flag("--limits.max_queue".into())
        );
    }

    #[test]
    fn unknown_keys_name_their_neighbours() {
        assert!(problems("[network]\nprot = 1").contains("\"network.port\""));
        assert!(problems("[auth]\nport = 1").contains("\"network.port\""), "another section");
        assert!(problems("[nettwork]\nhost = 'x'").contains("\"network.host\""));
        assert!(problems("port = 1").contains("outside"));
        let wrong = load("", &[("PAGELLA_NETWORK_PROT", "1")], &[]).unwrap_err();
        assert!(wrong.to_string().contains("\"network.port\""), "{wrong}");
        assert!(load("", &[], &[("network.prot", "1")]).is_err());
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once() {
        let file = "[network]\nport = 70000\nunknown_fields = 'maybe'\ntls_cert = 'a'\n\
            [draft_model]\ndraft_gpu_split = [8]\n[model]\nvision = true\n";
        let text = problems(file);
        for part in ["0 to 65535", "warn, reject, ignore", "belong together", "not built"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(text.contains("draft_model.draft_gpu_split") && text.contains("model.vision"));
    }

    #[test]
    fn neutral_values_of_what_is_not_built_are_fine() {
        let file = "[model]\ntensor_parallel = false\nautosplit_reserve = [96]\nvision = false\n\
            [draft_model]\ndraft_rope_scale = 1\ndraft_model_name = ''\n[lora]\nloras = []\n";
        load(file, &[], &[]).unwrap();
    }

    #[test]
    fn keys_of_drafts_hold_for_models_opened_by_request_where_that_is_said() {
        let file = "[model]\nuse_as_default = ['cache_mode', 'draft_num_tokens', 'draft_mode']\n\
            cache_mode = 'Q8'\n[draft_model]\ndraft_num_tokens = 3\ndraft_model_name = 'small'\n";
        let settings = load(file, &[], &[]).unwrap().settings;
        let expected =
            serde_json::json!({"cache_mode": "Q8", "draft_model": {"draft_num_tokens": 3}});
        assert_eq!(serde_json::Value::Object(settings.model.load_defaults), expected);
        assert_eq!(settings.draft_model.draft_model_name.as_deref(), Some("small"));
        let both = "[draft_model]\ndraft_rope_scale = 2\ndraft_rope_alpha = 2.0\n";
        assert!(problems(both).contains("both stretch"));
    }

    #[test]
    fn syntax_errors_name_the_line() {
        assert!(problems("[network]\nport = = 1").contains("line 2"));
    }
}
