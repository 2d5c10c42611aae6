//! The two ways in: a model directory, or the bytes of its configuration files.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use serde_json::Value;

use crate::assemble::assemble;
use crate::config::Config;
use crate::error::{ArchError, excerpt};
use crate::family;
use crate::limits::CONFIG_BYTES_MAX;
use crate::spec::{ModelSpec, SpecOptions};
use crate::tokens::QUANT_BLOCKS;

/// A file in which a tool writes how weights are quantised.
struct QuantFile {
    name: &'static str,
    /// The method that it means, unless it says another.
    method: &'static str,
    /// Where in the file the settings are, if not at the top.
    block: Option<&'static str>,
}

const QUANT_FILES: [QuantFile; 3] = [
    QuantFile { name: "quantize_config.json", method: "gptq", block: None },
    QuantFile { name: "quant_config.json", method: "awq", block: None },
    QuantFile { name: "hf_quant_config.json", method: "modelopt", block: Some("quantization") },
];

/// Reads `config.json`, and `generation_config.json` if there is one, of the model in `dir`.
pub fn load_spec(dir: &Path, options: &SpecOptions) -> Result<ModelSpec, ArchError> {
    let config_path = dir.join("config.json");
    let mut config = read_limited(&config_path)
        .and_then(|bytes| Config::parse(config_path.display().to_string(), &bytes))?;
    adopt_quantization(dir, &mut config)?;
    let generation_path = dir.join("generation_config.json");
    let generation = match read_limited(&generation_path) {
        Ok(bytes) => Some(Config::parse(generation_path.display().to_string(), &bytes)?),
        Err(ArchError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    build(&config, generation.as_ref(), options)
}

/// Takes the block that says how weights are quantised from a file of its own, where `config.json` has
/// none.
fn adopt_quantization(dir: &Path, config: &mut Config) -> Result<(), ArchError> {
    if config.find(&QUANT_BLOCKS).is_some() {
        return Ok(());
    }
    for QuantFile { name, method, block } in QUANT_FILES {
        let path = dir.join(name);
        match read_limited(&path) {
            Ok(bytes) => {
                let file = Config::parse(path.display().to_string(), &bytes)?;
                let settings = match block {
                    Some(block) => file.object(&[block])?,
                    None => Some(file),
                };
                if let Some(settings) = settings {
                    config.adopt(QUANT_BLOCKS[0], settings, ("quant_method", method));
                    return Ok(());
                }
            }
            Err(ArchError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// [`load_spec`] for bytes in memory: `config.json` and, if there is one, `generation_config.json`.
pub fn spec_from_json(
    config: &[u8],
    generation_config: Option<&[u8]>,
    options: &SpecOptions,
) -> Result<ModelSpec, ArchError> {
    let config = parse_limited("config.json", config)?;
    let generation = generation_config
        .map(|bytes| parse_limited("generation_config.json", bytes))
        .transpose()?;
    build(&config, generation.as_ref(), options)
}

fn build(
    config: &Config,
    generation: Option<&Config>,
    options: &SpecOptions,
) -> Result<ModelSpec, ArchError> {
    let architecture = architecture(config)?;
    let family = family::find(config, architecture, options.assume_llama)?;
    assemble(family, architecture, config, generation, options)
}

/// The one string in `architectures`.
fn architecture(config: &Config) -> Result<&str, ArchError> {
    let refuse = |found: String| Err(ArchError::Architectures { file: config.file(), found });
    match config.find(&["architectures"]) {
        None => Err(config.missing(&["architectures"])),
        Some((_, Value::Array(items))) => match items.as_slice() {
            [Value::String(name)] => Ok(name),
            [other] => refuse(excerpt(other)),
            items => refuse(format!("{} values", items.len())),
        },
        Some((_, other)) => refuse(excerpt(other)),
    }
}

fn read_limited(path: &Path) -> Result<Vec<u8>, ArchError> {
    let failed = |source| ArchError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    // One byte more than allowed tells "full" from "too large" without trusting the reported size.
    let file = File::open(path).map_err(failed)?;
    file.take(CONFIG_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    check_size(&path.display().to_string(), &bytes)?;
    Ok(bytes)
}

fn parse_limited(file: &str, bytes: &[u8]) -> Result<Config, ArchError> {
    check_size(file, bytes)?;
    Config::parse(file.to_owned(), bytes)
}

fn check_size(file: &str, bytes: &[u8]) -> Result<(), ArchError> {
    let size = bytes.len() as u64;
    if size <= CONFIG_BYTES_MAX {
        return Ok(());
    }
    Err(ArchError::TooLarge { file: file.to_owned(), bytes: size, max: CONFIG_BYTES_MAX })
}
