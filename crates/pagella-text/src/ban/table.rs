//! A banned regular expression as a table over bytes.
//!
//! The table is an anchored automaton; every place where a match may begin runs through it as a
//! thread of its own. Threads that meet in a state have the same future, so only the first of them
//! is kept, and there are never more threads than states. States from which no match can be
//! reached are not in the table: a thread that exists can still become a match.

use std::collections::HashMap;

use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;
use regex_automata::{Anchored, MatchKind};
use regex_syntax::ParserBuilder;

/// Memory for building one automaton, in bytes.
const BUILD_BYTES_MAX: usize = 16 << 20;
/// Deepest nesting of a pattern.
const NEST_MAX: u32 = 64;

/// No state.
const DEAD: u32 = u32::MAX;

/// A deterministic automaton without look-around.
#[derive(Debug)]
pub(super) struct Table {
    /// Column of every byte.
    class: Box<[u8; 256]>,
    n_classes: usize,
    /// Next state or [`DEAD`]. Shape `[states, classes]`; state 0 is the start.
    next: Vec<u32>,
    /// Whether a match ends on entering the state.
    accepts: Vec<bool>,
    /// Whether a longer match may follow.
    continues: Vec<bool>,
}

/// One beginning on its way to a match.
#[derive(Debug, Clone, Copy)]
pub(super) struct Thread {
    state: u32,
    /// Byte offset where it began.
    pub(super) start: usize,
}

impl Table {
    /// Compiles `regex` into at most `states_max` states.
    pub(super) fn new(
        regex: &str,
        case_sensitive: bool,
        states_max: usize,
    ) -> Result<Self, String> {
        let hir = ParserBuilder::new()
            .case_insensitive(!case_sensitive)
            .nest_limit(NEST_MAX)
            .build()
            .parse(regex)
            .map_err(|e| format!("is not a regular expression: {e}"))?;
        let properties = hir.properties();
        if !properties.look_set().is_empty() {
            return Err("has an anchor or a word boundary; ask for whole words instead".into());
        }
        match properties.minimum_len() {
            None => return Err("cannot match any text; leave it out".into()),
            Some(0) => return Err("matches the empty string; make it match something".into()),
            Some(_) => {}
        }
        let too_large = || "needs too large an automaton; use fewer or smaller repetitions";
        let nfa = thompson::Compiler::new()
            .configure(thompson::Config::new().nfa_size_limit(Some(BUILD_BYTES_MAX)))
            .build_from_hir(&hir)
            .map_err(|_| too_large())?;
        let config = dense::Config::new()
            .start_kind(StartKind::Anchored)
            .match_kind(MatchKind::All)
            .accelerate(false)
            .dfa_size_limit(Some(BUILD_BYTES_MAX))
            .determinize_size_limit(Some(BUILD_BYTES_MAX));
        let dfa = dense::Builder::new()
            .configure(config)
            .build_from_nfa(&nfa)
            .map_err(|_| too_large())?;
        Self::from_dfa(&dfa, states_max).ok_or_else(|| too_large().into())
    }

    /// Copies what can be reached from the start; nothing if that is more than `states_max`.
    fn from_dfa(dfa: &dense::DFA<Vec<u32>>, states_max: usize) -> Option<Self> {
        let classes = dfa.byte_classes();
        let class = Box::new(std::array::from_fn(|b| classes.get(b as u8)));
        let bytes: Vec<u8> = classes.representatives(0..=255).filter_map(|u| u.as_u8()).collect();
        let n_classes = bytes.len();
        let start = dfa.start_state(&start::Config::new().anchored(Anchored::Yes)).ok()?;
        let mut ids: HashMap<StateID, u32> = HashMap::from([(start, 0)]);
        let mut order = vec![start];
        let (mut next, mut accepts) = (Vec::new(), Vec::new());
        let mut done = 0;
        while let Some(&state) = order.get(done) {
            done += 1;
            // The library reports a match one byte late; asking at the end of text is on time.
            accepts.push(dfa.is_match_state(dfa.next_eoi_state(state)));
            for &byte in &bytes {
                let to = dfa.next_state(state, byte);
                if dfa.is_dead_state(to) || dfa.is_quit_state(to) {
                    next.push(DEAD);
                    continue;
                }
                let id = *ids.entry(to).or_insert_with(|| {
                    order.push(to);
                    order.len() as u32 - 1
                });
                next.push(id);
            }
            if order.len() > states_max {
                return None;
            }
        }
        let continues = vec![false; accepts.len()];
        let mut table = Self { class, n_classes, next, accepts, continues };
        table.prune();
        Some(table)
    }

    /// Finds the states from which a match can be reached, and cuts the ways to all others.
    fn prune(&mut self) {
        let mut before = vec![Vec::new(); self.accepts.len()];
        for (state, row) in self.next.chunks_exact(self.n_classes).enumerate() {
            for &to in row {
                let Some(list) = before.get_mut(to as usize) else { continue };
                if list.last() != Some(&state) {
                    list.push(state);
                }
            }
        }
        let mut work: Vec<usize> = (0..self.accepts.len()).filter(|s| self.accepts[*s]).collect();
        while let Some(state) = work.pop() {
            for &from in &before[state] {
                if !self.continues[from] {
                    self.continues[from] = true;
                    work.push(from);
                }
            }
        }
        for to in &mut self.next {
            let useful = |s: usize| self.accepts[s] || self.continues[s];
            if *to != DEAD && !useful(*to as usize) {
                *to = DEAD;
            }
        }
    }

    /// Number of states.
    pub(super) fn n_states(&self) -> usize {
        self.accepts.len()
    }

    /// Reads one character, which may also `begin` a match at that offset. Returns where the
    /// first match that ends with it began.
    pub(super) fn step(
        &self,
        threads: &mut Vec<Thread>,
        begin: Option<usize>,
        c: char,
    ) -> Option<usize> {
        threads.extend(begin.map(|start| Thread { state: 0, start }));
        let mut buffer = [0; 4];
        for byte in c.encode_utf8(&mut buffer).bytes() {
            for thread in threads.iter_mut() {
                thread.state = self.next_state(thread.state, byte);
            }
            threads.retain(|t| t.state != DEAD);
        }
        let accepted = threads.iter().filter(|t| self.accepts[t.state as usize]);
        let found = accepted.map(|t| t.start).min();
        threads.retain(|t| self.continues[t.state as usize]);
        threads.sort_unstable_by_key(|t| (t.state, t.start));
        threads.dedup_by_key(|t| t.state);
        found
    }

    fn next_state(&self, state: u32, byte: u8) -> u32 {
        self.next[state as usize * self.n_classes + usize::from(self.class[usize::from(byte)])]
    }
}
