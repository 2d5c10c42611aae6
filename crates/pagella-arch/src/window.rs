//! How far back each layer looks.
//!
//! Windows count the keys a query sees, itself included: transformers masks with
//! `key > query − window`. ExLlamaV2 showed one key more (A9).

use serde_json::Value;

use crate::config::Config;
use crate::error::{ArchError, excerpt};
use crate::limits;
use crate::record::{Record, WindowRule};

/// The attention a layer has, in the words of `layer_types`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LayerKind {
    /// All earlier keys.
    Full,
    /// The last keys of the given number, the query's own included.
    Sliding(usize),
}

/// Kind of every layer: from `layer_types` if stated (A35), else by the family's rule.
pub(crate) fn layer_kinds(
    config: &Config,
    record: &Record,
    n_layers: usize,
) -> Result<Vec<LayerKind>, ArchError> {
    let window = window(config, record)?;
    if let Some((key, value)) = config.find(&["layer_types"]) {
        return stated_kinds(config, key, value, window, n_layers);
    }
    let Some(window) = window else {
        return Ok(vec![LayerKind::Full; n_layers]);
    };
    let is_sliding: Box<dyn Fn(usize) -> bool> = match record.window {
        WindowRule::Never => Box::new(|_| false),
        WindowRule::Every | WindowRule::EveryIfUsed => Box::new(|_| true),
        WindowRule::FromLayer => {
            let first = config.count(&["max_window_layers"], limits::WINDOW_START)?.unwrap_or(28);
            Box::new(move |layer| layer >= first)
        }
        WindowRule::Alternating => {
            let pattern = config.count(&["sliding_window_pattern"], limits::WINDOW_PATTERN)?;
            match pattern.unwrap_or(1) {
                0 | 1 => Box::new(|layer| layer % 2 == 0),
                pattern => Box::new(move |layer| (layer + 1) % pattern != 0),
            }
        }
    };
    let kind = |layer| if is_sliding(layer) { LayerKind::Sliding(window) } else { LayerKind::Full };
    Ok((0..n_layers).map(kind).collect())
}

/// The window in force, if any: null and 0 switch it off, absence means the family's default.
fn window(config: &Config, record: &Record) -> Result<Option<usize>, ArchError> {
    const NAMES: &[&str] = &["sliding_window", "sliding_window_size"];
    let is_gated = matches!(record.window, WindowRule::FromLayer | WindowRule::EveryIfUsed);
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
    window: Option<usize>,
    n_layers: usize,
) -> Result<Vec<LayerKind>, ArchError> {
    let items = value.as_array().ok_or_else(|| config.wrong(key, "a list of strings", value))?;
    if items.len() != n_layers {
        let problem = format!("`layer_types` has {} entries for {n_layers} layers", items.len());
        return Err(config.inconsistent(problem));
    }
    let kind = |item: &Value| match (item.as_str(), window) {
        (Some("full_attention"), _) => Ok(LayerKind::Full),
        (Some("sliding_attention"), Some(window)) => Ok(LayerKind::Sliding(window)),
        (Some("sliding_attention"), None) => Err(config.inconsistent(
            "`layer_types` has sliding layers but no `sliding_window` is in force".to_owned(),
        )),
        _ => Err(config.inconsistent(format!(
            "`layer_types` holds {}, known are \"full_attention\" and \"sliding_attention\"",
            excerpt(item)
        ))),
    };
    items.iter().map(kind).collect()
}
