//! What was measured of a model: the losses of every linear in every way, and what a loss means for the
//! answers of the whole model. It does not depend on the size that is aimed at.
//!
//! The file is a `measurement.json` as ExLlamaV2 writes it, with what is behind its numbers in a field
//! of its own.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::candidates::{attention_candidates, mlp_candidates};
use crate::error::QuantError;
use crate::job::write_text;
use crate::layout::GroupLayout;
use crate::measurement::{MeasuredCandidate, Measurement, ModuleMeasurement, text_of};
use crate::mixture::{BLOCK_ROWS, LossTable, WAYS};
use crate::params::LinearParams;
use crate::plan::Role;

/// The field of the file that ExLlamaV2 does not know.
const FIELD: &str = "pagella";

/// One linear.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MeasuredLinear {
    /// What rounding loses.
    pub table: LossTable,
    /// Weights that the budget counts.
    pub weights: u64,
    /// Inputs.
    pub inputs: usize,
    /// Divergence of the model's answers per loss, in nats.
    pub sensitivity: f64,
    /// The half that it belongs to, `model.layers.0.mlp`; `None`: the head.
    pub half: Option<String>,
    /// What it is for.
    pub role: Role,
}

/// All linears, in the order of the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub linears: Vec<MeasuredLinear>,
}

impl Measured {
    /// Writes the file.
    pub fn save(&self, path: &Path) -> Result<(), QuantError> {
        let failed = |error: serde_json::Error| QuantError::Io {
            path: path.to_owned(),
            action: "cannot write",
            source: error.into(),
        };
        let mut value = self.for_others().to_value();
        if let Value::Object(fields) = &mut value {
            fields.insert(FIELD.to_owned(), serde_json::to_value(self).map_err(failed)?);
        }
        write_text(path, &format!("{value}\n"))
    }

    /// Reads the file; `None` if another program has written it.
    pub fn load(path: &Path) -> Result<Option<Self>, QuantError> {
        let fault = |fault: String| QuantError::Measurement {
            path: path.to_owned(),
            place: FIELD.to_owned(),
            fault,
        };
        let text = text_of(path)?;
        let Ok(Value::Object(mut fields)) = serde_json::from_str::<Value>(&text) else {
            return Ok(None); // Its reader says what is wrong.
        };
        let Some(own) = fields.remove(FIELD) else { return Ok(None) };
        let measured: Self =
            serde_json::from_value(own).map_err(|error| fault(error.to_string()))?;
        for linear in &measured.linears {
            if !(linear.sensitivity >= 0.0 && linear.sensitivity.is_finite()) {
                return Err(fault(format!("`{}` has no sensitivity", linear.table.linear)));
            }
        }
        Ok(Some(measured))
    }

    /// The linear of that name.
    pub fn linear(&self, name: &str) -> Option<&MeasuredLinear> {
        self.linears.iter().find(|linear| linear.table.linear == name)
    }

    /// What ExLlamaV2 can make of it: its own candidates, with accuracies whose squared distance from 1
    /// is the divergence that their losses add up to.
    fn for_others(&self) -> Measurement {
        let mut modules: Vec<(String, ModuleMeasurement)> = Vec::new();
        let mut halves: Vec<&String> =
            self.linears.iter().filter_map(|l| l.half.as_ref()).collect();
        halves.dedup();
        for half in halves {
            let of_half = |l: &&MeasuredLinear| l.half.as_ref() == Some(half);
            let linears: Vec<&MeasuredLinear> = self.linears.iter().filter(of_half).collect();
            let candidates = candidates(&linears, half.ends_with("block_sparse_moe"));
            modules.push((half.clone(), ModuleMeasurement::Candidates(candidates)));
        }
        let last_module_idx = modules.len() as u64 + 2;
        modules.push(("model.norm.norm".to_owned(), ModuleMeasurement::Nothing));
        modules.push(("lm_head.linear".to_owned(), ModuleMeasurement::Nothing));
        Measurement { modules, last_module_idx }
    }
}

/// The short name that a role has in measurements.
pub(crate) fn short_name(role: Role, is_experts: bool) -> &'static str {
    match (role, is_experts) {
        (Role::Query, _) => "q_proj",
        (Role::Key, _) => "k_proj",
        (Role::Value, _) => "v_proj",
        (Role::Output, _) => "o_proj",
        (Role::Gate, false) => "gate_proj",
        (Role::Up, false) => "up_proj",
        (Role::Down, false) => "down_proj",
        (Role::Gate, true) => "w1",
        (Role::Up, true) => "w3",
        (Role::Down, true) => "w2",
    }
}

/// The candidates of a half with what they are expected to do.
fn candidates(linears: &[&MeasuredLinear], is_experts: bool) -> Vec<MeasuredCandidate> {
    let params: Vec<Vec<(Role, LinearParams)>> = match linears.first().map(|l| l.role) {
        Some(Role::Query | Role::Key | Role::Value | Role::Output) => attention_candidates()
            .into_iter()
            .map(|c| {
                let key = (Role::Key, c.q_k.clone());
                vec![(Role::Query, c.q_k), key, (Role::Value, c.v), (Role::Output, c.o)]
            })
            .collect(),
        _ => mlp_candidates()
            .into_iter()
            .map(|c| vec![(Role::Gate, c.gate), (Role::Up, c.up), (Role::Down, c.down)])
            .collect(),
    };
    let candidate = |params: Vec<(Role, LinearParams)>| {
        let (mut total_bits, mut divergence) = (0, 0.0);
        for linear in linears {
            let Some((_, params)) = params.iter().find(|(role, _)| *role == linear.role) else {
                continue;
            };
            let layout = params.layout(linear.inputs);
            total_bits += layout.cost_bits(linear.table.columns, linear.table.has_bias);
            divergence += linear.sensitivity * loss_of(&linear.table, &layout);
        }
        let has = |role: &Role| linears.iter().any(|linear| linear.role == *role);
        let named = params.into_iter().filter(|(role, _)| has(role));
        MeasuredCandidate {
            accuracy: (1.0 - divergence.sqrt()).max(1e-6),
            divergence: Some(divergence),
            total_bits,
            linears: named.map(|(role, p)| (short_name(role, is_experts).to_owned(), p)).collect(),
        }
    };
    params.into_iter().map(candidate).collect()
}

/// What a layout loses: of every block what it lost in the way that is closest.
fn loss_of(table: &LossTable, layout: &GroupLayout) -> f64 {
    let mut block = 0;
    let mut loss = 0.0;
    for group in layout.groups() {
        let distance = |(_, rows): &(u8, usize)| rows.abs_diff(group.rows);
        let ways = WAYS.iter().enumerate().filter(|(_, (bits, _))| *bits == group.bits);
        let way = ways.min_by_key(|(_, way)| distance(way)).map(|(index, _)| index);
        let losses = way.and_then(|way| table.losses.get(way));
        let blocks = block..block + group.rows / BLOCK_ROWS;
        block = blocks.end;
        loss += losses.into_iter().flatten().skip(blocks.start).take(blocks.len()).sum::<f64>();
    }
    loss
}

/// The cost of the cheapest and of the finest way to store a linear.
pub(crate) fn extreme_bits(inputs: usize, columns: usize, has_bias: bool) -> Option<(u64, u64)> {
    let uniform = |bits| {
        let rows = |first: usize| 128.min(inputs - first);
        let groups = (0..inputs)
            .step_by(128)
            .map(|first| crate::layout::GroupShape { bits, rows: rows(first) });
        let layout = GroupLayout::new(groups.collect()).ok()?;
        Some(layout.cost_bits(columns, has_bias))
    };
    Some((uniform(2)?, uniform(8)?))
}
