//! One line of a batch: a prompt with settings of its own, read and checked before anything runs.

use anyhow::Result;
use pagella::{BanRule, Complete, ConstraintSpec, Engine, Message, SampleOptions};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::RunArgs;
use super::super::prompt::{Asked, time_of};
use crate::flags::{add_bos, with_json_settings};
use crate::usage::Usage;

/// Longest role of a message, in bytes. Templates build control tokens from roles.
const ROLE_BYTES_MAX: usize = 64;

/// What a line may say. What stands nowhere here is a sampling setting, or unknown.
#[derive(Clone, Debug, Deserialize)]
struct Fields {
    #[serde(alias = "custom_id")]
    id: Option<Value>,
    prompt: Option<String>,
    messages: Option<Vec<Message>>,
    system: Option<String>,
    raw: Option<bool>,
    n: Option<u16>,
    seed: Option<u64>,
    greedy: Option<bool>,
    #[serde(alias = "max_tokens", alias = "max_completion_tokens")]
    max_new_tokens: Option<usize>,
    #[serde(alias = "min_tokens")]
    min_new_tokens: Option<usize>,
    stop: Option<Texts>,
    #[serde(alias = "stop_token_ids")]
    stop_tokens: Option<Vec<u32>>,
    #[serde(alias = "banned_strings")]
    ban: Option<Texts>,
    #[serde(alias = "add_bos_token")]
    add_bos: Option<bool>,
    negative: Option<String>,
    cfg_scale: Option<f32>,
    heal: Option<bool>,
    no_default_stops: Option<bool>,
    timeout: Option<f64>,
    salt: Option<String>,
    special: Option<bool>,
    logprobs: Option<u16>,
    json_object: Option<bool>,
    json_schema: Option<Map<String, Value>>,
    regex: Option<String>,
    grammar: Option<String>,
    gbnf: Option<String>,
    choice: Option<Vec<String>>,
    #[serde(flatten)]
    sampling: Map<String, Value>,
}

/// One text, or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Texts {
    One(String),
    Several(Vec<String>),
}

impl Texts {
    fn list(&self) -> &[String] {
        match self {
            Texts::One(text) => std::slice::from_ref(text),
            Texts::Several(texts) => texts,
        }
    }
}

/// A checked line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its number in the file, from 1.
    pub number: usize,
    fields: Fields,
    constraint: Option<ConstraintSpec>,
}

impl Line {
    /// Reads a line; the error says what is wrong with it.
    pub fn read(number: usize, text: &[u8]) -> Result<Self, String> {
        let fields: Fields =
            serde_json::from_slice(text).map_err(|error| match error.classify() {
                serde_json::error::Category::Data => error.to_string(),
                _ => format!("not JSON: {error}"),
            })?;
        let constraint = fields.constraint()?;
        fields.check()?;
        Ok(Line { number, fields, constraint })
    }

    /// The name that the line gives itself.
    pub fn id(&self) -> Option<&Value> {
        self.fields.id.as_ref()
    }

    /// Answers that it asks for.
    pub fn n(&self, args: &RunArgs) -> usize {
        usize::from(self.fields.n.unwrap_or(args.prompt_flags.n))
    }

    /// The prompt with the settings of the command line, and its own on top.
    pub fn complete(
        &self,
        args: &RunArgs,
        engine: &Engine,
        constraint: Option<&ConstraintSpec>,
    ) -> Result<Complete> {
        let fields = &self.fields;
        let mut flags = args.prompt_flags.clone();
        let talks = fields.messages.is_some() || fields.system.is_some();
        flags.raw = fields.raw.unwrap_or(flags.raw && !talks);
        flags.system = fields.system.clone().or(flags.system);
        flags.n = fields.n.unwrap_or(flags.n);
        flags.heal = fields.heal.unwrap_or(flags.heal);
        flags.negative = fields.negative.clone().or(flags.negative);
        flags.cfg_scale = fields.cfg_scale.or(flags.cfg_scale);
        flags.no_default_stops = fields.no_default_stops.unwrap_or(flags.no_default_stops);
        flags.timeout = fields.timeout.and_then(time_of).or(flags.timeout);
        flags.salt = fields.salt.clone().or(flags.salt);
        flags.special = fields.special.unwrap_or(flags.special);
        flags.logprobs = fields.logprobs.or(flags.logprobs);
        if let Some(ids) = &fields.stop_tokens {
            flags.tokens.stop_tokens.clone_from(ids);
            flags.tokens.check(engine)?;
        }
        let asked = match (&fields.prompt, &fields.messages) {
            (_, Some(messages)) => Asked::Messages(messages.clone()),
            (prompt, None) => Asked::Text(prompt.clone().unwrap_or_default()),
        };
        let constraint = self.constraint.as_ref().or(constraint);
        let complete = flags.complete(engine, asked, &args.sampling, constraint)?;
        let (base, seed) = args.sampling.options(engine.default_sampling())?;
        let options = fields.sampling_on(&base).map_err(Usage::error)?;
        let complete = fields.apply(complete.sampling(options));
        let seed = fields.seed.or(seed);
        Ok(seed.into_iter().fold(complete, Complete::seed))
    }
}

impl Fields {
    /// Refuses what cannot be asked for, whatever the model.
    fn check(&self) -> Result<(), String> {
        let wrong = |problem: &str| Err(problem.to_owned());
        match (&self.prompt, &self.messages) {
            (Some(_), Some(_)) => return wrong("prompt and messages exclude each other"),
            (None, None) => return wrong("there is no prompt and there are no messages"),
            (None, Some(_)) if self.raw == Some(true) => return wrong("raw needs a prompt"),
            (None, Some(_)) if self.system.is_some() => {
                return wrong("messages hold the system message themselves: leave out system");
            }
            (None, Some(messages)) if messages.is_empty() => return wrong("messages are empty"),
            _ => {}
        }
        if self.raw == Some(true) && self.system.is_some() {
            return wrong("raw text has no system message");
        }
        let is_role = |role: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            (1..=ROLE_BYTES_MAX).contains(&role.len()) && role.chars().all(plain)
        };
        if !self.messages.iter().flatten().all(|message| is_role(&message.role)) {
            return wrong("a role is made of letters, digits, _ and -");
        }
        if self.id.as_ref().is_some_and(|id| !id.is_string() && !id.is_number()) {
            return wrong("id must be a text or a number");
        }
        if self.n == Some(0) || self.max_new_tokens == Some(0) {
            return wrong("n and max_new_tokens are at least 1");
        }
        if self.negative.is_some() != self.cfg_scale.is_some() {
            return wrong("negative and cfg_scale belong together");
        }
        if self.timeout.is_some_and(|seconds| time_of(seconds).is_none()) {
            return wrong("timeout is a number of seconds above 0");
        }
        let mut texts = self.stop.iter().chain(&self.ban).flat_map(Texts::list);
        if texts.any(String::is_empty) {
            return wrong("a text of stop or ban is empty");
        }
        self.sampling_on(&SampleOptions::default()).map(drop)
    }

    fn sampling_on(&self, base: &SampleOptions) -> Result<SampleOptions, String> {
        let mut options = with_json_settings(base, &self.sampling).map_err(|problem| {
            // The list of all names would hide the wrong one.
            problem.split(", expected one of").next().unwrap_or(&problem).to_owned()
        })?;
        if self.greedy == Some(true) {
            options.temperature = 0.0;
        }
        Ok(options)
    }

    /// The one constraint of the line.
    fn constraint(&self) -> Result<Option<ConstraintSpec>, String> {
        let choice = self.choice.clone();
        let choice =
            choice.map(|options| ConstraintSpec::Choice { options, case_insensitive: false });
        let schema = self.json_schema.clone();
        let all = [
            (self.json_object == Some(true)).then_some(ConstraintSpec::JsonObject),
            schema.map(|schema| ConstraintSpec::JsonSchema(Value::Object(schema))),
            self.regex.clone().map(ConstraintSpec::Regex),
            self.grammar.clone().map(ConstraintSpec::Lark),
            self.gbnf.clone().map(ConstraintSpec::Gbnf),
            choice,
        ];
        let mut given = all.into_iter().flatten();
        match (given.next(), given.next()) {
            (one, None) => Ok(one),
            _ => {
                Err("an answer has one shape: json_object, json_schema, regex, grammar, gbnf and \
                      choice exclude each other"
                    .to_owned())
            }
        }
    }

    /// What replaces settings of the command line.
    fn apply(&self, complete: Complete) -> Complete {
        let mut complete = match self.add_bos {
            None => complete,
            said => complete.add_bos(add_bos(said)),
        };
        complete = self.max_new_tokens.into_iter().fold(complete, Complete::max_tokens);
        complete = self.min_new_tokens.into_iter().fold(complete, Complete::min_tokens);
        complete.with_job(|job| {
            if let Some(stop) = &self.stop {
                job.stop_strings = stop.list().to_vec();
            }
            if let Some(ban) = &self.ban {
                job.banned = ban.list().iter().map(BanRule::text).collect();
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Line::read(1, text.as_bytes()).unwrap_err()
    }

    #[test]
    fn every_way_to_ask_is_read() {
        for text in [
            r#"{"prompt": "a"}"#,
            r#"{"prompt": "a", "id": 7, "temperature": 0.5, "typical_p": 0.9, "stop": "b"}"#,
            r#"{"messages": [{"role": "user", "content": "a"}], "custom_id": "x", "n": 2}"#,
            r#"{"prompt": "a", "raw": true, "stop": ["b", "c"], "stop_token_ids": [1, 2]}"#,
            r#"{"prompt": "a", "max_tokens": 5, "seed": 3, "top_k": null, "json_schema": {}}"#,
            r#"{"prompt": "a", "negative": "b", "cfg_scale": 1.5, "timeout": 0.5}"#,
        ] {
            Line::read(1, text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("", "not JSON"),
            ("[1]", "invalid type"),
            ("{}", "no prompt"),
            (r#"{"prompt": "a""#, "not JSON"),
            (r#"{"prompt": 5}"#, "string"),
            (r#"{"prompt": "a", "messages": []}"#, "exclude"),
            (r#"{"messages": []}"#, "empty"),
            (r#"{"messages": [{"role": "<|x|>", "content": "a"}]}"#, "role"),
            (r#"{"prompt": "a", "temprature": 1}"#, "temprature"),
            (r#"{"prompt": "a", "temperature": 1000}"#, "temperature"),
            (r#"{"prompt": "a", "n": 0}"#, "at least 1"),
            (r#"{"prompt": "a", "max_tokens": 0}"#, "at least 1"),
            (r#"{"prompt": "a", "stop": ""}"#, "empty"),
            (r#"{"prompt": "a", "negative": "b"}"#, "together"),
            (r#"{"prompt": "a", "timeout": -1}"#, "seconds"),
            (r#"{"prompt": "a", "regex": "b", "choice": ["c"]}"#, "one shape"),
            (r#"{"prompt": "a", "id": [1]}"#, "id"),
            (r#"{"prompt": "a", "raw": true, "system": "b"}"#, "system"),
            (r#"{"prompt": "a", "prompt": "b"}"#, "duplicate"),
        ] {
            let problem = refused(text);
            assert!(problem.contains(part) && problem.len() < 200, "{text}: {problem}");
        }
    }
}
