//! Experts of a model: how many, how wide, in which layers, and how they are weighed.

use std::ops::Range;

use serde_json::Value;

use crate::config::Config;
use crate::error::{ArchError, excerpt};
use crate::geometry::Geometry;
use crate::limits;
use crate::names::{gate_up, in_layer, linear};
use crate::record::{
    ExpertLayers, ExpertRecord, Renormalize, SharedInner, SharedRecord, StackedExperts,
};
use crate::spec::{
    Activation, BiasRule, ExpertGroups, FusedSpec, GroupRank, LinearSpec, MoeSpec,
    SharedExpertSpec, Slab,
};

/// Names of the number of experts.
pub(crate) const NAMES: &[&str] = &[
    "num_local_experts",
    "num_experts",
    "n_routed_experts",
    "moe_num_experts",
    "ffn_config.moe_num_experts",
];

const PER_TOKEN_NAMES: &[&str] =
    &["num_experts_per_tok", "moe_topk", "moe_k", "ffn_config.moe_top_k"];

/// What all layers with experts have in common.
///
/// Invariants: `per_token` is at most the number of experts in the groups a token may use; one flag
/// per layer; the experts of all layers together are within `limits`.
#[derive(Clone, Debug)]
pub(crate) struct Experts {
    record: ExpertRecord,
    count: usize,
    per_token: usize,
    /// Inner width of an expert.
    inner: usize,
    /// Inner width of the shared expert, if there is one.
    shared: Option<(SharedRecord, usize)>,
    bias: BiasRule,
    groups: Option<ExpertGroups>,
    renormalize: bool,
    weight_scale: f32,
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
        let range = match record.layers {
            ExpertLayers::UnlessNone => limits::EXPERTS_OR_NONE,
            _ => limits::EXPERTS,
        };
        let count = config.uniform_count(NAMES, range.clone())?.unwrap_or(record.experts);
        let per_token = config.uniform_count(PER_TOKEN_NAMES, range)?;
        let per_token = per_token.unwrap_or(record.experts_per_token);
        let groups = groups(config, record, count)?;
        let reachable = groups.map_or(count, |groups| count / groups.count * groups.taken);
        if count > 0 && !(1..=reachable).contains(&per_token) {
            let problem = format!("{per_token} experts per token of {reachable} experts");
            return Err(config.inconsistent(problem));
        }
        let inner = match record.inner {
            None => sizes.intermediate,
            Some(inner) => config
                .uniform_count(&["moe_intermediate_size"], limits::EXPERT_INNER)?
                .unwrap_or(inner),
        };
        let renormalize = match record.renormalize {
            Renormalize::Always => true,
            Renormalize::Never => false,
            Renormalize::Config(default) => config.flag(&["norm_topk_prob"])?.unwrap_or(default),
            Renormalize::UnlessNull(key) => !config.is_null(&[key]),
        };
        let weight_scale = match record.weight_scale {
            None => 1.0,
            Some(default) => {
                config.float(&["routed_scaling_factor"], limits::MULTIPLIER)?.unwrap_or(default)
            }
        };
        let mut has_experts = layers_with_experts(config, record.layers, sizes.layers)?;
        if count == 0 {
            has_experts.fill(false);
        }
        let total = count * has_experts.iter().filter(|has| **has).count();
        if total > limits::EXPERTS_TOTAL_MAX {
            let max = limits::EXPERTS_TOTAL_MAX;
            let problem = format!("{total} experts in all layers together, at most {max} can be");
            return Err(config.inconsistent(problem));
        }
        let shared = match record.shared {
            None => None,
            Some(shared) => {
                let width = shared_inner(config, shared.inner, inner, sizes)?;
                (width > 0).then_some((shared, width))
            }
        };
        Ok(Self {
            record: *record,
            count,
            per_token,
            inner,
            shared,
            bias: record.bias.read(config)?,
            groups,
            renormalize,
            weight_scale: weight_scale as f32,
            has_experts,
        })
    }

    /// The experts of layer `i`, if it has any.
    pub fn layer(&self, i: usize, hidden: usize, act: Activation) -> Option<MoeSpec> {
        if !*self.has_experts.get(i)? {
            return None;
        }
        let record = &self.record;
        let router = in_layer(i, record.router);
        Some(MoeSpec {
            router: linear(router, (hidden, self.count), record.router_bias),
            experts: (0..self.count).map(|e| self.expert(i, e, hidden)).collect(),
            experts_per_token: self.per_token,
            score: record.score,
            selection_bias: record.selection_bias.map(|name| in_layer(i, name)),
            groups: self.groups,
            renormalize: self.renormalize,
            weight_scale: self.weight_scale,
            weigh: record.weigh,
            act,
            shared: self.shared_expert(i, hidden),
        })
    }

    /// Gate, up and down of expert `e` in layer `i`.
    fn expert(&self, i: usize, e: usize, hidden: usize) -> [LinearSpec; 3] {
        let (inner, count) = (self.inner, self.count);
        let [gate, up, down] = self.record.parts;
        let part = |name: &str, shape| -> LinearSpec {
            linear(in_layer(i, &name.replace("{e}", &e.to_string())), shape, self.bias)
        };
        let single =
            [part(gate, (hidden, inner)), part(up, (hidden, inner)), part(down, (inner, hidden))];
        let Some(stacked) = self.record.stacked else {
            return single;
        };
        let slab = Some(Slab { index: e, count });
        let fused = |name: &str, total_out, rows: Range<usize>, step, slab| {
            let rows = Vec::from([rows]);
            Some(FusedSpec { base: in_layer(i, name), total_out, rows, step, slab })
        };
        let [gate, up, down] = single;
        match stacked {
            StackedExperts::Rows(names) => {
                let (total, own) = (count * inner, e * inner..(e + 1) * inner);
                let [g, u, d] = names.map(|name| fused(name, total, own.clone(), 1, None));
                [
                    LinearSpec { fused: g, ..gate },
                    LinearSpec { fused: u, ..up },
                    LinearSpec { fused: d, transposed: true, ..down },
                ]
            }
            StackedExperts::GateUp { gate_up, down: down_name } => {
                let both = |rows| fused(gate_up, 2 * inner, rows, 1, slab);
                [
                    LinearSpec { fused: both(0..inner), ..gate },
                    LinearSpec { fused: both(inner..2 * inner), ..up },
                    LinearSpec { fused: fused(down_name, hidden, 0..hidden, 1, slab), ..down },
                ]
            }
            StackedExperts::GateUpTransposed { gate_up, down: down_name, alternate } => {
                let (gate_rows, up_rows, step) = if alternate {
                    (0..2 * inner, 1..2 * inner, 2)
                } else {
                    (0..inner, inner..2 * inner, 1)
                };
                let both = |rows| fused(gate_up, 2 * inner, rows, step, slab);
                let down_part = fused(down_name, hidden, 0..hidden, 1, slab);
                [
                    LinearSpec { fused: both(gate_rows), transposed: true, ..gate },
                    LinearSpec { fused: both(up_rows), transposed: true, ..up },
                    LinearSpec { fused: down_part, transposed: true, ..down },
                ]
            }
        }
    }

    fn shared_expert(&self, i: usize, hidden: usize) -> Option<SharedExpertSpec> {
        let (record, inner) = self.shared?;
        let [gate, up, down] = record.parts;
        let shape = (hidden, inner);
        let [gate, up] = gate_up(i, [gate, up], record.fused_gate_up, shape, self.bias);
        Some(SharedExpertSpec {
            gate,
            up,
            down: linear(in_layer(i, down), (inner, hidden), self.bias),
            weight: record
                .weight
                .map(|name| linear(in_layer(i, name), (hidden, 1), BiasRule::Forbidden)),
        })
    }
}

fn groups(
    config: &Config,
    record: &ExpertRecord,
    experts: usize,
) -> Result<Option<ExpertGroups>, ArchError> {
    let Some(ExpertGroups { count, taken, rank }) = record.groups else {
        return Ok(None);
    };
    if rank == GroupRank::Best && config.text(&["topk_method"])? != Some("group_limited_greedy") {
        return Ok(None);
    }
    let count = config.count(&["n_group"], limits::EXPERTS)?.unwrap_or(count);
    let taken = config.count(&["topk_group"], limits::EXPERTS)?.unwrap_or(taken);
    if taken > count || !experts.is_multiple_of(count) || experts < 2 * count {
        let problem = format!("{taken} of {count} groups of {experts} experts");
        return Err(config.inconsistent(problem));
    }
    Ok((taken < count).then_some(ExpertGroups { count, taken, rank }))
}

fn shared_inner(
    config: &Config,
    rule: SharedInner,
    inner: usize,
    sizes: &Geometry,
) -> Result<usize, ArchError> {
    Ok(match rule {
        SharedInner::Intermediate => sizes.intermediate,
        SharedInner::Key(key, default) => {
            config.uniform_count(&[key], limits::SHARED_INNER)?.unwrap_or(default)
        }
        SharedInner::Times(key, default) => {
            let times = config.uniform_count(&[key], limits::SHARED_EXPERTS)?.unwrap_or(default);
            times * inner
        }
    })
}

fn layers_with_experts(
    config: &Config,
    rule: ExpertLayers,
    n_layers: usize,
) -> Result<Vec<bool>, ArchError> {
    let each = |has: &dyn Fn(usize) -> bool| (0..n_layers).map(has).collect();
    Ok(match rule {
        ExpertLayers::All | ExpertLayers::UnlessNone => vec![true; n_layers],
        ExpertLayers::StepAndList => return step_and_list(config, n_layers),
        ExpertLayers::From(_) if let Some((key, value)) = config.find(&["mlp_layer_types"]) => {
            return typed_layers(config, key, value, n_layers);
        }
        ExpertLayers::From(default) => {
            let first = config.count(&["first_k_dense_replace"], limits::FIRST_LAYER)?;
            let first = first.unwrap_or(default);
            each(&|layer| layer >= first)
        }
        ExpertLayers::Interval => {
            let first = config.count(&["moe_layer_start_index"], limits::FIRST_LAYER)?.unwrap_or(1);
            let step = config.count(&["moe_layer_interval"], limits::SPARSE_STEP)?.unwrap_or(1);
            let last = match config.find(&["moe_layer_end_index"]) {
                None => -1,
                Some((key, value)) => {
                    config.integer(key, value, -1..=*limits::FIRST_LAYER.end() as i64)?
                }
            };
            // −1 stands for the last layer.
            let last = usize::try_from(last).unwrap_or(n_layers);
            each(&|layer| (layer + 1) % step == 0 && (first..=last).contains(&layer))
        }
        ExpertLayers::Listed => {
            let mut has_experts = vec![false; n_layers];
            if mark(config, "moe_layers", true, &mut has_experts)? {
                return Ok(has_experts);
            }
            let names = &["interleave_moe_layer_step"];
            let step = config.count(names, limits::SPARSE_STEP)?.unwrap_or(1);
            each(&|layer| (layer + 1) % step == 0)
        }
    })
}

/// One word per layer: `dense` or `sparse`.
fn typed_layers(
    config: &Config,
    key: &str,
    value: &Value,
    n_layers: usize,
) -> Result<Vec<bool>, ArchError> {
    let items = value.as_array().ok_or_else(|| config.wrong(key, "a list of strings", value))?;
    if items.len() != n_layers {
        let problem = format!("`{key}` has {} entries for {n_layers} layers", items.len());
        return Err(config.inconsistent(problem));
    }
    let has_experts = |item: &Value| match item.as_str() {
        Some("sparse") => Ok(true),
        Some("dense") => Ok(false),
        _ => Err(config.inconsistent(format!(
            "`{key}` holds {}, known are \"dense\" and \"sparse\"",
            excerpt(item)
        ))),
    };
    items.iter().map(has_experts).collect()
}

/// Every `decoder_sparse_step`-th layer, without those that `mlp_only_layers` lists.
fn step_and_list(config: &Config, n_layers: usize) -> Result<Vec<bool>, ArchError> {
    let step = config.count(&["decoder_sparse_step"], limits::SPARSE_STEP)?.unwrap_or(1);
    let mut has_experts: Vec<bool> = (1..=n_layers).map(|nth| nth % step == 0).collect();
    mark(config, "mlp_only_layers", false, &mut has_experts)?;
    Ok(has_experts)
}

/// Sets the flags of the layers that `key` lists; false when there is no such key.
fn mark(config: &Config, key: &str, to: bool, flags: &mut [bool]) -> Result<bool, ArchError> {
    let Some((key, value)) = config.find(&[key]) else {
        return Ok(false);
    };
    let items = value.as_array().ok_or_else(|| config.wrong(key, "a list of layers", value))?;
    for item in items {
        let layer = config.integer(key, item, 0..=*limits::LAYERS.end() as i64)?;
        if let Some(flag) = usize::try_from(layer).ok().and_then(|i| flags.get_mut(i)) {
            *flag = to;
        }
    }
    Ok(true)
}
