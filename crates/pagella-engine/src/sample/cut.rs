//! The first step that shortens: how much of a row it can keep, and the exact cut.
//!
//! The cut is decided on weights relative to the highest, before anything is normalised. What follows
//! is a function of the ids that were kept and their weights alone: a short list is in canonical
//! order and summed in it, so it does not matter how it was found, nor what else the row held.

use super::candidates::{canonical, prefix_until};
use super::gather::Weights;
use super::{Candidate, Candidates};

/// How much of the row is needed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reach {
    /// The so many most likely; the sum over the row is not needed.
    Count(usize),
    /// Those with at least this share of the highest probability; the sum is not needed.
    Share(f64),
    /// Those with at least this probability.
    Probability(f64),
    /// Those with at least this factor times the square of the highest probability.
    SquareOfMax(f64),
    /// The most likely that together have this probability.
    Mass(f64),
    /// Nothing is shortened, and this draw picks.
    Draw(f64),
    /// Everything: the step does not cut by order.
    All,
}

/// Keeps what the step keeps and at least `min_keep`. `None` if nothing has weight.
pub fn cut(reach: Reach, min_keep: usize, weights: Weights) -> Option<Candidates> {
    let Weights { mut list, total } = weights;
    let total = || total.unwrap_or_else(|| list.iter().map(|c| c.p).sum());
    let reaching = |least: f64| list.iter().filter(|c| c.p >= least).count();
    let kept = match reach {
        Reach::Count(_) | Reach::All => list.len(),
        Reach::Share(share) => reaching(share),
        Reach::Probability(p) => reaching(p * total()),
        Reach::SquareOfMax(factor) => reaching(factor / total()),
        Reach::Mass(p) => {
            let wanted = p * total();
            prefix_until(&mut list, |c: &Candidate| c.p, canonical, |sum| sum >= wanted)
        }
        Reach::Draw(_) => {
            let total = total();
            return Candidates::part_of(list, total);
        }
    };
    Candidates::most_likely(list, kept.max(min_keep))
}
