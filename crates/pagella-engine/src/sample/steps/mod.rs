//! The steps of sampling, one file each, in the order in which they are applied.
//!
//! Those on logits come first ([`penalty`]), then [`temperature`] turns logits into candidates, and
//! the rest shortens the list. Every step is a pure function of its arguments.

pub mod min_p;
pub mod penalty;
pub mod temperature;
pub mod top_k;
pub mod top_p;

#[cfg(test)]
pub(crate) mod check {
    //! One way to state a step's test: probabilities in, surviving ids out.

    use crate::sample::{Candidate, Candidates};

    /// Candidates with ids in order of the list.
    pub fn candidates(ps: &[f64]) -> Candidates {
        let list = ps.iter().zip(0..).map(|(&p, id)| Candidate { id, p }).collect();
        Candidates::new(list).unwrap()
    }

    /// Applies `step`, checks that the result is a normalised subset that keeps the maximum, and
    /// compares the surviving ids.
    pub fn survivors(ps: &[f64], step: impl Fn(&mut Candidates), expected: &[u32]) {
        let mut c = candidates(ps);
        let best = c.as_slice()[0].id;
        step(&mut c);
        let ids: Vec<u32> = c.as_slice().iter().map(|c| c.id).collect();
        assert_eq!(ids, expected, "{ps:?}");
        assert_eq!(ids[0], best);
        let sum: f64 = c.as_slice().iter().map(|c| c.p).sum();
        assert!((sum - 1.0).abs() < 1e-12, "sum {sum}");
    }
}
