//! The files beside the weights: those of the source, and `config.json` with what was done.

use std::fs::File;
use std::path::Path;

use serde_json::{Value, json};

use crate::error::QuantError;
use crate::job::write_text;

/// What `config.json` says of the quantisation.
pub(crate) struct QuantizationConfig<'a> {
    /// Bits per weight that were asked for.
    pub bits: f64,
    /// Width of the head's preset; `None`: its bits were chosen with all others.
    pub head_bits: Option<u32>,
    /// Rows of calibration.
    pub rows: usize,
    /// Tokens of each.
    pub length: usize,
    /// Where they are from.
    pub dataset: &'a str,
}

/// Endings of files that hold weights or say where they are: they are left behind.
const WEIGHT_ENDINGS: &[&str] =
    &[".safetensors", ".bin", ".safetensors.index.json", ".bin.index.json", ".pt", ".pth", ".gguf"];

/// Copies what is no weight from `source` to `dir`.
pub(crate) fn copy_files(
    source: &Path,
    dir: &Path,
    quantization: &QuantizationConfig<'_>,
) -> Result<(), QuantError> {
    let entries = std::fs::read_dir(source).map_err(QuantError::io(source, "cannot read"))?;
    for entry in entries {
        let path = entry.map_err(QuantError::io(source, "cannot read"))?.path();
        let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else {
            continue;
        };
        let is_weights = WEIGHT_ENDINGS.iter().any(|ending| name.ends_with(ending));
        if !path.is_file() || is_weights || name.starts_with('.') || name == "config.json" {
            continue;
        }
        let to = dir.join(&name);
        std::fs::copy(&path, &to).map_err(QuantError::io(&path, "cannot copy"))?;
        // The job's folder, from which it could be copied again, goes when the model is there.
        let synced = File::open(&to).and_then(|file| file.sync_all());
        synced.map_err(QuantError::io(&to, "cannot write"))?;
    }
    let path = source.join("config.json");
    let text = std::fs::read_to_string(&path).map_err(QuantError::io(&path, "cannot read"))?;
    write_text(&dir.join("config.json"), &with_quantization(&path, &text, quantization)?)
}

fn with_quantization(
    path: &Path,
    text: &str,
    quantization: &QuantizationConfig<'_>,
) -> Result<String, QuantError> {
    let QuantizationConfig { bits, head_bits, rows, length, dataset } = quantization;
    let Ok(Value::Object(mut config)) = serde_json::from_str(text) else {
        let fault = std::io::Error::other("it is no JSON object");
        return Err(QuantError::Io { path: path.to_owned(), action: "cannot use", source: fault });
    };
    let block = json!({
        "quant_method": "exl2",
        "version": env!("CARGO_PKG_VERSION"),
        "bits": bits,
        "head_bits": head_bits.unwrap_or(6),
        "calibration": { "rows": rows, "length": length, "dataset": dataset },
    });
    config.insert("quantization_config".to_owned(), block);
    Ok(format!("{}\n", indented(&Value::Object(config))))
}

/// JSON with an indent of four, as ExLlamaV2 writes it.
fn indented(value: &Value) -> String {
    let mut bytes = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    match serde::Serialize::serialize(value, &mut serializer) {
        Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => format!("{value:#}"), // Values that were parsed can be written.
    }
}
