//! Keys and namespaces: exact bytes.

use super::*;

#[test]
fn keys_have_the_published_bytes() {
    let first = |ids: &[u32]| PageKey::first(Namespace::EMPTY, ids);
    let ids = |from: u32| (from..from + 256).collect::<Vec<u32>>();
    let zeros = [0; 256];
    let a = first(&ids(0));
    let b = a.after(&ids(256));
    let cases = [
        (a, "06137266f1e5ed8a632506e6ad43c334"),
        (b, "7d3746f8f94ac3e8b77a4ba0ab1a8f9a"),
        (b.after(&ids(512)), "b5e055ab03dd1030a3f629245cdcd697"),
        (first(&ids(256)), "5094fd3225026ca67ffe06ccf154940e"),
        (first(&zeros), "6b388b264f7a0fd2be5a45e0b4c1c1a3"),
        (first(&zeros).after(&zeros), "2f4bb904b50586371f1938f87df2c2c2"),
        (first(&ids(1_000_000_000)), "b685bd69f51eca6f1244c5ff8c3bbc54"),
    ];
    for (key, expected) in cases {
        assert_eq!(key.to_string(), expected);
        assert_eq!(PageKey::from_bytes(key.bytes()), key);
    }
}

#[test]
fn a_chain_is_the_keys_of_whole_pages_one_after_another() {
    let ids: Vec<u32> = (0..767).collect();
    let keys = PageKey::chain(Namespace::EMPTY, &ids);
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], PageKey::first(Namespace::EMPTY, &ids[..256]));
    assert_eq!(keys[1], keys[0].after(&ids[256..512]));
    assert!(PageKey::chain(Namespace::EMPTY, &ids[..255]).is_empty());
    assert_eq!(PageKey::below(ROOT, &ids[..256]), Some(keys[0]));
    assert_eq!(PageKey::below(Parent::Page(keys[0]), &ids[256..512]), Some(keys[1]));
    assert_eq!(PageKey::below(Parent::Detached, &ids[..256]), None);
}

#[test]
fn namespaces_are_told_apart_by_labels_values_and_borders() {
    let spaces = [
        Namespace::EMPTY,
        Namespace::of(&[("a", b"")]),
        Namespace::of(&[("", b"a")]),
        Namespace::of(&[("a", b"bc")]),
        Namespace::of(&[("ab", b"c")]),
        Namespace::of(&[("a", b"b"), ("c", b"")]),
        Namespace::of(&[("c", b""), ("a", b"b")]),
    ];
    for (i, a) in spaces.iter().enumerate() {
        for b in &spaces[..i] {
            assert_ne!(a, b);
        }
    }
    assert_eq!(Namespace::of(&[]), Namespace::EMPTY);
    assert_eq!(Namespace::default(), Namespace::EMPTY);
}
