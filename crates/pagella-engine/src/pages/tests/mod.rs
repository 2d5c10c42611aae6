//! Tests of the page table, by topic, and the few things they share.

mod claim;
mod defrag;
mod evict;
mod key;
mod quirk;
mod report;
mod script;
mod world;
mod write;

use pagella_backend::PAGE_TOKENS;

use super::{Namespace, PageIdx, PageKey, PageTable, Parent, SequenceNeed};

const ROOT: Parent = Parent::Root(Namespace::EMPTY);

/// `n` ids; different stories have different ids everywhere.
fn story(number: u32, n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| number * 100_000 + i).collect()
}

/// `n` whole pages of one story.
fn pages_of(number: u32, n: usize) -> Vec<u32> {
    story(number, n * PAGE_TOKENS)
}

/// Starts one sequence over the whole pages of `prompt`.
fn open(table: &mut PageTable, prompt: &[u32], unique: usize) -> Option<Vec<PageIdx>> {
    let keys = PageKey::chain(Namespace::EMPTY, prompt);
    let need = SequenceNeed { namespace: Namespace::EMPTY, keys: &keys, unique };
    let list = table.open(&[need])?.remove(0);
    table.check().unwrap();
    Some(list)
}

/// Writes `ids` into the pages of a list, as far as they are not there yet.
fn prefill(table: &mut PageTable, list: &[PageIdx], ids: &[u32]) {
    for (&page, ids) in list.iter().zip(ids.chunks(PAGE_TOKENS)) {
        let fill = table.fill(page);
        table.write(page, &ids[fill..]);
    }
    table.check().unwrap();
}

fn release(table: &mut PageTable, list: &[PageIdx]) {
    for &page in list {
        table.release(page);
        table.check().unwrap();
    }
}

/// A prompt that was computed and is now only cached; the pages it lies in.
fn cache(table: &mut PageTable, prompt: &[u32]) -> Vec<PageIdx> {
    let list = open(table, prompt, 0).expect("there are pages");
    prefill(table, &list, prompt);
    release(table, &list);
    list
}
