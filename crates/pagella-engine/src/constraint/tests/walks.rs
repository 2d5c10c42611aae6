//! Random walks: whatever is taken from the masks, the text satisfies what was asked for.

use serde_json::{Value, json};

use super::schemas::{random_schema, validate};
use super::*;

fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// `walks` random texts under a constraint, on both tokenizers.
fn texts(spec: &ConstraintSpec, walks: u64) -> Vec<String> {
    let mut texts = Vec::new();
    for (tokenizer, factory) in
        [(byte_tokenizer(), byte_factory()), (demo_tokenizer(), demo_factory())]
    {
        let compiled = factory.compile(spec).unwrap();
        for seed in 0..walks {
            let text = walk(tokenizer, &mut *compiled.fork(), &mut Rng(seed)).0;
            texts.push(text_of(text));
        }
    }
    texts
}

#[test]
fn random_schemas_are_satisfied() {
    for seed in 0..200 {
        let schema = random_schema(&mut Rng(seed), 3);
        // One tokenizer each, in turn, keeps the time of a debug build bearable.
        let (tokenizer, factory) = match seed % 2 {
            0 => (byte_tokenizer(), byte_factory()),
            _ => (demo_tokenizer(), demo_factory()),
        };
        let compiled = compile(factory, ConstraintSpec::JsonSchema(schema.clone()));
        for walk_seed in 0..5 {
            let text = walk(tokenizer, &mut *compiled.fork(), &mut Rng(walk_seed)).0;
            let text = text_of(text);
            let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| {
                panic!("seed {seed}: {error}: {text} under {schema}");
            });
            validate(&schema, &value).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }
}

#[test]
fn whitespace_is_fixed_unless_asked_for() {
    let schema = json!({"type": "object", "properties": {"a": {"const": [1, 2]}, "b": {"const": {}}},
        "required": ["a", "b"], "additionalProperties": false});
    let spec = ConstraintSpec::JsonSchema(schema.clone());
    for text in texts(&spec, 3) {
        assert_eq!(text, r#"{"a": [1, 2], "b": {}}"#);
    }
    let mut compact = schema.clone();
    compact["x-guidance"] = json!({"item_separator": ",", "key_separator": ":"});
    for text in texts(&ConstraintSpec::JsonSchema(compact), 3) {
        assert_eq!(text, r#"{"a":[1,2],"b":{}}"#);
    }
    let mut flexible = schema;
    flexible["x-guidance"] = json!({"whitespace_flexible": true});
    let found = texts(&ConstraintSpec::JsonSchema(flexible), 20);
    assert!(found.iter().any(|text| text.contains('\n')), "{found:?}");
}

#[test]
fn any_object() {
    for text in texts(&ConstraintSpec::JsonObject, 10) {
        let value: Value = serde_json::from_str(&text).unwrap();
        assert!(value.is_object(), "{text}");
    }
}

#[test]
fn recursive_schemas() {
    let schema = json!({"$defs": {"tree": {"type": "object", "properties": {
        "value": {"type": "integer", "minimum": 0, "maximum": 9},
        "left": {"$ref": "#/$defs/tree"}}, "required": ["value"], "additionalProperties": false}},
        "$ref": "#/$defs/tree"});
    for text in texts(&ConstraintSpec::JsonSchema(schema), 10) {
        let mut value: &Value = &serde_json::from_str(&text).unwrap();
        while !value.is_null() {
            assert!(value["value"].as_i64().unwrap() < 10);
            value = &value["left"];
        }
    }
}

#[test]
fn regular_expressions_match_the_whole_output() {
    let patterns = [
        "(a|b)+c{2,3}",
        "^[0-9]{3}-[a-z]{1,9}$",
        "é?[^a-z]{2}/x\\\\",
        "(?i)story( time)?",
        "\\d{1,3}(\\.\\d{1,2})?\\$",
        "",
        "a|bc|",
        "\\p{L}{2,5}",
        "[\\]\\[(]{3}",
        "a\\/b\nc",
    ];
    for pattern in patterns {
        let whole = regex::Regex::new(&format!("^(?:{pattern})$")).unwrap();
        for text in texts(&ConstraintSpec::Regex(pattern.into()), 8) {
            assert!(whole.is_match(&text), "{text:?} does not match {pattern:?}");
        }
    }
}

#[test]
fn choices() {
    let options: Vec<String> =
        ["story", "storytime", "a/b \"c\"\n", "(.*)", "ÄÖ€", "\\"].map(String::from).into();
    let spec = ConstraintSpec::Choice { options: options.clone(), case_insensitive: false };
    let found = texts(&spec, 60);
    assert!(found.iter().all(|text| options.contains(text)), "{found:?}");
    assert!(options.iter().all(|option| found.contains(option)), "{found:?}");
    let spec = ConstraintSpec::Choice { options: options.clone(), case_insensitive: true };
    let found = texts(&spec, 60);
    let lower: Vec<String> = options.iter().map(|option| option.to_lowercase()).collect();
    assert!(found.iter().all(|text| lower.contains(&text.to_lowercase())), "{found:?}");
    assert!(found.iter().any(|text| !options.contains(text)), "{found:?}");
}

#[test]
fn ending_competes_with_a_longer_choice() {
    let tokenizer = byte_tokenizer();
    let options = ["story".to_string(), "storytime".to_string()].into();
    let spec = ConstraintSpec::Choice { options, case_insensitive: false };
    let mut constraint = compile(byte_factory(), spec);
    constraint.accept(id_of(tokenizer, "story")).unwrap();
    let mut mask = new_mask(tokenizer);
    let verdict = constraint.mask(&mut mask).unwrap();
    assert!(verdict.can_end && verdict.forced.is_empty() && !constraint.is_completed());
    for id in tokenizer.eos_ids() {
        assert!(mask.contains(*id));
    }
    assert!(mask.contains(id_of(tokenizer, "time")) && mask.contains(id_of(tokenizer, "t")));
    constraint.accept(id_of(tokenizer, "time")).unwrap();
    assert!(constraint.is_completed());
    constraint.mask(&mut mask).unwrap();
    assert_eq!(mask.count_ones(), tokenizer.eos_ids().len());
}

#[test]
fn lark_grammars() {
    let grammar = "start: sum\nsum: term (\" + \" term)*\nterm: NUMBER | \"(\" sum \")\"\n\
        NUMBER: /[0-9]{1,2}/";
    for text in texts(&ConstraintSpec::Lark(grammar.into()), 10) {
        let flat = text.replace(['(', ')'], "");
        let number = |part: &str| part.len() <= 2 && part.parse::<u32>().is_ok();
        assert!(flat.split(" + ").all(number), "{text}");
        assert_eq!(text.matches('(').count(), text.matches(')').count(), "{text}");
    }
}

/// The grammar for JSON that is commonly used with this notation, with bounded whitespace.
const JSON_GBNF: &str = r#"
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws (value ("," ws value)*)? "]" ws
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-cA-C]{4}) # no surrogates
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]{1,2})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"#;

#[test]
fn gbnf_with_recursion() {
    for text in texts(&ConstraintSpec::Gbnf(JSON_GBNF.into()), 25) {
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert!(value.is_object(), "{text}");
    }
    let nested = "root ::= \"(\" root \")\" | pair\npair ::= [ab]{2} pair? | \"\"";
    for text in texts(&ConstraintSpec::Gbnf(nested.into()), 25) {
        let inner = text.trim_matches(['(', ')']);
        let depth = text.find(|c| c != '(').unwrap_or(0);
        assert_eq!(text, format!("{}{inner}{}", "(".repeat(depth), ")".repeat(depth)));
        assert!(inner.len() % 2 == 0 && inner.bytes().all(|b| b == b'a' || b == b'b'), "{text}");
    }
}

#[test]
fn gbnf_without_recursion_is_exact() {
    // A greedy lexer would not find "abd" or "aaab".
    let grammar = "root ::= (\"ab\" \"c\") | (\"a\" tail) | [ab]* \"b\"\ntail ::= \"bd\" | \"€\"?";
    let expected = regex::Regex::new("^(?:abc|a(?:bd|€?)|[ab]*b)$").unwrap();
    let compiled = compile(byte_factory(), ConstraintSpec::Gbnf(grammar.into()));
    for text in ["abc", "abd", "a", "a€", "b", "aaab", "abab", "ab", "aba", "abdd", "€", "aa€"]
    {
        let mut constraint = compiled.fork();
        let accepted = constraint.begin(text.as_bytes()).is_ok()
            && constraint.mask(&mut new_mask(byte_tokenizer())).unwrap().can_end;
        assert_eq!(accepted, expected.is_match(text), "{text}");
    }
}

#[test]
fn all_at_once() {
    let parts = ["[a-f]{3,9}", "[c-z]*", ".{5}"].map(|p| ConstraintSpec::Regex(p.into()));
    for text in texts(&ConstraintSpec::All(parts.into()), 10) {
        assert!(text.len() == 5 && text.bytes().all(|b| (b'c'..=b'f').contains(&b)), "{text}");
    }
}
