//! Counts, the character view and events.

use super::*;
use crate::pages::{PageEvent, Writable};

#[test]
fn counts_and_map_show_who_uses_what() {
    let mut table = PageTable::new(7);
    cache(&mut table, &pages_of(5, 1));
    let ids = story(1, 300);
    let a = open(&mut table, &ids, 1).unwrap();
    prefill(&mut table, &a, &ids);
    let sharers: Vec<_> = (0..9).map(|_| open(&mut table, &ids, 0).unwrap()).collect();
    assert_eq!(table.map(), ".+1....");
    let counts = table.counts();
    assert_eq!((counts.total, counts.free, counts.cached), (7, 4, 1));
    assert_eq!((counts.referenced, counts.shared, counts.partial), (2, 1, 1));
    release(&mut table, &sharers[0]);
    assert_eq!(table.map(), ".91....");
    sharers[1..8].iter().for_each(|list| release(&mut table, list));
    assert_eq!((table.map().as_str(), table.counts().shared), (".21....", 1));
    let lines: Vec<String> = table.describe().iter().map(ToString::to_string).collect();
    let key = table.key(a[0]).unwrap().to_string();
    assert!(lines[1].contains(&key[..8]) && lines[1].contains("root"), "{}", lines[1]);
    assert!(lines[2].contains(&key[..8]) && lines[2].contains("fill  44"), "{}", lines[2]);
}

#[test]
fn events_tell_what_happened_in_order() {
    let mut table = PageTable::new(2);
    let mut events = Vec::new();
    let ids = pages_of(1, 1);
    open(&mut table, &ids, 0).unwrap();
    table.set_recording(true);
    let list = open(&mut table, &ids, 1).unwrap();
    prefill(&mut table, &list[..1], &ids);
    table.release(list[0]);
    table.release(list[1]);
    let Some(Writable::Copy { to }) = table.make_writable(list[0], 3) else { panic!("no copy") };
    table.take_events(&mut events);
    let key = PageKey::first(Namespace::EMPTY, &ids);
    let expected = [
        PageEvent::Shared { page: 0, key: Some(key) },
        PageEvent::Claimed { page: 1, evicted: None },
        PageEvent::Sealed { page: 0, key },
        PageEvent::Released { page: 0, n_refs: 1 },
        PageEvent::Released { page: 1, n_refs: 0 },
        PageEvent::Reverted { page: 1 },
        PageEvent::Claimed { page: 1, evicted: None },
        PageEvent::Copied { from: 0, to },
        PageEvent::Released { page: 0, n_refs: 0 },
    ];
    assert_eq!(events, expected);
}

#[test]
fn a_log_that_nobody_reads_is_bounded_and_says_so() {
    let mut table = PageTable::new(1);
    let mut events = Vec::new();
    let mut cycle = |table: &mut PageTable, n| {
        for _ in 0..n {
            let page = table.grow(ROOT).unwrap();
            table.release(page);
        }
        table.take_events(&mut events);
        std::mem::take(&mut events)
    };
    assert!(cycle(&mut table, 10).is_empty(), "off unless asked for");
    table.set_recording(true);
    let events = cycle(&mut table, 2000);
    assert_eq!(events.len(), 4097);
    assert_eq!(events.last(), Some(&PageEvent::Lost { n_events: 6000 - 4096 }));
    assert_eq!(cycle(&mut table, 1).len(), 3);
}
