//! `SuffixAutomaton`: every suffix of many texts, within a bound on memory.

use std::mem::replace;

use super::{MATCH_IDS_MAX, TABLE_SLOTS_MIN, push_tight, slot_of};

/// The most that [`SuffixAutomaton`] takes for each id of its bound, in bytes: 2 states and 3 edges
/// of 16 and the id with a quarter of slack, and 8 slots of 4. Prose takes some 90.
#[cfg(test)]
pub(super) const AUTOMATON_ID_BYTES: usize = 137;

/// Stands between texts. No vocabulary reaches it, and no edge carries it, so it matches nothing.
pub(super) const SEPARATOR: u32 = u32::MAX;
/// The state of the empty suffix.
const ROOT: u32 = 0;

/// Every suffix of the texts pushed so far, but for older ones beyond a bound on memory.
///
/// Two generations share the bound: when the new one is full it becomes the old one, and what was
/// old is dropped. A text cut by that has its last [`MATCH_IDS_MAX`] ids in both, so that matches
/// after the cut are as long as without it; proposals end at the cut.
#[derive(Debug)]
pub(crate) struct SuffixAutomaton {
    /// The newer one first: it wins when both know equally long matches.
    generations: [Generation; 2],
    generation_ids_max: usize,
    /// The number of pushes so far.
    version: u64,
}

/// Where a reader stands in one [`SuffixAutomaton`].
///
/// Any push makes it stale, since that may drop states or bring a longer match; it then restarts
/// from the reader's last [`MATCH_IDS_MAX`] ids. It cannot know that a reader took ids back and
/// went on differently: use a copy made before then, or the default, which has read nothing.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Cursor {
    at: [Match; 2],
    n_read: usize,
    version: u64,
}

impl SuffixAutomaton {
    /// Remembers up to `max_ids` ids and separators, or 4 * [`MATCH_IDS_MAX`] if that is more.
    pub(crate) fn new(max_ids: usize) -> Self {
        // Edges, at most three for each id of a generation, are numbered in 32 bits.
        let generation_ids_max = max_ids.clamp(4 * MATCH_IDS_MAX, u32::MAX as usize / 2) / 2;
        let generations = [Generation::new(), Generation::new()];
        Self { generations, generation_ids_max, version: 0 }
    }

    /// Appends an id to the text in progress: amortised a constant number of edges, and at most
    /// [`MATCH_IDS_MAX`] links that learn of a newer occurrence.
    pub(crate) fn push(&mut self, id: u32) {
        if id == SEPARATOR {
            return self.end_text();
        }
        let [new, old] = &mut self.generations;
        // Room for this id and the separator after it.
        if new.ids.len() + 2 > self.generation_ids_max {
            *old = replace(new, Generation::new());
            let carried_over = old.ids.len() - old.end.len as usize..;
            old.ids[carried_over].iter().for_each(|&id| new.push(id));
        }
        new.push(id);
        self.version += 1;
    }

    /// The next id begins another text.
    pub(crate) fn end_text(&mut self) {
        let new = &mut self.generations[0];
        if new.last != ROOT {
            push_tight(&mut new.ids, SEPARATOR);
            (new.last, new.end) = (ROOT, Match::default());
        }
    }

    /// Reads on to the end of `ids`, all ids of the reader from the first on, in amortised constant
    /// time for each, and puts up to `max` ids that followed the longest match into `out`, in place
    /// of what it holds. Returns the length of the match, 0 if there is none.
    pub(crate) fn propose(
        &self,
        cursor: &mut Cursor,
        ids: &[u32],
        max: usize,
        out: &mut Vec<u32>,
    ) -> usize {
        out.clear();
        let start = ids.len().saturating_sub(MATCH_IDS_MAX);
        // Not to be expected, unless the cursor is another automaton's.
        let is_foreign =
            |age: usize| cursor.at[age].state >= self.generations[age].states.len() as u32;
        let is_stale = cursor.version != self.version || is_foreign(0) || is_foreign(1);
        if is_stale || !(start..=ids.len()).contains(&cursor.n_read) {
            *cursor = Cursor { n_read: start, version: self.version, ..Cursor::default() };
        }
        let mut best = (&self.generations[0], Match::default());
        for (generation, at) in self.generations.iter().zip(&mut cursor.at) {
            *at = ids[cursor.n_read..].iter().fold(*at, |at, &id| generation.advance(at, id));
            let found = generation.followed(*at);
            best = if found.len > best.1.len { (generation, found) } else { best };
        }
        cursor.n_read = ids.len();
        let (source, Match { state, len }) = best;
        if len > 0 {
            let text = &source.ids[source.states[state as usize].newest as usize..];
            out.extend(text.iter().take_while(|&&id| id != SEPARATOR).take(max));
        }
        len as usize
    }

    /// Ids and separators that are remembered.
    #[cfg(test)]
    pub(super) fn n_ids(&self) -> usize {
        self.generations.iter().map(|one| one.ids.len()).sum()
    }

    /// The memory taken: at most [`AUTOMATON_ID_BYTES`] for each id of the bound, and 4 KiB.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let of = |generation: &Generation| {
            (generation.ids.capacity() + generation.slots.capacity()) * size_of::<u32>()
                + generation.states.capacity() * size_of::<State>()
                + generation.edges.capacity() * size_of::<Edge>()
        };
        self.generations.iter().map(of).sum()
    }
}

/// A suffix of what was read, of at most [`MATCH_IDS_MAX`] ids, and the one state that has it.
#[derive(Clone, Copy, Default, Debug)]
struct Match {
    state: u32,
    len: u32,
}

/// Strings that end at the same places: the longest, and its suffixes longer than the link's.
#[derive(Clone, Copy, Default, Debug)]
struct State {
    len: u32,
    link: u32,
    /// The index of the id after the newest occurrence that has one, 0 if none has. Exact for every
    /// state with a string of at most `MATCH_IDS_MAX` ids; others are never asked.
    newest: u32,
    /// The first of a list.
    edges: u32,
}

#[derive(Clone, Copy, Default, Debug)]
struct Edge {
    state: u32,
    id: u32,
    target: u32,
    next: u32,
}

/// The suffix automaton of several texts, after Blumer and others (1985).
#[derive(Debug)]
struct Generation {
    /// The texts, each with a separator after it.
    ids: Vec<u32>,
    states: Vec<State>,
    /// Index 0 is not an edge: it ends every list, and leads to the root, where no edge leads.
    edges: Vec<Edge>,
    /// An open hash table of `edges` by state and id, up to three quarters full; 0 is a free slot.
    slots: Vec<u32>,
    /// The state of the whole text in progress.
    last: u32,
    /// The longest suffix of the text in progress that matters.
    end: Match,
}

impl Generation {
    fn new() -> Self {
        let (states, edges) = (vec![State::default()], vec![Edge::default()]);
        let (ids, slots) = (Vec::new(), vec![0; TABLE_SLOTS_MIN]);
        Self { ids, states, edges, slots, last: ROOT, end: Match::default() }
    }

    fn push(&mut self, id: u32) {
        // Whatever ends here is followed now. Links get shorter, so there are few.
        let mut state = self.end.state;
        while state != ROOT {
            self.states[state as usize].newest = self.ids.len() as u32;
            state = self.states[state as usize].link;
        }
        push_tight(&mut self.ids, id);
        self.last = self.extend(self.last, id);
        self.end = self.advance(self.end, id);
    }

    /// The state of `last` followed by `id`, which becomes a suffix of the texts.
    fn extend(&mut self, last: u32, id: u32) -> u32 {
        if self.target(last, id) != ROOT {
            return self.split(last, id);
        }
        let len = self.states[last as usize].len + 1;
        let added = self.states.len() as u32;
        push_tight(&mut self.states, State { len, ..State::default() });
        let mut state = last;
        while self.target(state, id) == ROOT {
            self.add_edge(state, id, added);
            if state == ROOT {
                return added;
            }
            state = self.states[state as usize].link;
        }
        self.states[added as usize].link = self.split(state, id);
        added
    }

    /// The state whose longest string is that of `state` followed by `id`: where the edge leads, or
    /// split off from there if that has a longer one.
    fn split(&mut self, mut state: u32, id: u32) -> u32 {
        let (known, len) = (self.target(state, id), self.states[state as usize].len + 1);
        let whole = self.states[known as usize];
        if whole.len == len {
            return known;
        }
        let added = self.states.len() as u32;
        push_tight(&mut self.states, State { len, edges: 0, ..whole });
        self.states[known as usize].link = added;
        let mut edge = self.edges[whole.edges as usize];
        while edge.target != ROOT {
            self.add_edge(added, edge.id, edge.target);
            edge = self.edges[edge.next as usize];
        }
        while self.target(state, id) == known {
            let edge = self.slots[self.slot(state, id)];
            self.edges[edge as usize].target = added;
            state = self.states[state as usize].link;
        }
        added
    }

    /// The longest suffix of `at` followed by `id` that occurs.
    fn advance(&self, mut at: Match, id: u32) -> Match {
        loop {
            let state = self.target(at.state, id);
            if state != ROOT {
                let len = (at.len + 1).min(MATCH_IDS_MAX as u32);
                return self.settle(Match { state, len });
            }
            if at.state == ROOT {
                return at;
            }
            at = self.shorter(at);
        }
    }

    /// The longest suffix of `at` that occurs with an id after it.
    fn followed(&self, mut at: Match) -> Match {
        while at.state != ROOT && self.states[at.state as usize].newest == 0 {
            at = self.shorter(at);
        }
        at
    }

    /// The same suffix at the state that has it.
    fn settle(&self, mut at: Match) -> Match {
        while at.state != ROOT && self.shorter(at).len >= at.len {
            at.state = self.states[at.state as usize].link;
        }
        at
    }

    fn shorter(&self, at: Match) -> Match {
        let state = self.states[at.state as usize].link;
        Match { state, len: self.states[state as usize].len }
    }

    /// Where the edge leads; to the root if there is none.
    fn target(&self, state: u32, id: u32) -> u32 {
        self.edges[self.slots[self.slot(state, id)] as usize].target
    }

    /// There must be no edge with this id yet.
    fn add_edge(&mut self, state: u32, id: u32, target: u32) {
        let added = self.edges.len();
        let next = replace(&mut self.states[state as usize].edges, added as u32);
        push_tight(&mut self.edges, Edge { state, id, target, next });
        let mut missing = added..added + 1;
        if self.edges.len() * 4 > self.slots.len() * 3 {
            self.slots = vec![0; self.slots.len() * 2];
            missing = 1..added + 1;
        }
        for index in missing {
            let slot = self.slot(self.edges[index].state, self.edges[index].id);
            self.slots[slot] = index as u32;
        }
    }

    /// The slot of the edge, or the free one where it belongs.
    fn slot(&self, state: u32, id: u32) -> usize {
        let mut slot = slot_of(&[state, id], self.slots.len());
        loop {
            let edge = &self.edges[self.slots[slot] as usize];
            if self.slots[slot] == 0 || (edge.state, edge.id) == (state, id) {
                return slot;
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }
}
