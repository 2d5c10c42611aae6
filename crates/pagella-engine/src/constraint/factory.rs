//! From what a request asks for to a constraint.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use llguidance::api::TopLevelGrammar;
use llguidance::regex_to_lark;
use pagella_text::Tokenizer;
use serde_json::{Value, json};

use super::all::AllConstraint;
use super::any::AnyConstraint;
use super::compiler::{Compiler, Refusal};
use super::digits::DigitLimit;
use super::error::short_reason;
use super::grammar::GrammarConstraint;
use super::lark_json;
use super::lazy::LazyConstraint;
use super::opening::OpeningConstraint;
use super::prefix::PrefixConstraint;
use super::reasoning::ReasoningConstraint;
use super::trigger::Trigger;
use super::vocab::Vocab;
use super::{
    Block, Constraint, ConstraintError, ConstraintLimits, ConstraintSpec, InputRule, gbnf, regex,
    schema,
};

/// Triggers that are kept.
const TRIGGERS_MAX: usize = 64;

/// Compiles constraints for one tokenizer. Cheap to clone, shared between threads.
#[derive(Clone)]
pub struct ConstraintFactory {
    inner: Arc<Inner>,
}

struct Inner {
    vocab: Vocab,
    limits: ConstraintLimits,
    compiler: Compiler,
    /// The last used at the back.
    triggers: Mutex<VecDeque<Arc<Trigger>>>,
}

impl ConstraintFactory {
    /// Indexes the tokenizer's vocabulary; takes a fraction of a second for a large one.
    /// `model_vocab` is the number of logits, and the size of every mask.
    pub fn new(
        tokenizer: &Tokenizer,
        model_vocab: usize,
        limits: ConstraintLimits,
    ) -> Result<Self, ConstraintError> {
        let vocab = Vocab::new(tokenizer, model_vocab);
        let compiler = Compiler::new(&vocab, &limits)?;
        let triggers = Mutex::default();
        Ok(Self { inner: Arc::new(Inner { vocab, limits, compiler, triggers }) })
    }

    /// The limits everything is compiled under.
    pub fn limits(&self) -> &ConstraintLimits {
        &self.inner.limits
    }

    /// Compiles a constraint; returns within about [`ConstraintLimits::compile_time`] for each of
    /// its parts.
    pub fn compile(&self, spec: &ConstraintSpec) -> Result<Box<dyn Constraint>, ConstraintError> {
        check_parts(spec, self.inner.limits.parts_max)?;
        self.compile_part(spec)
    }

    /// A constraint that begins after a block of reasoning; without one, what follows is free.
    pub fn after(
        &self,
        block: &Block,
        then: Option<Box<dyn Constraint>>,
    ) -> Result<Box<dyn Constraint>, ConstraintError> {
        let end = std::slice::from_ref(&block.end);
        check_strings("end of reasoning", end, &self.inner.limits)?;
        let start = block.start.as_deref().filter(|tag| !tag.is_empty());
        let tags = (start.map(|tag| self.trigger(tag)), self.trigger(&block.end));
        let vocab = self.inner.vocab.clone();
        Ok(Box::new(ReasoningConstraint::new(vocab, block, tags, then)))
    }

    /// What looks for a text. Making one goes over the vocabulary, so the newest are kept.
    fn trigger(&self, text: &str) -> Arc<Trigger> {
        let lock = || self.inner.triggers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = |trigger: &Arc<Trigger>| trigger.text() == text.as_bytes();
        let mut kept = lock();
        let found = kept.iter().position(known).and_then(|idx| kept.remove(idx));
        drop(kept);
        let trigger =
            found.unwrap_or_else(|| Arc::new(Trigger::new(self.inner.vocab.clone(), text)));
        let mut kept = lock();
        kept.push_back(trigger.clone());
        if kept.len() > TRIGGERS_MAX {
            kept.pop_front();
        }
        trigger
    }

    /// All of these at once.
    pub fn all(&self, parts: Vec<Box<dyn Constraint>>) -> Box<dyn Constraint> {
        Box::new(AllConstraint::new(self.inner.vocab.clone(), parts))
    }

    fn parts(
        &self,
        specs: &[ConstraintSpec],
        what: &'static str,
    ) -> Result<Vec<Box<dyn Constraint>>, ConstraintError> {
        if specs.is_empty() {
            return Err(ConstraintError::Impossible { what, reason: "it is empty".into() });
        }
        specs.iter().map(|spec| self.compile_part(spec)).collect()
    }

    fn compile_part(&self, spec: &ConstraintSpec) -> Result<Box<dyn Constraint>, ConstraintError> {
        let Inner { vocab, limits, .. } = &*self.inner;
        let what = spec.what();
        let grammar = match spec {
            ConstraintSpec::JsonSchema(schema) => json_grammar(schema::prepare(schema, limits)?),
            ConstraintSpec::JsonObject => {
                json_grammar(schema::prepare(&json!({"type": "object"}), limits)?)
            }
            ConstraintSpec::Regex(pattern) => regex_grammar(&regex::whole_output(pattern, limits)?),
            ConstraintSpec::Lark(text) => lark_grammar(text, limits)?,
            ConstraintSpec::Gbnf(text) => {
                check_text(what, text, limits)?;
                TopLevelGrammar::from_lark(gbnf::to_lark(text, limits)?)
            }
            ConstraintSpec::Choice { options, case_insensitive } => {
                check_strings(what, options, limits)?;
                regex_grammar(&choice_pattern(options, *case_insensitive))
            }
            ConstraintSpec::Prefix(strings) => {
                check_strings(what, strings, limits)?;
                return Ok(Box::new(PrefixConstraint::new(vocab.clone(), strings)?));
            }
            ConstraintSpec::Lazy { trigger, then } => {
                check_strings("lazy constraint's trigger", std::slice::from_ref(trigger), limits)?;
                let then = self.compile_part(then)?;
                return Ok(Box::new(LazyConstraint::new(self.trigger(trigger), then)));
            }
            ConstraintSpec::Opening { texts, then } => {
                check_strings(what, texts, limits)?;
                let then = self.compile_part(then)?;
                return Ok(Box::new(OpeningConstraint::new(vocab.clone(), texts, then)));
            }
            ConstraintSpec::All(specs) => {
                return Ok(Box::new(AllConstraint::new(vocab.clone(), self.parts(specs, what)?)));
            }
            ConstraintSpec::Any(specs) => {
                return Ok(Box::new(AnyConstraint::new(vocab.clone(), self.parts(specs, what)?)));
            }
            ConstraintSpec::Composed { lark, schemas, specials, inputs } => {
                let text = composed_grammar(lark, schemas, specials, limits)?;
                let text = format!("{text}{}", self.inputs(inputs)?);
                check_text(what, &text, limits)?;
                TopLevelGrammar::from_lark(text)
            }
        };
        let specials = match spec {
            ConstraintSpec::Composed { specials, .. } => specials.clone(),
            _ => Vec::new(),
        };
        let compiled = self.inner.compiler.compile(grammar, !specials.is_empty(), what);
        let matcher = compiled.map_err(|refusal| explain(refusal, spec))?;
        let grammar = Box::new(GrammarConstraint::new(matcher, vocab.clone(), specials, what));
        Ok(match spec {
            ConstraintSpec::JsonSchema(_)
            | ConstraintSpec::JsonObject
            | ConstraintSpec::Composed { .. } => Box::new(DigitLimit::new(vocab.clone(), grammar)),
            _ => grammar,
        })
    }
}

impl ConstraintFactory {
    /// Rules for texts inside of a composed grammar, each a grammar of its own.
    fn inputs(&self, inputs: &[(InputRule, bool)]) -> Result<String, ConstraintError> {
        let limits = &self.inner.limits;
        let mut rules = String::new();
        for (idx, (rule, in_json)) in inputs.iter().enumerate() {
            let (text, alone) = match rule {
                InputRule::Lark(text) => {
                    check_lark(text, limits)?;
                    (text.clone(), ConstraintSpec::Lark(text.clone()))
                }
                InputRule::Regex(pattern) => {
                    let whole = regex::whole_output(pattern, limits)?;
                    let text = format!("start: /{}/", regex_to_lark(&whole, ""));
                    (text, ConstraintSpec::Regex(pattern.clone()))
                }
            };
            // It must be a grammar by itself: a bracket too many would end it early.
            self.compile_part(&alone)?;
            let text = if *in_json { lark_json::quoted(&text)? } else { text };
            rules.push_str(&format!("\ninput_{idx}: %lark {{\n{text}\n}}"));
        }
        Ok(rules)
    }
}

fn composed_grammar(
    lark: &str,
    schemas: &[Value],
    specials: &[u32],
    limits: &ConstraintLimits,
) -> Result<String, ConstraintError> {
    check_lark(lark, limits)?;
    let mut text = lark.to_owned();
    for (idx, schema) in schemas.iter().enumerate() {
        text.push_str(&format!("\njson_{idx}: %json {}", schema::prepare(schema, limits)?));
    }
    for id in specials {
        text.push_str(&format!("\nspecial_{id}: <[{id}]>"));
    }
    Ok(text)
}

fn explain(refusal: Refusal, spec: &ConstraintSpec) -> ConstraintError {
    match (refusal, spec) {
        (Refusal::Error(error), _) => error,
        (Refusal::Impossible(reason), _) => {
            ConstraintError::Impossible { what: spec.what(), reason }
        }
        (Refusal::Invalid(reason), ConstraintSpec::JsonSchema(_)) => {
            ConstraintError::InvalidSchema { pointer: String::new(), reason }
        }
        (Refusal::Invalid(reason), ConstraintSpec::Regex(_)) => {
            ConstraintError::InvalidRegex { reason }
        }
        (Refusal::Invalid(reason), ConstraintSpec::Lark(_) | ConstraintSpec::Composed { .. }) => {
            ConstraintError::InvalidLark { reason }
        }
        (Refusal::Invalid(reason), ConstraintSpec::Gbnf(_)) => {
            ConstraintError::InvalidGbnf { line: 1, reason }
        }
        // Everything else is a grammar of our own making.
        (Refusal::Invalid(reason), _) => ConstraintError::Internal { reason },
    }
}

fn json_grammar(schema: Value) -> TopLevelGrammar {
    TopLevelGrammar::from_json_schema(schema)
}

fn regex_grammar(pattern: &str) -> TopLevelGrammar {
    TopLevelGrammar::from_lark(format!("start: /{}/", regex_to_lark(pattern, "")))
}

fn lark_grammar(text: &str, limits: &ConstraintLimits) -> Result<TopLevelGrammar, ConstraintError> {
    check_lark(text, limits)?;
    Ok(TopLevelGrammar::from_lark(text.to_owned()))
}

fn check_lark(text: &str, limits: &ConstraintLimits) -> Result<(), ConstraintError> {
    check_text("Lark grammar", text, limits)?;
    // The grammar engine recurses along terminals that refer to each other.
    check_rules("Lark grammar", text.lines().filter(|line| is_definition(line)).count(), limits)?;
    // Schemas and token ids inside a grammar would go around the checks of this module.
    for refused in ["%json", "<["] {
        if text.contains(refused) {
            let reason = format!(
                "{} is not supported in a grammar: use a constraint of its own",
                short_reason(refused)
            );
            return Err(ConstraintError::InvalidLark { reason });
        }
    }
    Ok(())
}

/// Whether a line can be the first of a rule or terminal; some others look the same.
fn is_definition(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with(|c: char| c.is_alphanumeric() || "_?!".contains(c)) && line.contains(':')
}

/// Compares the number of rules with the limit.
pub(super) fn check_rules(
    what: &'static str,
    found: usize,
    limits: &ConstraintLimits,
) -> Result<(), ConstraintError> {
    let limit = limits.rules_max;
    if found > limit {
        return Err(ConstraintError::TooLarge { what, found, limit, unit: "rules" });
    }
    Ok(())
}

fn choice_pattern(options: &[String], case_insensitive: bool) -> String {
    let quote = if case_insensitive { regex::quote_any_case } else { regex::quote };
    let quoted: Vec<String> = options.iter().map(|option| quote(option)).collect();
    quoted.join("|")
}

fn check_text(
    what: &'static str,
    text: &str,
    limits: &ConstraintLimits,
) -> Result<(), ConstraintError> {
    let (found, limit) = (text.len(), limits.text_bytes_max);
    if found > limit {
        return Err(ConstraintError::TooLarge { what, found, limit, unit: "bytes" });
    }
    Ok(())
}

fn check_strings(
    what: &'static str,
    strings: &[String],
    limits: &ConstraintLimits,
) -> Result<(), ConstraintError> {
    let (found, limit) = (strings.len(), limits.strings_max);
    if found > limit {
        return Err(ConstraintError::TooLarge { what, found, limit, unit: "strings" });
    }
    let (found, limit) = (strings.iter().map(String::len).sum(), limits.text_bytes_max);
    if found > limit {
        return Err(ConstraintError::TooLarge { what, found, limit, unit: "bytes" });
    }
    if strings.is_empty() {
        return Err(ConstraintError::InvalidStrings { what, problem: "no strings" });
    }
    if strings.iter().any(String::is_empty) {
        return Err(ConstraintError::InvalidStrings { what, problem: "an empty string" });
    }
    Ok(())
}

/// Counts all parts without recursion: a specification may be nested at will.
fn check_parts(spec: &ConstraintSpec, limit: usize) -> Result<(), ConstraintError> {
    let mut pending = vec![spec];
    let mut found = 0;
    while let Some(spec) = pending.pop() {
        found += 1;
        if found > limit {
            let what = "combination of constraints";
            return Err(ConstraintError::TooLarge { what, found, limit, unit: "parts" });
        }
        match spec {
            ConstraintSpec::Lazy { then, .. } | ConstraintSpec::Opening { then, .. } => {
                pending.push(then);
            }
            ConstraintSpec::All(parts) | ConstraintSpec::Any(parts) => {
                pending.extend(parts.iter().take(limit + 1));
            }
            _ => {}
        }
    }
    Ok(())
}
