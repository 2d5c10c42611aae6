//! Constraints that leave a part of the output free: prefix and lazy.

use super::*;

fn allowed(constraint: &mut dyn Constraint) -> Bitmask {
    let mut mask = new_mask(byte_tokenizer());
    constraint.mask(&mut mask).unwrap();
    mask
}

fn accept(constraint: &mut dyn Constraint, text: &str) -> Result<(), ConstraintError> {
    constraint.accept(id_of(byte_tokenizer(), text))
}

#[test]
fn a_prefix_is_satisfied_by_the_shortest_string() {
    let strings = vec!["story".into(), "storytime".into(), "abc".into()];
    let mut constraint = compile(byte_factory(), ConstraintSpec::Prefix(strings));
    let tokenizer = byte_tokenizer();
    let mask = allowed(&mut *constraint);
    let expected: Vec<u32> =
        ["s", "story", "a", "ab", "abc"].map(|text| id_of(tokenizer, text)).into();
    let mut found: Vec<u32> = mask.ids().collect();
    found.sort_by_key(|id| expected.iter().position(|e| e == id));
    assert_eq!(found, expected);
    accept(&mut *constraint, "s").unwrap();
    assert!(accept(&mut *constraint, "a").is_err());
    accept(&mut *constraint, "to").unwrap();
    accept(&mut *constraint, "ry").unwrap();
    assert_eq!(allowed(&mut *constraint).count_ones(), tokenizer.vocab_size() + PADDING);
    assert!(!constraint.is_completed());
    constraint.accept(tokenizer.eos_ids()[1]).unwrap();
    assert!(constraint.is_completed() && accept(&mut *constraint, "s").is_err());
    assert!(constraint.rewind(2));
    assert_eq!(allowed(&mut *constraint).ids().count(), 2, "r and ry");
}

#[test]
fn tokens_may_reach_beyond_a_prefix() {
    let mut constraint = compile(byte_factory(), ConstraintSpec::Prefix(vec!["st".into()]));
    assert!(allowed(&mut *constraint).contains(id_of(byte_tokenizer(), "story")));
    accept(&mut *constraint, "story").unwrap();
    assert!(allowed(&mut *constraint).contains(id_of(byte_tokenizer(), "END")));
}

fn lazy(trigger: &str, pattern: &str) -> Box<dyn Constraint> {
    let then = Box::new(ConstraintSpec::Regex(pattern.into()));
    compile(byte_factory(), ConstraintSpec::Lazy { trigger: trigger.into(), then })
}

#[test]
fn lazy_constraints_begin_after_their_trigger() {
    let mut constraint = lazy("call:", "[0-9]{2}");
    let everything = byte_tokenizer().vocab_size() + PADDING;
    for text in ["s", "€", "c", "c", "a", "l"] {
        assert_eq!(allowed(&mut *constraint).count_ones(), everything);
        accept(&mut *constraint, text).unwrap();
    }
    // "l:" completes the trigger; "l" followed by something else does not.
    accept(&mut *constraint, "l:").unwrap();
    assert!(accept(&mut *constraint, "s").is_err());
    let mask = allowed(&mut *constraint);
    assert_eq!(mask.ids().count(), 11, "ten digits and 12");
    accept(&mut *constraint, "12").unwrap();
    assert!(constraint.is_completed());
    // Back into the trigger, and past it by another way.
    assert!(constraint.rewind(2));
    accept(&mut *constraint, "l").unwrap();
    accept(&mut *constraint, "s").unwrap();
    assert_eq!(allowed(&mut *constraint).count_ones(), everything);
}

#[test]
fn tokens_across_a_trigger_must_suit_what_follows() {
    // The token "call:1" holds the trigger and one byte more.
    for (pattern, fits) in [("1[0-9]", true), ("[2-9]", false)] {
        let mut constraint = lazy("call:", pattern);
        let across = id_of(byte_tokenizer(), "call:1");
        assert_eq!(allowed(&mut *constraint).contains(across), fits);
        assert_eq!(constraint.viable(b"call:1").unwrap(), if fits { 6 } else { 5 });
        assert_eq!(constraint.accept(across).is_ok(), fits);
    }
    // Half of the trigger is there already: "s no" may complete it from the middle.
    let mut constraint = lazy("yes n", "x");
    accept(&mut *constraint, "ye").unwrap();
    assert!(!allowed(&mut *constraint).contains(id_of(byte_tokenizer(), "s no")));
    let mut constraint = lazy("yes n", "o");
    accept(&mut *constraint, "ye").unwrap();
    accept(&mut *constraint, "s no").unwrap();
    assert!(constraint.is_completed());
}

#[test]
fn triggers_that_overlap_themselves_are_found() {
    let mut constraint = lazy("aab", "[0-9]");
    for text in ["a", "a", "a", "a"] {
        accept(&mut *constraint, text).unwrap();
    }
    accept(&mut *constraint, "b").unwrap();
    assert_eq!(allowed(&mut *constraint).ids().count(), 10);
}

#[test]
fn special_tokens_are_triggers_too() {
    let tokenizer = byte_tokenizer();
    let call = tokenizer.id_of("<|call|>").unwrap();
    let mut constraint = lazy("<|call|>", "[0-9]");
    assert!(allowed(&mut *constraint).contains(call));
    accept(&mut *constraint, "s").unwrap();
    constraint.accept(call).unwrap();
    assert_eq!(allowed(&mut *constraint).ids().count(), 10);
    assert!(constraint.rewind(1));
    constraint.accept(tokenizer.eos_ids()[0]).unwrap();
    assert!(constraint.is_completed());
}

#[test]
fn a_combination_ends_when_all_can() {
    let parts =
        vec![ConstraintSpec::Prefix(vec!["ab".into()]), ConstraintSpec::Regex("a|abc".into())];
    let mut constraint = compile(byte_factory(), ConstraintSpec::All(parts));
    accept(&mut *constraint, "a").unwrap();
    let mut mask = new_mask(byte_tokenizer());
    let verdict = constraint.mask(&mut mask).unwrap();
    assert!(!verdict.can_end);
    assert_eq!(verdict.forced, [id_of(byte_tokenizer(), "b")]);
    // Refused by the second part only; the first must not have moved.
    assert!(accept(&mut *constraint, "s").is_err());
    accept(&mut *constraint, "b").unwrap();
    accept(&mut *constraint, "c").unwrap();
    assert!(constraint.mask(&mut mask).unwrap().can_end);
}
