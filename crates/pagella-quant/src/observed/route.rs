//! Which experts a row takes, and how much each counts, as [`pagella_backend::Routing`] defines it.

use pagella_arch::{ExpertGroups, GroupRank, RouterScore};
use pagella_backend::MoeOp;

/// Keeps a sum of vanishing scores from dividing by zero.
const SUM_MIN: f32 = 1e-20;

/// The experts of one row with their weights, ids ascending. `logits`: `[experts]`.
pub(super) fn route(op: &MoeOp, bias: Option<&[f32]>, logits: &[f32]) -> Vec<(usize, f32)> {
    let scores = scores(op.score, logits);
    let mut ranks = match bias.is_none() && op.routing.groups.is_none() {
        true => logits.to_vec(),
        false => {
            let bias = |id: usize| bias.and_then(|bias| bias.get(id)).copied().unwrap_or(0.0);
            scores.iter().enumerate().map(|(id, score)| score + bias(id)).collect()
        }
    };
    if let Some(groups) = &op.routing.groups {
        leave_groups(groups, &mut ranks);
    }
    let mut chosen: Vec<usize> = (0..ranks.len()).collect();
    chosen.sort_by(|a, b| ranks[*b].total_cmp(&ranks[*a]).then(a.cmp(b)));
    chosen.truncate(op.experts_per_token);
    chosen.sort_unstable();
    let sum: f32 = chosen.iter().map(|id| scores[*id]).sum();
    let divisor = if op.renormalize { sum + SUM_MIN } else { 1.0 };
    let weight = |id: usize| scores[id] / divisor * op.routing.weight_scale;
    chosen.into_iter().map(|id| (id, weight(id))).collect()
}

fn scores(score: RouterScore, logits: &[f32]) -> Vec<f32> {
    match score {
        RouterScore::Sigmoid => logits.iter().map(|logit| 1.0 / (1.0 + (-logit).exp())).collect(),
        RouterScore::Softmax => {
            let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let exp: Vec<f32> = logits.iter().map(|logit| (logit - largest).exp()).collect();
            let sum: f32 = exp.iter().sum();
            exp.into_iter().map(|score| score / sum).collect()
        }
    }
}

/// Leaves only the ranks of the best groups; of equal ones those that come first.
fn leave_groups(groups: &ExpertGroups, ranks: &mut [f32]) {
    let size = (ranks.len() / groups.count.max(1)).max(1);
    let rank_of = |group: &[f32]| {
        let mut sorted = group.to_vec();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let two = match groups.rank {
            GroupRank::Best => 1,
            GroupRank::TwoBest => 2,
        };
        sorted.iter().take(two).sum::<f32>()
    };
    let of_groups: Vec<f32> = ranks.chunks(size).map(rank_of).collect();
    let mut order: Vec<usize> = (0..of_groups.len()).collect();
    order.sort_by(|a, b| of_groups[*b].total_cmp(&of_groups[*a]).then(a.cmp(b)));
    for index in order.into_iter().skip(groups.taken) {
        if let Some(group) = ranks.chunks_mut(size).nth(index) {
            group.fill(f32::NEG_INFINITY);
        }
    }
}
