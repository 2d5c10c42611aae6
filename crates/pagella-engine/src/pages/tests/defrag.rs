//! Defragmentation permutes, brings sequences together, and knows when it is not worth it.

use super::*;
use crate::pages::Moves;

/// Two sequences that grew in turns: their pages alternate.
fn interleaved(n_pages: usize) -> (PageTable, [Vec<PageIdx>; 2]) {
    let mut table = PageTable::new(n_pages);
    let mut lists = [Vec::new(), Vec::new()];
    let mut parents = [ROOT, ROOT];
    for i in 0..n_pages {
        let who = i % 2;
        let page = table.grow(parents[who]).unwrap();
        table.write(page, &story(i as u32, PAGE_TOKENS));
        parents[who] = Parent::Page(table.seal(page, None).key);
        lists[who].push(page);
    }
    (table, lists)
}

fn apply(moves: &Moves, list: &[PageIdx]) -> Vec<PageIdx> {
    list.iter().map(|&page| moves.new_index[page as usize]).collect()
}

/// Moving pages changes no sequence.
#[test]
fn contents_are_permuted_and_sequences_lie_together() {
    let (mut table, [a, b]) = interleaved(20);
    release(&mut table, &b);
    let mut memory: Vec<Vec<u32>> = (0..20).map(|page| table.ids(page).to_vec()).collect();
    let by_key: Vec<_> = (0..20).map(|page| (table.key(page).unwrap(), page)).collect();
    let moves = table.plan_defragment().unwrap();
    for cycle in &moves.cycles {
        let first = memory[cycle[0] as usize].clone();
        for pair in cycle.windows(2) {
            memory[pair[0] as usize] = memory[pair[1] as usize].clone();
        }
        memory[*cycle.last().unwrap() as usize] = first;
    }
    table.apply_moves(&moves);
    table.check().unwrap();
    for (key, old) in by_key {
        let new = table.find(key).unwrap();
        assert_eq!(new, moves.new_index[old as usize]);
        assert_eq!(table.ids(new), memory[new as usize]);
    }
    let a = apply(&moves, &a);
    table.check_references(&[&a]).unwrap();
    for list in [a, apply(&moves, &b)] {
        assert!(list.windows(2).all(|pair| (pair[0] + 1) % 20 == pair[1]), "{list:?}");
    }
}

#[test]
fn the_attempt_needs_as_many_accesses_as_there_are_pages() {
    let (mut table, lists) = interleaved(20);
    assert!(table.plan_defragment().is_some());
    table.note_defragment_attempt();
    release(&mut table, &lists.concat());
    for n_accesses in 0..20 {
        assert!(table.plan_defragment().is_none(), "after {n_accesses}");
        let page = table.grow(Parent::Detached).unwrap();
        table.release(page);
    }
    assert!(table.plan_defragment().is_some());
}

#[test]
fn a_tenth_of_the_pages_is_not_worth_moving() {
    for (n_swapped, is_worth) in [(2, false), (3, true)] {
        // One chain over 20 pages, with its last pages in reverse order.
        let mut table = PageTable::new(20);
        let list = open(&mut table, &pages_of(1, 20), 0).unwrap();
        prefill(&mut table, &list, &pages_of(1, 20));
        assert!(table.plan_defragment().is_none(), "in order already");
        let mut new_index: Vec<PageIdx> = (0..20).collect();
        new_index[..n_swapped].rotate_left(1);
        table.apply_moves(&Moves { new_index, cycles: Vec::new() });
        table.check().unwrap();
        assert_eq!(table.plan_defragment().is_some(), is_worth);
    }
}

#[test]
fn a_turned_cache_stays_as_it_is() {
    let mut table = PageTable::new(10);
    let list = open(&mut table, &pages_of(1, 10), 0).unwrap();
    prefill(&mut table, &list, &pages_of(1, 10));
    let new_index = (0..10).map(|page| (page + 4) % 10).collect();
    table.apply_moves(&Moves { new_index, cycles: Vec::new() });
    assert!(table.plan_defragment().is_none());
}

#[test]
fn cycles_can_be_carried_out_one_at_a_time() {
    let (table, _) = interleaved(20);
    let moves = table.plan_defragment().unwrap();
    let (mut at_once, mut in_parts) = (table.clone(), table);
    at_once.apply_moves(&moves);
    for i in 0..moves.cycles.len() {
        in_parts.apply_moves(&moves.part(i..i + 1));
        in_parts.check().unwrap();
    }
    assert_eq!(at_once.describe(), in_parts.describe());
    assert_eq!(moves.part(0..moves.cycles.len()), moves);
}

#[test]
fn branches_follow_their_oldest_child_and_reservations_move_along() {
    let mut table = PageTable::new(8);
    let trunk = pages_of(1, 1);
    let branch = |number| [trunk.clone(), pages_of(number, 2)].concat();
    assert_eq!(cache(&mut table, &branch(2)), [0, 1, 2]);
    assert_eq!(cache(&mut table, &branch(3)), [0, 3, 4]);
    // The trunk is as young as its youngest branch, so the empty pages, which are older, come first;
    // then the trunk, its older branch, its younger branch. Turned back, everything is in its place.
    assert_eq!(table.arrangement().unwrap().cycles, [[0; 0]; 0]);
    let reserved = open(&mut table, &[], 4).unwrap();
    let moves = table.arrangement().unwrap();
    table.apply_moves(&moves);
    table.check().unwrap();
    release(&mut table, &apply(&moves, &reserved));
    for number in [2, 3] {
        let keys = PageKey::chain(Namespace::EMPTY, &branch(number));
        assert!(keys.iter().all(|&key| table.find(key).is_some()));
    }
}
