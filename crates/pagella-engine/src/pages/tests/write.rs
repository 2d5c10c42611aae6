//! Sealing, deduplication, copy on write, restoring.

use super::*;
use crate::pages::{Sealed, Writable};

/// A sequence of generated ids that fill `n` pages, not sealed yet.
fn generated(table: &mut PageTable, ids: &[u32]) -> Vec<PageIdx> {
    let n_pages = ids.len().div_ceil(PAGE_TOKENS);
    let list = open(table, &[], n_pages).unwrap();
    prefill(table, &list, ids);
    list
}

#[test]
fn sealing_makes_a_page_findable_and_gives_the_next_one_its_parent() {
    let mut table = PageTable::new(4);
    let ids = story(1, 300);
    let list = generated(&mut table, &ids);
    let key = PageKey::first(Namespace::EMPTY, &ids[..256]);
    assert_eq!((table.find(key), table.parent(list[1])), (None, Parent::Detached));
    let sealed = table.seal(list[0], Some(list[1]));
    assert_eq!(sealed, Sealed { key, page: list[0] });
    assert_eq!((table.find(key), table.parent(list[1])), (Some(list[0]), Parent::Page(key)));
    assert_eq!(table.seal(list[0], Some(list[1])), sealed);
    table.check().unwrap();
}

#[test]
fn sealing_a_page_that_exists_shares_it_and_gives_ours_back() {
    for in_use in [true, false] {
        let mut table = PageTable::new(4);
        let ids = pages_of(1, 1);
        let theirs = open(&mut table, &ids, 0).unwrap();
        prefill(&mut table, &theirs, &ids);
        if !in_use {
            release(&mut table, &theirs);
        }
        let ours = generated(&mut table, &ids);
        assert_ne!(ours, theirs);
        let sealed = table.seal(ours[0], None);
        assert_eq!(sealed.page, theirs[0]);
        assert_eq!(table.refs(theirs[0]), 1 + usize::from(in_use));
        assert_eq!((table.refs(ours[0]), table.fill(ours[0])), (0, 0));
        table.check().unwrap();
    }
}

#[test]
fn sealing_what_another_page_only_promises_keeps_ours_private_until_release() {
    let ids = story(1, 300);
    for they_fill_it in [true, false] {
        let mut table = PageTable::new(5);
        let theirs = open(&mut table, &ids, 0).unwrap();
        let ours = generated(&mut table, &ids);
        let sealed = table.seal(ours[0], Some(ours[1]));
        assert_eq!(sealed.page, ours[0]);
        assert_eq!(table.find(sealed.key), Some(theirs[0]));
        assert!(!table.is_sealed(ours[0]) && table.key(ours[0]).is_none());
        assert_eq!(table.parent(ours[1]), Parent::Page(sealed.key));
        table.check().unwrap();
        if they_fill_it {
            prefill(&mut table, &theirs, &ids);
        }
        release(&mut table, &theirs);
        release(&mut table, &ours);
        let holder = if they_fill_it { theirs[0] } else { ours[0] };
        assert_eq!(table.find(sealed.key), Some(holder));
        assert_eq!(table.counts().cached, 2, "one full page and the partial one after it");
    }
}

#[test]
fn a_full_page_that_nobody_sealed_is_sealed_on_release() {
    let mut table = PageTable::new(2);
    let ids = pages_of(1, 1);
    let list = generated(&mut table, &ids);
    assert!(!table.is_sealed(list[0]));
    release(&mut table, &list);
    assert_eq!(table.find(PageKey::first(Namespace::EMPTY, &ids)), Some(list[0]));
}

#[test]
fn the_longest_match_wins_then_the_lowest_index_and_never_the_page_itself() {
    let mut table = PageTable::new(5);
    let ids = story(1, 60);
    for n in [20, 40, 40] {
        let page = table.grow(ROOT).unwrap();
        table.write(page, &[&ids[..n], &story(2, 9)].concat());
    }
    let own = table.grow(ROOT).unwrap();
    assert_eq!(table.partial_match(own, &ids), Some((1, 40)));
    assert_eq!(table.partial_match(own, &ids[..30]), Some((1, 30)));
    assert_eq!(table.partial_match(own, &story(3, 9)), None);
    table.write(own, &ids);
    assert_eq!(table.partial_match(own, &ids), Some((1, 40)));
    table.detach(own);
    assert_eq!(table.partial_match(own, &ids), None);
}

#[test]
fn ids_are_taken_back_from_a_unique_page() {
    let mut table = PageTable::new(2);
    let list = generated(&mut table, &story(1, 50));
    table.truncate(list[0], 20);
    table.write(list[0], &[7, 8]);
    assert_eq!(table.ids(list[0])[19..], [story(1, 20)[19], 7, 8]);
    assert_eq!(table.make_writable(list[0], 5), Some(Writable::Own));
    assert_eq!(table.fill(list[0]), 5);
}

#[test]
fn a_sealed_page_is_copied_for_its_writer_and_stays_cached() {
    let mut table = PageTable::new(3);
    let ids = pages_of(1, 1);
    let list = generated(&mut table, &ids);
    let key = table.seal(list[0], None).key;
    let Some(Writable::Copy { to }) = table.make_writable(list[0], 100) else { panic!("no copy") };
    assert_eq!((table.ids(to), table.parent(to)), (&ids[..100], ROOT));
    assert_eq!((table.refs(to), table.refs(list[0])), (1, 0));
    assert_eq!(table.find(key), Some(list[0]));
    table.write(to, &[1, 2, 3]);
    table.check().unwrap();
    assert_eq!(table.ids(list[0]), ids);
}

#[test]
fn a_sealed_page_is_copied_even_if_all_of_it_is_kept() {
    let mut table = PageTable::new(2);
    let list = generated(&mut table, &pages_of(1, 1));
    table.seal(list[0], None);
    let Some(Writable::Copy { to }) = table.make_writable(list[0], 256) else { panic!("no copy") };
    table.truncate(to, 255);
    table.check().unwrap();
}

#[test]
fn a_shared_unique_page_is_copied_for_the_first_writer_only() {
    let mut table = PageTable::new(2);
    let ids = story(1, 40);
    let list = generated(&mut table, &ids);
    table.share(list[0]);
    let Some(Writable::Copy { to }) = table.make_writable(list[0], 40) else { panic!("no copy") };
    assert_eq!(table.make_writable(list[0], 40), Some(Writable::Own));
    assert_eq!((table.ids(to), table.ids(list[0])), (&ids[..], &ids[..]));
    table.check_references(&[&list, &[to]]).unwrap();
}

#[test]
fn without_a_free_page_a_copy_is_refused_or_not_needed() {
    let ids = pages_of(1, 1);
    let mut table = PageTable::new(1);
    let list = generated(&mut table, &ids);
    let key = table.seal(list[0], None).key;
    table.share(list[0]);
    let before = table.describe();
    assert_eq!(table.make_writable(list[0], 9), None);
    assert_eq!(table.describe(), before);
    table.release(list[0]);
    assert_eq!(table.make_writable(list[0], 9), Some(Writable::Own));
    assert_eq!((table.find(key), table.fill(list[0])), (None, 9));
    table.check().unwrap();
}

#[test]
fn a_promised_page_is_continued_in_place_but_never_taken_back() {
    let mut table = PageTable::new(3);
    let ids = pages_of(1, 1);
    let list = open(&mut table, &ids, 0).unwrap();
    table.write(list[0], &ids[..50]);
    assert_eq!(table.make_writable(list[0], 50), Some(Writable::Own));
    assert!(table.is_promised(list[0]));
    assert!(matches!(table.make_writable(list[0], 49), Some(Writable::Copy { .. })));
    table.check().unwrap();
}

#[test]
fn content_from_elsewhere_is_cached_once() {
    let mut table = PageTable::new(3);
    let ids = story(1, 600);
    let keys = PageKey::chain(Namespace::EMPTY, &ids);
    let a = table.restore(ROOT, &ids[..256]).unwrap();
    assert!(table.is_sealed(a) && table.refs(a) == 0);
    assert_eq!(table.find(keys[0]), Some(a));
    assert_eq!(table.restore(ROOT, &ids[..256]), None);
    assert_eq!(table.restore(ROOT, &ids[..100]), None, "a page starts with it");
    let b = table.restore(Parent::Page(keys[0]), &ids[256..512]).unwrap();
    let c = table.restore(Parent::Page(keys[1]), &ids[512..]).unwrap();
    assert_eq!((table.key(c), table.fill(c)), (None, 88));
    assert_eq!(table.restore(Parent::Detached, &ids[..9]), None);
    assert_eq!(table.restore(ROOT, &[]), None);
    table.check().unwrap();
    assert_eq!(open(&mut table, &ids, 0).unwrap(), [a, b]);
}

#[test]
fn content_that_a_page_already_promises_is_not_restored() {
    let mut table = PageTable::new(2);
    let ids = pages_of(1, 1);
    open(&mut table, &ids, 0).unwrap();
    assert_eq!(table.restore(ROOT, &ids), None);
    assert_eq!(table.restore(ROOT, &ids[..9]), Some(1), "but its start is not there yet");
}

#[test]
fn restoring_keeps_the_pages_before_young() {
    let mut table = PageTable::new(5);
    let ids = pages_of(1, 2);
    let a = cache(&mut table, &ids[..256])[0];
    let b = cache(&mut table, &pages_of(2, 1))[0];
    let key = table.key(a).unwrap();
    let c = table.restore(Parent::Page(key), &ids[256..]).unwrap();
    let stamps = [a, b, c].map(|page| table.describe()[page as usize].stamp);
    assert_eq!(stamps, [7, 7, 7]);
}

#[test]
fn restoring_never_gives_up_the_page_before() {
    let mut table = PageTable::new(1);
    let ids = pages_of(1, 2);
    let keys = PageKey::chain(Namespace::EMPTY, &ids);
    let a = table.restore(ROOT, &ids[..256]).unwrap();
    assert_eq!(table.restore(Parent::Page(keys[0]), &ids[256..]), None);
    assert_eq!(table.find(keys[0]), Some(a));
}
