//! Requests of every kind, with the answers they get alone.

use pagella::{Complete, Completion, Engine, Error};
use serde_json::json;

/// A request for any engine.
pub type Request = fn(&Engine) -> Complete;

const REQUESTS: &[Request] = &[
    |e| e.complete("The `map()` method").greedy().max_tokens(40),
    |e| e.complete("The `map()` method").seed(3).temperature(1.0).max_tokens(60),
    |e| e.complete("The `filter()` method").greedy().max_tokens(90),
    |e| e.complete("CSS is").seed(5).temperature(0.8).top_p(0.9).max_tokens(50),
    |e| e.complete("CSS is").greedy().ban("style").ban("the").max_tokens(40),
    |e| e.complete("HTML is").seed(2).temperature(1.2).ban("element").max_tokens(40),
    |e| e.complete("Yes or no? ").greedy().choice(["yes", "no", "perhaps"]),
    |e| e.complete("A date: ").seed(9).regex("[0-9]{4}-[0-9]{2}-[0-9]{2}").max_tokens(30),
    |e| e.complete("An object: ").seed(4).json_schema(schema()).max_tokens(60),
    |e| e.complete("An array is").greedy().negative("A function is", 1.5).max_tokens(40),
    |e| e.complete("A promise is").seed(7).temperature(1.0).n(3).max_tokens(30),
    |e| e.complete("The `ma").heal().greedy().max_tokens(20),
    |e| e.complete(long("one")).greedy().max_tokens(30),
    |e| e.complete(long("two")).seed(6).temperature(1.0).max_tokens(80),
    |e| e.complete(long("two")).greedy().cache_salt("mine").max_tokens(20),
    |e| {
        let complete = e.complete(long("three")).seed(8).temperature(1.0).max_tokens(300);
        complete.adjust(|s| s.dry_multiplier = 0.8).repetition_penalty(1.1)
    },
];

/// About 700 tokens, the same but for the end.
fn long(end: &str) -> String {
    format!(
        "{}Part {end}:",
        "An array is a list of values, and every value has a place. ".repeat(45)
    )
}

fn schema() -> serde_json::Value {
    json!({
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}, "size": {"type": "integer"}},
        "required": ["name", "size"],
        "additionalProperties": false,
    })
}

/// Every request with its answers, each computed alone in an empty cache.
pub fn all() -> Result<Vec<(Request, Vec<Completion>)>, Error> {
    let engine = Engine::builder("demo").cache_tokens(12 * 256).open()?;
    let alone = |&request: &Request| {
        let reset = |generator: &mut pagella::Generator| generator.reset_page_table();
        engine.worker().call(reset)?;
        Ok((request, request(&engine).run_all()?))
    };
    REQUESTS.iter().map(alone).collect()
}
