//! What the engine enforces so that calls can be read: a grammar made from the description of a
//! format and the tools that may be called.
//!
//! Marks that are special tokens are asked for by id. Arguments follow what is enforced of their
//! schema (`schema`); the text of a custom tool follows its rule, in whatever notation it stands.

use pagella_engine::constraint::{ConstraintSpec, InputRule};
use pagella_text::Tokenizer;
use serde_json::{Value, json};

use super::definition::{Tool, ToolSet};
use super::gemma::QUOTE;
use super::schema::told;
use super::syntax::{Piece, Syntax, TagStyle};
use super::tags::is_text;
use crate::error::{ConversationError, Problem};

/// Where the grammar begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// With the first mark.
    Beginning,
    /// Behind it.
    Mark,
}

/// Calls, and nothing else.
pub fn calls(
    syntax: &'static Syntax,
    tools: &ToolSet,
    tokenizer: &Tokenizer,
    from: From,
) -> ConstraintSpec {
    let mut grammar =
        Grammar { tokenizer, schemas: Vec::new(), specials: Vec::new(), inputs: Vec::new() };
    let skip = usize::from(from == From::Mark);
    let mut rules = String::new();
    let mut names = (Vec::new(), Vec::new());
    for (idx, tool) in tools.callable().enumerate() {
        let call = grammar.pieces(syntax.call, Some((tool, idx)), &mut rules);
        names.0.push(format!("call_{idx}"));
        rules.push_str(&format!("call_{idx}: {call}\n"));
        if syntax.open.is_empty() && skip > 0 {
            // The mark belongs to every call; the first has it already.
            let call = grammar.pieces(&syntax.call[skip..], Some((tool, idx)), &mut rules);
            names.1.push(format!("first_{idx}"));
            rules.push_str(&format!("first_{idx}: {call}\n"));
        }
    }
    let first = if names.1.is_empty() { "call" } else { "first" };
    if !names.1.is_empty() {
        rules.push_str(&format!("first: {}\n", names.1.join(" | ")));
    }
    let skip = skip.min(syntax.open.len());
    let open = grammar.pieces(&syntax.open[skip..], None, &mut rules);
    let close = grammar.pieces(syntax.close, None, &mut rules);
    let more = match tools.parallel {
        true => {
            let between = format!("{}{}", syntax.separator.unwrap_or_default(), syntax.gap);
            format!("({} call)*", grammar.text(&between))
        }
        false => String::new(),
    };
    let lark =
        format!("start: {open} {first} {more} {close}\ncall: {}\n{rules}", names.0.join(" | "),);
    let Grammar { schemas, specials, inputs, .. } = grammar;
    ConstraintSpec::Composed { lark, schemas, specials, inputs }
}

/// What an answer begins with that has a call of a format without a mark: as much of it as shows that
/// it is one.
pub fn openings(syntax: &'static Syntax, tools: &ToolSet) -> Vec<String> {
    let plain = |piece: &Piece| match piece {
        Piece::Text(text) | Piece::Space(text) => *text,
        _ => "",
    };
    let open: String = syntax.open.iter().map(plain).collect();
    if open.contains(char::is_alphabetic) {
        return vec![open];
    }
    let opening = |tool: &Tool| {
        let mut text = open.clone();
        let mut named = false;
        for piece in syntax.call {
            match piece {
                Piece::Text(_) | Piece::Space(_) => text.push_str(plain(piece)),
                Piece::Name => text.push_str(&tool.name),
                Piece::Object { name, arguments, .. } => {
                    text.push_str(&before_arguments(name, &tool.name, arguments));
                }
                _ => {}
            }
            // A name counts with the mark behind it.
            let ends = named || matches!(piece, Piece::Object { .. });
            if ends {
                break;
            }
            named = matches!(piece, Piece::Name);
        }
        text
    };
    tools.callable().map(opening).collect()
}

/// An object with a call, up to the arguments.
fn before_arguments(name_key: &str, name: &str, arguments_key: &str) -> String {
    format!("{{\"{name_key}\": \"{name}\", \"{arguments_key}\": ")
}

struct Grammar<'a> {
    tokenizer: &'a Tokenizer,
    schemas: Vec<Value>,
    specials: Vec<u32>,
    inputs: Vec<(InputRule, bool)>,
}

impl Grammar<'_> {
    /// The right side of a rule for pieces, of a call where a tool is given. Rules that they need
    /// are added to `rules`.
    fn pieces(
        &mut self,
        pieces: &[Piece],
        call: Option<(&Tool, usize)>,
        rules: &mut String,
    ) -> String {
        let mut parts = Vec::new();
        for piece in pieces {
            let part = match (piece, call) {
                (Piece::Text(text) | Piece::Space(text), _) => self.text(text),
                (Piece::Word(pattern), _) => format!("/{pattern}/"),
                (Piece::Name, Some((tool, _))) => self.text(&tool.name),
                (Piece::Json, Some((tool, _))) => self.object(tool),
                (Piece::Object { name, arguments, lead }, Some((tool, _))) => {
                    let lead = match lead.is_empty() {
                        true => String::new(),
                        false => format!("/{}/", lead.replace('/', "\\/")),
                    };
                    let before = before_arguments(name, &tool.name, arguments);
                    let (open, before) = (self.text("{"), self.text(&before[1..]));
                    let (value, close) = (self.object(tool), self.text("}"));
                    format!("{open} {lead} {before} {value} {close}")
                }
                (Piece::Tags(style), Some((tool, idx))) => self.tags(style, tool, idx, rules),
                (Piece::Python, Some((tool, idx))) => self.python(tool, idx, rules),
                (Piece::Gemma, Some((tool, idx))) => self.gemma(tool, idx, rules),
                (_, None) => String::new(),
            };
            parts.push(part);
        }
        parts.join(" ")
    }

    /// Text, with the special tokens in it.
    fn text(&mut self, text: &str) -> String {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let specials = &self.tokenizer.template_tokens().specials;
            let found = specials.iter().filter_map(|name| Some((rest.find(name.as_str())?, name)));
            // The first, and of several there the longest.
            let found = found.filter(|(_, name)| !name.is_empty());
            let next = found.min_by_key(|(at, name)| (*at, usize::MAX - name.len()));
            let id = next.and_then(|(at, name)| Some((at, name, self.tokenizer.id_of(name)?)));
            let Some((at, name, id)) = id else {
                parts.push(Value::from(rest).to_string());
                break;
            };
            if at > 0 {
                parts.push(Value::from(&rest[..at]).to_string());
            }
            rest = &rest[at + name.len()..];
            if !self.specials.contains(&id) {
                self.specials.push(id);
            }
            parts.push(format!("special_{id}"));
        }
        parts.join(" ")
    }

    /// The arguments of a tool as a JSON object.
    fn object(&mut self, tool: &Tool) -> String {
        match rule(tool) {
            None => self.json(tool.enforced.clone()),
            Some(rule) => {
                let input = self.input(rule, true);
                format!("{} {input} {}", self.text("{\"input\": \""), self.text("\"}"))
            }
        }
    }

    /// The text of a custom tool.
    fn input(&mut self, rule: &InputRule, in_json: bool) -> String {
        let input = (rule.clone(), in_json);
        let known = self.inputs.iter().position(|other| *other == input);
        let idx = known.unwrap_or_else(|| {
            self.inputs.push(input);
            self.inputs.len() - 1
        });
        format!("input_{idx}")
    }

    fn json(&mut self, schema: Value) -> String {
        let known = self.schemas.iter().position(|other| *other == schema);
        let idx = known.unwrap_or_else(|| {
            self.schemas.push(schema);
            self.schemas.len() - 1
        });
        format!("json_{idx}")
    }

    /// Arguments in tags: those that are required, and others or not.
    fn tags(&mut self, style: &TagStyle, tool: &Tool, idx: usize, rules: &mut String) -> String {
        let mut parts = Vec::new();
        let line = if style.lines { "\n" } else { "" };
        for (n, (key, schema, required)) in arguments(tool).into_iter().enumerate() {
            let before = format!("{}{key}{}{}{line}", style.key_open, style.key_close, {
                let gap = if style.value_open.is_empty() { "" } else { style.between };
                format!("{gap}{}", style.value_open)
            });
            let end = format!("{line}{}", style.value_close);
            let (before, behind) = (self.text(&before), self.text(style.between));
            let value = match (is_text(Some(&schema)), options(&schema)) {
                _ if rule(tool).is_some() => {
                    let input = rule(tool).map(|rule| self.input(rule, false));
                    format!("{} {}", input.unwrap_or_default(), self.text(&end))
                }
                (true, Some(options)) => {
                    let options: Vec<String> = options.iter().map(|text| self.text(text)).collect();
                    format!("({}) {}", options.join(" | "), self.text(&end))
                }
                (true, None) => {
                    let name = format!("text_{idx}_{n}");
                    let end = Value::from(end.as_str());
                    add(rules, &format!("{name}[suffix={end}]: /(?s:.*)/\n"));
                    name
                }
                (false, _) => format!("{} {}", self.json(schema), self.text(&end)),
            };
            let whole = format!("{before} {value} {behind}");
            parts.push(if required { whole } else { format!("({whole})?") });
        }
        parts.push(self.text(style.end));
        parts.join(" ")
    }

    /// Arguments as in Python: those that are required, then others or not. JSON values are Python
    /// literals, but for `true`, `false` and `null`, which are read all the same.
    fn python(&mut self, tool: &Tool, idx: usize, rules: &mut String) -> String {
        let (mut required, mut optional) = (Vec::new(), Vec::new());
        for (key, schema, is_required) in arguments(tool) {
            let value = match (rule(tool), schema.get("type").and_then(Value::as_str)) {
                (Some(rule), _) => {
                    let input = self.input(rule, true);
                    format!("{} {input} {}", self.text("\""), self.text("\""))
                }
                (_, Some("boolean")) => "(\"True\" | \"False\")".to_owned(),
                _ => self.json(schema),
            };
            let one = format!("{} {value}", self.text(&format!("{key}=")));
            if is_required { required.push(one) } else { optional.push(one) }
        }
        let list = listed(&required, &optional, "\", \"", &format!("python_{idx}"), rules);
        format!("{list} \")\"")
    }

    /// Arguments as Gemma writes them: those that are required, then others or not.
    fn gemma(&mut self, tool: &Tool, idx: usize, rules: &mut String) -> String {
        let (mut required, mut optional) = (Vec::new(), Vec::new());
        for (key, schema, is_required) in arguments(tool) {
            let value = match options(&schema) {
                _ if rule(tool).is_some() => {
                    let input = rule(tool).map(|rule| self.input(rule, false));
                    let quote = self.text(QUOTE);
                    format!("{quote} {} {quote}", input.unwrap_or_default())
                }
                Some(options) => {
                    let quoted = |text: &String| self.text(&format!("{QUOTE}{text}{QUOTE}"));
                    format!("({})", options.iter().map(quoted).collect::<Vec<_>>().join(" | "))
                }
                None if is_text(Some(&schema)) => self.gemma_rules("gemma_text", rules),
                None if is_scalar(&schema) => self.json(schema),
                None => self.gemma_rules("gemma_value", rules),
            };
            let one = format!("{} {value}", self.text(&format!("{key}:")));
            if is_required { required.push(one) } else { optional.push(one) }
        }
        let list = listed(&required, &optional, "\",\"", &format!("gemma_{idx}"), rules);
        format!("\"{{\" {list} \"}}\"")
    }

    /// One of the rules of Gemma's notation, with the others that it needs.
    fn gemma_rules(&mut self, name: &str, rules: &mut String) -> String {
        let quote = self.text(QUOTE);
        let scalar = self.json(json!({ "type": ["number", "boolean", "null"] }));
        // A mark that is a token of its own is never part of a text; other marks end it.
        let text = match self.tokenizer.id_of(QUOTE) {
            Some(_) => format!("gemma_text: {quote} /(?s:.+)/? {quote}\n"),
            None => {
                format!("gemma_text: {quote} gemma_rest\ngemma_rest[suffix={quote}]: /(?s:.*)/\n")
            }
        };
        add(rules, &text);
        if name == "gemma_value" {
            add(
                rules,
                &format!("gemma_value: gemma_text | {scalar} | gemma_object | gemma_list\n"),
            );
            add(rules, "gemma_object: \"{\" (gemma_pair (\",\" gemma_pair)*)? \"}\"\n");
            add(rules, "gemma_pair: /[A-Za-z_][A-Za-z0-9_.-]*/ \":\" gemma_value\n");
            add(rules, "gemma_list: \"[\" (gemma_value (\",\" gemma_value)*)? \"]\"\n");
        }
        name.to_owned()
    }
}

/// Arguments with commas between: those that are required, then others or not.
fn listed(
    required: &[String],
    optional: &[String],
    comma: &str,
    rule: &str,
    rules: &mut String,
) -> String {
    let others = |list: &[String]| -> String {
        list.iter().map(|one| format!(" ({comma} {one})?")).collect()
    };
    match (required.is_empty(), optional.is_empty()) {
        (false, _) => format!("{}{}", required.join(&format!(" {comma} ")), others(optional)),
        (true, true) => String::new(),
        (true, false) => {
            // Without a first one that is always there, each may be it.
            let first = |n: usize| format!("{}{}", optional[n], others(&optional[n + 1..]));
            let options: Vec<String> = (0..optional.len()).map(first).collect();
            add(rules, &format!("{rule}: {}\n", options.join(" | ")));
            format!("{rule}?")
        }
    }
}

/// Whether a schema allows only what is written the same in JSON and everywhere.
fn is_scalar(schema: &Value) -> bool {
    let scalar =
        |kind: &Value| matches!(kind.as_str(), Some("number" | "integer" | "boolean" | "null"));
    match schema.get("type") {
        Some(Value::Array(kinds)) => !kinds.is_empty() && kinds.iter().all(scalar),
        Some(kind) => scalar(kind),
        None => false,
    }
}

/// Texts that a schema names, where it allows nothing else.
fn options(schema: &Value) -> Option<Vec<String>> {
    let listed = match (schema.get("enum"), schema.get("const")) {
        (Some(Value::Array(list)), _) => list.clone(),
        (_, Some(only)) => vec![only.clone()],
        _ => return None,
    };
    listed.iter().map(|value| value.as_str().map(str::to_owned)).collect()
}

/// What a schema says of a text that cannot be enforced between tags.
const BEYOND_TAGS: [&str; 4] = ["pattern", "format", "minLength", "maxLength"];

/// What of the schemas cannot be enforced in a format, as clients are told. For a strict tool that is
/// an error.
pub fn beyond(syntax: &Syntax, tools: &ToolSet) -> Result<Vec<String>, ConversationError> {
    let is_gemma = syntax.call.iter().any(|piece| matches!(piece, Piece::Gemma));
    let mut untold = Vec::new();
    if !is_gemma && !syntax.call.iter().any(|piece| matches!(piece, Piece::Tags(_))) {
        return Ok(untold);
    }
    for tool in tools.callable() {
        for (key, schema, _) in arguments(tool) {
            let is_text = is_text(Some(&schema));
            let beyond = BEYOND_TAGS.iter().find(|word| is_text && schema.get(**word).is_some());
            // In a notation of its own, what is within lists and objects is not JSON.
            let plain = is_text || is_scalar(&schema) || options(&schema).is_some();
            let word = match beyond {
                Some(word) => *word,
                None if is_gemma && !plain => "type",
                None => continue,
            };
            if !tool.strict {
                untold.push(told(&tool.name, &format!(".properties.{key}.{word}")));
                continue;
            }
            let message = format!(
                "{word} of {key} in {} cannot be enforced for calls in the format {}: leave it or \
                 strict out",
                tool.name, syntax.name
            );
            return Err(ConversationError::new(Problem::Schema, "tools", message));
        }
    }
    Ok(untold)
}

/// Adds a rule, unless it is there: the first call of an answer shares those of the others.
fn add(rules: &mut String, rule: &str) {
    if !rules.contains(rule) {
        rules.push_str(rule);
    }
}

/// What the text of a custom tool must look like.
fn rule(tool: &Tool) -> Option<&InputRule> {
    tool.input.as_ref()?.rule.as_ref()
}

/// Names and schemas of a tool's arguments, and whether they are required.
fn arguments(tool: &Tool) -> Vec<(String, Value, bool)> {
    let required = tool.enforced.get("required").and_then(Value::as_array);
    let is_required = |key: &str| required.is_some_and(|list| list.iter().any(|r| r == key));
    let Some(Value::Object(properties)) = tool.enforced.get("properties") else {
        return Vec::new();
    };
    let one = |(key, schema): (&String, &Value)| {
        (key.clone(), with_definitions(schema, &tool.enforced), is_required(key))
    };
    properties.iter().map(one).collect()
}

/// A schema from inside another one, with the definitions that it may refer to.
fn with_definitions(schema: &Value, root: &Value) -> Value {
    let mut schema = schema.clone();
    for key in ["$defs", "definitions", "x-guidance"] {
        if let (Value::Object(map), Some(definitions)) = (&mut schema, root.get(key)) {
            map.entry(key).or_insert_with(|| definitions.clone());
        }
    }
    schema
}
