//! Presets in files: `NAME.toml`, or `NAME.yml` as TabbyAPI has them.

use std::path::Path;

use serde_json::{Map, Value};

use super::preset::Preset;
use crate::config::{read_text, read_yaml};
use crate::name::{self, Links};
use crate::wire::error::{ApiError, Code};

const ENDINGS: [&str; 3] = [".toml", ".yml", ".yaml"];
/// The one that is always there.
const SHIPPED: (&str, &str) = ("safe_defaults", include_str!("safe_defaults.toml"));

/// Names of all presets.
pub fn list(dir: &Path) -> Vec<String> {
    let mut names = name::list(dir, &ENDINGS);
    if !names.iter().any(|name| name == SHIPPED.0) {
        names.push(SHIPPED.0.to_owned());
        names.sort();
    }
    names
}

/// Reads the preset of a name.
pub fn load(dir: &Path, name: &str) -> Result<Preset, ApiError> {
    let unknown = |message: &str| {
        ApiError::field(
            Code::PresetNotFound,
            "preset",
            format!("{message}: see /v1/sampling/overrides"),
        )
    };
    name::check(name)
        .map_err(|error| ApiError::field(Code::OutOfRange, "preset", error.to_string()))?;
    for ending in ENDINGS {
        let Ok(Some(path)) = name::resolve(dir, &format!("{name}{ending}"), Links::Refuse) else {
            continue;
        };
        let text = read_text(&path).map_err(|_| unknown("that preset cannot be read"))?;
        return parse(&text, ending).map_err(|problems| refused(name, problems));
    }
    match name == SHIPPED.0 {
        true => parse(SHIPPED.1, ".toml").map_err(|problems| refused(name, problems)),
        false => Err(unknown("there is no preset of that name")),
    }
}

fn parse(text: &str, ending: &str) -> Result<Preset, Vec<String>> {
    let table = match ending {
        ".toml" => toml::from_str(text).map_err(|error| vec![error.message().to_owned()])?,
        _ => read_yaml(text).map_err(|problem| vec![problem])?,
    };
    let map = match serde_json::to_value(table) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    };
    Preset::read(&map).map_err(|error| error.0)
}

/// The error for a preset that is wrong, with every problem.
pub fn refused(name: &str, problems: Vec<String>) -> ApiError {
    let message = format!("preset {name:?}: {}", problems.join("; "));
    let details = serde_json::json!({ "errors": problems });
    ApiError::field(Code::OutOfRange, "preset", message).with_details(details)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_preset_is_right_and_files_come_first() {
        let dir = tempfile::tempdir().unwrap();
        let shipped = load(dir.path(), "safe_defaults").unwrap().describe();
        assert_eq!(shipped["temperature"]["override"], 0.8);
        assert_eq!(shipped["top_p"]["override"], 0.9);
        assert_eq!(shipped["loop_detect_window"]["override"], 800);
        assert_eq!(list(dir.path()), ["safe_defaults"]);
        std::fs::write(dir.path().join("safe_defaults.yml"), "temperature:\n  override: 0.5\n")
            .unwrap();
        std::fs::write(dir.path().join("mine.toml"), "top_k = 40\n").unwrap();
        assert_eq!(list(dir.path()), ["mine", "safe_defaults"]);
        let own = load(dir.path(), "safe_defaults").unwrap().describe();
        assert_eq!(own["temperature"]["override"], 0.5);
        assert_eq!(load(dir.path(), "mine").unwrap().describe()["top_k"]["force"], false);
    }

    #[test]
    fn wrong_names_and_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("bad.toml"), "temprature = 1\ntop_p = 7\n").unwrap();
        let code = |name: &str| load(dir.path(), name).unwrap_err().code;
        assert_eq!(code("absent"), Code::PresetNotFound);
        assert_eq!(code("../bad"), Code::OutOfRange);
        let bad = load(dir.path(), "bad").unwrap_err();
        assert_eq!(bad.details.unwrap()["errors"].as_array().unwrap().len(), 2);
    }
}
