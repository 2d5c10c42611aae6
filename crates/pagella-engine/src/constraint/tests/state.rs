//! Accepting, rewinding, forking: the state is always that of a fresh replay.

use serde_json::json;

use super::super::{Block, ConstraintCache, Switch};
use super::*;

/// One of every kind, each with room to move.
fn specs() -> Vec<ConstraintSpec> {
    let regex = |pattern: &str| ConstraintSpec::Regex(pattern.into());
    let schema = json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": 6},
        "n": {"type": "integer"}, "list": {"type": "array", "items": {"enum": ["ab", "abc", 12]}}},
        "required": ["name"], "additionalProperties": false});
    vec![
        ConstraintSpec::JsonSchema(schema),
        ConstraintSpec::JsonObject,
        regex("(ab|cab)*[0-9]{0,3}"),
        ConstraintSpec::Lark("start: \"a\" start \"b\" | /[0-9]+/".into()),
        ConstraintSpec::Gbnf("root ::= \"(\" root \")\" root | [a-z]{0,4}".into()),
        ConstraintSpec::Choice {
            options: vec!["story".into(), "storytime".into(), "END".into()],
            case_insensitive: true,
        },
        ConstraintSpec::Prefix(vec!["story".into(), "storytime".into(), "abc".into()]),
        ConstraintSpec::Lazy { trigger: "ab".into(), then: Box::new(regex("[0-9]{3}")) },
        ConstraintSpec::All(vec![regex("[a-c]{2,8}"), ConstraintSpec::Prefix(vec!["ab".into()])]),
    ]
}

/// Everything that can be seen of a state.
fn view(constraint: &mut dyn Constraint) -> (Bitmask, super::super::Verdict, bool) {
    let mut mask = Bitmask::new_none(0);
    let verdict = constraint.mask(&mut mask).unwrap();
    (mask, verdict, constraint.is_completed())
}

fn replay(spec: &ConstraintSpec, ids: &[u32]) -> Box<dyn Constraint> {
    let mut fresh = compile(byte_factory(), spec.clone());
    for id in ids {
        fresh.accept(*id).unwrap();
    }
    fresh
}

#[test]
fn rewinding_and_forking_equal_a_replay() {
    for spec in specs() {
        for seed in 0..6 {
            let mut rng = Rng(seed);
            let mut constraint = compile(byte_factory(), spec.clone());
            let mut ids: Vec<u32> = Vec::new();
            for step in 0..40 {
                let (mask, _, _) = view(&mut *constraint);
                let allowed: Vec<u32> = mask.ids().collect();
                let ended = ids.last().is_some_and(|id| byte_tokenizer().eos_ids().contains(id));
                match rng.below(5) {
                    0 => {
                        let n = rng.below(ids.len() + 1);
                        assert!(constraint.rewind(n), "{spec:?}");
                        ids.truncate(ids.len() - n);
                    }
                    1 => constraint = constraint.fork(),
                    _ if ended => {}
                    _ => {
                        let id = *rng.pick(&allowed);
                        constraint.accept(id).unwrap();
                        ids.push(id);
                    }
                }
                if step % 4 == 0 {
                    let mut fresh = replay(&spec, &ids);
                    assert_eq!(view(&mut *constraint), view(&mut *fresh), "{spec:?} {ids:?}");
                }
            }
            assert!(!constraint.rewind(ids.len() + 1));
            assert!(constraint.rewind(ids.len()));
            assert_eq!(view(&mut *constraint), view(&mut *replay(&spec, &[])));
        }
    }
}

#[test]
fn exactly_the_mask_is_accepted_and_refusals_change_nothing() {
    let ids = byte_tokenizer().vocab_size() as u32 + PADDING as u32 + 3;
    for spec in specs() {
        for seed in 0..2 {
            let mut rng = Rng(seed + 77);
            let mut constraint = compile(byte_factory(), spec.clone());
            for _ in 0..6 {
                let before = view(&mut *constraint);
                let mut tried = constraint.fork();
                for id in 0..ids {
                    match tried.accept(id) {
                        Ok(()) => {
                            assert!(before.0.contains(id), "{spec:?}: {id} is not in the mask");
                            assert!(tried.rewind(1));
                        }
                        Err(error) => {
                            assert_eq!(error, ConstraintError::NotAllowed { id });
                            assert!(!before.0.contains(id), "{spec:?}: {id} is in the mask");
                        }
                    }
                }
                assert_eq!(view(&mut *tried), before, "{spec:?}");
                let allowed: Vec<u32> = before.0.ids().collect();
                let id = *rng.pick(&allowed);
                constraint.accept(id).unwrap();
                if byte_tokenizer().eos_ids().contains(&id) {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_text_before_the_output_moves_the_state() {
    let tokenizer = byte_tokenizer();
    for spec in specs() {
        let (text, ids) = {
            let mut constraint = compile(byte_factory(), spec.clone());
            let (mut text, mut ids) = (Vec::new(), Vec::new());
            let mut rng = Rng(5);
            for _ in 0..4 {
                let (mask, _, _) = view(&mut *constraint);
                let allowed: Vec<u32> =
                    mask.ids().filter(|id| id < &256 || !tokenizer.is_special(*id)).collect();
                let known: Vec<u32> =
                    allowed.into_iter().filter(|id| tokenizer.piece(*id).is_some()).collect();
                if known.is_empty() {
                    break;
                }
                let id = *rng.pick(&known);
                constraint.accept(id).unwrap();
                text.extend_from_slice(tokenizer.token_bytes(id));
                ids.push(id);
            }
            (text, ids)
        };
        let mut begun = compile(byte_factory(), spec.clone());
        assert_eq!(begun.viable(&text).unwrap(), text.len(), "{spec:?}");
        begun.begin(&text).unwrap();
        assert!(!begun.rewind(1));
        let by_ids = view(&mut *replay(&spec, &ids));
        let by_bytes = view(&mut *begun);
        assert_eq!(by_bytes.0, by_ids.0, "{spec:?} after {:?}", String::from_utf8_lossy(&text));
        assert_eq!(by_bytes.1.can_end, by_ids.1.can_end);
        // Starting over forgets it, and an impossible beginning is refused.
        begun.begin(b"").unwrap();
        assert_eq!(view(&mut *begun), view(&mut *replay(&spec, &[])), "{spec:?}");
        if begun.viable(b"~~").unwrap() < 2 {
            let refused = begun.begin(b"~~").unwrap_err();
            assert_eq!(refused, ConstraintError::PrefixNotAllowed { count: 2 });
            assert_eq!(view(&mut *begun), view(&mut *replay(&spec, &[])), "{spec:?}");
        }
    }
}

#[test]
fn constraints_move_between_threads() {
    let mut constraint = compile(demo_factory(), ConstraintSpec::JsonObject);
    let other = constraint.fork();
    let there = std::thread::spawn(move || {
        let mut other = other;
        view(&mut *other)
    });
    assert_eq!(there.join().unwrap(), view(&mut *constraint));
    fn shared<T: Clone + Send + Sync>(_: &T) {}
    shared(demo_factory());
}

#[test]
fn specifications_are_plain_data() {
    for spec in specs() {
        let json = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<ConstraintSpec>(&json).unwrap(), spec);
    }
}

#[test]
fn a_constraint_is_compiled_once_until_limits_change() {
    let tokenizer = byte_tokenizer();
    let cache = ConstraintCache::new(tokenizer.clone(), tokenizer.vocab_size());
    let spec = ConstraintSpec::Regex("a+b".into());
    let (end, switch) = ("END".to_owned(), Switch::default());
    let block = Block { start: None, end, budget: None, closing: Vec::new(), switch };
    let compiled = std::cell::Cell::new(0);
    let compile = |spec: Option<&ConstraintSpec>, block: Option<&Block>, limits| {
        cache.compile(spec, block, limits, |_| compiled.set(compiled.get() + 1)).unwrap()
    };
    let limits = ConstraintLimits::default();
    assert!(compile(None, None, &limits).is_none());
    let mut first = compile(Some(&spec), None, &limits).unwrap();
    first.0.accept(id_of(tokenizer, "a")).unwrap();
    let mut again = compile(Some(&spec), None, &limits).unwrap();
    assert_eq!(again.0.viable(b"b").unwrap(), 0, "it begins anew");
    compile(Some(&spec), Some(&block), &limits).unwrap();
    compile(None, Some(&block), &limits).unwrap();
    assert_eq!(compiled.get(), 1);
    let other = ConstraintLimits { parts_max: limits.parts_max - 1, ..limits };
    compile(Some(&spec), None, &other).unwrap();
    assert_eq!(compiled.get(), 2);
}
