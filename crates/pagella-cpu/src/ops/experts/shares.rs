//! Choices turned around: which rows every expert runs on.

use std::ops::Range;

use pagella_backend::MoeOp;

use super::route::Choices;

/// One expert's work in a step.
pub(super) struct Share {
    pub expert: u32,
    /// Its pairs.
    pub pairs: Range<usize>,
}

/// The pairs of a step, ordered by expert and then by row.
#[derive(Default)]
pub(super) struct ExpertShares {
    all: Vec<Share>,
    /// Row of every pair.
    row_of_pair: Vec<u32>,
    /// `0, 1, 2, …`: pairs as rows of a matrix.
    pairs: Vec<u32>,
    /// Pair of every choice, `[rows, experts_per_token]`.
    pair_of_choice: Vec<u32>,
    /// Where each expert's next pair goes.
    next: Vec<usize>,
}

impl ExpertShares {
    /// Deals the choices of the first `tokens` rows out to their experts.
    pub(super) fn deal(&mut self, op: &MoeOp, tokens: usize, choices: &Choices) {
        let ids = &choices.ids[..tokens * op.experts_per_token];
        self.next.clear();
        self.next.resize(op.experts, 0);
        for id in ids {
            self.next[*id as usize] += 1;
        }
        self.all.clear();
        let mut start = 0;
        for (expert, next) in self.next.iter_mut().enumerate() {
            let pairs = start..start + *next;
            (start, *next) = (pairs.end, pairs.start);
            if !pairs.is_empty() {
                self.all.push(Share { expert: expert as u32, pairs });
            }
        }
        self.row_of_pair.resize(ids.len(), 0);
        self.pair_of_choice.clear();
        for (choice, id) in ids.iter().enumerate() {
            let pair = self.next[*id as usize];
            self.next[*id as usize] += 1;
            self.row_of_pair[pair] = (choice / op.experts_per_token) as u32;
            self.pair_of_choice.push(pair as u32);
        }
        self.pairs.clear();
        self.pairs.extend(0..ids.len() as u32);
    }

    /// The experts that were chosen, by id.
    pub(super) fn all(&self) -> &[Share] {
        &self.all
    }

    /// The rows of an expert, ascending.
    pub(super) fn rows(&self, share: &Share) -> &[u32] {
        &self.row_of_pair[share.pairs.clone()]
    }

    /// The pairs of an expert.
    pub(super) fn pairs(&self, share: &Share) -> &[u32] {
        &self.pairs[share.pairs.clone()]
    }

    /// The pairs of a row, in the order of its choices.
    pub(super) fn of_row(&self, op: &MoeOp, row: usize) -> &[u32] {
        let k = op.experts_per_token;
        &self.pair_of_choice[row * k..(row + 1) * k]
    }
}

#[cfg(test)]
mod tests {
    use pagella_arch::{Activation, RouterScore};

    use super::*;

    #[test]
    fn every_choice_is_one_pair_of_its_expert() {
        let op = MoeOp {
            hidden: 32,
            inner: 32,
            experts: 5,
            experts_per_token: 2,
            score: RouterScore::Softmax,
            renormalize: true,
            act: Activation::Silu,
            scale: 1.0,
            routing: pagella_backend::Routing::default(),
        };
        let mut shares = ExpertShares::default();
        // Twice, the second time with fewer rows: nothing of the first may be left.
        for ids in [vec![1, 4, 0, 1, 1, 4, 0, 4], vec![3, 4, 1, 3]] {
            let weights = vec![0.5; ids.len()];
            let tokens = ids.len() / 2;
            let choices = Choices { ids, weights, ..Choices::default() };
            shares.deal(&op, tokens, &choices);
            let mut pairs = 0;
            for share in shares.all() {
                assert_eq!(share.pairs.start, pairs, "pairs are neighbours");
                pairs = share.pairs.end;
                let rows = shares.rows(share);
                assert!(rows.is_sorted() && !rows.is_empty());
                for (pair, row) in share.pairs.clone().zip(rows) {
                    let row = *row as usize;
                    let at = choices.ids[2 * row..2 * row + 2]
                        .iter()
                        .position(|id| *id == share.expert)
                        .unwrap();
                    assert_eq!(shares.of_row(&op, row)[at] as usize, pair);
                }
            }
            assert_eq!(pairs, choices.ids.len());
        }
        let experts: Vec<u32> = shares.all().iter().map(|share| share.expert).collect();
        assert_eq!(experts, [1, 3, 4], "nobody chose the others");
    }
}
