//! Experts of a model: how many, how wide, in which layers, and how they are weighed.

use crate::config::Config;
use crate::error::ArchError;
use crate::geometry::Geometry;
use crate::limits;
use crate::names::{in_layer, linear};
use crate::record::{ExpertRecord, Renormalize};
use crate::spec::{Activation, BiasRule, LinearSpec, MoeSpec, RouterScore};

/// Names of the number of experts.
pub(crate) const NAMES: &[&str] =
    &["num_local_experts", "num_experts", "ffn_config.moe_num_experts"];

/// What all layers with experts have in common.
///
/// Invariants: `per_token` is at most `count`; one flag per layer; the experts of all layers
/// together are within `limits`.
#[derive(Clone, Debug)]
pub(crate) struct Experts {
    record: ExpertRecord,
    count: usize,
    per_token: usize,
    /// Inner width of an expert.
    inner: usize,
    renormalize: bool,
    /// Layers that have experts; the others have a dense MLP.
    has_experts: Vec<bool>,
}

impl Experts {
    /// What the config says about experts of this family.
    pub fn read(
        config: &Config,
        record: &ExpertRecord,
        sizes: &Geometry,
    ) -> Result<Self, ArchError> {
        let count = config.count(NAMES, limits::EXPERTS)?.unwrap_or(record.experts);
        let per_token = config.count(PER_TOKEN_NAMES, limits::EXPERTS)?;
        let per_token = per_token.unwrap_or(record.experts_per_token);
        if per_token > count {
            let problem = format!("{per_token} experts per token of {count} experts");
            return Err(config.inconsistent(problem));
        }
        let inner = match record.inner {
            None => sizes.intermediate,
            Some(inner) => {
                config.count(&["moe_intermediate_size"], limits::EXPERT_INNER)?.unwrap_or(inner)
            }
        };
        let renormalize = match record.renormalize {
            Renormalize::Always => true,
            Renormalize::Config => config.flag(&["norm_topk_prob"])?.unwrap_or(false),
        };
        let has_experts = match record.dense_layers {
            false => vec![true; sizes.layers],
            true => layers_with_experts(config, sizes.layers)?,
        };
        let total = count * has_experts.iter().filter(|has| **has).count();
        if total > limits::EXPERTS_TOTAL_MAX {
            let max = limits::EXPERTS_TOTAL_MAX;
            let problem = format!("{total} experts in all layers together, at most {max} can be");
            return Err(config.inconsistent(problem));
        }
        Ok(Self { record: *record, count, per_token, inner, renormalize, has_experts })
    }

    /// The experts of layer `i`, if it has any.
    pub fn layer(
        &self,
        i: usize,
        hidden: usize,
        bias: BiasRule,
        act: Activation,
    ) -> Option<MoeSpec> {
        if !*self.has_experts.get(i)? {
            return None;
        }
        let [gate, up, down] = self.record.parts;
        let part = |name: &str, e: usize, shape| -> LinearSpec {
            linear(in_layer(i, &name.replace("{e}", &e.to_string())), shape, bias)
        };
        let expert = |e: usize| {
            let (into, out_of) = ((hidden, self.inner), (self.inner, hidden));
            [part(gate, e, into), part(up, e, into), part(down, e, out_of)]
        };
        let router = in_layer(i, self.record.router);
        Some(MoeSpec {
            router: linear(router, (hidden, self.count), BiasRule::Forbidden),
            experts: (0..self.count).map(expert).collect(),
            experts_per_token: self.per_token,
            score: RouterScore::Softmax,
            renormalize: self.renormalize,
            act,
        })
    }
}

const PER_TOKEN_NAMES: &[&str] = &["num_experts_per_tok", "ffn_config.moe_top_k"];

/// Every `decoder_sparse_step`-th layer, without those that `mlp_only_layers` lists.
fn layers_with_experts(config: &Config, n_layers: usize) -> Result<Vec<bool>, ArchError> {
    let step = config.count(&["decoder_sparse_step"], limits::SPARSE_STEP)?.unwrap_or(1);
    let mut has_experts: Vec<bool> = (1..=n_layers).map(|nth| nth % step == 0).collect();
    let Some((key, value)) = config.find(&["mlp_only_layers"]) else {
        return Ok(has_experts);
    };
    let items = value.as_array().ok_or_else(|| config.wrong(key, "a list of layers", value))?;
    for item in items {
        let layer = config.integer(key, item, 0..=*limits::LAYERS.end() as i64)?;
        if let Some(has) = usize::try_from(layer).ok().and_then(|i| has_experts.get_mut(i)) {
            *has = false;
        }
    }
    Ok(has_experts)
}
