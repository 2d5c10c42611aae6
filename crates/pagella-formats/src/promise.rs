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
    kept: bool,
}

impl Promise {
    /// What `quant_config` says, if there is one.
    pub fn new(quant_config: Option<&Value>) -> Self {
        let method = quant_config.and_then(method);
        let groups = quant_config.and_then(|config| config.get("config_groups")?.as_object());
        let widths = groups.into_iter().flat_map(|groups| groups.values()).filter_map(|group| {
            let weights = group.get("weights")?;
            let integers = weights.get("type").and_then(Value::as_str) != Some("float");
            integers.then(|| u8::try_from(weights.get("num_bits")?.as_u64()?).ok())?
        });
        let widths = widths.collect();
        Self { method, widths, kept: false }
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

    /// Fails when a method was promised and no linear kept to it.
    pub fn finish(self, dir: &Path) -> Result<()> {
        match self.method {
            Some(promised) if !self.kept => {
                Err(FormatError::NothingPromised { path: dir.to_owned(), promised })
            }
            _ => Ok(()),
        }
    }
}

/// The method that a configuration names; blocks of early bitsandbytes have only its flags.
pub(crate) fn method(config: &Value) -> Option<String> {
    let is_true = |key: &str| config.get(key).and_then(Value::as_bool) == Some(true);
    match config.get("quant_method").and_then(Value::as_str) {
        Some("compressed_tensors") => Some("compressed-tensors".to_owned()),
        Some(method) => Some(method.to_ascii_lowercase()),
        None if is_true("load_in_4bit") || is_true("load_in_8bit") => {
            Some("bitsandbytes".to_owned())
        }
        None => None,
    }
}
