//! How far back each layer looks.
//!
//! Windows count the keys a query sees, itself included: transformers masks with
//! `key > query − window`. ExLlamaV2 showed one key more.

use serde_json::Value;

use crate::config::Config;
use crate::error::{ArchError, excerpt};
use crate::limits;
use crate::record::{Record, RopeLayers, WindowRule};

/// The attention a layer has, in the words of `layer_types`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LayerKind {
    /// All earlier keys.
    Full,
    /// The last keys of the given number, the query's own included.
    Sliding(usize),
    /// The earlier keys of the query's own chunk, chunks having the given number of positions.
    Chunked(usize),
}

/// Kind of every layer: from `layer_types` if stated, else by the family's rule.
pub(crate) fn layer_kinds(
    config: &Config,
    record: &Record,
    n_layers: usize,
) -> Result<Vec<LayerKind>, ArchError> {
    let window = window(config, record)?;
    let chunk = match record.window {
        WindowRule::RotatedChunks => {
            Some(config.count(&["attention_chunk_size"], limits::CONTEXT)?.unwrap_or(8192))
        }
        _ => None,
    };
    if let Some((key, value)) = config.find(&["layer_types"]) {
        return stated_kinds(config, key, value, (window, chunk), n_layers);
    }
    let rotated = || listed_rotation(config, n_layers);
    let is_local: Vec<bool> = match record.window {
        WindowRule::Never => vec![false; n_layers],
        WindowRule::Every | WindowRule::EveryIfUsed => vec![true; n_layers],
        WindowRule::FromLayer => {
            let first = window_layers(config)?;
            (0..n_layers).map(|layer| layer >= first).collect()
        }
        WindowRule::EvenBelowIfUsed => {
            let end = window_layers(config)?;
            (0..n_layers).map(|layer| layer < end && layer % 2 == 0).collect()
        }
        WindowRule::Alternating(default) => {
            let pattern = pattern(config, window.is_some())?;
            pattern_layers(pattern.unwrap_or(Pattern::Every(default)), n_layers)
        }
        WindowRule::AllButFirstOf(n) => (0..n_layers).map(|layer| layer % n != 0).collect(),
        WindowRule::UnrotatedIfUsed => rotated()?.into_iter().map(|rotates| !rotates).collect(),
        WindowRule::RotatedChunks => rotated()?,
    };
    let local = chunk.map(LayerKind::Chunked).or(window.map(LayerKind::Sliding));
    let kind = |is_local| if is_local { local.unwrap_or(LayerKind::Full) } else { LayerKind::Full };
    Ok(is_local.into_iter().map(kind).collect())
}

/// Whether each layer rotates queries and keys. `kinds` has one entry per layer.
pub(crate) fn rotating_layers(
    config: &Config,
    record: &Record,
    kinds: &[LayerKind],
) -> Result<Vec<bool>, ArchError> {
    let sliding = || kinds.iter().map(|kind| *kind != LayerKind::Full).collect();
    Ok(match record.rope_layers {
        RopeLayers::All => vec![true; kinds.len()],
        RopeLayers::None => vec![false; kinds.len()],
        RopeLayers::Sliding => sliding(),
        RopeLayers::SlidingIfAny if window(config, record)?.is_some() => sliding(),
        RopeLayers::SlidingIfAny => vec![true; kinds.len()],
        RopeLayers::Listed => listed_rotation(config, kinds.len())?,
        RopeLayers::IfNamed => {
            let rotates = match config.text(&["position_embedding_type"])? {
                Some("rope") => true,
                None | Some("nope") => false,
                Some(other) => {
                    let other = excerpt(&other.into());
                    return Err(config.inconsistent(format!(
                        "`position_embedding_type` is {other}, known are \"rope\" and \"nope\""
                    )));
                }
            };
            vec![rotates; kinds.len()]
        }
    })
}

/// `no_rope_layers`, where 1 says that the layer does rotate, else all but each n-th layer.
fn listed_rotation(config: &Config, n_layers: usize) -> Result<Vec<bool>, ArchError> {
    let stated =
        config.find(&["no_rope_layers"]).filter(|(_, value)| **value != Value::Array(vec![]));
    let Some((key, value)) = stated else {
        let interval = config.count(&["no_rope_layer_interval"], limits::SPARSE_STEP)?.unwrap_or(4);
        return Ok((1..=n_layers).map(|nth| nth % interval != 0).collect());
    };
    let items = value.as_array().ok_or_else(|| config.wrong(key, "a list of 0 and 1", value))?;
    if items.len() != n_layers {
        let problem = format!("`{key}` has {} entries for {n_layers} layers", items.len());
        return Err(config.inconsistent(problem));
    }
    items.iter().map(|item| Ok(config.integer(key, item, 0..=1)? == 1)).collect()
}

/// Which layers of a pattern are local.
enum Pattern {
    /// All but each p-th; 0 and 1: the even ones.
    Every(usize),
    /// One letter per layer, repeated: true for local.
    Letters(Vec<bool>),
}

fn pattern_layers(pattern: Pattern, n_layers: usize) -> Vec<bool> {
    let is_local = |layer: usize| match &pattern {
        Pattern::Every(0 | 1) => layer.is_multiple_of(2),
        Pattern::Every(pattern) => !(layer + 1).is_multiple_of(*pattern),
        Pattern::Letters(letters) => letters.get(layer % letters.len()) == Some(&true),
    };
    (0..n_layers).map(is_local).collect()
}

/// `sliding_window_pattern`: a number, or letters L (local) and G (global).
fn pattern(config: &Config, is_used: bool) -> Result<Option<Pattern>, ArchError> {
    const KEY: &[&str] = &["sliding_window_pattern"];
    let Some((key, Value::String(letters))) = config.find(KEY) else {
        return Ok(config.count(KEY, limits::WINDOW_PATTERN)?.map(Pattern::Every));
    };
    let letter = |letter| match letter {
        'L' => Some(true),
        'G' => Some(false),
        _ => None,
    };
    match letters.chars().map(letter).collect::<Option<Vec<bool>>>() {
        Some(letters) if !letters.is_empty() => Ok(Some(Pattern::Letters(letters))),
        _ if !is_used => Ok(None),
        _ => {
            let found = excerpt(&Value::from(letters.as_str()));
            Err(config.inconsistent(format!("`{key}` is {found}, known are the letters L and G")))
        }
    }
}

fn window_layers(config: &Config) -> Result<usize, ArchError> {
    Ok(config.count(&["max_window_layers"], limits::WINDOW_START)?.unwrap_or(28))
}

/// The window in force, if any: null and 0 switch it off, absence means the family's default.
fn window(config: &Config, record: &Record) -> Result<Option<usize>, ArchError> {
    const NAMES: &[&str] = &["sliding_window", "sliding_window_size"];
    let is_gated = matches!(
        record.window,
        WindowRule::FromLayer
            | WindowRule::EveryIfUsed
            | WindowRule::EvenBelowIfUsed
            | WindowRule::UnrotatedIfUsed
    );
    let gated_off = is_gated && !config.flag(&["use_sliding_window"])?.unwrap_or(false);
    if gated_off || config.is_null(NAMES) {
        return Ok(None);
    }
    let window = config.count(NAMES, limits::WINDOW)?.or(record.defaults.window);
    Ok(window.filter(|window| *window > 0))
}

fn stated_kinds(
    config: &Config,
    key: &str,
    value: &Value,
    (window, chunk): (Option<usize>, Option<usize>),
    n_layers: usize,
) -> Result<Vec<LayerKind>, ArchError> {
    let items = value.as_array().ok_or_else(|| config.wrong(key, "a list of strings", value))?;
    if items.len() != n_layers {
        let problem = format!("`layer_types` has {} entries for {n_layers} layers", items.len());
        return Err(config.inconsistent(problem));
    }
    let kind = |item: &Value| match (item.as_str(), window, chunk) {
        // Granite 4 calls it by the name of the block.
        (Some("full_attention" | "attention"), ..) => Ok(LayerKind::Full),
        (Some("sliding_attention"), Some(window), _) => Ok(LayerKind::Sliding(window)),
        (Some("chunked_attention"), _, Some(chunk)) => Ok(LayerKind::Chunked(chunk)),
        (Some("sliding_attention"), None, _) => Err(config.inconsistent(
            "`layer_types` has sliding layers but no `sliding_window` is in force".to_owned(),
        )),
        _ => Err(config.inconsistent(format!(
            "`layer_types` holds {}, known are \"full_attention\" and \"sliding_attention\"",
            excerpt(item)
        ))),
    };
    items.iter().map(kind).collect()
}
