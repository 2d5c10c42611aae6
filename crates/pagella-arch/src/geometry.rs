//! Sizes of a model, read once and checked against each other.

use crate::config::Config;
use crate::error::ArchError;
use crate::latent::LatentSizes;
use crate::limits;
use crate::record::{ExpertLayers, Record};

/// Sizes shared by all layers.
///
/// Invariants: all within `limits`, `heads` is a multiple of `kv_heads`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub vocab: usize,
    pub hidden: usize,
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    /// Elements of a head, or of a cache entry of latent attention.
    pub head_dim: usize,
    /// Sizes of latent attention.
    pub latent: Option<LatentSizes>,
    pub intermediate: usize,
    /// Context the config states, under whatever name.
    pub context: usize,
    /// `max_position_embeddings`, the length scaled rotary methods refer to.
    pub positions: usize,
}

impl Geometry {
    /// Reads the sizes of a dense model.
    pub fn read(config: &Config, record: &Record) -> Result<Self, ArchError> {
        let hidden =
            config.required_count(&["hidden_size", "d_model", "n_embd"], limits::HIDDEN)?;
        let latent = record.latent.map(|latent| latent.read(config)).transpose()?;
        let defaults = &record.defaults;
        let (heads, head_dim) = match latent {
            // What `head_dim` says is a part of it, if it is there.
            Some(latent) => (config.required_count(HEAD_NAMES, limits::HEADS)?, latent.entry()),
            None => {
                let head_dim = config.count(&["head_dim"], limits::HEAD_DIM)?;
                heads(config, hidden, head_dim.or(defaults.head_dim), defaults.heads)?
            }
        };
        let kv_heads = match record.one_kv_head || latent.is_some() {
            true => 1,
            false => config
                .count(&["num_key_value_heads", "attn_config.kv_n_heads"], limits::HEADS)?
                .or(defaults.kv_heads)
                .unwrap_or(heads),
        };
        if !heads.is_multiple_of(kv_heads) {
            let problem = format!(
                "`num_attention_heads` ({heads}) is not a multiple of \
                 `num_key_value_heads` ({kv_heads})"
            );
            return Err(config.inconsistent(problem));
        }
        let positions = config.count(&["max_position_embeddings"], limits::CONTEXT)?;
        let context = config.count(CONTEXT_NAMES, limits::CONTEXT)?.unwrap_or(defaults.context);
        let vocab = config.count(&["vocab_size"], limits::VOCAB)?.or(defaults.vocab);
        let intermediate = config.count(INTERMEDIATE_NAMES, limits::INTERMEDIATE)?;
        let intermediate = intermediate
            .or(record.mlp.inner_times_hidden.map(|n| n * hidden))
            // Where no layer has a dense MLP its width means nothing.
            .or(record.experts.filter(|e| e.layers == ExpertLayers::All).and_then(|e| e.inner));
        Ok(Self {
            vocab: vocab.ok_or_else(|| config.missing(&["vocab_size"]))?,
            hidden,
            layers: config
                .required_count(&["num_hidden_layers", "n_layers", "n_layer"], limits::LAYERS)?,
            heads,
            kv_heads,
            head_dim,
            latent,
            intermediate: intermediate.ok_or_else(|| config.missing(INTERMEDIATE_NAMES))?,
            context,
            positions: positions.unwrap_or(context),
        })
    }

    /// Elements of a head of which a part may be rotated.
    pub fn rope_head(&self) -> usize {
        self.latent.map_or(self.head_dim, |latent| latent.rope_dim)
    }

    /// Outputs of the query projection.
    pub fn q_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Outputs of the key projection, and of the value projection.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}

/// Names of the MLP's inner width.
const INTERMEDIATE_NAMES: &[&str] = &["intermediate_size", "ffn_config.ffn_hidden_size", "n_inner"];

/// Names of the context length; the first ones are written by models that extend their rotary
/// length and keep the original one in `max_position_embeddings`.
const CONTEXT_NAMES: &[&str] = &[
    "max_sequence_length",
    "model_max_length",
    "max_position_embeddings",
    "max_seq_len",
    "n_positions",
];

/// Names of the number of query heads.
const HEAD_NAMES: &[&str] = &["num_attention_heads", "n_heads", "n_head"];

/// Head count and head size; either may be derived from the other.
fn heads(
    config: &Config,
    hidden: usize,
    head_dim: Option<usize>,
    default: Option<usize>,
) -> Result<(usize, usize), ArchError> {
    let heads = config.count(HEAD_NAMES, limits::HEADS)?.or(default);
    let (heads, head_dim) = match (heads, head_dim) {
        (None, None) => return Err(config.missing(HEAD_NAMES)),
        (Some(heads), Some(head_dim)) => return Ok((heads, head_dim)),
        (Some(heads), None) => (heads, hidden / heads),
        (None, Some(head_dim)) => (hidden / head_dim, head_dim),
    };
    if heads * head_dim != hidden || hidden == 0 {
        let problem = format!(
            "`hidden_size` ({hidden}) is not a multiple of the heads or the head size, \
             and no other size is stated"
        );
        return Err(config.inconsistent(problem));
    }
    let fits = (1..=*limits::HEADS.end()).contains(&(heads as u64))
        && limits::HEAD_DIM.contains(&(head_dim as u64));
    if !fits {
        let problem = format!(
            "{heads} heads of size {head_dim} derived from `hidden_size` ({hidden}), \
             allowed are {} of {}",
            limits::HEADS.end(),
            limits::HEAD_DIM.end()
        );
        return Err(config.inconsistent(problem));
    }
    Ok((heads, head_dim))
}
