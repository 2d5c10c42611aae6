//! What of a model is quantised, in which order, and what stays as it is.
//!
//! Attention, MLPs, experts and the head are quantised. Embeddings, norms, routers and what unfolds
//! latent vectors are not, nor linears whose inputs the format cannot group.

use pagella_arch::{LayerSpec, LinearSpec, ModelSpec};
use pagella_formats::exl2::groups::GROUP_ROWS_MULTIPLE;
use serde::{Deserialize, Serialize};

/// What a linear is for; candidates give each a set of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Queries.
    Query,
    /// Keys.
    Key,
    /// Values.
    Value,
    /// Output of attention.
    Output,
    /// Gates of an MLP.
    Gate,
    /// Up projection.
    Up,
    /// Down projection.
    Down,
}

/// Half a layer, whose linears get their bits together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// Attention.
    Attention,
    /// MLP or experts.
    Mlp,
}

/// A linear that is quantised.
#[derive(Clone, Debug)]
pub struct PlannedLinear {
    /// Its index in [`LayerSpec::linear_specs`].
    pub number: usize,
    /// Base name of its tensors.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// Its inputs are known when all linears of earlier waves are quantised.
    pub wave: usize,
    /// Inputs.
    pub inputs: usize,
    /// Outputs.
    pub outputs: usize,
    /// The expert that it belongs to.
    pub expert: Option<usize>,
}

impl PlannedLinear {
    /// Its weights.
    pub fn weights(&self) -> u64 {
        self.inputs as u64 * self.outputs as u64
    }

    /// The half that it belongs to.
    pub fn half(&self) -> Half {
        match self.role {
            Role::Query | Role::Key | Role::Value | Role::Output => Half::Attention,
            Role::Gate | Role::Up | Role::Down => Half::Mlp,
        }
    }
}

/// The number that the head has.
pub const HEAD_NUMBER: usize = 0;

/// The linears of a layer that are quantised, in the order of the model.
pub fn plan_layer(layer: &LayerSpec) -> Vec<PlannedLinear> {
    let specs = layer.linear_specs();
    let is_compressed = layer.attn.latent.as_ref().is_some_and(|l| l.query_down.is_some());
    let plan = specs.iter().enumerate().filter_map(|(number, (label, linear))| {
        let (role, wave) = role_of(label, is_compressed)?;
        if !is_groupable(linear) {
            return None;
        }
        Some(PlannedLinear {
            number,
            name: name_of(linear)?,
            role,
            wave,
            inputs: linear.in_features,
            outputs: linear.out_features,
            expert: expert_of(label),
        })
    });
    plan.collect()
}

/// What the label of [`LayerSpec::linear_specs`] says.
fn role_of(label: &str, is_compressed: bool) -> Option<(Role, usize)> {
    Some(match label {
        "attn.q_down" => (Role::Query, 0),
        "attn.q" => (Role::Query, usize::from(is_compressed)),
        "attn.k" | "attn.entry" => (Role::Key, 0),
        "attn.v" => (Role::Value, 0),
        "attn.o" => (Role::Output, 2),
        "attn.unfold" | "mlp.router" | "mlp.shared.weight" => return None,
        _ if label.ends_with(".gate") => (Role::Gate, 3),
        _ if label.ends_with(".up") => (Role::Up, 3),
        _ if label.ends_with(".down") => (Role::Down, 4),
        _ => return None,
    })
}

fn expert_of(label: &str) -> Option<usize> {
    label.strip_prefix("mlp.experts.")?.split('.').next()?.parse().ok()
}

/// Whether the format can group the inputs.
pub fn is_groupable(linear: &LinearSpec) -> bool {
    linear.in_features.is_multiple_of(GROUP_ROWS_MULTIPLE)
}

/// The base name under which a linear is written.
pub fn name_of(linear: &LinearSpec) -> Option<String> {
    linear.bases.first().cloned()
}

/// How a half is called in measurements.
pub fn half_key(spec: &ModelSpec, layer: usize, half: Half) -> String {
    let kind = match (half, spec.layers.get(layer).map(|layer| &layer.mlp)) {
        (Half::Attention, _) => "self_attn",
        (Half::Mlp, Some(pagella_arch::MlpSpec::Moe(_))) => "block_sparse_moe",
        (Half::Mlp, _) => "mlp",
    };
    format!("model.layers.{layer}.{kind}")
}
