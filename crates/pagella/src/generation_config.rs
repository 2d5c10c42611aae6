//! The sampling settings that a model recommends, from `generation_config.json`.
//!
//! Unknown keys are the business of other programs; known keys with impossible values are errors,
//! because a silently ignored temperature would be noticed by nobody.

use std::io::Read;
use std::path::Path;

use pagella_engine::SampleOptions;
use serde::Deserialize;

use crate::Error;

/// Largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Default, Deserialize)]
struct GenerationConfig {
    do_sample: Option<bool>,
    temperature: Option<f32>,
    top_k: Option<u32>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
}

/// The recommended settings, or neutral ones when there is no file.
pub fn read(dir: &Path) -> Result<SampleOptions, Error> {
    let path = dir.join("generation_config.json");
    let problem = |problem: String| Error::GenerationConfig { path: path.clone(), problem };
    let file = match std::fs::File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(SampleOptions::default()),
        Err(e) => return Err(problem(e.to_string())),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|e| problem(e.to_string()))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(problem(format!("more than {FILE_BYTES_MAX} bytes")));
    }
    let config: GenerationConfig =
        serde_json::from_slice(&bytes).map_err(|e| problem(e.to_string()))?;
    let options = config.options();
    options.validate().map_err(|e| problem(e.to_string()))?;
    Ok(options)
}

impl GenerationConfig {
    fn options(&self) -> SampleOptions {
        let neutral = SampleOptions::default();
        let temperature = match self.do_sample {
            Some(false) => 0.0,
            _ => self.temperature.unwrap_or(neutral.temperature),
        };
        SampleOptions {
            temperature,
            top_k: self.top_k.map_or(neutral.top_k, |k| k as usize),
            top_p: self.top_p.unwrap_or(neutral.top_p),
            min_p: self.min_p.unwrap_or(neutral.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(neutral.repetition_penalty),
            ..neutral
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(json: &str) -> Result<SampleOptions, Error> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("generation_config.json"), json).unwrap();
        read(dir.path())
    }

    #[test]
    fn recommended_values_are_taken_and_others_stay_neutral() {
        let found = options(r#"{"temperature": 0.7, "top_p": 0.9, "eos_token_id": [0, 4]}"#);
        let expected = SampleOptions { temperature: 0.7, top_p: 0.9, ..SampleOptions::default() };
        assert_eq!(found.unwrap(), expected);
        let greedy = options(r#"{"do_sample": false, "temperature": 0.7}"#).unwrap();
        assert_eq!(greedy.temperature, 0.0);
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), SampleOptions::default());
    }

    #[test]
    fn impossible_values_are_errors_that_name_the_file() {
        for json in [r#"{"temperature": -1}"#, r#"{"top_p": "x"}"#, r#"{"top_k": -5}"#, "[", "[]"] {
            let message = options(json).unwrap_err().to_string();
            assert!(message.contains("generation_config.json"), "{json}: {message}");
        }
    }
}
