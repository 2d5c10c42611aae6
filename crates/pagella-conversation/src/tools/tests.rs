//! Every format: recorded answers in all pieces, calls cut anywhere, text that is no call, and time
//! that grows with the text and no faster.

use std::path::Path;
use std::sync::Arc;

use pagella_engine::constraint::{Bitmask, Constraint, ConstraintFactory, ConstraintLimits};
use pagella_text::Tokenizer;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::definition::{Mode, Tool, ToolSet};
use super::formats::{Found, named, names};
use super::grammar;
use super::parser::CallParser;
use super::plan::ToolPlan;
use crate::parts::{Part, Whole};

fn set() -> Arc<ToolSet> {
    let tool = |name: &str, properties: Value| {
        let parameters = json!({"type": "object", "properties": properties});
        Tool {
            name: name.to_owned(),
            description: None,
            strict: false,
            input: None,
            enforced: parameters.clone(),
            parameters,
        }
    };
    let weather = json!({"city": {"type": "string"}, "days": {"type": "integer"},
        "options": {"type": "object"}});
    let tools = vec![tool("get_weather", weather), tool("get_time", json!({}))];
    Arc::new(ToolSet { tools, parallel: true, ..ToolSet::default() })
}

fn parser(format: &str) -> CallParser {
    let Found::Format(syntax) = named(format) else { panic!("{format}") };
    CallParser::new(syntax, set())
}

/// What an answer in pieces says; calls without their ids, and how many are whole.
fn read(format: &str, pieces: &[&str]) -> (String, Vec<(String, String)>, usize) {
    let mut parser = parser(format);
    let mut whole = Whole::default();
    let mut open = None;
    let mut push = |parts: Vec<Part>| {
        for part in parts {
            match &part {
                Part::CallOpened { index, .. } => {
                    assert_eq!(*index, open.map_or(0, |before: usize| before + 1));
                    open = Some(*index);
                }
                Part::CallArguments { index, text, .. } => {
                    assert!(open == Some(*index) && !text.is_empty());
                }
                Part::Content(text) => assert!(!text.is_empty()),
                Part::Reasoning(_) => panic!("calls have no reasoning"),
            }
            whole.push(part);
        }
    };
    pieces.iter().for_each(|piece| push(parser.push(piece)));
    push(parser.finish(false));
    let calls = whole.calls.into_iter().map(|call| (call.name, call.arguments)).collect();
    (whole.content, calls, parser.complete())
}

/// Per format an answer with two calls, as models write it.
const ANSWERS: &[(&str, &str)] = &[
    (
        "hermes",
        "Let me look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \
         \"days\": 2}}\n</tool_call>\n<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}\n\
         </tool_call>",
    ),
    (
        "qwen3-coder",
        "Let me look.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n\
         <parameter=days>\n2\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n\
         <function=get_time>\n</function>\n</tool_call>",
    ),
    (
        "glm-4.5",
        "Let me look.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n\
         <arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>get_time\n\
         </tool_call>",
    ),
    (
        "minimax-m2",
        "Let me look.\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">\
         Paris</parameter>\n<parameter name=\"days\">2</parameter>\n</invoke>\n\
         <invoke name=\"get_time\">\n</invoke>\n</minimax:tool_call>",
    ),
    (
        "mistral",
        "Let me look.[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \
         \"days\": 2}}, {\"name\": \"get_time\", \"arguments\": {}}]",
    ),
    (
        "mistral-args",
        "Let me look.[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Paris\", \"days\": 2}\
         [TOOL_CALLS]get_time[ARGS]{}",
    ),
    (
        "mistral-call-id",
        "Let me look.[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{\"city\": \"Paris\", \"days\": 2}\
         [TOOL_CALLS]get_time[CALL_ID]123456789[ARGS]{}",
    ),
    (
        "deepseek-v3",
        "Let me look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n\
         ```json\n{\"city\": \"Paris\", \"days\": 2}\n```<｜tool▁call▁end｜>\n\
         <｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n```json\n{}\n```<｜tool▁call▁end｜>\
         <｜tool▁calls▁end｜>",
    ),
    (
        "deepseek-v3.1",
        "Let me look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>\
         {\"city\": \"Paris\", \"days\": 2}<｜tool▁call▁end｜><｜tool▁call▁begin｜>get_time\
         <｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    (
        "kimi-k2",
        "Let me look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0\
         <|tool_call_argument_begin|>{\"city\": \"Paris\", \"days\": 2}<|tool_call_end|>\
         <|tool_call_begin|>functions.get_time:1<|tool_call_argument_begin|>{}<|tool_call_end|>\
         <|tool_calls_section_end|>",
    ),
    (
        "gemma-4",
        "Let me look.<|tool_call>call:get_weather{city:<|\"|>Paris<|\"|>,days:2}<tool_call|>\
         <|tool_call>call:get_time{}<tool_call|>",
    ),
    (
        "command-r",
        "Let me look.<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \
         \"parameters\": {\"city\": \"Paris\", \"days\": 2}},\n    {\"tool_call_id\": \"1\", \
         \"tool_name\": \"get_time\", \"parameters\": {}}\n]<|END_ACTION|>",
    ),
    (
        "granite",
        "Let me look.<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \
         \"days\": 2}}, {\"name\": \"get_time\", \"arguments\": {}}]",
    ),
    (
        "phi-4",
        "Let me look.<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \
         \"days\": 2}}, {\"name\": \"get_time\", \"arguments\": {}}]<|/tool_call|>",
    ),
    (
        "functionary-v3.1",
        "Let me look.<function=get_weather>{\"city\": \"Paris\", \"days\": 2}</function>\
         <function=get_time>{}</function>",
    ),
    (
        "llama-3",
        "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\", \"days\": 2}}; \
         {\"name\": \"get_time\", \"parameters\": {}}",
    ),
    ("pythonic", "[get_weather(city=\"Paris\", days=2), get_time()]"),
    (
        "generic",
        "{\"tool_calls\": [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \"days\": \
         2}}, {\"arguments\": {}, \"name\": \"get_time\"}]}",
    ),
];

#[test]
fn every_format_reads_its_own_answers() {
    for (format, answer) in ANSWERS {
        let (content, calls, complete) = read(format, &[answer]);
        let expected = [
            ("get_weather".to_owned(), "{\"city\": \"Paris\", \"days\": 2}".to_owned()),
            ("get_time".to_owned(), "{}".to_owned()),
        ];
        assert_eq!((calls.as_slice(), complete), (&expected[..], 2), "{format}");
        let before = if answer.starts_with("Let") { "Let me look." } else { "" };
        assert_eq!(content, before, "{format}");
    }
    let covered: Vec<&str> = ANSWERS.iter().map(|(format, _)| *format).collect();
    assert!(names().all(|name| covered.contains(&name)));
}

#[test]
fn a_call_that_is_cut_goes_as_far_as_it_goes() {
    for (format, answer) in ANSWERS {
        for (cut, _) in answer.char_indices() {
            let (_, calls, complete) = read(format, &[&answer[..cut]]);
            assert!(complete <= calls.len() && calls.len() <= complete + 1, "{format} {cut}");
            for (name, arguments) in calls.iter().take(complete) {
                assert!(name.starts_with("get_"));
                assert!(serde_json::from_str::<Value>(arguments).is_ok(), "{format}: {arguments}");
            }
        }
    }
}

#[test]
fn what_is_no_call_is_content() {
    for (format, text) in [
        ("hermes", "a <tool_call> b"),
        ("hermes", "<tool_call>\n[1, 2]\n</tool_call>"),
        ("hermes", "<tool_call>{\"arguments\": {}}</tool_call>"),
        ("hermes", "<tool_call>{\"name\": \"bad name\", \"arguments\": {}}</tool_call>"),
        ("hermes", "  <tool <tool_cal <"),
        ("qwen3-coder", "<tool_call><function=a b>"),
        ("mistral", "[TOOL_CALLS] nothing"),
        ("llama-3", "{\"name\": \"unknown\", \"parameters\": {}}"),
        ("llama-3", "  Hello {\"name\": \"get_time\"}"),
        ("pythonic", "[1, 2, 3]"),
        ("kimi-k2", "<|tool_calls_section_begin|><|tool_call_begin|>get_time:0"),
        ("gemma-4", "<|tool_call>call:get_time["),
        ("gemma-4", "<|tool_call>get_time{}"),
        ("pythonic", "[see](http://example.org)"),
        ("generic", "{\"tool_calls\": []}"),
        ("generic", "{\"answer\": 42}"),
        ("generic", "\n\n{\"tool_calls\": [{\"name\": \"rm\", \"arguments\": {}}]}"),
    ] {
        assert_eq!(read(format, &[text]), (text.to_owned(), Vec::new(), 0), "{format}: {text}");
    }
}

#[test]
fn an_answer_that_is_cut_in_a_call_shows_nothing_of_its_syntax() {
    for (format, answer) in ANSWERS {
        let Found::Format(syntax) = named(format) else { panic!("{format}") };
        let whole = read(format, &[answer]);
        for mode in [Mode::Auto, Mode::Required] {
            let text = answer.strip_prefix("Let me look.").unwrap_or(answer).trim_start();
            for cut in (1..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
                let set = ToolSet { mode, ..(*set()).clone() };
                let mut parser = CallParser::new(syntax, Arc::new(set));
                let mut shown = Whole::default();
                let parts = [parser.push(&text[..cut]), parser.finish(true)].concat();
                parts.into_iter().for_each(|part| shown.push(part));
                // One character can be the beginning of anything.
                let most = usize::from(mode == Mode::Auto);
                let content = shown.content.chars().count();
                assert!(content <= most, "{format} {:?}: {:?}", &text[..cut], shown.content);
                for (idx, call) in shown.calls.iter().enumerate() {
                    let is_whole = serde_json::from_str::<Value>(&call.arguments).is_ok();
                    assert_eq!(is_whole, call.arguments == whole.1[idx].1, "{format}: {call:?}");
                    assert!(!call.arguments.is_empty(), "{format}: looks like one without any");
                }
            }
        }
    }
}

#[test]
fn what_follows_a_broken_call_is_content() {
    let text = "<tool_call>{\"name\": \"get_time\", \"arguments\": {]oops";
    let (content, calls, complete) = read("hermes", &[text]);
    assert_eq!((content.as_str(), complete), ("]oops", 0));
    assert_eq!(calls, [("get_time".to_owned(), "{".to_owned())]);
    let text = "<tool_call>{\"name\": \"get_time\", \"arguments\": {}}</tool_call>\nDone.";
    let (content, calls, complete) = read("hermes", &[text]);
    assert_eq!((content.as_str(), calls.len(), complete), ("\nDone.", 1, 1));
}

#[test]
fn arguments_are_read_however_they_are_written() {
    let arguments = |format: &str, text: &str| {
        let (_, calls, complete) = read(format, &[text]);
        assert_eq!(complete, 1, "{text}");
        serde_json::from_str::<Value>(&calls[0].1).unwrap()
    };
    let text = r#"<tool_call>{"name": "f", "arguments": "{\"x\": 1}"}</tool_call>"#;
    assert_eq!(arguments("hermes", text), json!({"x": 1}));
    let text = r#"<tool_call>{"name": "f", "arguments": null, "id": 7}</tool_call>"#;
    assert_eq!(arguments("hermes", text), json!({}));
    let text = r#"<tool_call>{"name": "f"}</tool_call>"#;
    assert_eq!(arguments("hermes", text), json!({}));
    let coder = |value: &str, key: &str| {
        let text = format!(
            "<tool_call><function=get_weather><parameter={key}>{value}</parameter></function>\
             </tool_call>"
        );
        arguments("qwen3-coder", &text)[key].clone()
    };
    assert_eq!(coder("\n\"a\"\n\nb\\ </para\n", "city"), json!("\"a\"\n\nb\\ </para"));
    assert_eq!(coder("\n{\"a\": [1]}\n", "options"), json!({"a": [1]}));
    assert_eq!(coder("\nnot json\n", "options"), json!("not json"));
    assert_eq!(coder("12", "unknown"), json!("12"));
    let gemma = |text: &str| arguments("gemma-4", &format!("<|tool_call>call:f{text}<tool_call|>"));
    let text = "{a:<|\"|>x\"\\\n<|\"<|\"|>, b : [1,-2.5,[],{}], c:{d:true,e:null},f:bare word}";
    let expected = json!({"a": "x\"\\\n<|\"", "b": [1, -2.5, [], {}],
        "c": {"d": true, "e": null}, "f": "bare word"});
    assert_eq!(gemma(text), expected);
    assert_eq!(gemma("{ }"), json!({}));
    assert_eq!(gemma("{a:[<|\"|><|\"|>,<|\"|>é<<|\"|>]}"), json!({"a": ["", "é<"]}));
    let text = "[get_weather(city='it\\'s', options={'a': [True, None]}, days = -3)]";
    let expected = json!({"city": "it's", "options": {"a": [true, null]}, "days": -3});
    assert_eq!(arguments("pythonic", text), expected);
}

/// Texts that look like calls of every format and go on for long.
fn hostile(format: &str) -> Vec<String> {
    let (_, answer) = ANSWERS.iter().find(|(name, _)| *name == format).unwrap();
    let open = &answer[..answer.find("get_weather").unwrap()];
    let begun = &answer[..answer.find("Paris").unwrap()];
    vec![
        "<".repeat(20_000),
        " \n".repeat(10_000),
        open.repeat(20_000 / open.len()),
        format!("{begun}{}", "</parameter".repeat(2_000)),
        format!("{begun}{}", "[".repeat(20_000)),
        format!("{begun}{}", "\n".repeat(20_000)),
        format!("{begun}{}", "\\\"".repeat(10_000)),
        answer.repeat(20_000 / answer.len()),
    ]
}

#[test]
fn time_is_linear_in_the_text() {
    for format in names() {
        for text in hostile(format) {
            let mut parser = parser(format);
            parser.push(&text);
            parser.finish(false);
            let chars = text.chars().count();
            assert!(parser.steps <= 4 * chars + 64, "{format}: {} for {chars}", parser.steps);
        }
    }
}

#[test]
fn nothing_is_lost() {
    // Every character is content or belongs to a call.
    for format in names() {
        for text in hostile(format) {
            let (content, calls, _) = read(format, &[&text]);
            assert!(!content.is_empty() || !calls.is_empty(), "{format}: {:.40}", text);
        }
    }
}

fn demo_tokenizer() -> Tokenizer {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo");
    Tokenizer::from_dir(&dir).unwrap()
}

/// Bytes of a text that a constraint takes, id by id; all of them and one more if it may end there.
fn taken(constraint: &mut dyn Constraint, tokenizer: &Tokenizer, text: &str) -> usize {
    let mut bytes = 0;
    for id in tokenizer.encode_text(text).unwrap() {
        if constraint.accept(id).is_err() {
            return bytes;
        }
        bytes += tokenizer.token_bytes(id).len();
    }
    let mut mask = Bitmask::new_none(tokenizer.vocab_size());
    bytes + usize::from(constraint.mask(&mut mask).unwrap().can_end)
}

#[test]
fn what_models_write_is_what_is_enforced() {
    let tokenizer = demo_tokenizer();
    let limits = ConstraintLimits::default();
    let factory = ConstraintFactory::new(&tokenizer, tokenizer.vocab_size(), limits).unwrap();
    for (format, answer) in ANSWERS {
        // One of the recorded answers has its keys in another order, which only reading allows.
        let answer = answer.replace(
            "{\"arguments\": {}, \"name\": \"get_time\"}",
            "{\"name\": \"get_time\", \"arguments\": {}}",
        );
        let Found::Format(syntax) = named(format) else { panic!("{format}") };
        for mode in [Mode::Auto, Mode::Required] {
            let set = ToolSet { mode, ..(*set()).clone() };
            let plan = ToolPlan::with(syntax, set);
            let spec = plan.constraint(None, &tokenizer).unwrap();
            let mut constraint = factory.compile(&spec).unwrap_or_else(|e| panic!("{format}: {e}"));
            let text = match mode {
                Mode::Auto => answer.as_str(),
                _ => answer.strip_prefix("Let me look.").unwrap_or(&answer).trim_start(),
            };
            let reached = taken(&mut *constraint.fork(), &tokenizer, text);
            assert_eq!(
                reached,
                text.len() + 1,
                "{format} {mode:?}: {}",
                &text[reached.min(text.len())..]
            );
            // A call that has begun has arguments of its schema.
            let days = text.find("days").unwrap();
            let days = days + text[days..].find('2').unwrap();
            let wrong = format!("{}true", &text[..days]);
            let reached = taken(&mut *constraint.fork(), &tokenizer, &wrong);
            assert!(reached <= days, "{format} {mode:?}: {}", &wrong[..reached]);
            if mode == Mode::Auto && grammar::openings(syntax, &plan.set).len() > 1 && syntax.bare {
                // Without a mark only the name of a tool tells a call from an answer.
                continue;
            }
            // Behind the mark nothing else is possible; before it everything is, or nothing.
            let begun = &text[..text.find("get_weather").unwrap()];
            let wrong = format!("{begun}steal_weather");
            assert!(taken(&mut *constraint, &tokenizer, &wrong) <= begun.len() + 1, "{format}");
        }
    }
}

proptest! {
    #[test]
    fn cuts_make_no_difference(
        format in 0..ANSWERS.len(),
        noise in prop::collection::vec((0usize..400, r#"[<>{}\[\]",:=() \na]{0,3}"#), 0..3),
        cuts in prop::collection::vec(0usize..400, 0..8),
    ) {
        let (format, answer) = ANSWERS[format];
        let mut text = answer.to_owned();
        for (at, insert) in noise {
            let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap();
            text.insert_str(at, &insert);
        }
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.retain(|cut| text.is_char_boundary(*cut));
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&str> = cuts.windows(2).map(|w| &text[w[0]..w[1]]).collect();
        prop_assert_eq!(read(format, &pieces), read(format, &[&text]));
    }
}
