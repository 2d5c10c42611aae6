//! Wrong behaviour seen elsewhere, by the number of its description, and why it cannot happen here.

use super::world::World;
use super::*;
use crate::pages::Writable;

#[test]
fn pages_of_different_namespaces_never_match() {
    let mut table = PageTable::new(8);
    let ids = story(1, 300);
    let adapted = Namespace::of(&[("adapter", b"x"), ("scale", &1.0f32.to_le_bytes())]);
    let list = open(&mut table, &ids, 1).unwrap();
    prefill(&mut table, &list, &ids);
    let keys = PageKey::chain(adapted, &ids);
    assert_ne!(keys, PageKey::chain(Namespace::EMPTY, &ids));
    let need = |namespace, keys, unique| SequenceNeed { namespace, keys, unique };
    let other = table.open(&[need(adapted, &keys, 1)]).unwrap().remove(0);
    assert!(other.iter().all(|page| !list.contains(page)));
    assert_eq!(table.partial_match(other[0], &ids), None);
    let short = table.open(&[need(adapted, &[], 1)]).unwrap().remove(0);
    assert_eq!(table.partial_match(short[0], &ids), None);
    assert_eq!(table.partial_match(other[1], &ids[256..]), None);
}

#[test]
fn a_page_whose_parent_is_not_known_is_emptied_on_release() {
    let mut table = PageTable::new(4);
    let list = open(&mut table, &[], 2).unwrap();
    table.write(list[1], &story(3, 40));
    release(&mut table, &list);
    assert_eq!((table.fill(list[1]), table.parent(list[1])), (0, Parent::Detached));
    let first = open(&mut table, &[], 1).unwrap();
    assert_eq!(table.partial_match(first[0], &story(3, 40)), None);
}

#[test]
fn a_duplicate_is_emptied_on_release_and_the_original_stays() {
    let mut table = PageTable::new(4);
    let ids = pages_of(1, 1);
    let theirs = open(&mut table, &ids, 0).unwrap();
    let ours = open(&mut table, &[], 1).unwrap();
    prefill(&mut table, &ours, &ids);
    release(&mut table, &ours);
    assert_eq!(table.fill(ours[0]), 0);
    assert_eq!(table.find(PageKey::first(Namespace::EMPTY, &ids)), Some(theirs[0]));
}

/// A prompt that starts with the continuation of an earlier job must not find that continuation as
/// a first page, whichever way the earlier job's page could have lost its parent.
fn starts_with_the_tail_of_another(world: &mut World, tail: &[u32]) {
    let who = world.sequences.len();
    assert!(world.open(Namespace::EMPTY, tail.to_vec(), 1));
    let own = world.sequences[who].list[0];
    assert_eq!(world.table.partial_match(own, tail), None);
    world.feed(who, tail.len(), true);
    world.verify();
}

#[test]
fn a_prompt_served_from_cache_alone_still_knows_its_first_decode_page() {
    let mut world = World::new(8);
    let prompt = story(1, 257);
    for _ in 0..2 {
        assert!(world.open(Namespace::EMPTY, prompt.clone(), 1));
        world.feed(0, 256, true);
        let decode = world.sequences[0].list[1];
        assert!(matches!(world.table.parent(decode), Parent::Page(_)));
        world.sequences[0].ids.extend(story(2, 31));
        world.feed(0, 31, true);
        world.verify();
        world.close(0);
    }
    let tail = [&prompt[256..], &story(2, 31)].concat();
    starts_with_the_tail_of_another(&mut world, &tail);
}

#[test]
fn draft_ids_that_spill_into_the_next_page_leave_nothing_behind() {
    let mut world = World::new(8);
    assert!(world.open(Namespace::EMPTY, story(1, 250), 2));
    world.feed(0, 250, true);
    // The page is not full, hence not sealed; the spilled ids go to a page of unknown parent.
    let spill = world.sequences[0].list[1];
    world.table.begin_write(spill);
    world.table.write(spill, &story(2, 20));
    assert_eq!(world.table.parent(spill), Parent::Detached);
    world.close(0);
    assert_eq!(world.table.fill(spill), 0);
    starts_with_the_tail_of_another(&mut world, &story(2, 20));
}

#[test]
fn a_border_crossed_while_ids_are_not_final_is_sealed_later() {
    let mut world = World::new(8);
    assert!(world.open(Namespace::EMPTY, story(1, 200), 1));
    world.sequences[0].ids.extend(story(2, 100));
    world.feed(0, 300, true);
    assert_eq!(world.table.parent(world.sequences[0].list[1]), Parent::Detached);
    world.verify();
    let tail = story(2, 100)[56..].to_vec();
    starts_with_the_tail_of_another(&mut world, &tail);
    world.settle(0);
    assert!(matches!(world.table.parent(world.sequences[0].list[1]), Parent::Page(_)));
    world.verify();

    // Everything is reused afterwards, as if the border had been crossed in peace.
    let ids = world.sequences[0].ids.clone();
    assert!(world.open(Namespace::EMPTY, ids.clone(), 1));
    let list = world.sequences[2].list.clone();
    assert_eq!(list[0], world.sequences[0].list[0]);
    assert_eq!(world.table.partial_match(list[1], &ids[256..]).map(|(_, n)| n), Some(44));
}

#[test]
fn a_page_that_collides_on_release_is_no_first_page() {
    let mut world = World::new(8);
    let ids = story(1, 513);
    // Two sequences compute the same pages without knowing of each other, and neither seals.
    for who in 0..2 {
        assert!(world.open(Namespace::EMPTY, ids[..1].to_vec(), 3));
        world.sequences[who].ids.extend(&ids[1..]);
        world.feed(who, 513, false);
    }
    world.settle(0);
    world.close(0);
    world.close(0);
    world.verify();
    assert_eq!(world.table.counts().cached, 3);
    starts_with_the_tail_of_another(&mut world, &ids[256..500]);
}

#[test]
fn a_claim_never_evicts_what_a_later_page_of_the_prompt_finds() {
    let mut table = PageTable::new(3);
    let ids = pages_of(1, 3);
    let keys = PageKey::chain(Namespace::EMPTY, &ids);
    // The last page of the prompt is cached and the next to be evicted; the first two are not there.
    let last = table.restore(Parent::Page(keys[1]), &ids[512..]).unwrap();
    table.restore(ROOT, &story(8, 256)).unwrap();
    table.restore(ROOT, &story(9, 256)).unwrap();
    assert_eq!(table.victim(), Some(last));
    let list = open(&mut table, &ids, 0).unwrap();
    assert_eq!(list[2], last);
    assert!(table.is_sealed(last));
}

#[test]
fn taking_back_ids_from_a_page_that_became_shared_leaves_the_other_user_alone() {
    let mut world = World::new(8);
    for who in 0..2 {
        assert!(world.open(Namespace::EMPTY, story(1, 10), 1));
        world.sequences[who].ids.extend(&story(1, 300)[10..]);
        world.feed(who, 300, false);
        world.settle(who);
    }
    let shared = world.sequences[0].list[0];
    assert_eq!(world.sequences[1].list[0], shared, "deduplicated when sealed");
    assert!(world.rewind(1, 200));
    world.verify();
    assert_ne!(world.sequences[1].list[0], shared);
    world.sequences[1].ids.extend(story(5, 300));
    world.feed(1, 300, true);
    world.settle(1);
    world.verify();
    assert_eq!(world.table.ids(shared), &story(1, 256));
}

#[test]
fn a_rewind_across_a_border_does_not_leave_a_page_under_its_old_parent() {
    let mut world = World::new(8);
    assert!(world.open(Namespace::EMPTY, story(1, 10), 2));
    world.sequences[0].ids.extend(story(2, 300));
    world.feed(0, 310, false);
    world.settle(0);
    assert!(world.rewind(0, 100));
    assert_eq!(world.table.parent(world.sequences[0].list[1]), Parent::Detached);
    world.sequences[0].ids.extend(story(3, 100));
    world.feed(0, 310, false);
    world.verify();
    let page = world.sequences[0].list[0];
    assert_eq!(world.table.make_writable(page, 256), Some(Writable::Own), "not sealed again yet");
}
