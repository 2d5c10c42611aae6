//! The steps of sampling, one file each, as pure functions of their arguments.
//!
//! On logits: [`penalty`], [`bias`], [`dry`], and the masks of [`mask`], which come after everything
//! additive. On probabilities, after the softmax: [`temperature`] and all others. Truncations give a
//! renormalised subset that is never empty.

pub mod bias;
pub mod cutoff;
pub mod dry;
pub mod mask;
pub mod min_p;
pub mod mirostat;
pub mod penalty;
pub mod skew;
pub mod temperature;
pub mod tfs;
pub mod top_a;
pub mod top_k;
pub mod top_n_sigma;
pub mod top_p;
pub mod typical;
pub mod xtc;

#[cfg(test)]
pub(crate) mod check {
    //! One way to state a step's test: probabilities in, surviving ids out.

    use crate::sample::{Candidate, Candidates};

    /// Candidates with ids in order of the list.
    pub fn candidates(ps: &[f64]) -> Candidates {
        let list = ps.iter().zip(0..).map(|(&p, id)| Candidate { id, p }).collect();
        Candidates::new(list).unwrap()
    }

    /// Applies `step`, checks that the result is a normalised subset, and compares the surviving
    /// ids.
    pub fn survivors(ps: &[f64], step: impl Fn(&mut Candidates), expected: &[u32]) {
        let mut c = candidates(ps);
        step(&mut c);
        let ids: Vec<u32> = c.as_slice().iter().map(|c| c.id).collect();
        assert_eq!(ids, expected, "{ps:?}");
        let sum: f64 = c.as_slice().iter().map(|c| c.p).sum();
        assert!((sum - 1.0).abs() < 1e-12, "sum {sum}");
    }

    /// Applies `step` and compares the probabilities by id, to the six digits of published values.
    pub fn probabilities(ps: &[f64], step: impl Fn(&mut Candidates), expected: &[f64]) {
        let mut c = candidates(ps);
        step(&mut c);
        let mut found = vec![0.0; expected.len()];
        c.unordered().iter().for_each(|c| found[c.id as usize] = c.p);
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
    }
}
