//! `Recent`: texts of jobs that ended, in which later jobs of the same namespace look for their own.
//!
//! Texts are taken in piece by piece, between steps, so that a long one delays nobody.

use std::collections::VecDeque;

use super::lookup::SuffixAutomaton;
use crate::pages::Namespace;

/// Namespaces whose texts are remembered; the one that was used longest ago gives way.
const NAMESPACES_MAX: usize = 4;
/// Texts that wait to be taken in; more than these are not worth the memory.
const WAITING_MAX: usize = 64;
/// Ids that are taken in at once: some 50 µs.
const PIECE_IDS: usize = 256;

/// A text that is being taken in.
struct Waiting {
    namespace: Namespace,
    ids: Vec<u32>,
    taken: usize,
}

/// Texts of recent jobs by namespace.
pub(crate) struct Recent {
    ids_max: usize,
    /// The one that was used last stands last.
    automata: Vec<(Namespace, SuffixAutomaton)>,
    waiting: VecDeque<Waiting>,
}

impl Recent {
    /// Remembers up to `ids_max` ids of every namespace.
    pub fn new(ids_max: usize) -> Self {
        Recent { ids_max, automata: Vec::new(), waiting: VecDeque::new() }
    }

    /// Prompt and output of a job that ended. Of more than half of what is remembered, the end counts.
    pub fn remember(&mut self, namespace: Namespace, ids: &[u32]) {
        if self.ids_max == 0 || ids.is_empty() || self.waiting.len() == WAITING_MAX {
            return;
        }
        let ids = ids[ids.len().saturating_sub(self.ids_max / 2)..].to_vec();
        self.waiting.push_back(Waiting { namespace, ids, taken: 0 });
    }

    /// Takes in some of what waits.
    pub fn take_in(&mut self) {
        let Some(mut text) = self.waiting.pop_front() else { return };
        let known = self.automata.iter().position(|(namespace, _)| *namespace == text.namespace);
        let entry = match known {
            Some(idx) => self.automata.remove(idx),
            None => (text.namespace, SuffixAutomaton::new(self.ids_max)),
        };
        if self.automata.len() == NAMESPACES_MAX {
            self.automata.remove(0);
        }
        self.automata.push(entry);
        if let Some((_, automaton)) = self.automata.last_mut() {
            let end = (text.taken + PIECE_IDS).min(text.ids.len());
            text.ids[text.taken..end].iter().for_each(|id| automaton.push(*id));
            text.taken = end;
            if end == text.ids.len() {
                automaton.end_text();
            }
        }
        if text.taken < text.ids.len() {
            // First, so that no other text gets in between.
            self.waiting.push_front(text);
        }
    }

    /// The texts of a namespace.
    pub fn of(&self, namespace: Namespace) -> Option<&SuffixAutomaton> {
        self.automata.iter().find(|(known, _)| *known == namespace).map(|(_, automaton)| automaton)
    }
}

#[cfg(test)]
mod tests {
    use super::super::lookup::Cursor;
    use super::*;

    fn next(recent: &Recent, namespace: Namespace, ids: &[u32]) -> Vec<u32> {
        let mut out = Vec::new();
        if let Some(automaton) = recent.of(namespace) {
            automaton.propose(&mut Cursor::default(), ids, 2, &mut out);
        }
        out
    }

    #[test]
    fn namespaces_do_not_see_each_other() {
        let (one, two) = (Namespace::EMPTY, Namespace::of(&[("salt", b"two")]));
        let mut recent = Recent::new(4096);
        recent.remember(one, &[1, 2, 3, 4]);
        recent.remember(two, &[1, 2, 7, 8]);
        (0..2).for_each(|_| recent.take_in());
        assert_eq!(next(&recent, one, &[1, 2]), [3, 4]);
        assert_eq!(next(&recent, two, &[1, 2]), [7, 8]);
        assert!(next(&recent, Namespace::of(&[("salt", b"x")]), &[1, 2]).is_empty());
    }

    #[test]
    fn long_texts_come_in_pieces_and_memory_is_bounded() {
        let mut recent = Recent::new(4096);
        let text: Vec<u32> = (0..3000).map(|at| at * 7 % 1009).collect();
        recent.remember(Namespace::EMPTY, &text);
        recent.take_in();
        assert!(!recent.waiting.is_empty(), "not all of it at once");
        (0..20).for_each(|_| recent.take_in());
        assert!(recent.waiting.is_empty());
        assert_eq!(next(&recent, Namespace::EMPTY, &text[2900..2950]), text[2950..2952]);
        for n in 0..9u8 {
            recent.remember(Namespace::of(&[("salt", &[n])]), &[1, 2, 3]);
            recent.take_in();
        }
        assert_eq!(recent.automata.len(), NAMESPACES_MAX);
        (0..200).for_each(|_| recent.remember(Namespace::EMPTY, &[1]));
        assert_eq!(recent.waiting.len(), WAITING_MAX);
        let mut off = Recent::new(0);
        off.remember(Namespace::EMPTY, &[1, 2]);
        off.take_in();
        assert!(off.of(Namespace::EMPTY).is_none());
    }
}
