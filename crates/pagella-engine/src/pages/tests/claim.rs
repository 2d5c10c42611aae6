//! Opening sequences: sharing, promises, the price of a job, reservations that revert.

use super::*;

#[test]
fn an_untouched_cache_is_consumed_from_page_zero_upward() {
    let mut table = PageTable::new(6);
    assert_eq!(table.access_serial(), 6);
    assert_eq!(open(&mut table, &pages_of(1, 2), 2).unwrap(), [0, 1, 2, 3]);
    assert_eq!(table.access_serial(), 10);
    assert_eq!(table.grow(ROOT), Some(4));
    assert_eq!(table.grow(ROOT), Some(5));
    assert_eq!(table.grow(ROOT), None);
    assert_eq!(table.access_serial(), 12);
}

#[test]
fn parents_are_known_when_a_page_is_claimed() {
    let mut table = PageTable::new(8);
    let ids = pages_of(1, 2);
    let keys = PageKey::chain(Namespace::EMPTY, &ids);
    let list = open(&mut table, &ids, 3).unwrap();
    let parents: Vec<Parent> = list.iter().map(|&page| table.parent(page)).collect();
    let after = |i: usize| Parent::Page(keys[i]);
    assert_eq!(parents, [ROOT, after(0), after(1), Parent::Detached, Parent::Detached]);
    let short = open(&mut table, &ids[..5], 1).unwrap();
    assert_eq!(table.parent(short[0]), ROOT);
}

#[test]
fn a_promised_page_is_shared_before_it_is_filled_and_sealed_when_it_is() {
    let mut table = PageTable::new(8);
    let ids = pages_of(1, 2);
    let a = open(&mut table, &ids, 1).unwrap();
    let b = open(&mut table, &ids, 1).unwrap();
    assert_eq!(a[..2], b[..2]);
    assert_ne!(a[2], b[2]);
    assert!(table.is_promised(a[0]) && !table.is_sealed(a[0]));
    table.write(a[0], &ids[..100]);
    table.write(b[0], &ids[100..256]);
    assert!(table.is_sealed(a[0]) && !table.is_promised(a[0]));
    assert_eq!((table.fill(a[0]), table.ids(a[0])), (256, &ids[..256]));
    table.check().unwrap();
    table.check_references(&[&a, &b]).unwrap();
    assert!(table.check_references(&[&a]).is_err());
}

#[test]
fn a_promise_is_withdrawn_with_its_last_user_and_what_was_written_stays() {
    let mut table = PageTable::new(4);
    let ids = pages_of(1, 3);
    let list = open(&mut table, &ids, 0).unwrap();
    prefill(&mut table, &list[..1], &ids[..256]);
    table.write(list[1], &ids[256..300]);
    release(&mut table, &list);
    assert!(table.is_sealed(list[0]));
    assert_eq!((table.key(list[1]), table.fill(list[1])), (None, 44));
    assert_eq!(table.fill(list[2]), 0);
    let keys = PageKey::chain(Namespace::EMPTY, &ids);
    assert_eq!(table.find(keys[1]), None);

    let again = open(&mut table, &ids[..512], 0).unwrap();
    assert_ne!(again[1], list[1], "empty pages are taken first");
    assert_eq!(table.partial_match(again[1], &ids[256..512]), Some((list[1], 44)));
}

#[test]
fn one_key_in_two_sequences_of_a_job_is_one_page() {
    let mut table = PageTable::new(4);
    let ids = pages_of(1, 2);
    let keys = PageKey::chain(Namespace::EMPTY, &ids);
    let namespace = Namespace::EMPTY;
    let job = [
        SequenceNeed { namespace, keys: &keys, unique: 1 },
        SequenceNeed { namespace, keys: &keys[..1], unique: 1 },
    ];
    assert_eq!(table.need(&job), 4);
    let lists = table.open(&job).unwrap();
    assert_eq!(lists[0][0], lists[1][0]);
    assert_eq!((table.refs(lists[0][0]), table.n_unreferenced()), (2, 0));
    table.check_references(&[&lists[0], &lists[1]]).unwrap();
}

#[test]
fn pages_in_use_cost_nothing_and_cached_ones_leave_the_pool() {
    let mut table = PageTable::new(6);
    let ids = pages_of(1, 3);
    let keys = PageKey::chain(Namespace::EMPTY, &ids);
    let need = [SequenceNeed { namespace: Namespace::EMPTY, keys: &keys, unique: 1 }];
    cache(&mut table, &ids);
    assert_eq!(table.need(&need), 4);
    let list = open(&mut table, &ids[..512], 0).unwrap();
    assert_eq!(table.need(&need), 2);
    assert!(table.open(&need).is_some());
    assert_eq!(table.n_unreferenced(), 2);
    assert_eq!(table.refs(list[0]), 2);
}

#[test]
fn a_job_that_does_not_fit_changes_nothing() {
    let mut table = PageTable::new(4);
    cache(&mut table, &pages_of(1, 2));
    let before = table.describe();
    assert_eq!(open(&mut table, &pages_of(1, 2), 3), None);
    assert_eq!(table.describe(), before);
    assert_eq!(table.access_serial(), 6);
}

#[test]
fn a_reservation_that_was_never_written_becomes_what_it_was() {
    let mut table = PageTable::new(3);
    let ids = story(1, 600);
    let list = open(&mut table, &ids, 1).unwrap();
    prefill(&mut table, &list, &ids);
    release(&mut table, &list);
    let before = table.describe();
    let keys = PageKey::chain(Namespace::EMPTY, &ids);

    let reserved = open(&mut table, &[], 3).unwrap();
    assert!(reserved.iter().all(|&page| table.fill(page) == 0 && table.key(page).is_none()));
    assert!(keys.iter().all(|&key| table.find(key).is_none()), "hidden while reserved");
    table.truncate(reserved[0], 0);
    table.write(reserved[0], &[]);
    release(&mut table, &reserved);
    assert_eq!(table.describe(), before);
    assert_eq!(table.find(keys[1]), Some(list[1]));
}

#[test]
fn a_reservation_whose_slots_were_touched_does_not_revert() {
    let mut table = PageTable::new(2);
    cache(&mut table, &pages_of(1, 2));
    let reserved = open(&mut table, &[], 2).unwrap();
    // A step that failed, or draft ids that were rejected: nothing was appended.
    table.begin_write(reserved[0]);
    release(&mut table, &reserved);
    assert_eq!((table.counts().free, table.counts().cached), (1, 1));
    assert_eq!(table.fill(reserved[0]), 0);
}

#[test]
fn a_reservation_is_emptied_if_its_former_content_was_computed_again() {
    let mut table = PageTable::new(2);
    let ids = pages_of(1, 1);
    let first = cache(&mut table, &ids);
    let other = open(&mut table, &pages_of(2, 1), 1).unwrap();
    assert_eq!(other[1], first[0]);
    table.release(other[0]);
    let again = open(&mut table, &ids, 0).unwrap();
    prefill(&mut table, &again, &ids);
    release(&mut table, &[other[1], again[0]]);
    assert_eq!(table.fill(first[0]), 0);
    assert_eq!(table.find(PageKey::first(Namespace::EMPTY, &ids)), Some(again[0]));
}

#[test]
fn reset_forgets_everything_unless_a_page_is_in_use() {
    let mut table = PageTable::new(3);
    cache(&mut table, &pages_of(1, 1));
    let list = open(&mut table, &[], 1).unwrap();
    assert!(!table.reset());
    assert_eq!(table.counts().cached, 1);
    release(&mut table, &list);
    assert!(table.reset());
    assert_eq!(table.describe(), PageTable::new(3).describe());
    assert_eq!(table.access_serial(), 3);
    table.check().unwrap();
}
