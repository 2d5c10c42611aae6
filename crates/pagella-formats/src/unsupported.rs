//! Weight formats that are recognised only to be refused with advice.
//!
//! Without this the user of an AWQ or HQQ model would read "tensor missing" or "wrong shape".

use std::fmt;
use std::path::Path;

use serde_json::Value;

use crate::checkpoint::Checkpoint;
use crate::error::{FormatError, Result};
use crate::promise::{method, shortened, text};
use crate::registry::LinearKind;

/// A format that is known by name and not read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnsupportedFormat {
    /// Weights rearranged for the Marlin kernels.
    Marlin,
    /// HQQ.
    Hqq,
    /// GPTQ of a width that it has no packing for.
    GptqBits(u64),
    /// Packed integers of compressed-tensors of a width that its versions pack differently.
    PackedBits(u8),
    /// A form of a method of which another form is read.
    Form {
        /// The method.
        method: &'static str,
        /// What is not read of it.
        form: String,
    },
    /// A GGUF file.
    Gguf,
    /// A pickled PyTorch checkpoint, which can run code when loaded.
    Pickle,
    /// A quantisation method that only `config.json` names.
    Method(String),
}

impl fmt::Display for UnsupportedFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Marlin => f.write_str("Marlin"),
            Self::Hqq => f.write_str("HQQ"),
            Self::GptqBits(bits) => write!(f, "{bits}-bit GPTQ"),
            Self::PackedBits(bits) => write!(f, "compressed-tensors of {bits} bits"),
            Self::Form { method, form } => write!(f, "{method} with {form}"),
            Self::Gguf => f.write_str("GGUF"),
            Self::Pickle => f.write_str("a pickled checkpoint"),
            Self::Method(name) => write!(f, "quantized with {:?}", shortened(name)),
        }
    }
}

impl UnsupportedFormat {
    /// What to do instead.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Gguf => "use an EXL2, EXL3, AWQ or GPTQ version, or quantize the original model",
            Self::Pickle => "convert it to safetensors first; pickles can run code when loaded",
            _ => "use an EXL2, EXL3, AWQ or GPTQ version, or quantize the original model",
        }
    }
}

/// Refuses a model directory whose files or `quantization_config` announce a format that is not
/// read, before any tensor is looked at.
///
/// `quant_config` is that block of `config.json`, if there is one.
pub fn refuse_unsupported(dir: &Path, quant_config: Option<&Value>) -> Result<()> {
    if let Some(format) = quant_config.and_then(announced) {
        let place = "quantization_config".to_owned();
        return Err(FormatError::Unsupported { path: dir.to_owned(), place, format });
    }
    crate::checkpoint::shard_paths(dir).map(drop)
}

/// The unsupported format that a `quantization_config` names.
fn announced(config: &Value) -> Option<UnsupportedFormat> {
    match method(config)?.as_str() {
        "gptq" => unread_gptq(config),
        "awq" => unread_awq(config),
        "marlin" => Some(UnsupportedFormat::Marlin),
        "compressed-tensors" => unread_compressed(config),
        "hqq" => Some(UnsupportedFormat::Hqq),
        known if LinearKind::is_method(known) => None,
        other => Some(UnsupportedFormat::Method(other.to_owned())),
    }
}

/// The number of the first of `keys` that has one.
fn number(config: &Value, keys: &[&str]) -> Option<u64> {
    keys.iter().find_map(|key| config.get(key)?.as_u64())
}

/// A form of `method`, with what a setting says.
fn form(method: &'static str, key: &str, value: &str) -> Option<UnsupportedFormat> {
    let form = format!("{key} {:?}", shortened(value));
    Some(UnsupportedFormat::Form { method, form })
}

/// Forms and widths of GPTQ that are not read. Some have the shapes of what is read, so only their
/// label tells.
fn unread_gptq(config: &Value) -> Option<UnsupportedFormat> {
    let is_marlin = config.get("is_marlin_format").and_then(Value::as_bool) == Some(true);
    for key in ["checkpoint_format", "format"] {
        match text(config, &[key]).as_deref() {
            None | Some("gptq" | "gptq_v2") => {}
            Some("marlin") => return Some(UnsupportedFormat::Marlin),
            Some(other) => return form("GPTQ", key, other),
        }
    }
    match (text(config, &["pack_dtype"]).as_deref(), number(config, &["bits"])) {
        _ if is_marlin => Some(UnsupportedFormat::Marlin),
        (Some(dtype), _) if dtype != "int32" => form("GPTQ", "pack_dtype", dtype),
        (_, Some(2 | 3 | 4 | 8) | None) => None,
        (_, Some(bits)) => Some(UnsupportedFormat::GptqBits(bits)),
    }
}

/// Layouts and widths of AWQ that are not read.
fn unread_awq(config: &Value) -> Option<UnsupportedFormat> {
    for key in ["version", "format"] {
        match text(config, &[key]).as_deref() {
            None | Some("gemm") => {}
            Some(other) => return form("AWQ", key, other),
        }
    }
    match number(config, &["bits", "w_bit"]) {
        None | Some(4) => None,
        Some(bits) => form("AWQ", "bits", &bits.to_string()),
    }
}

/// Formats of compressed-tensors that are not read, in the model and in groups of linears.
fn unread_compressed(config: &Value) -> Option<UnsupportedFormat> {
    const METHOD: &str = "compressed-tensors";
    let is_unread = |format: &str| {
        format == "marlin-24" || format.starts_with("sparse") || format.starts_with("mxfp6")
    };
    let groups = config.get("config_groups").and_then(Value::as_object);
    let groups = groups.into_iter().flat_map(|groups| groups.values());
    let mut formats = groups.chain([config]).filter_map(|holder| text(holder, &["format"]));
    if let Some(format) = formats.find(|format| is_unread(format)) {
        return form(METHOD, "format", &format);
    }
    let sparsity = config.get("sparsity_config").filter(|sparsity| !sparsity.is_null());
    match sparsity.map(|sparsity| text(sparsity, &["format"]).unwrap_or_default()).as_deref() {
        None | Some("dense") => {}
        // Written by the library where nothing is sparse.
        Some("") if sparsity.and_then(Value::as_object).is_some_and(serde_json::Map::is_empty) => {}
        Some(format) => return form(METHOD, "sparsity_config", format),
    }
    let rotates = |transform: &Value| match transform.get("config_groups") {
        Some(groups) => groups.as_object().is_none_or(|groups| !groups.is_empty()),
        None => transform.as_object().is_none_or(|transform| !transform.is_empty()),
    };
    let transform = config.get("transform_config").filter(|transform| !transform.is_null());
    let form = "a transform_config, which rotates activations".to_owned();
    transform.is_some_and(rotates).then_some(UnsupportedFormat::Form { method: METHOD, form })
}

/// Suffixes that betray how a linear is stored when none of the known names exists.
const TELLTALES: &[(&str, UnsupportedFormat)] =
    &[(".B", UnsupportedFormat::Marlin), (".W_q", UnsupportedFormat::Hqq)];

/// The format that the tensors around `base` betray, with the file and tensor that show it.
pub(crate) fn betrayed(checkpoint: &Checkpoint, base: &str) -> Option<FormatError> {
    TELLTALES.iter().find_map(|(suffix, format)| {
        let tensor = checkpoint.tensor(&format!("{base}{suffix}"))?;
        Some(FormatError::Unsupported {
            path: tensor.file.to_owned(),
            place: format!("`{}`", tensor.name),
            format: format.clone(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_are_recognised_by_name() {
        for (config, expected) in [
            (r#"{"quant_method":"exl2","bits":2.5}"#, None),
            (r#"{"quant_method":"gptq","bits":4}"#, None),
            (r#"{"quant_method":"gptq","bits":4,"checkpoint_format":"gptq_v2"}"#, None),
            (r#"{"bits":4}"#, None),
            (r#"{"quant_method":"gptq","bits":8,"pack_dtype":"int32"}"#, None),
            (r#"{"quant_method":"gptq","bits":5}"#, Some("5-bit GPTQ")),
            (r#"{"quant_method":"gptq","bits":4,"checkpoint_format":"marlin"}"#, Some("Marlin")),
            (r#"{"quant_method":"gptq","bits":4,"is_marlin_format":true}"#, Some("Marlin")),
            (
                r#"{"quant_method":"gptq","bits":3,"checkpoint_format":"gptq_p"}"#,
                Some("GPTQ with checkpoint_format \"gptq_p\""),
            ),
            (r#"{"quant_method":"gptq","format":"qqq"}"#, Some("GPTQ with format \"qqq\"")),
            (
                r#"{"quant_method":"gptq","pack_dtype":"int8"}"#,
                Some("GPTQ with pack_dtype \"int8\""),
            ),
            (r#"{"quant_method":"AWQ","bits":4,"version":"GEMM"}"#, None),
            (r#"{"quant_method":"awq","w_bit":4}"#, None),
            (r#"{"quant_method":"awq","version":"gemv"}"#, Some("AWQ with version \"gemv\"")),
            (r#"{"quant_method":"awq","bits":3}"#, Some("AWQ with bits \"3\"")),
            (r#"{"load_in_8bit":true}"#, None),
            (r#"{"quant_method":"fp8"}"#, None),
            (r#"{"quant_method":"mxfp4"}"#, None),
            (r#"{"quant_method":"modelopt"}"#, None),
            (r#"{"load_in_4bit":true}"#, None),
            (r#"{"quant_method":"exl3"}"#, None),
            (r#"{"quant_method":"intel/auto-round"}"#, Some("quantized with \"intel/auto-round\"")),
            (r#"{"quant_method":"quark"}"#, Some("quantized with \"quark\"")),
        ] {
            check(config, expected);
        }
    }

    fn check(config: &str, expected: Option<&str>) {
        let config: Value = serde_json::from_str(config).unwrap();
        let found = announced(&config).map(|format| format.to_string());
        assert_eq!(found.as_deref(), expected, "{config}");
    }

    #[test]
    fn sparse_and_rotated_compressed_tensors_are_refused() {
        let rotated =
            "compressed-tensors with a transform_config, which rotates activations".to_owned();
        let with = |what: &str| format!("compressed-tensors with {what}");
        for (setting, expected) in [
            (r#""format":"pack-quantized""#, None),
            (r#""sparsity_config":null,"transform_config":{}"#, None),
            (r#""sparsity_config":{"format":"dense"}"#, None),
            (r#""sparsity_config":{},"transform_config":{"config_groups":{}}"#, None),
            (r#""format":"marlin-24""#, Some(with("format \"marlin-24\""))),
            (r#""format":"sparse-bitmask""#, Some(with("format \"sparse-bitmask\""))),
            (
                r#""format":"mixed-precision","config_groups":{"a":{"format":"mxfp6-packed"}}"#,
                Some(with("format \"mxfp6-packed\"")),
            ),
            (
                r#""sparsity_config":{"format":"sparse-24-bitmask"}"#,
                Some(with("sparsity_config \"sparse-24-bitmask\"")),
            ),
            (r#""transform_config":{"config_groups":{"u":{}}}"#, Some(rotated)),
        ] {
            let config = format!(r#"{{"quant_method":"compressed-tensors",{setting}}}"#);
            check(&config, expected.as_deref());
        }
    }
}
