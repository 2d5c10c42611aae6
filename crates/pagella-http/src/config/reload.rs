//! A configuration that is read again while the server runs.

use super::load::{Config, load_defaults};
use crate::Settings;
use crate::settings::entries;

/// What reading it again led to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Keys that hold from now on.
    pub changed: Vec<String>,
    /// Keys that changed and take effect at the next start.
    pub later: Vec<String>,
}

impl Config {
    /// Goes from this configuration to a newer one as far as that is possible while running: returns
    /// the settings that hold from now on.
    pub fn follow(&self, newer: &Config, now: &Settings) -> (Settings, Change) {
        let mut settings = now.clone();
        let mut change = Change::default();
        for setting in entries() {
            let path = setting.path();
            let value = |config: &Config| config.said.get(&path).map(|(value, _)| value.clone());
            let (before, after) = (value(self), value(newer));
            if before == after {
                continue;
            }
            if !setting.live {
                change.later.push(path);
                continue;
            }
            let usual = || setting.parse(&setting.default).ok();
            let Some(value) = after.or_else(usual) else { continue };
            // It was checked when it was read.
            if setting.set(&mut settings, &value).is_ok() {
                change.changed.push(path);
            }
        }
        settings.model.load_defaults = load_defaults(&settings, &newer.said);
        (settings, change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Source;

    fn config(flags: &[(&str, &str)]) -> Config {
        let own = flags.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        let nowhere = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
        let file = Some(nowhere.path().to_owned());
        Source { file, variables: Vec::new(), flags: own.collect() }.load().unwrap()
    }

    #[test]
    fn live_keys_change_and_go_back_and_others_wait() {
        let before = config(&[("limits.max_n", "3"), ("network.port", "1")]);
        let after = config(&[("network.port", "2"), ("cors.origins", "*")]);
        let (settings, change) = before.follow(&after, &before.settings);
        assert_eq!((settings.limits.max_n, settings.network.port), (8, 1));
        assert_eq!(settings.network.cors_origins, ["*"]);
        assert_eq!(change.changed, ["cors.origins", "limits.max_n"]);
        assert_eq!(change.later, ["network.port"]);
    }
}
