//! Weight formats that are recognised only to be refused with advice.
//!
//! Without this the user of an AWQ or FP8 model would read "tensor missing" or "wrong shape".

use std::fmt;
use std::path::Path;

use serde_json::Value;

use crate::checkpoint::Checkpoint;
use crate::error::{FormatError, Result};

/// A format that is known by name and not read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnsupportedFormat {
    /// AWQ: the names of GPTQ, but packed along the outputs.
    Awq,
    /// Weights rearranged for the Marlin kernels.
    Marlin,
    /// The `compressed-tensors` family.
    CompressedTensors,
    /// bitsandbytes, 4 or 8 bits.
    BitsAndBytes,
    /// 8-bit floating-point weights.
    Fp8,
    /// EXL3.
    Exl3,
    /// HQQ.
    Hqq,
    /// GPTQ with another width than 4 bits.
    GptqBits(u64),
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
            Self::Awq => f.write_str("AWQ"),
            Self::Marlin => f.write_str("Marlin"),
            Self::CompressedTensors => f.write_str("compressed-tensors"),
            Self::BitsAndBytes => f.write_str("bitsandbytes"),
            Self::Fp8 => f.write_str("FP8"),
            Self::Exl3 => f.write_str("EXL3"),
            Self::Hqq => f.write_str("HQQ"),
            Self::GptqBits(bits) => write!(f, "{bits}-bit GPTQ"),
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
            Self::Gguf => "use an EXL2 or GPTQ version, or quantize the original model",
            Self::Pickle => "convert it to safetensors first; pickles can run code when loaded",
            _ => "use an EXL2 or 4-bit GPTQ version, or quantize the original model",
        }
    }
}

/// Names come from files; a message has room for the start of one.
fn shortened(name: &str) -> String {
    name.chars().take(40).collect()
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
    let text = |key: &str| config.get(key).and_then(Value::as_str);
    let is_true = |key: &str| config.get(key).and_then(Value::as_bool) == Some(true);
    // bitsandbytes blocks of early models carry no method, only their flags.
    if is_true("load_in_4bit") || is_true("load_in_8bit") {
        return Some(UnsupportedFormat::BitsAndBytes);
    }
    match text("quant_method")?.to_ascii_lowercase().as_str() {
        "exl2" => None,
        "gptq" => {
            let marlin = text("checkpoint_format") == Some("marlin") || is_true("is_marlin_format");
            match config.get("bits").and_then(Value::as_u64) {
                _ if marlin => Some(UnsupportedFormat::Marlin),
                Some(4) | None => None,
                Some(bits) => Some(UnsupportedFormat::GptqBits(bits)),
            }
        }
        "awq" => Some(UnsupportedFormat::Awq),
        "marlin" => Some(UnsupportedFormat::Marlin),
        "compressed-tensors" | "compressed_tensors" => Some(UnsupportedFormat::CompressedTensors),
        "bitsandbytes" => Some(UnsupportedFormat::BitsAndBytes),
        "fp8" | "fbgemm_fp8" => Some(UnsupportedFormat::Fp8),
        "exl3" => Some(UnsupportedFormat::Exl3),
        "hqq" => Some(UnsupportedFormat::Hqq),
        other => Some(UnsupportedFormat::Method(other.to_owned())),
    }
}

/// Suffixes that betray how a linear is stored when none of the known names exists.
const TELLTALES: &[(&str, UnsupportedFormat)] = &[
    (".trellis", UnsupportedFormat::Exl3),
    (".weight_packed", UnsupportedFormat::CompressedTensors),
    (".B", UnsupportedFormat::Marlin),
    (".W_q", UnsupportedFormat::Hqq),
    (".SCB", UnsupportedFormat::BitsAndBytes),
    (".weight.absmax", UnsupportedFormat::BitsAndBytes),
    (".weight_scale_inv", UnsupportedFormat::Fp8),
    (".weight_scale", UnsupportedFormat::Fp8),
];

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
            (r#"{"quant_method":"gptq","bits":8}"#, Some("8-bit GPTQ")),
            (r#"{"quant_method":"gptq","bits":4,"checkpoint_format":"marlin"}"#, Some("Marlin")),
            (r#"{"quant_method":"AWQ","bits":4}"#, Some("AWQ")),
            (r#"{"quant_method":"compressed-tensors"}"#, Some("compressed-tensors")),
            (r#"{"load_in_4bit":true}"#, Some("bitsandbytes")),
            (r#"{"quant_method":"fp8"}"#, Some("FP8")),
            (r#"{"quant_method":"exl3"}"#, Some("EXL3")),
            (r#"{"quant_method":"mxfp4"}"#, Some("quantized with \"mxfp4\"")),
        ] {
            let config: Value = serde_json::from_str(config).unwrap();
            let found = announced(&config).map(|format| format.to_string());
            assert_eq!(found.as_deref(), expected, "{config}");
        }
    }
}
