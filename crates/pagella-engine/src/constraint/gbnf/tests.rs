//! Tests of the translation: what is written under it, and what is refused.

use super::*;

fn lark(text: &str) -> String {
    to_lark(text, &ConstraintLimits::default()).unwrap()
}

fn refused(text: &str) -> (usize, String) {
    match to_lark(text, &ConstraintLimits::default()) {
        Err(ConstraintError::InvalidGbnf { line, reason }) => (line, reason),
        other => panic!("{text:?}: {other:?}"),
    }
}

#[test]
fn grammars_without_recursion_become_one_lexeme() {
    let text =
        lark("root ::= greeting \" \" name+\ngreeting ::= \"hi\" | \"hello\"\nname ::= [a-z]");
    let start = text.lines().next().unwrap();
    assert_eq!(start, "start: X0");
    assert!(text.contains("R1: (/hi/ | /hello/)"), "{text}");
    assert!(text.contains("R2: /[\\u{61}-\\u{7a}]/"), "{text}");
}

#[test]
fn runs_between_recursive_rules_are_joined() {
    let text = lark("root ::= \"a\" ws \"b\" root ws | \"c\"\nws ::= \" \"*");
    assert!(text.contains("X0: (/a/ R1 /b/)"), "{text}");
    assert!(text.contains("X1: (R1) & /(?s:.)+/"), "{text}");
    assert!(text.contains("(X0 r0 (X1)?)"), "{text}");
}

#[test]
fn lines_and_comments() {
    let same = [
        "root ::= \"a\" | \"b\" # either\n",
        "# first\n\nroot ::=\n  \"a\" |\n  \"b\"\n\n# last",
        "root ::= ( \"a\"\n # inside\n | \"b\" )\r\n",
    ];
    for text in same {
        assert!(lark(text).contains("(/a/ | /b/)"), "{text:?}: {}", lark(text));
    }
}

#[test]
fn escapes_and_classes() {
    let text = lark(r#"root ::= "\x41\n\u00e9\U0001F600\"\\" [^\]\-a-c^] ."#);
    assert!(text.contains("/A\\x0aé😀\\\"\\\\/"), "{text}");
    assert!(
        text.contains("/[^\\u{5d}-\\u{5d}\\u{2d}-\\u{2d}\\u{61}-\\u{63}\\u{5e}-\\u{5e}]/"),
        "{text}"
    );
    assert!(text.contains("/(?s:.)/"), "{text}");
}

#[test]
fn repetitions() {
    let text = lark("root ::= \"a\"* \"b\"+ \"c\"? \"d\"{2} \"e\"{2,} \"f\"{,3} \"g\"{1,4}");
    for part in
        ["(/a/)*", "(/b/)+", "(/c/)?", "(/d/){2,2}", "(/e/){2,}", "(/f/){0,3}", "(/g/){1,4}"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn what_is_refused() {
    let cases = [
        ("", 1, "no rule \"root\""),
        ("start ::= \"a\"", 1, "no rule \"root\""),
        ("root ::= \"a\"\nroot ::= \"b\"", 2, "defined twice"),
        ("root ::= a\n", 1, "\"a\" is not defined"),
        ("root = \"a\"", 1, "::= expected"),
        ("root ::= \"a", 1, "a \" is missing"),
        ("root ::= [a", 1, "a ] is missing"),
        ("root ::= []", 1, "class is empty"),
        ("root ::= [z-a]", 1, "is empty"),
        ("root ::= (\"a\"", 1, "a ) is missing"),
        ("root ::= \"a\")", 1, "not expected here"),
        ("root ::= * \"a\"", 1, "nothing to repeat"),
        ("root ::= \"a\"{x}", 1, "a number is expected"),
        ("root ::= \"a\"{3,2}", 1, "below its lower one"),
        ("root ::= \"a\"{99999}", 1, "repetitions are not supported"),
        ("root ::= \"\\q\"", 1, "escape \\q"),
        ("root ::= \"\\uD800\"", 1, "no character"),
        ("root ::= \"\\x4\"", 1, "2 hex digits"),
        ("\n\nroot ::= <think>", 3, "references to tokens"),
        ("root ::= !<[7]>", 1, "references to tokens"),
    ];
    for (text, line, part) in cases {
        let (found, reason) = refused(text);
        assert_eq!(found, line, "{text:?}: {reason}");
        assert!(reason.contains(part), "{text:?}: {reason}");
    }
}
