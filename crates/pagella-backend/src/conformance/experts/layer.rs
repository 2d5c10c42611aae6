//! A layer of experts as its sources, with what f64 makes of it.

use pagella_arch::{Activation, GroupRank, NormKind, RouterScore, Weigh};
use pagella_formats::synthetic::plain_f16;
use pagella_formats::{Linear, OwnedLinear};

use super::super::fixture::text;
use super::super::norm_add::weights;
use super::super::reference::{self, widen};
use super::super::{Tolerances, activate, linears, noise};
use crate::{Backend, BackendError, MoeOp, NormWeights, Routing};

/// Least distance of the logits around the last expert chosen: rounding must not decide.
const MARGIN: f64 = 0.02;

/// A layer as its sources.
pub(super) struct Layer {
    pub(super) op: MoeOp,
    pub(super) norm: Option<NormWeights>,
    pub(super) router: OwnedLinear,
    pub(super) experts: Vec<[OwnedLinear; 3]>,
    pub(super) with_bias: bool,
    pub(super) selection_bias: Option<Vec<f32>>,
}

/// What is added to what a part of an expert gives: of the expert, the part and what that reads.
pub(super) type More<'a> = &'a dyn Fn(usize, usize, &[f64]) -> Vec<f64>;

/// A layer in a backend's layout.
pub(super) struct Loaded<B: Backend> {
    pub(super) norm: Option<B::Norm>,
    pub(super) router: B::Linear,
    pub(super) experts: B::Experts,
}

impl Layer {
    /// A layer of plain weights, 64 wide, experts 48 wide.
    pub(super) fn plain(experts: usize, experts_per_token: usize) -> Self {
        let expert = |e: u64| {
            [plain_f16(64, 48, 3 * e), plain_f16(64, 48, 3 * e + 1), plain_f16(48, 64, 3 * e + 2)]
        };
        Self {
            op: MoeOp {
                hidden: 64,
                inner: 48,
                experts,
                experts_per_token,
                score: RouterScore::Softmax,
                renormalize: true,
                act: Activation::Silu,
                scale: 2.5,
                routing: Routing::default(),
            },
            norm: Some(weights(61, NormKind::Rms, 64, false)),
            router: plain_f16(64, experts, 1000),
            experts: (1..=experts as u64).map(expert).collect(),
            with_bias: false,
            selection_bias: None,
        }
    }

    pub(super) fn part<'a>(&self, linear: &'a OwnedLinear) -> Linear<'a> {
        if self.with_bias { linears::with_bias(linear.view()) } else { linear.view() }
    }

    /// `None` if the backend refuses experts.
    pub(super) fn load<B: Backend>(
        &self,
        backend: &B,
        rows: usize,
    ) -> Result<Option<Loaded<B>>, String> {
        if let Err(BackendError::Unsupported { .. }) = backend.accept_experts(&self.op, false) {
            return Ok(None);
        }
        let mut experts = match backend.experts(&self.op, rows) {
            Err(BackendError::Unsupported { .. }) => return Ok(None),
            other => other.map_err(text)?,
        };
        if let Some(bias) = &self.selection_bias {
            let bias = backend.vector(bias).map_err(text)?;
            backend.bias_selection(&mut experts, bias).map_err(text)?;
        }
        for [gate, up, down] in &self.experts {
            let load = |linear| backend.linear(&self.part(linear)).map_err(text);
            let (gate, up, down) = (load(gate)?, load(up)?, load(down)?);
            backend.add_expert(&mut experts, gate, up, down).map_err(text)?;
        }
        let norm = self.norm.clone().map(|norm| backend.norm(norm)).transpose().map_err(text)?;
        let router = backend.linear(&self.router.view()).map_err(text)?;
        Ok(Some(Loaded { norm, router, experts }))
    }

    /// Rows whose choice of experts is clear, `[rows, hidden]`.
    pub(super) fn clear_rows(&self, seed: u64, rows: usize) -> Vec<f32> {
        let hidden = self.op.hidden;
        let mut clear = Vec::with_capacity(rows * hidden);
        for row in noise::halves(seed, 40 * rows * hidden, 1.0).chunks(hidden) {
            if clear.len() < rows * hidden && self.margin(row) > MARGIN {
                clear.extend_from_slice(row);
            }
        }
        clear
    }

    pub(super) fn normed(&self, row: &[f32]) -> Vec<f64> {
        let row = widen(row);
        self.norm.as_ref().map_or_else(|| row.clone(), |norm| reference::norm(norm, &row))
    }

    pub(super) fn logits(&self, row: &[f32]) -> Vec<f64> {
        reference::linear(&self.router.view(), &self.normed(row))
    }

    /// How far the last rank chosen is above the first one left out, of groups and of experts.
    pub(super) fn margin(&self, row: &[f32]) -> f64 {
        self.margin_of(&self.logits(row))
    }

    /// The same of these logits.
    pub(super) fn margin_of(&self, logits: &[f64]) -> f64 {
        let mut ranks = self.ranks(logits);
        let groups = self.group_ranks(&ranks).map(|(mut groups, taken)| gap(&mut groups, taken));
        self.leave_groups(&mut ranks);
        gap(&mut ranks, self.op.experts_per_token).min(groups.unwrap_or(f64::INFINITY))
    }

    pub(super) fn scores(&self, logits: &[f64]) -> Vec<f64> {
        let largest = logits.iter().copied().fold(f64::MIN, f64::max);
        let total: f64 = logits.iter().map(|l| (l - largest).exp()).sum();
        let score = |logit: &f64| match self.op.score {
            RouterScore::Softmax => (logit - largest).exp() / total,
            RouterScore::Sigmoid => 1.0 / (1.0 + (-logit).exp()),
        };
        logits.iter().map(score).collect()
    }

    /// What decides: logits, or scores with their bias.
    pub(super) fn ranks(&self, logits: &[f64]) -> Vec<f64> {
        if self.selection_bias.is_none() && self.op.routing.groups.is_none() {
            return logits.to_vec();
        }
        let bias = |e: usize| self.selection_bias.as_ref().map_or(0.0, |bias| f64::from(bias[e]));
        self.scores(logits).iter().enumerate().map(|(e, score)| score + bias(e)).collect()
    }

    /// Ranks of groups and how many of them are taken.
    pub(super) fn group_ranks(&self, ranks: &[f64]) -> Option<(Vec<f64>, usize)> {
        let groups = self.op.routing.groups?;
        let of_group = |group: &[f64]| {
            let mut group = group.to_vec();
            group.sort_by(|a, b| b.total_cmp(a));
            let counted = if groups.rank == GroupRank::Best { 1 } else { 2 };
            group.iter().take(counted).sum()
        };
        Some((ranks.chunks(ranks.len() / groups.count).map(of_group).collect(), groups.taken))
    }

    /// Takes the experts of all but the best groups out of the choice.
    pub(super) fn leave_groups(&self, ranks: &mut [f64]) {
        let Some((groups, taken)) = self.group_ranks(ranks) else { return };
        let mut order: Vec<usize> = (0..groups.len()).collect();
        order.sort_by(|a, b| groups[*b].total_cmp(&groups[*a]));
        let size = ranks.len() / groups.len();
        for group in &order[taken..] {
            ranks[group * size..(group + 1) * size].fill(f64::NEG_INFINITY);
        }
    }

    /// Ids ascending and weights of a row with these logits.
    pub(super) fn choice(&self, logits: &[f64]) -> Vec<(usize, f64)> {
        let mut ranks = self.ranks(logits);
        self.leave_groups(&mut ranks);
        let mut ids: Vec<usize> = (0..logits.len()).collect();
        // Stable: equal ranks keep the order of their ids.
        ids.sort_by(|a, b| ranks[*b].total_cmp(&ranks[*a]));
        ids.truncate(self.op.experts_per_token);
        ids.sort_unstable();
        let scores = self.scores(logits);
        let sum: f64 = ids.iter().map(|id| scores[*id]).sum();
        let divisor = if self.op.renormalize { sum } else { 1.0 };
        let factor = f64::from(self.op.routing.weight_scale) / divisor;
        ids.into_iter().map(|id| (id, scores[id] * factor)).collect()
    }

    /// What is added to a row.
    pub(super) fn addition(&self, row: &[f32]) -> Vec<f64> {
        self.addition_of(row, &self.logits(row))
    }

    /// What is added to a row with these logits.
    pub(super) fn addition_of(&self, row: &[f32], logits: &[f64]) -> Vec<f64> {
        self.addition_with(row, logits, &|_, _, _| vec![0.0; self.op.hidden.max(self.op.inner)])
    }

    /// The same where `more`, of an expert, its part and what that reads, is added to what the part
    /// gives: 0 is the gate, 1 up, 2 down.
    pub(super) fn addition_with(&self, row: &[f32], logits: &[f64], more: More<'_>) -> Vec<f64> {
        let normed = self.normed(row);
        let mut sum = vec![0.0; self.op.hidden];
        for (id, weight) in self.choice(logits) {
            let (weight_in, weight) = match self.op.routing.weigh {
                Weigh::Output => (1.0, weight),
                Weigh::Input => (weight, 1.0),
            };
            let input: Vec<f64> = normed.iter().map(|x| weight_in * x).collect();
            let part = |part: usize, input: &[f64]| -> Vec<f64> {
                let own = reference::linear(&self.part(&self.experts[id][part]), input);
                own.into_iter().zip(more(id, part, input)).map(|(y, more)| y + more).collect()
            };
            let (gate, up) = (part(0, &input), part(1, &input));
            let pairs = gate.iter().zip(&up);
            let inner: Vec<f64> =
                pairs.map(|(g, u)| activate::gated(self.op.act, *g, *u)).collect();
            let out = part(2, &inner);
            let factor = weight * f64::from(self.op.scale);
            sum.iter_mut().zip(out).for_each(|(s, y)| *s += factor * y);
        }
        sum
    }

    /// Two linears after each other, one of them twice, and weights that depend on a third.
    pub(super) fn tolerance(&self, tolerances: &Tolerances) -> f64 {
        let all = self.experts.iter().flatten().chain([&self.router]);
        let linear = all.map(|l| linears::tolerance(&l.view(), tolerances)).fold(0.0, f64::max);
        4.0 * linear + tolerances.activation
    }
}

/// How far the `taken`-th largest number is above the next one.
fn gap(numbers: &mut [f64], taken: usize) -> f64 {
    numbers.sort_by(|a, b| b.total_cmp(a));
    numbers.get(taken).map_or(f64::INFINITY, |first_out| numbers[taken - 1] - first_out)
}
