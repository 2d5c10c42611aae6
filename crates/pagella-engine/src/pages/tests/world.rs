//! A cache whose "keys and values" are checksums of everything before them, and sequences that use it
//! through the table. Any wrong sharing, copy, move or rollback shows up as a wrong checksum.

use std::collections::HashMap;

use super::*;
use crate::pages::{Moves, PageInfo, Writable};

/// What a slot holds: a checksum of all ids up to it.
type Checksum = u64;

const GARBAGE: Checksum = u64::MAX;

fn next(state: Checksum, id: u32) -> Checksum {
    (state * 1_000_003 + u64::from(id) * 7919 + 12_345) % 2_147_483_647
}

/// One sequence. Its ids beyond `n_fed` are known but not in the cache.
pub(super) struct Sequence {
    pub namespace: Namespace,
    pub ids: Vec<u32>,
    pub n_prompt: usize,
    pub n_fed: usize,
    pub list: Vec<PageIdx>,
    /// Leading pages whose keys are known: prompt pages, and those sealed since.
    pub keys: Vec<PageKey>,
}

impl Sequence {
    /// Prompt pages in the list.
    fn n_context(&self) -> usize {
        (self.n_prompt - 1) / PAGE_TOKENS
    }
}

pub(super) struct World {
    pub table: PageTable,
    pub sequences: Vec<Sequence>,
    slots: Vec<Vec<Checksum>>,
    /// The checksum at the end of every page that ever had a key.
    states: HashMap<Parent, Checksum>,
    /// Contents that were sealed once, for restoring.
    pub library: Vec<(Parent, Vec<u32>)>,
}

impl World {
    pub fn new(n_pages: usize) -> Self {
        Self {
            table: PageTable::new(n_pages),
            sequences: Vec::new(),
            slots: vec![vec![GARBAGE; PAGE_TOKENS]; n_pages],
            states: HashMap::new(),
            library: Vec::new(),
        }
    }

    /// Starts a sequence if it fits, and says whether.
    pub fn open(&mut self, namespace: Namespace, ids: Vec<u32>, unique: usize) -> bool {
        let n_prompt = ids.len();
        let keys = PageKey::chain(namespace, &ids[..n_prompt - 1]);
        let need = [SequenceNeed { namespace, keys: &keys, unique }];
        let n_needed = self.table.need(&need);
        let n_before = self.table.n_unreferenced();
        let before: Vec<PageInfo> = self.table.describe();
        let Some(mut lists) = self.table.open(&need) else {
            assert!(n_needed > n_before);
            assert_eq!(self.table.describe(), before);
            return false;
        };
        assert_eq!(self.table.n_unreferenced() + n_needed, n_before);
        let mut state = self.state(Parent::Root(namespace));
        for (key, page) in keys.iter().zip(ids.chunks(PAGE_TOKENS)) {
            state = page.iter().fold(state, |state, &id| next(state, id));
            self.states.insert(Parent::Page(*key), state);
        }
        let list = lists.remove(0);
        self.sequences.push(Sequence { namespace, ids, n_prompt, n_fed: 0, list, keys });
        true
    }

    /// Feeds up to `n` known ids; `copies` allows partial matches. Stops when no page is left.
    pub fn feed(&mut self, who: usize, n: usize, copies: bool) {
        let end = (self.sequences[who].n_fed + n).min(self.sequences[who].ids.len());
        while self.sequences[who].n_fed < end {
            let Some(page) = self.page_to_write(who) else { return };
            let (position, fill) = (self.sequences[who].n_fed, self.table.fill(page));
            let slot = position % PAGE_TOKENS;
            if fill > slot {
                self.sequences[who].n_fed = end.min(position + fill - slot);
                continue;
            }
            let n = (end - position).min(PAGE_TOKENS - slot);
            let ids = self.sequences[who].ids[position..position + n].to_vec();
            let n = match self.table.partial_match(page, &ids) {
                Some((from, n_equal)) if copies && slot == 0 => {
                    self.copy(from, page, n_equal);
                    n_equal
                }
                _ => {
                    self.compute(who, page, &ids);
                    n
                }
            };
            self.table.write(page, &ids[..n]);
            self.sequences[who].n_fed += n;
        }
    }

    /// A step over the next `n` slots that fails, or draft ids that are all rejected.
    pub fn fail(&mut self, who: usize, n: usize) {
        let Some(page) = self.page_to_write(who) else { return };
        let slot = self.sequences[who].n_fed % PAGE_TOKENS;
        if self.table.fill(page) > slot {
            return;
        }
        self.table.begin_write(page);
        self.slots[page as usize][slot..].iter_mut().take(n).for_each(|slot| *slot = GARBAGE);
    }

    /// Seals what is full. Between feeding and this, ids can still be taken back.
    pub fn settle(&mut self, who: usize) {
        let sequence = &mut self.sequences[who];
        for i in sequence.keys.len()..sequence.n_fed / PAGE_TOKENS {
            let following = sequence.list.get(i + 1).copied();
            let sealed = self.table.seal(sequence.list[i], following);
            sequence.list[i] = sealed.page;
            sequence.keys.push(sealed.key);
        }
        self.learn();
    }

    /// Takes back up to `n` generated ids; says whether there were pages enough to do so.
    pub fn rewind(&mut self, who: usize, n: usize) -> bool {
        let sequence = &mut self.sequences[who];
        let n_ids = sequence.ids.len().saturating_sub(n).max(sequence.n_prompt);
        sequence.ids.truncate(n_ids);
        sequence.n_fed = sequence.n_fed.min(n_ids);
        let (n_fed, n_context) = (sequence.n_fed, sequence.n_context());
        let last = n_fed / PAGE_TOKENS;
        for i in n_context.max(last)..self.sequences[who].list.len() {
            let page = self.sequences[who].list[i];
            let keep = n_fed.saturating_sub(i * PAGE_TOKENS).min(self.table.fill(page));
            if self.make_writable(who, i, keep).is_none() {
                return false;
            }
            if i > last.max(n_context) {
                self.table.detach(self.sequences[who].list[i]);
            }
        }
        let sequence = &mut self.sequences[who];
        sequence.keys.truncate(last.max(n_context));
        true
    }

    /// A second sequence with the same ids and pages.
    pub fn fork(&mut self, who: usize) {
        let Sequence { namespace, n_prompt, n_fed, .. } = self.sequences[who];
        let (ids, keys) = (self.sequences[who].ids.clone(), self.sequences[who].keys.clone());
        let holds = |&&page: &&PageIdx| self.table.key(page).is_some() || self.table.fill(page) > 0;
        let list: Vec<PageIdx> =
            self.sequences[who].list.iter().take_while(holds).copied().collect();
        list.iter().for_each(|&page| self.table.share(page));
        self.sequences.push(Sequence { namespace, ids, n_prompt, n_fed, list, keys });
    }

    pub fn close(&mut self, who: usize) {
        for page in self.sequences.swap_remove(who).list {
            self.table.release(page);
        }
        self.learn();
    }

    pub fn restore(&mut self, parent: Parent, ids: &[u32]) {
        if let Some(page) = self.table.restore(parent, ids) {
            let mut state = self.state(parent);
            for (slot, &id) in self.slots[page as usize].iter_mut().zip(ids) {
                state = next(state, id);
                *slot = state;
            }
        }
    }

    pub fn defragment(&mut self, moves: &Moves) {
        let old = self.slots.clone();
        for cycle in &moves.cycles {
            let spare = self.slots[cycle[0] as usize].clone();
            for pair in cycle.windows(2) {
                self.slots[pair[0] as usize] = self.slots[pair[1] as usize].clone();
            }
            self.slots[*cycle.last().unwrap() as usize] = spare;
        }
        for (old, &new) in old.iter().zip(&moves.new_index) {
            assert_eq!(old, &self.slots[new as usize]);
        }
        self.table.apply_moves(moves);
        for page in self.sequences.iter_mut().flat_map(|sequence| &mut sequence.list) {
            *page = moves.new_index[*page as usize];
        }
    }

    /// Everything that must be true between two operations.
    pub fn verify(&mut self) {
        self.table.check().unwrap();
        let lists: Vec<&[PageIdx]> = self.sequences.iter().map(|s| &s.list[..]).collect();
        self.table.check_references(&lists).unwrap();
        self.learn();
        for page in 0..self.table.n_pages() as PageIdx {
            if self.table.parent(page) != Parent::Detached {
                let state = self.state(self.table.parent(page));
                self.verify_slots(page, state, self.table.ids(page));
            }
        }
        for sequence in &self.sequences {
            let mut state = self.state(Parent::Root(sequence.namespace));
            let fed = &sequence.ids[..sequence.n_fed];
            for (&page, ids) in sequence.list.iter().zip(fed.chunks(PAGE_TOKENS)) {
                assert!(self.table.ids(page).starts_with(ids), "page {page}");
                state = self.verify_slots(page, state, ids);
            }
        }
    }

    fn verify_slots(&self, page: PageIdx, mut state: Checksum, ids: &[u32]) -> Checksum {
        for (slot, &id) in ids.iter().enumerate() {
            state = next(state, id);
            assert_eq!(self.slots[page as usize][slot], state, "page {page}, slot {slot}");
        }
        state
    }

    /// The page for the next id of a sequence, which may be written unless it is ahead already.
    fn page_to_write(&mut self, who: usize) -> Option<PageIdx> {
        let Sequence { n_fed, list, keys, namespace, .. } = &self.sequences[who];
        let (i, slot) = (n_fed / PAGE_TOKENS, n_fed % PAGE_TOKENS);
        if i == list.len() {
            let parent = match i.checked_sub(1) {
                None => Parent::Root(*namespace),
                Some(before) => keys.get(before).map_or(Parent::Detached, |&key| Parent::Page(key)),
            };
            let page = self.table.grow(parent)?;
            self.sequences[who].list.push(page);
        }
        let page = self.sequences[who].list[i];
        if self.table.fill(page) > slot { Some(page) } else { self.make_writable(who, i, slot) }
    }

    fn make_writable(&mut self, who: usize, i: usize, keep: usize) -> Option<PageIdx> {
        let page = self.sequences[who].list[i];
        if let Writable::Copy { to } = self.table.make_writable(page, keep)? {
            self.slots[to as usize] = self.slots[page as usize].clone();
            self.slots[to as usize][keep..].fill(GARBAGE);
            self.sequences[who].list[i] = to;
        }
        Some(self.sequences[who].list[i])
    }

    /// The forward pass: reads the state through the page list, writes the slots.
    fn compute(&mut self, who: usize, page: PageIdx, ids: &[u32]) {
        self.table.begin_write(page);
        let Sequence { namespace, list, n_fed, .. } = &self.sequences[who];
        let mut state = match n_fed.checked_sub(1) {
            None => self.state(Parent::Root(*namespace)),
            Some(last) => self.slots[list[last / PAGE_TOKENS] as usize][last % PAGE_TOKENS],
        };
        for (slot, &id) in (n_fed % PAGE_TOKENS..).zip(ids) {
            state = next(state, id);
            self.slots[page as usize][slot] = state;
        }
    }

    fn copy(&mut self, from: PageIdx, to: PageIdx, n: usize) {
        self.table.begin_write(to);
        let kept = self.slots[from as usize][..n].to_vec();
        self.slots[to as usize][..n].copy_from_slice(&kept);
    }

    /// Remembers the state after every sealed page, before it can be evicted.
    fn learn(&mut self) {
        let mut n_before = usize::MAX;
        // Again as long as something is new: a page may have a lower index than the one before it.
        while n_before != self.states.len() {
            n_before = self.states.len();
            for page in 0..self.table.n_pages() as PageIdx {
                let (parent, key) = (self.table.parent(page), self.table.key(page));
                let Some(name) = key.map(Parent::Page) else { continue };
                let is_known =
                    matches!(parent, Parent::Root(_)) || self.states.contains_key(&parent);
                if self.table.is_sealed(page) && is_known && !self.states.contains_key(&name) {
                    let ids = self.table.ids(page).to_vec();
                    let state = ids.iter().fold(self.state(parent), |state, &id| next(state, id));
                    self.states.insert(name, state);
                    self.library.push((parent, ids));
                }
            }
        }
    }

    fn state(&self, parent: Parent) -> Checksum {
        match parent {
            Parent::Root(namespace) => 1 + u64::from(namespace != Namespace::EMPTY),
            known => *self.states.get(&known).expect("every key was learnt when it was made"),
        }
    }
}
