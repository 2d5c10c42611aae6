//! The working set of sampling: ids that may still be chosen, with their probabilities.
//!
//! Canonical order is probability descending, id ascending among equals. It is established only as
//! far as somebody asks: `ordered` entries at the front are in place, and nothing behind them
//! belongs before them. Questions about cumulative probability are answered by partitioning, in
//! time proportional to the list. Long lists are thus never sorted whole unless a step needs that.

use std::cmp::Ordering;

/// An id that may be chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Token id.
    pub id: u32,
    /// Probability within the current set.
    pub p: f64,
}

/// Lists up to this length are sorted rather than partitioned.
const SORTED_LEN: usize = 128;
/// What remains of a row is in order from the start, up to this length.
pub const IN_ORDER_LEN: usize = 1024;

/// Candidates, never empty, every probability above zero.
///
/// They sum to 1 up to rounding, or to less where the unlikely rest of a row was left out because
/// the next step cannot keep any of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidates {
    list: Vec<Candidate>,
    ordered: usize,
}

/// Canonical order.
pub fn canonical(a: &Candidate, b: &Candidate) -> Ordering {
    b.p.total_cmp(&a.p).then(a.id.cmp(&b.id))
}

impl Candidates {
    /// Normalises `list`; entries without probability are left out. `None` when nothing remains.
    pub fn new(list: Vec<Candidate>) -> Option<Self> {
        let sum = list.iter().map(|c| c.p).filter(|p| *p > 0.0).sum();
        Candidates::part_of(list, sum)
    }

    /// Like [`Candidates::new`] for weights of which `list` is the likely part and `total` the sum
    /// over all.
    pub fn part_of(mut list: Vec<Candidate>, total: f64) -> Option<Self> {
        list.iter_mut().for_each(|c| c.p /= total);
        list.retain(|c| c.p > 0.0 && c.p.is_finite());
        (!list.is_empty()).then_some(Candidates { list, ordered: 0 })
    }

    /// The `n` most likely of some weights, at least one; in canonical order if they are few.
    pub fn most_likely(mut list: Vec<Candidate>, n: usize) -> Option<Self> {
        let n = n.max(1);
        if n < list.len() {
            list.select_nth_unstable_by(n, canonical);
            list.truncate(n);
        }
        let ordered = if list.len() <= IN_ORDER_LEN { list.len() } else { 0 };
        list[..ordered].sort_unstable_by(canonical);
        let mut candidates = Candidates { list, ordered };
        candidates.normalize();
        (candidates.len() > 0).then_some(candidates)
    }

    /// The memory, for the next row.
    pub fn into_list(self) -> Vec<Candidate> {
        self.list
    }

    /// How many there are.
    #[allow(clippy::len_without_is_empty)] // Never empty, by the invariant.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The candidates in no particular order.
    pub fn unordered(&self) -> &[Candidate] {
        &self.list
    }

    /// All of them in canonical order.
    pub fn as_slice(&mut self) -> &[Candidate] {
        self.first(self.list.len())
    }

    /// The first `n` in canonical order, or all if there are fewer.
    pub fn first(&mut self, n: usize) -> &[Candidate] {
        let n = n.min(self.list.len());
        if n > self.ordered {
            let rest = &mut self.list[self.ordered..];
            let wanted = n - self.ordered;
            if wanted < rest.len() {
                rest.select_nth_unstable_by(wanted, canonical);
            }
            rest[..wanted].sort_unstable_by(canonical);
            self.ordered = n;
        }
        &self.list[..n]
    }

    /// The highest probability.
    pub fn max_p(&mut self) -> f64 {
        self.first(1)[0].p
    }

    /// Keeps the `n` most likely, at least one, and renormalises.
    pub fn keep(&mut self, n: usize) {
        let n = n.max(1);
        if n < self.list.len() {
            if n > self.ordered {
                self.list[self.ordered..].select_nth_unstable_by(n - self.ordered, canonical);
            }
            self.list.truncate(n);
            self.ordered = self.ordered.min(n);
        }
        self.normalize();
    }

    /// Keeps candidates with `p ≥ threshold`, at least the `min_keep` most likely and at least one,
    /// and renormalises.
    pub fn keep_reaching(&mut self, threshold: f64, min_keep: usize) {
        let kept = self.list.iter().filter(|c| c.p >= threshold).count();
        self.keep(kept.max(min_keep));
    }

    /// How many of the most likely are needed for their sum to satisfy `enough`; all if none do.
    /// Afterwards the last of them is in its place.
    pub fn count_until(&mut self, enough: impl Fn(f64) -> bool) -> usize {
        let mut sum = 0.0;
        for (i, candidate) in self.list[..self.ordered].iter().enumerate() {
            sum += candidate.p;
            if enough(sum) {
                return i + 1;
            }
        }
        let rest = &mut self.list[self.ordered..];
        self.ordered + prefix_until(rest, |c| c.p, canonical, |more| enough(sum + more))
    }

    /// Replaces the list by some of its members and renormalises. `kept` is not empty.
    pub fn replace(&mut self, kept: impl Iterator<Item = Candidate>) {
        self.list.clear();
        self.list.extend(kept);
        self.ordered = 0;
        self.normalize();
    }

    /// Gives every candidate a new weight and renormalises; weights of zero leave the set, unless
    /// that would empty it.
    pub fn reweigh(&mut self, weight: impl Fn(&Candidate) -> f64) {
        let best = self.first(1)[0];
        self.list.iter_mut().for_each(|c| c.p = weight(c));
        self.list.retain(|c| c.p > 0.0 && c.p.is_finite());
        if self.list.is_empty() {
            self.list.push(Candidate { p: 1.0, ..best });
        }
        self.ordered = 0;
        self.normalize();
    }

    /// Entropy in nats.
    pub fn entropy(&self) -> f64 {
        -self.list.iter().map(|c| c.p * c.p.ln()).sum::<f64>()
    }

    /// The candidate that the draw `r` in `[0, 1]` falls on: the first whose cumulative probability
    /// exceeds `r`, else the last.
    pub fn pick(&mut self, r: f64) -> Candidate {
        let n = self.count_until(|sum| sum > r);
        self.list[n - 1]
    }

    fn normalize(&mut self) {
        let sum: f64 = self.list.iter().map(|c| c.p).sum();
        self.list.iter_mut().for_each(|c| c.p /= sum);
        // The least that can be told from nothing becomes nothing, and comes last in every order.
        if self.list.iter().any(|c| c.p <= 0.0) {
            self.list.retain(|c| c.p > 0.0);
            self.ordered = self.ordered.min(self.list.len());
        }
    }
}

/// How many of the first entries in the order `compare` are needed for the sum of their `mass` to
/// satisfy `enough`; all if none do. Partitions `list` such that these come first, the last of them
/// in its place. Linear in the length.
pub fn prefix_until<T>(
    list: &mut [T],
    mass: impl Fn(&T) -> f64,
    compare: impl Fn(&T, &T) -> Ordering,
    enough: impl Fn(f64) -> bool,
) -> usize {
    // The answer lies within `start..end`; the entries before `start` sum to `sum`.
    let (mut start, mut end, mut sum) = (0, list.len(), 0.0);
    while end - start > SORTED_LEN {
        // Likely entries are few: a quarter finds the answer sooner than a half.
        let cut = (end - start) / 4;
        let window = &mut list[start..end];
        window.select_nth_unstable_by(cut, &compare);
        let more: f64 = window[..cut].iter().map(&mass).sum();
        if enough(sum + more) {
            end = start + cut;
        } else {
            sum += more;
            start += cut;
        }
    }
    list[start..end].sort_unstable_by(&compare);
    let crossing = list[start..end].iter().position(|entry| {
        sum += mass(entry);
        enough(sum)
    });
    crossing.map_or(end, |at| start + at + 1)
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
        let mut c = of(&[0.5, 0.3, 0.2]);
        let mut id = |r: f64| c.pick(r).id;
        assert_eq!([id(0.0), id(0.499), id(0.501), id(0.799), id(0.801)], [0, 0, 1, 1, 2]);
        assert_eq!([id(1.0 - f64::EPSILON / 2.0), id(1.0)], [2, 2]);
        // A draw exactly on a boundary belongs to what comes after it.
        let mut exact = of(&[0.5, 0.25, 0.25]);
        assert_eq!([exact.pick(0.5).id, exact.pick(0.75).id], [1, 2]);
    }

    #[test]
    fn order_by_parts_is_the_order_of_a_full_sort() {
        let ps: Vec<f64> = (0..5000u64).map(|i| (i * 7919 % 997 + 1) as f64).collect();
        let mut whole: Vec<Candidate> = of(&ps).list;
        whole.sort_by(canonical);
        let mut parts = of(&ps);
        for n in [1, 2, 100, 100, 4000, 5000, 9999] {
            assert_eq!(parts.first(n), &whole[..n.min(5000)]);
        }
        let mut sum = 0.0;
        let needed = whole.iter().position(|c| {
            sum += c.p;
            sum >= 0.9
        });
        let needed = needed.unwrap();
        let mut c = of(&ps);
        assert_eq!(c.count_until(|sum| sum >= 0.9), needed + 1);
        assert_eq!(c.list[needed], whole[needed]);
        assert_eq!(parts.count_until(|sum| sum >= 0.9), needed + 1);
        assert_eq!(c.count_until(|sum| sum > 2.0), 5000);
        c.keep(needed);
        assert_eq!((c.len(), c.as_slice()[needed - 1].id), (needed, whole[needed - 1].id));
    }
}
