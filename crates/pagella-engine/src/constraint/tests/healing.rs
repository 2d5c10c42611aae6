//! Healing: outputs that begin with removed bytes, with and without a constraint inside.

use serde_json::{Value, json};

use super::*;
use crate::constraint::HealingConstraint;

fn healing(
    tokenizer: &Tokenizer,
    removed: &[u8],
    inner: Option<Box<dyn Constraint>>,
) -> HealingConstraint {
    let vocab = tokenizer.vocab_size() + PADDING;
    HealingConstraint::new(tokenizer, vocab, removed, inner).unwrap()
}

/// Takes allowed ids at random until healed; the bytes beyond, as reported id by id.
fn heal(tokenizer: &Tokenizer, constraint: &mut HealingConstraint, rng: &mut Rng) -> Vec<u8> {
    let mut beyond = Vec::new();
    let mut mask = new_mask(tokenizer);
    while !constraint.is_healed() {
        let verdict = constraint.mask(&mut mask).unwrap();
        assert!(!verdict.can_end);
        assert!(tokenizer.special_ids().iter().all(|id| !mask.contains(*id)));
        let allowed: Vec<u32> = mask.ids().collect();
        let id = *rng.pick(&allowed);
        beyond.extend_from_slice(constraint.beyond(id));
        constraint.accept(id).unwrap();
    }
    beyond
}

#[test]
fn free_output_begins_with_the_removed_bytes() {
    let tokenizer = demo_tokenizer();
    for removed in ["th", " the", "€", "http", "\""] {
        for seed in 0..20 {
            let mut constraint = healing(tokenizer, removed.as_bytes(), None);
            let mut replay = healing(tokenizer, removed.as_bytes(), None);
            let beyond = heal(tokenizer, &mut constraint, &mut Rng(seed));
            assert!(replay.viable(&[removed.as_bytes(), &beyond].concat()).unwrap() > 0);
            // Healed: everything goes, and whole tokens are new text.
            let id = id_of(tokenizer, "a");
            assert_eq!(constraint.beyond(id), b"a");
            constraint.accept(id).unwrap();
            constraint.accept(tokenizer.eos_ids()[0]).unwrap();
            assert!(constraint.is_completed());
            assert!(constraint.rewind(2) && !constraint.is_completed());
            replay.begin(removed.as_bytes()).unwrap();
            assert!(replay.is_healed());
        }
    }
}

#[test]
fn constraints_govern_what_lies_beyond() {
    let schema = json!({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99},
        "minItems": 1, "maxItems": 3});
    for (tokenizer, factory) in
        [(byte_tokenizer(), byte_factory()), (demo_tokenizer(), demo_factory())]
    {
        for removed in ["=", "x =", ":", "\"", " s"] {
            for seed in 0..10 {
                let inner = compile(factory, ConstraintSpec::JsonSchema(schema.clone()));
                let mut constraint = healing(tokenizer, removed.as_bytes(), Some(inner));
                let mut rng = Rng(seed);
                let mut text = heal(tokenizer, &mut constraint, &mut rng);
                text.extend(walk(tokenizer, &mut constraint, &mut rng).0);
                let value: Value = serde_json::from_slice(&text).unwrap();
                assert!(value.as_array().is_some_and(|items| (1..=3).contains(&items.len())));
            }
        }
    }
}

#[test]
fn a_token_may_hold_removed_and_constrained_bytes() {
    let tokenizer = byte_tokenizer();
    let inner = compile(byte_factory(), ConstraintSpec::Regex("ry|bc".into()));
    let mut constraint = healing(tokenizer, b"sto", Some(inner));
    let mut mask = new_mask(tokenizer);
    constraint.mask(&mut mask).unwrap();
    let expected = ["s", "story"].map(|text| id_of(tokenizer, text));
    assert_eq!(mask.ids().collect::<Vec<_>>(), expected);
    let story = expected[1];
    assert_eq!(constraint.beyond(story), b"ry");
    constraint.accept(story).unwrap();
    assert!(constraint.is_completed());
    // Undone, the same is reached by several ids, and the other way through the expression.
    assert!(constraint.rewind(1) && !constraint.is_healed());
    for (text, beyond) in [("s", ""), ("to", ""), ("b", "b"), ("c", "c")] {
        let id = id_of(tokenizer, text);
        assert_eq!(constraint.beyond(id), beyond.as_bytes());
        constraint.mask(&mut mask).unwrap();
        assert!(mask.contains(id), "{text}");
        constraint.accept(id).unwrap();
    }
    assert!(constraint.is_completed());
    // Not viable beyond the removed part.
    let inner = compile(byte_factory(), ConstraintSpec::Regex("[0-9]".into()));
    let mut constraint = healing(tokenizer, b"sto", Some(inner));
    constraint.mask(&mut mask).unwrap();
    assert!(!mask.contains(story));
    assert_eq!(constraint.accept(story), Err(ConstraintError::NotAllowed { id: story }));
}

#[test]
fn exactly_the_mask_heals() {
    let tokenizer = byte_tokenizer();
    let inner = compile(byte_factory(), ConstraintSpec::Regex("[a-z]{3,9}".into()));
    let mut constraint = healing(tokenizer, "a€s".as_bytes(), Some(inner));
    let mut rng = Rng(3);
    let mut mask = new_mask(tokenizer);
    for _ in 0..6 {
        constraint.mask(&mut mask).unwrap();
        let mut fork = constraint.fork();
        for id in 0..mask.vocab() as u32 + 2 {
            let accepted = fork.accept(id).is_ok();
            assert_eq!(accepted, mask.contains(id), "{id}");
            assert!(!accepted || fork.rewind(1));
        }
        let allowed: Vec<u32> = mask.ids().collect();
        constraint.accept(*rng.pick(&allowed)).unwrap();
    }
}
