//! Multi-head latent attention: sizes of a config, and the tensors of a layer.
//!
//! A token leaves one entry in the cache: a normed latent vector, and behind it one rotated key that
//! all heads share. Keys and values of a head are linear in the latent vector, so that queries can
//! be taken to where it lives and nothing is ever unfolded.

use crate::config::Config;
use crate::error::ArchError;
use crate::limits;
use crate::names::{in_layer, linear};
use crate::spec::{BiasRule, LatentSpec, LinearSpec, NormKind, NormSpec, QueryDown};

/// Epsilon of the norms inside attention, whatever the config says about the others.
const NORM_EPS: f32 = 1e-6;

/// Sizes of latent attention, the same in all layers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LatentSizes {
    /// Elements of the latent vector.
    pub rank: usize,
    /// Elements of the rotated key, and of the part of a query head that meets it.
    pub rope_dim: usize,
    /// Elements of a query head that are not rotated.
    pub nope_dim: usize,
    /// Elements of a head's output.
    pub value_dim: usize,
    /// Elements of a compressed query, where queries are.
    pub query_rank: Option<usize>,
}

impl LatentSizes {
    /// Those of DeepSeek V2 and V3.
    pub const DEEPSEEK: Self =
        Self { rank: 512, rope_dim: 64, nope_dim: 128, value_dim: 128, query_rank: Some(1536) };

    /// Reads the sizes; `self` has those of absent keys.
    pub fn read(&self, config: &Config) -> Result<Self, ArchError> {
        let size = |key, default| -> Result<usize, ArchError> {
            Ok(config.count(&[key], limits::HEAD_DIM)?.unwrap_or(default))
        };
        let rope_dim = size("qk_rope_head_dim", self.rope_dim)?;
        if !rope_dim.is_multiple_of(2) {
            let problem = format!("`qk_rope_head_dim` is {rope_dim}, which must be even");
            return Err(config.inconsistent(problem));
        }
        let query_rank = match config.is_null(&["q_lora_rank"]) {
            true => None,
            false => config.count(&["q_lora_rank"], limits::HIDDEN)?.or(self.query_rank),
        };
        Ok(Self {
            rank: size("kv_lora_rank", self.rank)?,
            rope_dim,
            nope_dim: size("qk_nope_head_dim", self.nope_dim)?,
            value_dim: size("v_head_dim", self.value_dim)?,
            query_rank,
        })
    }

    /// Elements of a query head as projected; scores are by the root of it.
    pub fn query_dim(&self) -> usize {
        self.nope_dim + self.rope_dim
    }

    /// Elements of an entry of the cache.
    pub fn entry(&self) -> usize {
        self.rank + self.rope_dim
    }

    /// The spec of layer `i`.
    pub fn spec(&self, i: usize, hidden: usize, bias: BiasRule) -> LatentSpec {
        let norm = |name, width| NormSpec {
            bases: vec![in_layer(i, name)],
            kind: NormKind::Rms,
            eps: NORM_EPS,
            offset: 0.0,
            width,
        };
        let query_down = |rank| QueryDown {
            linear: linear(in_layer(i, ".self_attn.q_a_proj"), (hidden, rank), bias),
            norm: norm(".self_attn.q_a_layernorm", rank),
        };
        LatentSpec {
            rank: self.rank,
            nope_dim: self.nope_dim,
            value_dim: self.value_dim,
            norm: norm(".self_attn.kv_a_layernorm", self.rank),
            query_down: self.query_rank.map(query_down),
        }
    }

    /// Projections of layer `i`: to queries, to the cache entry, and from the latent vector to keys
    /// and values of all heads.
    pub fn projections(
        &self,
        i: usize,
        (hidden, heads): (usize, usize),
        bias: BiasRule,
    ) -> [LinearSpec; 3] {
        let queries = heads * self.query_dim();
        let unfolded = heads * (self.nope_dim + self.value_dim);
        let part = |name, shape, bias| linear(in_layer(i, name), shape, bias);
        let q = match self.query_rank {
            Some(rank) => part(".self_attn.q_b_proj", (rank, queries), BiasRule::Forbidden),
            None => part(".self_attn.q_proj", (hidden, queries), BiasRule::Forbidden),
        };
        [
            q,
            part(".self_attn.kv_a_proj_with_mqa", (hidden, self.entry()), bias),
            part(".self_attn.kv_b_proj", (self.rank, unfolded), BiasRule::Forbidden),
        ]
    }
}
