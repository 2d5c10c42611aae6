//! The order in which pages are given up.

use super::*;

/// The pages in the order in which a growing sequence takes them.
fn victims(table: &PageTable) -> Vec<PageIdx> {
    let mut table = table.clone();
    std::iter::from_fn(|| table.grow(Parent::Detached)).collect()
}

#[test]
fn empty_then_partial_then_leaves_then_the_rest() {
    let mut table = PageTable::new(8);
    // Pages 0, 1, 2: a full chain. Page 3: a partial page after it. Page 4: another full page.
    let ids = story(1, 800);
    let list = open(&mut table, &ids, 1).unwrap();
    prefill(&mut table, &list, &ids);
    release(&mut table, &list);
    assert_eq!(list, [0, 1, 2, 3]);
    assert_eq!(cache(&mut table, &pages_of(2, 1)), [4]);
    assert_eq!(victims(&table), [5, 6, 7, 3, 2, 1, 0, 4]);
}

#[test]
fn empty_pages_go_by_index_and_others_by_age() {
    let mut table = PageTable::new(5);
    for number in 0..5 {
        assert_eq!(cache(&mut table, &pages_of(number, 1)), [number]);
    }
    cache(&mut table, &pages_of(1, 1));
    assert_eq!(victims(&table), [0, 2, 3, 4, 1]);
    // Promises that nobody kept leave empty pages, whatever their age.
    open(&mut table, &pages_of(9, 2), 0).unwrap();
    assert_eq!(open(&mut table, &pages_of(8, 1), 0).unwrap(), [3]);
    release(&mut table, &[3, 2, 0]);
    open(&mut table, &pages_of(9, 2), 0).unwrap();
    release(&mut table, &[2, 0]);
    assert_eq!(victims(&table), [0, 2, 3, 4, 1]);
}

#[test]
fn the_head_of_a_prefix_outlives_its_tail_and_is_as_young_as_its_youngest_branch() {
    let mut table = PageTable::new(6);
    let trunk = pages_of(1, 1);
    let branch = |number| [trunk.clone(), pages_of(number, 1)].concat();
    assert_eq!(cache(&mut table, &branch(2)), [0, 1]);
    assert_eq!(cache(&mut table, &pages_of(7, 2)), [2, 3]);
    assert_eq!(cache(&mut table, &branch(3)), [0, 4]);
    assert_eq!(victims(&table), [5, 1, 3, 2, 4, 0]);
    assert_eq!(table.describe()[0].stamp, table.access_serial());
}

#[test]
fn growing_a_sequence_keeps_its_head_young() {
    let mut table = PageTable::new(5);
    let list = open(&mut table, &pages_of(1, 1), 0).unwrap();
    prefill(&mut table, &list, &pages_of(1, 1));
    assert_eq!(cache(&mut table, &pages_of(2, 1)), [1]);
    let key = table.key(list[0]).unwrap();
    let next = table.grow(Parent::Page(key)).unwrap();
    table.write(next, &pages_of(3, 1));
    release(&mut table, &[list[0], next]);
    assert_eq!(victims(&table), [3, 4, 1, next, list[0]]);
}

#[test]
fn sealing_keeps_the_head_as_young_as_what_follows() {
    let mut table = PageTable::new(6);
    let ids = pages_of(1, 2);
    let stamp = |table: &PageTable, page: PageIdx| table.describe()[page as usize].stamp;
    let (a, b) = (table.grow(ROOT).unwrap(), table.grow(Parent::Detached).unwrap());
    table.write(a, &ids[..256]);
    table.seal(a, Some(b));
    assert_eq!(stamp(&table, a), stamp(&table, b));
    table.write(b, &ids[256..]);
    table.seal(b, None);

    // A second sequence seals the same second page, and shares it.
    let parent = table.parent(b);
    let twin = table.grow(parent).unwrap();
    table.write(twin, &ids[256..]);
    assert_eq!(table.seal(twin, None).page, b);
    assert_eq!(stamp(&table, a), stamp(&table, b));
    assert_eq!(stamp(&table, b), table.access_serial());
}

#[test]
fn a_page_named_only_by_a_page_in_use_is_given_up_last() {
    let mut table = PageTable::new(4);
    let ids = pages_of(1, 1);
    let key = PageKey::first(Namespace::EMPTY, &ids);
    assert_eq!(cache(&mut table, &ids), [0]);
    assert_eq!(cache(&mut table, &pages_of(2, 1)), [1]);
    let user = table.grow(Parent::Page(key)).unwrap();
    assert_eq!(victims(&table), [3, 1, 0]);
    table.release(user);
    assert_eq!(victims(&table), [2, 3, 1, 0], "its head was refreshed");
    table.check().unwrap();
}
