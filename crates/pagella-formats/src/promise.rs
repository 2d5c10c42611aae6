//! What a `quantization_config` says against what the tensors are.
//!
//! Tensors decide how a linear is read. A configuration that says otherwise betrays files of different
//! models in one directory, which would load and write nonsense, or nothing at all. Plain linears are
//! always allowed: routers, heads, and what a writer skipped.

use std::path::Path;

use serde_json::Value;

use crate::error::{FormatError, Result};
use crate::linear::Linear;
use crate::registry::LinearKind;

/// What a `quantization_config` promises, and what was seen of it.
#[derive(Clone, Debug)]
pub struct Promise {
    /// `quant_method`, lower case; `None` when nothing is promised.
    method: Option<String>,
    /// Widths of integer codes that it names for groups of linears; empty where it names none.
    widths: Vec<u8>,
    /// Codebook of EXL3, lower case.
    codebook: Option<String>,
    /// The first linear with another codebook, and which.
    other_codebook: Option<(String, &'static str)>,
    kept: bool,
}

impl Promise {
    /// What `quant_config` says, if there is one.
    pub fn new(quant_config: Option<&Value>) -> Self {
        let method = quant_config.filter(|config| is_of_weights(config)).and_then(method);
        let groups = quant_config.and_then(|config| config.get("config_groups")?.as_object());
        let widths = groups.into_iter().flat_map(|groups| groups.values()).filter_map(|group| {
            let weights = group.get("weights")?;
            let integers = weights.get("type").and_then(Value::as_str) != Some("float");
            integers.then(|| u8::try_from(weights.get("num_bits")?.as_u64()?).ok())?
        });
        let widths = widths.collect();
        let codebook = quant_config.and_then(|config| text(config, &["codebook"]));
        Self { method, widths, codebook, other_codebook: None, kept: false }
    }

    /// Compares a linear of `dir` with it.
    pub fn check(&mut self, dir: &Path, linear: &Linear<'_>) -> Result<()> {
        let Some(method) = &self.method else { return Ok(()) };
        let (kind, width) = (linear.kind(), linear.widths());
        let broken = |found: String, promised: String| FormatError::OtherFormat {
            path: dir.to_owned(),
            linear: linear.name().to_owned(),
            found,
            promised,
        };
        if kind == LinearKind::Plain {
            return Ok(());
        }
        if !kind.format().methods.contains(&method.as_str()) {
            return Err(broken(kind.name().to_owned(), method.clone()));
        }
        self.kept = true;
        if let (Linear::Exl3(linear), Some(promised)) = (linear, &self.codebook) {
            let found = linear.codebook.name();
            if found != promised && self.other_codebook.is_none() {
                self.other_codebook = Some((linear.name.clone(), found));
            }
        }
        let is_integer = matches!(linear, Linear::Gptq(_));
        match width[..] {
            [(bits, _)]
                if is_integer && !self.widths.is_empty() && !self.widths.contains(&bits) =>
            {
                let widths: Vec<String> = self.widths.iter().map(u8::to_string).collect();
                let promised = format!("{method} of {} bits", widths.join(" or "));
                Err(broken(format!("{} of {bits} bits", kind.name()), promised))
            }
            _ => Ok(()),
        }
    }

    /// Fails when a method was promised and no linear kept to it; else what a person should know.
    pub fn finish(self, dir: &Path) -> Result<Option<String>> {
        match (self.method, self.other_codebook, self.codebook) {
            (Some(promised), ..) if !self.kept => {
                Err(FormatError::NothingPromised { path: dir.to_owned(), promised })
            }
            (_, Some((linear, found)), Some(promised)) => Ok(Some(format!(
                "`{linear}` has the codebook {found} where quantization_config says {}: if the text \
                 of the model is nonsense, tensors are missing from its files",
                shortened(&promised)
            ))),
            _ => Ok(None),
        }
    }
}

/// Whether a block is about weights, and not only about the cache.
fn is_of_weights(config: &Value) -> bool {
    let groups = config.get("config_groups").and_then(Value::as_object);
    let no_group = groups.is_some_and(|groups| groups.is_empty());
    let no_algorithm = config.get("quant_algo").is_some_and(Value::is_null);
    !no_group && !no_algorithm
}

/// The method that a configuration names; blocks of early bitsandbytes have only its flags.
pub(crate) fn method(config: &Value) -> Option<String> {
    let is_true = |key: &str| config.get(key).and_then(Value::as_bool) == Some(true);
    match text(config, &["quant_method"]) {
        Some(method) if method == "compressed_tensors" => Some("compressed-tensors".to_owned()),
        Some(method) => Some(method),
        None if is_true("load_in_4bit") || is_true("load_in_8bit") => {
            Some("bitsandbytes".to_owned())
        }
        None => None,
    }
}

/// The text of the first of `keys` that has one, in lower case: writers do not agree on cases.
pub(crate) fn text(config: &Value, keys: &[&str]) -> Option<String> {
    keys.iter().find_map(|key| Some(config.get(key)?.as_str()?.to_ascii_lowercase()))
}

/// Names come from files; a message has room for the start of one.
pub(crate) fn shortened(name: &str) -> String {
    name.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::exl3::Codebook;
    use crate::synthetic;

    fn finish(config: &Value, linear: Option<&Linear<'_>>) -> Result<Option<String>> {
        let mut promise = Promise::new(Some(config));
        if let Some(linear) = linear {
            promise.check(Path::new("dir"), linear)?;
        }
        promise.finish(Path::new("dir"))
    }

    #[test]
    fn blocks_about_the_cache_alone_promise_no_weights() {
        for config in [
            json!({ "quant_method": "compressed-tensors", "config_groups": {}, "kv_cache_scheme": {} }),
            json!({ "quant_method": "modelopt", "quant_algo": null, "kv_cache_quant_algo": "FP8" }),
        ] {
            assert!(finish(&config, None).unwrap().is_none(), "{config}");
        }
        for config in [
            json!({ "quant_method": "compressed-tensors", "config_groups": { "group_0": {} } }),
            json!({ "quant_method": "Compressed_Tensors" }),
            json!({ "quant_method": "modelopt", "quant_algo": "NVFP4" }),
        ] {
            assert_eq!(finish(&config, None).unwrap_err().code(), "nothing_promised", "{config}");
        }
    }

    #[test]
    fn a_codebook_that_the_configuration_does_not_name_is_a_warning() {
        let linear = synthetic::exl3(128, 128, 2, Codebook::ThreeInst, 1);
        let linear = linear.view();
        let said = |config| finish(&config, Some(&linear)).unwrap();
        let warning = said(json!({ "quant_method": "EXL3", "codebook": "mul1" })).unwrap();
        assert!(
            warning.contains("codebook 3inst where quantization_config says mul1"),
            "{warning}"
        );
        assert!(said(json!({ "quant_method": "exl3", "codebook": "3INST" })).is_none());
        assert!(said(json!({ "quant_method": "exl3" })).is_none());
    }
}
