//! The working set of sampling: ids that may still be chosen, with their probabilities.

/// An id that may be chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Token id.
    pub id: u32,
    /// Probability within the current set.
    pub p: f64,
}

/// Candidates in canonical order: probability descending, id ascending among equals.
///
/// Invariant: never empty, every probability is above zero, and they sum to 1 up to rounding.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidates {
    list: Vec<Candidate>,
}

impl Candidates {
    /// Orders and normalises `list`; entries without probability are left out. `None` when nothing
    /// remains.
    pub fn new(mut list: Vec<Candidate>) -> Option<Self> {
        list.retain(|c| c.p > 0.0 && c.p.is_finite());
        if list.is_empty() {
            return None;
        }
        list.sort_unstable_by(|a, b| b.p.total_cmp(&a.p).then(a.id.cmp(&b.id)));
        let mut candidates = Candidates { list };
        candidates.normalize();
        Some(candidates)
    }

    /// The candidates, most likely first.
    pub fn as_slice(&self) -> &[Candidate] {
        &self.list
    }

    /// How many there are.
    #[allow(clippy::len_without_is_empty)] // Never empty, by the invariant.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Keeps the `n` most likely, at least one, and renormalises.
    pub fn keep(&mut self, n: usize) {
        self.list.truncate(n.max(1));
        self.normalize();
    }

    /// The candidate that the draw `r` in `[0, 1)` falls on: the first whose cumulative probability
    /// exceeds `r` times the sum.
    pub fn pick(&self, r: f64) -> Candidate {
        let sum: f64 = self.list.iter().map(|c| c.p).sum();
        let target = r * sum;
        let mut cumulative = 0.0;
        for candidate in &self.list {
            cumulative += candidate.p;
            if cumulative > target {
                return *candidate;
            }
        }
        self.list[self.list.len() - 1]
    }

    fn normalize(&mut self) {
        let sum: f64 = self.list.iter().map(|c| c.p).sum();
        self.list.iter_mut().for_each(|c| c.p /= sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ps: &[f64]) -> Candidates {
        let list = ps.iter().zip(0..).map(|(&p, id)| Candidate { id, p }).collect();
        Candidates::new(list).unwrap()
    }

    #[test]
    fn equal_probabilities_are_ordered_by_id_and_zeros_left_out() {
        let ids: Vec<u32> =
            of(&[0.1, 0.0, 0.4, 0.1, 0.4]).as_slice().iter().map(|c| c.id).collect();
        assert_eq!(ids, [2, 4, 0, 3]);
        assert_eq!(Candidates::new(vec![Candidate { id: 0, p: 0.0 }]), None);
    }

    #[test]
    fn the_draw_walks_the_cumulative_sums() {
        let c = of(&[0.5, 0.3, 0.2]);
        let id = |r: f64| c.pick(r).id;
        assert_eq!([id(0.0), id(0.499), id(0.501), id(0.799), id(0.801)], [0, 0, 1, 1, 2]);
        assert_eq!(id(1.0 - f64::EPSILON / 2.0), 2);
    }
}
