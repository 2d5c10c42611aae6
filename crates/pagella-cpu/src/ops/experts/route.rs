//! Which experts a row takes, and how much each counts.

use pagella_arch::{ExpertGroups, GroupRank, RouterScore};
use pagella_backend::{BackendError, MoeOp};

use crate::linear::Machine;
use crate::ops::lanes::{load_part, store_part};
use crate::simd::{Kernel, LANES, Simd, math};
use crate::threads::Shares;

/// Keeps a sum of vanishing scores from dividing by zero; nothing to any other sum in f32.
const SUM_MIN: f32 = 1e-20;

/// Experts of every row, `[rows, experts_per_token]`, ids ascending within a row.
#[derive(Default)]
pub(super) struct Choices {
    pub ids: Vec<u32>,
    pub weights: Vec<f32>,
    /// What decides, `[rows, experts]`, where it is not the logits.
    pub ranks: Vec<f32>,
    /// `[rows, groups]`, where experts are in groups.
    pub group_ranks: Vec<f32>,
}

/// Chooses for the first `tokens` rows. `scores` holds logits, `[rows, experts]`, and scores
/// afterwards.
pub(super) fn route(
    machine: &Machine<'_>,
    op: &MoeOp,
    bias: Option<&[f32]>,
    tokens: usize,
    scores: &mut [f32],
    choices: &mut Choices,
) -> Result<(), BackendError> {
    let (n, k) = (op.experts, op.experts_per_token);
    let by_logits = bias.is_none() && op.routing.groups.is_none();
    choices.ids.resize(tokens * k, 0);
    choices.weights.resize(tokens * k, 0.0);
    choices.ranks.resize(if by_logits { 0 } else { tokens * n }, 0.0);
    let groups = op.routing.groups.map_or(0, |groups| groups.count);
    choices.group_ranks.resize(tokens * groups, 0.0);
    let ranks = Shares::new(&mut choices.ranks);
    let group_ranks = Shares::new(&mut choices.group_ranks);
    let scores = Shares::new(scores);
    let (ids, weights) = (Shares::new(&mut choices.ids), Shares::new(&mut choices.weights));
    machine.pool.run(tokens, &|row| {
        let chosen = row * k..(row + 1) * k;
        // SAFETY: every task has its own row.
        let (scores, ids, weights) = unsafe {
            (scores.part(row * n..(row + 1) * n), ids.part(chosen.clone()), weights.part(chosen))
        };
        if by_logits {
            choose(scores, ids);
        }
        let total = machine.isa.run(Scores { score: op.score, row: scores });
        if !by_logits {
            // SAFETY: as above.
            let (ranks, group_ranks) = unsafe {
                let of_groups = row * groups..(row + 1) * groups;
                (ranks.part(row * n..(row + 1) * n), group_ranks.part(of_groups))
            };
            for (i, (rank, score)) in ranks.iter_mut().zip(&*scores).enumerate() {
                *rank = score / total + bias.map_or(0.0, |bias| bias[i]);
            }
            if let Some(groups) = &op.routing.groups {
                leave_groups(groups, ranks, group_ranks);
            }
            choose(ranks, ids);
        }
        weigh(op, scores, total, ids, weights);
    })
}

/// The ids of the `ids.len()` largest logits, ascending. Of equal ones the lower ids are taken.
fn choose(logits: &[f32], ids: &mut [u32]) {
    // A NaN comes first: a broken router must show.
    let rank = |id: u32| Some(logits[id as usize]).filter(|l| !l.is_nan()).unwrap_or(f32::INFINITY);
    // Best first; the last one falls out when there are enough.
    let mut n = 0;
    for id in 0..logits.len() as u32 {
        let at = ids[..n].iter().position(|other| rank(*other) < rank(id)).unwrap_or(n);
        if at < ids.len() {
            n = ids.len().min(n + 1);
            ids.copy_within(at..n - 1, at + 1);
            ids[at] = id;
        }
    }
    ids.sort_unstable();
}

/// Leaves only the ranks of the best groups; those of the others become −∞. `of_groups` has room for
/// one rank per group.
fn leave_groups(groups: &ExpertGroups, ranks: &mut [f32], of_groups: &mut [f32]) {
    let size = ranks.len() / groups.count;
    let rank_of = |group: &[f32]| {
        let (mut best, mut second) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
        for rank in group {
            if *rank > best {
                (best, second) = (*rank, best);
            } else if *rank > second {
                second = *rank;
            }
        }
        match groups.rank {
            GroupRank::Best => best,
            GroupRank::TwoBest => best + second,
        }
    };
    for (rank, group) in of_groups.iter_mut().zip(ranks.chunks_exact(size)) {
        *rank = rank_of(group);
    }
    for (index, group) in ranks.chunks_exact_mut(size).enumerate() {
        let before = |other: usize| {
            of_groups[other] > of_groups[index]
                || (of_groups[other] == of_groups[index] && other < index)
        };
        if (0..groups.count).filter(|other| before(*other)).count() >= groups.taken {
            group.fill(f32::NEG_INFINITY);
        }
    }
}

/// Weights of the chosen experts from their scores, whose divisor is `total`.
fn weigh(op: &MoeOp, scores: &[f32], total: f32, ids: &[u32], weights: &mut [f32]) {
    for (weight, id) in weights.iter_mut().zip(ids) {
        *weight = scores[*id as usize] / total;
    }
    if op.renormalize {
        let sum = weights.iter().fold(0.0, |sum, weight| sum + weight) + SUM_MIN;
        weights.iter_mut().for_each(|weight| *weight /= sum);
    }
    if op.routing.weight_scale != 1.0 {
        weights.iter_mut().for_each(|weight| *weight *= op.routing.weight_scale);
    }
}

/// Turns a row of logits into scores before division, and gives the divisor.
struct Scores<'a> {
    score: RouterScore,
    row: &'a mut [f32],
}

impl Kernel for Scores<'_> {
    type Out = f32;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> f32 {
        let (len, row) = (self.row.len(), self.row.as_mut_ptr());
        // SAFETY: `start + min(n, 16)` stays within the row.
        unsafe {
            let mut largest = S::splat(f32::NEG_INFINITY);
            for start in (0..len).step_by(LANES) {
                let part = load_part::<S>(row.add(start), len - start, f32::NEG_INFINITY);
                largest = S::max(largest, part);
            }
            let largest = S::splat(S::max_lane(largest));
            let mut sum = S::splat(0.0);
            for start in (0..len).step_by(LANES) {
                let n = len - start;
                let logit = load_part::<S>(row.add(start), n, f32::NEG_INFINITY);
                let score = match self.score {
                    RouterScore::Softmax => math::exp::<S>(S::sub(logit, largest)),
                    RouterScore::Sigmoid => math::sigmoid::<S>(logit),
                };
                sum = S::add(sum, score);
                store_part::<S>(row.add(start), n, score);
            }
            match self.score {
                RouterScore::Softmax => S::sum(sum),
                RouterScore::Sigmoid => 1.0,
            }
        }
    }
}

#[cfg(test)]
mod tests;
