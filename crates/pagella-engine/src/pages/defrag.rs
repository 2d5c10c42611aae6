//! Defragmentation: an order of pages in which sequences lie together.
//!
//! A plan is a permutation of physical pages. Whoever owns the keys and values carries it out, then
//! the table and all page lists take over the new indices. Pages in use may move, between steps.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::event::PageEvent;
use super::key::Parent;
use super::table::{PageIdx, PageTable};

/// A permutation of physical pages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Moves {
    /// Where the content of each page goes, by its old index.
    pub new_index: Vec<PageIdx>,
    /// The same as rotations: in a cycle `c0, c1, …, cn` the content of `c1` goes to `c0`, of `c2`
    /// to `c1`, and so on, and that of `c0` to `cn`. One spare page suffices to carry it out.
    pub cycles: Vec<Vec<PageIdx>>,
}

impl Moves {
    /// Only these cycles, for moving a little at a time. Cycles do not depend on each other.
    pub fn part(&self, cycles: Range<usize>) -> Moves {
        let mut new_index: Vec<PageIdx> = (0..self.new_index.len() as PageIdx).collect();
        let cycles = self.cycles[cycles].to_vec();
        for &page in cycles.iter().flatten() {
            new_index[page as usize] = self.new_index[page as usize];
        }
        Moves { new_index, cycles }
    }

    fn new(new_index: Vec<PageIdx>) -> Self {
        let mut old_index = vec![0; new_index.len()];
        for (old, &new) in (0..).zip(&new_index) {
            old_index[new as usize] = old;
        }
        let mut seen = vec![false; new_index.len()];
        let mut cycles = Vec::new();
        for start in 0..new_index.len() as PageIdx {
            let mut cycle = Vec::new();
            let mut page = start;
            while !std::mem::replace(&mut seen[page as usize], true) {
                cycle.push(page);
                page = old_index[page as usize];
            }
            if cycle.len() > 1 {
                cycles.push(cycle);
            }
        }
        Moves { new_index, cycles }
    }
}

impl PageTable {
    /// What to move so that sequences lie together. `None` if it is not worth it: fewer pages were
    /// handed out since the last attempt than there are, or at most a tenth of them would move.
    pub fn plan_defragment(&self) -> Option<Moves> {
        if self.serial < self.defragmented_at + self.n_pages() as u64 {
            return None;
        }
        let moves = self.arrangement()?;
        let n_moved: usize = moves.cycles.iter().map(Vec::len).sum();
        (n_moved > self.n_pages() / 10).then_some(moves)
    }

    /// An attempt was made, whether or not it led to a plan.
    pub fn note_defragment_attempt(&mut self) {
        self.defragmented_at = self.serial;
    }

    /// Takes over the new indices. Page lists of sequences are their owners' business.
    pub fn apply_moves(&mut self, moves: &Moves) {
        assert_eq!(moves.new_index.len(), self.n_pages(), "moves of another table");
        let mut seen = vec![false; self.n_pages()];
        for (from, &to) in (0..).zip(&moves.new_index) {
            let twice = std::mem::replace(&mut seen[to as usize], true);
            assert!(!twice, "two pages would move to {to}");
            if from != to {
                self.log.push(PageEvent::Moved { from, to });
            }
        }
        let mut order: Vec<_> = moves.new_index.iter().copied().zip(self.pages.drain(..)).collect();
        order.sort_unstable_by_key(|&(new, _)| new);
        self.pages = order.into_iter().map(|(_, record)| record).collect();
        self.rebuild();
    }

    /// The order itself: the oldest chain first, each followed to its end along its oldest branch,
    /// then turned as a whole so that as many pages as possible stay where they are.
    pub(super) fn arrangement(&self) -> Option<Moves> {
        let n_pages = self.n_pages();
        let by_age = |page: PageIdx| Reverse((self.at(page).stamp, page));
        let is_start = |&page: &PageIdx| self.page_before(self.parent(page)).is_none();
        let mut starts: BinaryHeap<_> =
            (0..n_pages as PageIdx).filter(is_start).map(by_age).collect();
        let mut order: Vec<PageIdx> = Vec::with_capacity(n_pages);
        while let Some(Reverse((_, mut page))) = starts.pop() {
            loop {
                order.push(page);
                let key = self.key(page).map(Parent::Page);
                let after = key.and_then(|key| self.children.get(&key)).into_iter().flatten();
                let mut after: Vec<_> = after.map(|&page| by_age(page)).collect();
                after.sort_unstable();
                let Some(Reverse((_, oldest))) = after.pop() else { break };
                starts.extend(after);
                page = oldest;
            }
        }
        debug_assert_eq!(order.len(), n_pages, "every page hangs on a start");
        (order.len() == n_pages).then(|| Moves::new(turned(&order)))
    }
}

/// New indices, by old index, for pages in this order, shifted by the most frequent distance (the
/// smallest among equals).
fn turned(order: &[PageIdx]) -> Vec<PageIdx> {
    let n_pages = order.len();
    let distance = |(new, &old): (usize, &PageIdx)| (new + n_pages - old as usize) % n_pages;
    let mut n_at = vec![0usize; n_pages];
    order.iter().enumerate().for_each(|at| n_at[distance(at)] += 1);
    let shift = (0..n_pages).max_by_key(|&shift| (n_at[shift], Reverse(shift))).unwrap_or(0);
    let mut new_index = vec![0; n_pages];
    for (new, &old) in order.iter().enumerate() {
        new_index[old as usize] = ((new + n_pages - shift) % n_pages) as PageIdx;
    }
    new_index
}
