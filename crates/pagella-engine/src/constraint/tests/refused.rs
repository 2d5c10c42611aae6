//! What must be refused, with which reason, and that nothing makes it panic.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn schema(value: Value) -> ConstraintSpec {
    ConstraintSpec::JsonSchema(value)
}

#[test]
fn impossible_schemas() {
    let leaf =
        |schema: Value| json!({"type": "object", "properties": {"a": schema}, "required": ["a"]});
    let cases = [
        json!(false),
        json!({"enum": []}),
        json!({"type": []}),
        json!({"anyOf": []}),
        json!({"anyOf": [false, {"enum": []}]}),
        json!({"type": "integer", "minimum": 5, "maximum": 4}),
        json!({"type": "integer", "minimum": 1.2, "maximum": 1.8}),
        json!({"type": "number", "exclusiveMinimum": 2, "maximum": 2}),
        json!({"type": "integer", "minimum": 3, "maximum": 4, "multipleOf": 5}),
        json!({"type": "string", "minLength": 5, "maxLength": 2}),
        json!({"type": "string", "pattern": "^aaa$", "maxLength": 2}),
        json!({"type": "array", "minItems": 3, "maxItems": 1}),
        json!({"type": "array", "items": false, "minItems": 1}),
        json!({"type": "string", "const": 5}),
        json!({"allOf": [{"type": "string"}, {"type": "integer"}]}),
        json!({"allOf": [{"minimum": 5, "type": "integer"}, {"maximum": 2}]}),
        json!({"type": "object", "required": ["z"], "additionalProperties": false}),
        json!({"$ref": "#"}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": leaf(json!({"$ref": "#/$defs/a"}))}}),
        json!({"$ref": "#/$defs/a", "$defs": {
            "a": {"type": "array", "items": {"$ref": "#/$defs/b"}, "minItems": 1},
            "b": {"anyOf": [leaf(json!({"$ref": "#/$defs/a"})), {"$ref": "#/$defs/b"}]}}}),
    ];
    for case in cases.iter().cloned().chain(cases.iter().cloned().map(leaf)) {
        if case["properties"]["a"].to_string().contains("$ref") {
            // References inside were meant for the root.
            continue;
        }
        let error = refusal(&schema(case.clone()));
        assert!(matches!(error, ConstraintError::Impossible { .. }), "{case}: {error}");
    }
}

#[test]
fn schemas_that_end_are_not_taken_for_endless() {
    let leaf = json!({"type": "object", "properties": {"a": {"$ref": "#"}}});
    let list = json!({"type": "array", "items": {"$ref": "#"}, "minItems": 0});
    let either = json!({"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#"},
        "minItems": 2}]});
    for case in [leaf, list, either] {
        assert!(byte_factory().compile(&schema(case.clone())).is_ok(), "{case}");
    }
}

#[test]
fn unsupported_keywords_are_named() {
    for keyword in
        ["uniqueItems", "not", "if", "contains", "propertyNames", "maxLenght", "$dynamicRef"]
    {
        let case = json!({"properties": {"x/y": {"anyOf": [{"type": "array", keyword: 3}]}}});
        let pointer = "/properties/x~1y/anyOf/0".to_string();
        let expected = ConstraintError::UnsupportedKeyword { pointer, keyword: keyword.into() };
        assert_eq!(refusal(&schema(case)), expected);
    }
    for key in ["lenient", "json_allowed_escapes", "other"] {
        let case = json!({"type": "null", "x-guidance": {key: true}});
        let error = refusal(&schema(case));
        let pointer = "/x-guidance".to_string();
        assert_eq!(error, ConstraintError::UnsupportedKeyword { pointer, keyword: key.into() });
    }
    // Documents of older drafts do not switch keywords off.
    let old = json!({"$schema": "http://json-schema.org/draft-04/schema#", "const": "ab"});
    let mut constraint = compile(byte_factory(), schema(old));
    assert_eq!(walk(byte_tokenizer(), &mut *constraint, &mut Rng(1)).0, b"\"ab\"");
}

#[test]
fn malformed_schemas_are_refused_with_a_pointer() {
    let cases = [
        (json!(7), ""),
        (json!({"type": "strnig"}), "/type"),
        (json!({"type": 7}), "/type"),
        (json!({"pattern": 7}), "/pattern"),
        (json!({"required": "a"}), "/required"),
        (json!({"enum": 3}), "/enum"),
        (json!({"properties": []}), "/properties"),
        (json!({"items": 3}), "/items"),
        (json!({"anyOf": {}}), "/anyOf"),
        (json!({"minLength": -1}), "/minLength"),
        (json!({"minimum": "1"}), "/minimum"),
        (json!({"multipleOf": 0}), "/multipleOf"),
        (json!({"$ref": "#/$defs/no"}), "/$ref"),
        (json!({"$ref": "https://example.com/a"}), "/$ref"),
        (json!({"properties": {"a": {"$ref": 3}}}), "/properties/a/$ref"),
        (json!({"$ref": "#/$defs/a~1b", "$defs": {"a/b": true}}), "/$ref"),
        (json!({"x-guidance": 3}), "/x-guidance"),
    ];
    for (case, pointer) in cases {
        match refusal(&schema(case.clone())) {
            ConstraintError::InvalidSchema { pointer: found, .. } => assert_eq!(found, pointer),
            other => panic!("{case}: {other}"),
        }
    }
    let hidden = json!({"$ref": "#/x-own/a", "x-own": {"a": {"type": "null"}}});
    assert!(matches!(refusal(&schema(hidden)), ConstraintError::InvalidSchema { .. }));
    let nullable = json!({"type": "string", "nullable": "yes"});
    assert!(matches!(refusal(&schema(nullable)), ConstraintError::InvalidSchema { .. }));
    let moved = json!({"properties": {"a": {"$id": "b", "items": {"$ref": "#"}}}});
    assert!(matches!(refusal(&schema(moved)), ConstraintError::UnsupportedKeyword { .. }));
    let one_of = json!({"oneOf": [{"type": "integer"}, {"type": "number"}]});
    assert!(matches!(refusal(&schema(one_of)), ConstraintError::InvalidSchema { .. }));
}

#[test]
fn what_only_describes_constrains_nothing() {
    let notes = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "a", "$comment": "b",
        "$anchor": "c", "title": "d", "description": "e", "default": 1, "examples": [2],
        "deprecated": true, "readOnly": false, "writeOnly": true, "contentMediaType": "text/plain",
        "contentEncoding": "base64", "contentSchema": {"type": "nonsense"}, "xml": {"name": "f"},
        "discriminator": {"propertyName": "kind", "mapping": {"a": "#/$defs/a"}},
        "externalDocs": {"url": "g"}, "example": 3, "x-internal": {"$ref": "nowhere"},
        "format": "colour", "uniqueItems": false, "unevaluatedProperties": true,
    });
    let mut noted = notes.clone();
    noted["properties"] = json!({"a": notes});
    // Further down these two would change what references mean.
    for root_only in ["$schema", "$id"] {
        noted["properties"]["a"].as_object_mut().unwrap().remove(root_only);
    }
    noted["properties"]["a"]["const"] = 7.into();
    noted["required"] = json!(["a"]);
    noted["additionalProperties"] = json!(false);
    noted["type"] = json!("object");
    let mut constraint = compile(byte_factory(), schema(noted));
    assert_eq!(walk(byte_tokenizer(), &mut *constraint, &mut Rng(1)).0, b"{\"a\": 7}");
}

#[test]
fn the_property_of_a_discriminator_is_written() {
    let option = |kind: &str, other: &str| {
        json!({"type": "object", "additionalProperties": false, "properties": {
            "kind": {"const": kind, "default": kind, "type": "string"}, other: {"type": "null"}}})
    };
    let case = json!({
        "discriminator": {"propertyName": "kind", "mapping": {"a": "#/$defs/A"}},
        "oneOf": [{"$ref": "#/$defs/A"}, option("b", "y")],
        "$defs": {"A": option("a", "x")},
    });
    let mut constraint = compile(byte_factory(), schema(case));
    for (text, viable) in [
        ("{\"kind\": \"a\", \"x\": null}", true),
        ("{\"kind\": \"b\"}", true),
        ("{\"kind\": \"b\", \"x\"", false),
        ("{\"x\"", false),
        ("{}", false),
    ] {
        assert_eq!(constraint.viable(text.as_bytes()).unwrap() == text.len(), viable, "{text}");
    }
    // Options that hold themselves have an end all the same.
    let leaf = json!({"type": "object", "properties": {"kind": {"const": "leaf"}}});
    let tree = json!({"type": "object", "properties": {"kind": {"const": "tree"}, "next": {
        "discriminator": {"propertyName": "kind"},
        "oneOf": [{"$ref": "#/$defs/tree"}, {"$ref": "#/$defs/leaf"}]}}});
    let case = json!({"$ref": "#/$defs/tree", "$defs": {"tree": tree, "leaf": leaf}});
    let mut constraint = compile(byte_factory(), schema(case));
    let text = "{\"kind\": \"tree\", \"next\": {\"kind\": \"leaf\"}}";
    assert_eq!(constraint.viable(text.as_bytes()).unwrap(), text.len());
}

#[test]
fn what_openapi_calls_nullable_may_be_null() {
    for (case, null) in [
        (json!({"type": "integer", "nullable": true}), true),
        (json!({"type": ["integer", "string"], "nullable": true}), true),
        (json!({"type": "integer", "nullable": false}), false),
        (json!({"$ref": "#/$defs/a", "nullable": true, "$defs": {"a": {"type": "string"}}}), false),
        (json!({"type": "string", "enum": ["a"], "nullable": true}), false),
    ] {
        let mut constraint = compile(byte_factory(), schema(case.clone()));
        assert_eq!(constraint.viable(b"null").unwrap() == 4, null, "{case}");
    }
}

#[test]
fn as_much_as_can_be_enforced_is_kept() {
    let case = json!({
        "$schema": "x", "title": "T", "type": "object", "unevaluatedProperties": false,
        "properties": {
            "a": {"type": "array", "uniqueItems": true, "items": {"enum": [1, 2]}, "minItems": 1},
            "b": {"not": {"type": "string"}, "pattern": "a\\", "type": "strnig"},
            "c": {"$ref": "https://example.com/a"}, "d": 5,
            "e": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        },
        "required": ["a"],
    });
    let (kept, mut dropped) = enforceable(&case, &ConstraintLimits::default());
    dropped.sort();
    assert_eq!(
        dropped,
        [
            "/properties/a/uniqueItems",
            "/properties/b/not",
            "/properties/b/pattern",
            "/properties/b/type",
            "/properties/c/$ref",
            "/properties/d",
            "/unevaluatedProperties",
        ]
    );
    let mut constraint = compile(byte_factory(), schema(kept));
    let text = b"{\"a\": [1, 2], \"e\": 1}";
    assert_eq!(constraint.viable(text).unwrap(), text.len());
    assert_eq!(constraint.viable(b"{\"a\": [3").unwrap(), 7);
    assert_eq!(enforceable(&json!(7), &ConstraintLimits::default()).0, json!(true));
}

#[test]
fn malformed_text() {
    let regex = |pattern: &str| refusal(&ConstraintSpec::Regex(pattern.into()));
    for pattern in ["(((", "[", "a\\", "(?=a)b", "a^b", "\\1", "*", "a{3,2}"] {
        let error = regex(pattern);
        assert!(matches!(error, ConstraintError::InvalidRegex { .. }), "{pattern}: {error}");
    }
    assert!(matches!(regex("[^\\s\\S]"), ConstraintError::Impossible { .. }));
    for grammar in ["", "start: %json {}", "start: <[7]>", "start: other", "x: \"a\""] {
        let error = refusal(&ConstraintSpec::Lark(grammar.into()));
        assert!(matches!(error, ConstraintError::InvalidLark { .. }), "{grammar}: {error}");
    }
    let endless = refusal(&ConstraintSpec::Lark("start: start \"a\"".into()));
    assert!(matches!(endless, ConstraintError::Impossible { .. }), "{endless}");
    let lists = |strings: Vec<String>| {
        let choice = ConstraintSpec::Choice { options: strings.clone(), case_insensitive: false };
        [choice, ConstraintSpec::Prefix(strings)]
    };
    for spec in lists(vec![]).into_iter().chain(lists(vec!["a".into(), String::new()])) {
        assert!(matches!(refusal(&spec), ConstraintError::InvalidStrings { .. }));
    }
    let then = Box::new(ConstraintSpec::JsonObject);
    let silent = ConstraintSpec::Lazy { trigger: String::new(), then };
    assert!(matches!(refusal(&silent), ConstraintError::InvalidStrings { .. }));
    let nothing = ConstraintSpec::All(vec![]);
    assert!(matches!(refusal(&nothing), ConstraintError::Impossible { .. }));
}

#[test]
fn sizes_are_limited() {
    let deep = |levels: usize| (0..levels).fold(json!(true), |inner, _| json!({"anyOf": [inner]}));
    let names: Value = (0..100_000).map(|i| (format!("name{i}"), json!(true))).collect();
    let chain: Value = (0..3000)
        .map(|i| (format!("d{i}"), json!({"items": {"$ref": format!("#/$defs/d{}", i + 1)}})))
        .chain([("d3000".to_string(), json!(true))])
        .collect();
    let lines: String = (0..5000).map(|i| format!("T{i}: T{} \"a\"\n", i + 1)).collect();
    let rules = lines.replace(':', " ::= ").to_lowercase();
    let many = vec![ConstraintSpec::JsonObject; 17];
    let nested = (0..40_000).fold(ConstraintSpec::JsonObject, |inner, _| ConstraintSpec::Lazy {
        trigger: "x".into(),
        then: Box::new(inner),
    });
    let cases = [
        schema(deep(200)),
        schema(json!({"properties": names})),
        schema(json!({"const": "x".repeat(100_000)})),
        schema(json!({"description": "x".repeat(2_000_000)})),
        schema(json!({"$ref": "#/$defs/d0", "$defs": chain})),
        schema(json!({"pattern": "x".repeat(100_000)})),
        schema(json!({"anyOf": [{"multipleOf": 997}, {"multipleOf": 991}]})),
        ConstraintSpec::Regex("x".repeat(100_000)),
        ConstraintSpec::Regex("(".repeat(100) + &")".repeat(100)),
        ConstraintSpec::Lark("x".repeat(2_000_000)),
        ConstraintSpec::Lark(format!("start: T0\n{lines}T5000: \"a\"\n")),
        ConstraintSpec::Gbnf("x".repeat(2_000_000)),
        ConstraintSpec::Gbnf(format!("root ::= t0\n{rules}t5000 ::= \"a\"\n")),
        ConstraintSpec::Gbnf("(".repeat(5000)),
        ConstraintSpec::Prefix(vec!["x".into(); 20_000]),
        ConstraintSpec::Prefix(vec!["x".repeat(2_000_000)]),
        ConstraintSpec::All(many),
        nested,
    ];
    for case in cases {
        let error = refusal(&case);
        let shown = error.to_string();
        let large = matches!(error, ConstraintError::TooLarge { .. });
        let syntax = matches!(error, ConstraintError::InvalidGbnf { .. });
        assert!(large || syntax && shown.contains("expected"), "{shown}");
        assert!(shown.len() < 1024, "{} bytes of message", shown.len());
        // Dropping deep nests level by level: this type is a plain tree of the caller's.
        let mut rest = case;
        while let ConstraintSpec::Lazy { then, .. } = rest {
            rest = *then;
        }
    }
}

/// A lexeme of 2^60 times `base`.
fn doubled(base: &str) -> ConstraintSpec {
    let lines: String = (0..60).map(|i| format!("T{i}: T{} T{}\n", i + 1, i + 1)).collect();
    ConstraintSpec::Lark(format!("start: T0\n{lines}T60: {base}\n"))
}

#[test]
fn work_is_limited() {
    let any: Vec<Value> =
        (0..10).map(|i| json!({"properties": {format!("p{i}"): {"minimum": i}}})).collect();
    let product = json!({"type": "object", "allOf": vec![json!({"anyOf": any}); 6]});
    let cases = [
        doubled("/[ab]/"),
        doubled("/[ab]*/"),
        schema(product),
        ConstraintSpec::Lark("start: \"a\" start".into()),
        ConstraintSpec::Lark("start: A\nA: /.*a.{20}/ & /.*b.{21}/ & ~/.*c.{22}/".into()),
        ConstraintSpec::Lark(format!("start: {}\"a\"{}", "(".repeat(5000), ")".repeat(5000))),
    ];
    for case in cases {
        let error = refusal(&case);
        let expected = matches!(
            error,
            ConstraintError::TooComplex { .. } | ConstraintError::CompileTime { .. }
        );
        assert!(expected, "{error}");
    }
    // The same limits hold while masks are computed, and only end that one constraint.
    let limits = ConstraintLimits { mask_items_max: 40, ..ConstraintLimits::default() };
    let tokenizer = byte_tokenizer();
    let factory = ConstraintFactory::new(tokenizer, tokenizer.vocab_size(), limits).unwrap();
    let grammar = "start: e\ne: e e | e e e | \"a\" | \"b\"";
    let mut mask = Bitmask::new_none(tokenizer.vocab_size());
    let outcome = factory.compile(&ConstraintSpec::Lark(grammar.into())).and_then(|mut tight| {
        for _ in 0..40 {
            tight.mask(&mut mask)?;
            tight.accept(id_of(tokenizer, "a"))?;
        }
        Ok(())
    });
    assert!(matches!(outcome, Err(ConstraintError::TooComplex { .. })), "{outcome:?}");
    let mut other = factory.compile(&ConstraintSpec::Regex("ab".into())).unwrap();
    assert!(other.mask(&mut mask).is_ok());
}

#[test]
fn time_is_limited() {
    let limits = ConstraintLimits { compile_time: Duration::ZERO, ..ConstraintLimits::default() };
    let tokenizer = byte_tokenizer();
    let factory = ConstraintFactory::new(tokenizer, tokenizer.vocab_size(), limits).unwrap();
    // Takes much longer than nothing, and ends by itself.
    let outcome = factory.compile(&doubled("/[ab]/")).map(|_| ());
    let budget = Duration::ZERO;
    assert_eq!(outcome, Err(ConstraintError::CompileTime { what: "Lark grammar", budget }));
}

/// JSON of some depth with schema keywords as names, so that it often means something.
fn any_schema() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "type",
        "string",
        "object",
        "array",
        "integer",
        "properties",
        "items",
        "anyOf",
        "allOf",
        "oneOf",
        "enum",
        "const",
        "$ref",
        "#",
        "#/$defs/a",
        "$defs",
        "a",
        "required",
        "pattern",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "multipleOf",
        "minItems",
        "maxItems",
        "additionalProperties",
        "patternProperties",
        "format",
        "date",
        "x-guidance",
        "prefixItems",
    ]);
    let leaf = prop_oneof![
        word.clone().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1000.0..1000.0).prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        let named = prop::collection::vec((word.clone(), inner.clone()), 0..5);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            named.prop_map(|pairs| pairs.into_iter().map(|(k, v)| (k.to_string(), v)).collect()),
        ]
    })
}

/// Compiles and takes a few steps; whatever happens, it is no panic.
fn try_out(spec: &ConstraintSpec, seed: u64) {
    let Ok(mut constraint) = byte_factory().compile(spec) else { return };
    let mut rng = Rng(seed);
    let mut mask = new_mask(byte_tokenizer());
    for _ in 0..12 {
        if constraint.mask(&mut mask).is_err() || mask.is_empty() {
            return;
        }
        let allowed: Vec<u32> = mask.ids().collect();
        if constraint.accept(*rng.pick(&allowed)).is_err() {
            panic!("an id of the mask was refused: {spec:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_schema_panics(value in any_schema(), seed in any::<u64>()) {
        try_out(&schema(value), seed);
    }

    #[test]
    fn no_regex_panics(pattern in "[a-c(){}\\[\\]|*+?.^$\\\\0-9,dwsbpPL:=<!&~é/-]{0,20}", seed in any::<u64>()) {
        try_out(&ConstraintSpec::Regex(pattern), seed);
    }

    #[test]
    fn no_lark_grammar_panics(
        tail in "(start|A|b|:|\\||\"a\"|/b/|\\(|\\)|\\*|\\+|\\?|~|&|\n| |%|\\{|\\}|[0-9]|,|\\[|\\]|<|>|=|@|\\.){0,24}",
        seed in any::<u64>(),
    ) {
        try_out(&ConstraintSpec::Lark(format!("start: {tail}")), seed);
        try_out(&ConstraintSpec::Lark(tail), seed);
    }

    #[test]
    fn no_gbnf_grammar_panics(
        tail in "(root|a|::=|\\||\"x\"|\\[a-z\\]|\\(|\\)|\\*|\\+|\\?|\\{2,3\\}|\n| |\\.|#|\\\\){0,24}",
        seed in any::<u64>(),
    ) {
        try_out(&ConstraintSpec::Gbnf(format!("root ::= {tail}")), seed);
        try_out(&ConstraintSpec::Gbnf(tail), seed);
    }

    #[test]
    fn no_text_panics(text in any::<String>(), seed in any::<u64>()) {
        try_out(&ConstraintSpec::Regex(text.clone()), seed);
        try_out(&ConstraintSpec::Lark(text.clone()), seed);
        try_out(&ConstraintSpec::Gbnf(text.clone()), seed);
        try_out(&ConstraintSpec::Choice { options: vec![text.clone()], case_insensitive: true }, seed);
        try_out(&ConstraintSpec::Prefix(vec![text]), seed);
    }
}
