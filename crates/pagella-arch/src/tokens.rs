//! Control ids and quantisation facts: what config files say about things other than structure.

use serde_json::Value;

use crate::config::Config;
use crate::error::ArchError;
use crate::limits;
use crate::spec::{QuantFacts, TokenIds};

/// Names of the block that says how weights are quantised; the second is of old compressed-tensors.
pub(crate) const QUANT_BLOCKS: [&str; 2] = ["quantization_config", "compression_config"];

/// Control ids. All end-of-sequence ids are kept, those for generation first.
pub(crate) fn token_ids(
    config: &Config,
    generation: Option<&Config>,
) -> Result<TokenIds, ArchError> {
    let mut eos = Vec::new();
    for file in generation.into_iter().chain([config]) {
        for id in ids(file, "eos_token_id")? {
            if !eos.contains(&id) {
                eos.push(id);
            }
        }
    }
    let first = |key| -> Result<Option<u32>, ArchError> { Ok(ids(config, key)?.first().copied()) };
    Ok(TokenIds { bos: first("bos_token_id")?, eos, pad: first("pad_token_id")? })
}

/// What `quantization_config` says.
pub(crate) fn quant_facts(config: &Config) -> Result<QuantFacts, ArchError> {
    let dtype = config.text(&["dtype", "torch_dtype"])?.map(str::to_owned);
    let Some(quant) = config.object(&QUANT_BLOCKS)? else {
        return Ok(QuantFacts { dtype, ..QuantFacts::default() });
    };
    let head_bits = quant.count(&["head_bits"], 0..=64)?;
    Ok(QuantFacts {
        method: quant.text(&["quant_method"])?.map(str::to_lowercase),
        bits: quant.float(&["bits", "w_bit"], limits::QUANT_BITS)?,
        head_bits: head_bits.and_then(|bits| u32::try_from(bits).ok()),
        block: config.find(&QUANT_BLOCKS).map(|(_, block)| block.clone()),
        scale_groups: scale_groups(&quant)?,
        dtype,
    })
}

/// Rows and columns that share a scale: `weight_block_size`, or what the groups of compressed-tensors
/// agree on.
fn scale_groups(quant: &Config) -> Result<Option<[usize; 2]>, ArchError> {
    let extents = |key: &str, value: &Value| match pair(value).as_deref() {
        Some([rows, columns]) => {
            let extent = |value| quant.integer(key, value, limits::SCALE_GROUP);
            Ok([extent(rows)?, extent(columns)?].map(|extent| extent as usize))
        }
        _ => Err(quant.wrong(key, "two numbers", value)),
    };
    if let Some((key, value)) = quant.find(&["weight_block_size"]) {
        return extents(key, value).map(Some);
    }
    let Some((_, Value::Object(groups))) = quant.find(&["config_groups"]) else {
        return Ok(None);
    };
    let stated = groups.values().filter_map(|group| group.get("weights")?.get("block_structure"));
    let mut stated = stated.filter(|value| !value.is_null());
    let Some(first) = stated.next() else { return Ok(None) };
    // Where they disagree, shapes must do.
    if stated.any(|other| other != first) {
        return Ok(None);
    }
    extents("block_structure", first).map(Some)
}

/// The items of a list, or of a text such as `128x128`, which early compressed-tensors wrote.
fn pair(value: &Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(items) => Some(items.clone()),
        Value::String(text) => {
            text.split('x').map(|part| part.trim().parse::<u64>().ok().map(Value::from)).collect()
        }
        _ => None,
    }
}

/// An id or a list of ids; −1, which old configs write for "none", is left out.
fn ids(config: &Config, key: &str) -> Result<Vec<u32>, ArchError> {
    let Some((key, value)) = config.find(&[key]) else {
        return Ok(Vec::new());
    };
    let items = match value {
        Value::Array(items) => items.as_slice(),
        single => std::slice::from_ref(single),
    };
    if items.len() > limits::EOS_IDS_MAX {
        let problem = format!(
            "`{key}` lists {} ids, at most {} are allowed",
            items.len(),
            limits::EOS_IDS_MAX
        );
        return Err(config.inconsistent(problem));
    }
    let read = |item| config.integer(key, item, limits::TOKEN_ID);
    let numbers = items.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(numbers.into_iter().filter_map(|number| u32::try_from(number).ok()).collect())
}
