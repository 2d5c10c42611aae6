//! Multipliers and caps of embeddings, scores, branches and logits.
//!
//! Every family obeys every one of these keys, whether or not its original code knows them: a
//! config that states one means it. Computed in f64, rounded once.

use crate::config::Config;
use crate::error::ArchError;
use crate::geometry::Geometry;
use crate::limits;
use crate::record::{GrowthRule, Record};
use crate::rope::scaling_object;
use crate::spec::QueryGrowth;

/// The stated cap; null switches it off, absence means the family's default.
pub(crate) fn softcap(
    config: &Config,
    key: &str,
    default: Option<f64>,
) -> Result<Option<f32>, ArchError> {
    if config.is_null(&[key]) {
        return Ok(None);
    }
    let cap = config.float(&[key], limits::SOFTCAP)?.or(default);
    Ok(cap.map(|cap| cap as f32))
}

/// Multiplier of scores: stated, else from the query scalar, else from the head size. Latent
/// attention also takes the factor that its rotary scaling has for scores.
pub(crate) fn attention_scale(
    config: &Config,
    record: &Record,
    sizes: &Geometry,
    score_factor: f64,
) -> Result<f32, ArchError> {
    if let Some(latent) = &sizes.latent {
        return Ok(((latent.query_dim() as f64).powf(-0.5) * score_factor) as f32);
    }
    if let Some(scale) = config.float(&["attention_multiplier"], limits::MULTIPLIER)? {
        return Ok(scale as f32);
    }
    let scalar = config.float(&["query_pre_attn_scalar"], limits::QUERY_SCALAR)?;
    if let (None, Some(scale)) = (scalar, record.defaults.attention_multiplier) {
        return Ok(scale as f32);
    }
    let scalar = scalar.or(record.defaults.query_scalar);
    Ok(scalar.unwrap_or(sizes.head_dim as f64).powf(-0.5) as f32)
}

/// Multiplier of attention and MLP outputs: stated, else from the depth, else 1.
pub(crate) fn branch_scale(config: &Config, sizes: &Geometry) -> Result<f32, ArchError> {
    if let Some(scale) = config.float(&["residual_multiplier"], limits::MULTIPLIER)? {
        return Ok(scale as f32);
    }
    let depth = config.float(&["scale_depth"], limits::MULTIPLIER)?;
    Ok(depth.map_or(1.0, |depth| (depth / (sizes.layers as f64).sqrt()) as f32))
}

/// Multiplier of embedding rows: stated, and √hidden where the family has it.
pub(crate) fn embed_scale(
    config: &Config,
    record: &Record,
    sizes: &Geometry,
) -> Result<f32, ArchError> {
    let stated = config.float(&["scale_emb", "embedding_multiplier"], limits::MULTIPLIER)?;
    let root = if record.sqrt_hidden { (sizes.hidden as f64).sqrt() } else { 1.0 };
    Ok((stated.unwrap_or(1.0) * root) as f32)
}

/// Multiplier of logits: the inverse of `logits_scaling`, else `logit_scale`, else the family's;
/// for families with a base width also that over the hidden size.
pub(crate) fn logit_scale(
    config: &Config,
    record: &Record,
    sizes: &Geometry,
) -> Result<f32, ArchError> {
    if let Some(divisor) = config.float(&["logits_scaling"], limits::MULTIPLIER)? {
        return Ok((1.0 / divisor) as f32);
    }
    let scale = config.float(&["logit_scale"], limits::MULTIPLIER)?;
    let scale = scale.unwrap_or(record.defaults.logit_scale);
    let base = match record.logit_base_dim {
        true => config.count(&["dim_model_base"], limits::HIDDEN)?,
        false => None,
    };
    let base = base.unwrap_or(sizes.hidden);
    Ok((scale * base as f64 / sizes.hidden as f64) as f32)
}

/// Growth of queries with their position.
pub(crate) fn query_growth(
    config: &Config,
    record: &Record,
) -> Result<Option<QueryGrowth>, ArchError> {
    match record.query_growth {
        GrowthRule::Never => Ok(None),
        GrowthRule::Unrotated => unrotated_growth(config),
        GrowthRule::Scaled => scaled_growth(&scaling_object(config, record)?),
    }
}

/// As Llama 4 has it in layers that do not rotate.
fn unrotated_growth(config: &Config) -> Result<Option<QueryGrowth>, ArchError> {
    if !config.flag(&["attn_temperature_tuning"])?.unwrap_or(true) {
        return Ok(None);
    }
    let length = config.count(&["floor_scale"], limits::CONTEXT)?.unwrap_or(8192);
    let weight = config.float(&["attn_scale"], limits::MULTIPLIER)?.unwrap_or(0.1) as f32;
    Ok(Some(QueryGrowth { length, offset: 1, weight }))
}

/// As Ministral 3 has it beyond the original length, with the rotary scaling.
fn scaled_growth(scaling: &Config) -> Result<Option<QueryGrowth>, ArchError> {
    let Some(weight) = scaling.float(&["llama_4_scaling_beta"], limits::GROWTH)? else {
        return Ok(None);
    };
    let length = scaling.required_count(&["original_max_position_embeddings"], limits::CONTEXT)?;
    Ok(Some(QueryGrowth { length, offset: 0, weight: weight as f32 }))
}
