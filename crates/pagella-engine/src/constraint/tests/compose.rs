//! Constraints made of others: one of several, grammars with schemas and special tokens, and answers
//! that begin after reasoning.

use serde_json::{Value, json};

use super::super::{Block, InputRule, Switch};
use super::*;

fn allowed(constraint: &mut dyn Constraint) -> (Bitmask, super::super::Verdict) {
    let mut mask = new_mask(byte_tokenizer());
    let verdict = constraint.mask(&mut mask).unwrap();
    (mask, verdict)
}

fn accept(constraint: &mut dyn Constraint, text: &str) {
    constraint.accept(id_of(byte_tokenizer(), text)).unwrap();
}

fn write(constraint: &mut dyn Constraint, text: &str) {
    text.bytes().for_each(|b| accept(constraint, std::str::from_utf8(&[b]).unwrap()));
}

fn suits(constraint: &mut dyn Constraint, text: &str) -> bool {
    let id = id_of(byte_tokenizer(), text);
    let (mask, _) = allowed(constraint);
    assert_eq!(mask.contains(id), constraint.fork().accept(id).is_ok(), "{text:?}");
    mask.contains(id)
}

fn regex(pattern: &str) -> ConstraintSpec {
    ConstraintSpec::Regex(pattern.into())
}

#[test]
fn one_of_several_lives_as_long_as_the_output_suits_it() {
    let parts = vec![regex("ab[0-9]"), regex("a[xy]z"), regex("s")];
    let mut constraint = compile(byte_factory(), ConstraintSpec::Any(parts));
    assert!(suits(&mut *constraint, "s") && suits(&mut *constraint, "ab"));
    accept(&mut *constraint, "a");
    assert!(!suits(&mut *constraint, "s"));
    assert!(suits(&mut *constraint, "b") && suits(&mut *constraint, "x"));
    accept(&mut *constraint, "x");
    let (_, verdict) = allowed(&mut *constraint);
    assert_eq!(verdict.forced, [id_of(byte_tokenizer(), "z")]);
    // Back to where both others lived.
    assert!(constraint.rewind(1));
    accept(&mut *constraint, "b");
    assert!(suits(&mut *constraint, "7") && !suits(&mut *constraint, "z"));
    assert!(constraint.rewind(2) && !constraint.rewind(1));
    accept(&mut *constraint, "s");
    assert!(constraint.is_completed());
    let mut fork = compile(byte_factory(), ConstraintSpec::Any(vec![regex("ab"), regex("cd")]));
    fork.begin(b"c").unwrap();
    assert!(suits(&mut *fork, "d") && !suits(&mut *fork, "b"));
    assert!(fork.begin(b"x").is_err() && suits(&mut *fork, "a"));
}

#[test]
fn grammars_hold_schemas_and_special_tokens() {
    let tokenizer = byte_tokenizer();
    let call = tokenizer.id_of("<|call|>").unwrap();
    let spec = ConstraintSpec::Composed {
        lark: format!("start: special_{call} name json_0 \"!\"\nname: \"ab\" | \"abc\""),
        schemas: vec![json!({"type": "array", "items": {"enum": [1, 2]}, "maxItems": 2})],
        specials: vec![call],
        inputs: Vec::new(),
    };
    let mut constraint = compile(byte_factory(), spec);
    let (mask, _) = allowed(&mut *constraint);
    assert_eq!(mask.ids().collect::<Vec<_>>(), [call]);
    constraint.accept(call).unwrap();
    assert!(constraint.accept(call).is_err());
    for text in ["abc", "[", "1", ", ", "2"] {
        assert!(suits(&mut *constraint, text), "{text}");
        accept(&mut *constraint, text);
    }
    write(&mut *constraint, "]!");
    assert!(constraint.is_completed());
    assert!(constraint.rewind(8));
    assert_eq!(allowed(&mut *constraint).0.ids().collect::<Vec<_>>(), [call]);
}

#[test]
fn parts_of_a_grammar_are_checked_like_others() {
    let composed = |lark: &str, schema: Value| ConstraintSpec::Composed {
        lark: lark.into(),
        schemas: vec![schema],
        specials: Vec::new(),
        inputs: Vec::new(),
    };
    let unknown = composed("start: json_0", json!({"unevaluatedItems": false}));
    assert!(matches!(refusal(&unknown), ConstraintError::UnsupportedKeyword { .. }));
    let inline = composed("start: json_0 %json {}", json!({}));
    assert!(matches!(refusal(&inline), ConstraintError::InvalidLark { .. }));
    let id = composed("start: json_0 <[1]>", json!({}));
    assert!(matches!(refusal(&id), ConstraintError::InvalidLark { .. }));
    assert!(matches!(refusal(&ConstraintSpec::Any(vec![])), ConstraintError::Impossible { .. }));
}

fn block(start: Option<&str>, budget: Option<usize>) -> Block {
    let closing = ["!", "<", "/", "t", ">"].map(|text| id_of(byte_tokenizer(), text)).into();
    let (start, end) = (start.map(String::from), "</t>".into());
    Block { start, end, budget, closing, switch: Switch::default() }
}

fn after(block: &Block, pattern: Option<&str>) -> Box<dyn Constraint> {
    let then = pattern.map(|pattern| compile(byte_factory(), regex(pattern)));
    byte_factory().after(block, then).unwrap()
}

#[test]
fn an_answer_is_constrained_after_reasoning() {
    let mut constraint = after(&block(None, None), Some("[0-9]+"));
    write(&mut *constraint, "a < b </");
    // The output cannot end inside.
    let (mask, verdict) = allowed(&mut *constraint);
    assert!(!verdict.can_end && !mask.contains(byte_tokenizer().eos_ids()[0]));
    write(&mut *constraint, "t>");
    assert!(suits(&mut *constraint, "7") && suits(&mut *constraint, "\n"));
    assert!(!suits(&mut *constraint, "a"));
    write(&mut *constraint, "\n\n1");
    assert!(!suits(&mut *constraint, "\n") && suits(&mut *constraint, "2"));
    assert!(allowed(&mut *constraint).1.can_end);
    // Back behind the tag, and into it.
    assert!(constraint.rewind(2));
    assert!(suits(&mut *constraint, "1") && suits(&mut *constraint, "\n"));
    assert!(constraint.rewind(2) && suits(&mut *constraint, "a"));
    accept(&mut *constraint, ">");
    accept(&mut *constraint, "007");
    assert!(allowed(&mut *constraint).1.can_end);
}

#[test]
fn white_space_before_the_answer_has_a_bound() {
    let mut constraint = after(&block(None, None), Some("x"));
    write(&mut *constraint, "</t>");
    for _ in 0..8 {
        assert!(suits(&mut *constraint, "\n"));
        accept(&mut *constraint, "\n");
    }
    assert!(!suits(&mut *constraint, "\n") && suits(&mut *constraint, "x"));
}

#[test]
fn an_answer_may_begin_with_reasoning_or_without() {
    let mut constraint = after(&block(Some("<t>"), None), Some("[0-9<]+"));
    assert!(suits(&mut *constraint, "1") && !suits(&mut *constraint, "a"));
    // What may be either is the answer.
    let mut answer = constraint.fork();
    write(&mut *answer, "<1");
    assert!(!suits(&mut *answer, "t"));
    let mut constraint2 = after(&block(Some("<t>"), None), Some("[0-9]+"));
    write(&mut *constraint2, "\n<");
    assert!(suits(&mut *constraint2, "t") && !suits(&mut *constraint2, "1"));
    write(&mut *constraint2, "t>hm</t>5");
    assert!(!suits(&mut *constraint2, "a") && suits(&mut *constraint2, "6"));
    assert!(constraint2.rewind(10));
    accept(&mut *constraint2, "12");
    assert!(!suits(&mut *constraint2, "<"));
    constraint.begin(b"").unwrap();
}

#[test]
fn a_budget_closes_the_block() {
    let mut constraint = after(&block(None, Some(3)), None);
    for text in ["abc", "s", "to"] {
        let (_, verdict) = allowed(&mut *constraint);
        assert!(verdict.free && verdict.can_end);
        accept(&mut *constraint, text);
    }
    for text in ["!", "<", "/", "t", ">"] {
        let (mask, verdict) = allowed(&mut *constraint);
        assert_eq!(mask.ids().collect::<Vec<_>>(), [id_of(byte_tokenizer(), text)]);
        assert!(!verdict.can_end && !verdict.free);
        assert!(constraint.accept(id_of(byte_tokenizer(), "s")).is_err());
        accept(&mut *constraint, text);
    }
    assert!(allowed(&mut *constraint).1.free);
    // A block that ended in time is left alone, and going back counts again.
    assert!(constraint.rewind(6));
    write(&mut *constraint, "a");
    assert_eq!(allowed(&mut *constraint).0.ids().count(), 1);
    let mut zero = after(&block(None, Some(0)), Some("x"));
    assert_eq!(allowed(&mut *zero).0.ids().count(), 1);
    write(&mut *zero, "!</t>x");
    assert!(zero.is_completed());
    let mut early = after(&block(Some("<t>"), Some(9)), None);
    write(&mut *early, "<t>a</t>");
    (0..20).for_each(|_| accept(&mut *early, "s"));
    assert!(allowed(&mut *early).1.free);
}

#[test]
fn a_switch_closes_the_block_at_the_next_choice() {
    let block = block(Some("<t>"), None);
    let mut constraint = after(&block, Some("[0-9]"));
    let mut other = after(&block, Some("[0-9]"));
    write(&mut *constraint, "<t>abc");
    block.switch.close();
    assert!(block.switch.is_closed());
    let (mask, _) = allowed(&mut *constraint);
    assert_eq!(mask.ids().collect::<Vec<_>>(), [id_of(byte_tokenizer(), "!")]);
    write(&mut *constraint, "!</t>4");
    assert!(constraint.is_completed());
    // A block that has not begun is closed when it begins.
    write(&mut *other, "<t>");
    assert_eq!(allowed(&mut *other).0.ids().count(), 1);
}

#[test]
fn a_block_has_an_end() {
    let endless = Block { end: String::new(), ..block(None, None) };
    let refused = byte_factory().after(&endless, None).err();
    assert!(matches!(refused, Some(ConstraintError::InvalidStrings { .. })));
}

#[test]
fn special_tokens_are_tags_too() {
    let call = byte_tokenizer().id_of("<|call|>").unwrap();
    let mut block = block(None, Some(1));
    (block.end, block.closing) = ("<|call|>".into(), vec![call]);
    let mut constraint = after(&block, Some("x"));
    accept(&mut *constraint, "s");
    assert_eq!(allowed(&mut *constraint).0.ids().collect::<Vec<_>>(), [call]);
    constraint.accept(call).unwrap();
    accept(&mut *constraint, "x");
    assert!(constraint.is_completed());
}

#[test]
fn an_output_that_begins_like_a_call_is_held_to_it() {
    let then = Box::new(regex(r"ab(time|[0-9])"));
    let opening = ConstraintSpec::Opening { texts: vec!["ab".into()], then };
    let mut constraint = compile(byte_factory(), opening.clone());
    // A token that holds the beginning and something else is no way to begin.
    assert!(suits(&mut *constraint, "ab") && !suits(&mut *constraint, "abc"));
    assert!(suits(&mut *constraint, "story") && allowed(&mut *constraint).1.can_end);
    write(&mut *constraint, " \n");
    accept(&mut *constraint, "a");
    assert!(suits(&mut *constraint, "b") && suits(&mut *constraint, "a"));
    accept(&mut *constraint, "b");
    assert!(suits(&mut *constraint, "time") && suits(&mut *constraint, "7"));
    assert!(!suits(&mut *constraint, "story") && !allowed(&mut *constraint).1.can_end);
    let mut fork = constraint.fork();
    accept(&mut *fork, "7");
    assert!(fork.is_completed());
    assert!(fork.rewind(2) && suits(&mut *fork, "cab"));
    accept(&mut *fork, "cab");
    // Anything goes now, the text of a call too.
    assert!(suits(&mut *fork, "abc") && allowed(&mut *fork).1.free);
    let call = byte_tokenizer().id_of("<|call|>").unwrap();
    fork.accept(call).unwrap();
    assert!(fork.rewind(5) && !fork.rewind(1));
    assert!(!suits(&mut *fork, "abc"));
    let mut begun = compile(byte_factory(), opening);
    begun.begin(b" ab").unwrap();
    assert!(suits(&mut *begun, "time") && !suits(&mut *begun, "story"));
    begun.begin(b"x").unwrap();
    assert!(suits(&mut *begun, "story"));
}

fn with_input(rule: InputRule, in_json: bool) -> ConstraintSpec {
    ConstraintSpec::Composed {
        lark: "start: \"{\\\"input\\\": \\\"\" input_0 \"\\\"}\"".into(),
        schemas: Vec::new(),
        specials: Vec::new(),
        inputs: vec![(rule, in_json)],
    }
}

/// Whether a whole text may be written.
fn is_whole(constraint: &dyn Constraint, text: &str) -> bool {
    let mut constraint = constraint.fork();
    let viable = constraint.viable(text.as_bytes()).unwrap();
    if viable < text.len() {
        return false;
    }
    constraint.begin(text.as_bytes()).unwrap();
    allowed(&mut *constraint).1.can_end
}

/// A grammar as coding agents send it, for patches.
const PATCH: &str = r#"start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?
hunk: add_hunk | delete_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
filename: /(.+)/
add_line: "+" /(.*)/ LF -> line
// Lines end in one character.
%import common.LF
"#;

#[test]
fn a_grammar_is_enforced_inside_a_json_string() {
    let patch = compile(byte_factory(), with_input(InputRule::Lark(PATCH.into()), true));
    let file = "*** Begin Patch\n*** Add File: a\\b \"c\"\n+say(\"€\");\n+\n*** End Patch";
    let arguments = |input: &str| json!({ "input": input }).to_string().replacen(':', ": ", 1);
    assert!(is_whole(&*patch, &arguments(file)));
    assert!(is_whole(&*patch, &arguments(&format!("{file}\n"))));
    assert!(!is_whole(&*patch, &arguments("*** Begin Patch\n*** End Patch")));
    assert!(!is_whole(&*patch, &arguments("*** Begin Patch")));
    assert!(!is_whole(&*patch, "{\"input\": \"*** Begin Patch\n"));
    let number =
        compile(byte_factory(), with_input(InputRule::Regex("^[0-9]+\"|x\n$".into()), true));
    assert!(
        is_whole(&*number, r#"{"input": "17\""}"#) && is_whole(&*number, r#"{"input": "x\n"}"#)
    );
    assert!(!is_whole(&*number, r#"{"input": "17"}"#));
    let plain = compile(byte_factory(), with_input(InputRule::Regex("[a-c]+".into()), false));
    assert!(is_whole(&*plain, r#"{"input": "cab"}"#) && !is_whole(&*plain, r#"{"input": "d"}"#));
}

#[test]
fn texts_of_all_kinds_are_rewritten_for_json() {
    let lark = "start: A \"\\\"\"i B~2 (WS C)? D\nA: \"a\"..\"c\"\nB: /[^\\/x]/s\n\
                C: /tab\\t|\\//\n%import common.WS_INLINE -> WS\nD: \"\\x41b\"i # end\n";
    let input = compile(byte_factory(), with_input(InputRule::Lark(lark.into()), true));
    for (text, fits) in [
        (r#"{"input": "b\"\n\\Ab"}"#, true),
        (r#"{"input": "b\"yy tab\taB"}"#, true),
        (r#"{"input": "b\"yy /aB"}"#, true),
        (r#"{"input": "b\"yx ab"}"#, false),
        (r#"{"input": "d\"yyab"}"#, false),
    ] {
        assert_eq!(is_whole(&*input, text), fits, "{text}");
    }
    for lark in [
        "start: \"a\" \"b\"\n%ignore / /",
        "start: ~/a/",
        "start: /^a/",
        "%import common.C_COMMENT\nstart: C_COMMENT",
        "start: \"a\" }",
    ] {
        let error = refusal(&with_input(InputRule::Lark(lark.into()), true));
        assert!(matches!(error, ConstraintError::InvalidLark { .. }), "{lark}: {error}");
    }
}
