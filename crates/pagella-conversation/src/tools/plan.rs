//! What one request does with its tools: how calls are written, what is enforced, what is denied.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pagella_engine::JobOptions;
use pagella_engine::constraint::ConstraintSpec;
use pagella_text::{BanRule, ChatTemplate, Tokenizer};

use super::definition::{Mode, Tool, ToolSet};
use super::formats::{self, Found, GENERIC, HARMONY};
use super::gemma::QUOTE;
use super::grammar::{self, From};
use super::parser::CallParser;
use super::schema::{outline, told};
use super::syntax::{Piece, Syntax};
use crate::error::{ConversationError, Problem};

/// Tools, and how the model writes calls of them.
#[derive(Clone, Debug)]
pub struct ToolPlan {
    /// The tools.
    pub set: Arc<ToolSet>,
    syntax: &'static Syntax,
}

fn unread(name: &str) -> ConversationError {
    let known: Vec<&str> = formats::names().collect();
    let message = format!(
        "calls in the format {name} cannot be read: leave tools out, or choose a tool_format \
         among {}",
        known.join(", ")
    );
    ConversationError::new(Problem::Unsupported, "tool_format", message)
}

/// Names that leave the format to the template.
fn is_open(name: &str) -> bool {
    matches!(name, "auto" | "none" | "")
}

/// Refuses the name of a format that there is not.
pub fn check_format(name: &str) -> Result<(), ConversationError> {
    match formats::named(name) {
        _ if is_open(name) => Ok(()),
        Found::Format(_) => Ok(()),
        Found::Unread(_) | Found::Nothing => Err(unread(name)),
    }
}

impl ToolPlan {
    /// The plan of a request; `None` without tools. The format is the one of this name, or what the
    /// template asks for; a template that knows none gets one that the prompt explains.
    pub fn of(
        mut set: ToolSet,
        template: &ChatTemplate,
        format: &str,
    ) -> Result<Option<Self>, ConversationError> {
        if set.is_empty() {
            return Ok(None);
        }
        let name = Some(format).filter(|name| !is_open(name));
        let found = match name {
            Some(name) => formats::named(name),
            None => match template.variant("tool_use") {
                Ok(variant) => formats::in_template(variant.source()),
                Err(_) => formats::in_template(template.source()),
            },
        };
        let syntax = match (found, name) {
            (Found::Format(syntax), _) => syntax,
            (Found::Unread(name), _) => return Err(unread(name)),
            (Found::Nothing, None) => &GENERIC,
            (Found::Nothing, Some(name)) => return Err(unread(name)),
        };
        if *syntax == HARMONY {
            set.unenforced = set.callable().map(|tool| told(&tool.name, "")).collect();
        } else if set.mode != Mode::None {
            let beyond = grammar::beyond(syntax, &set)?;
            set.unenforced.extend(beyond);
        }
        if *syntax == HARMONY && set.mode == Mode::Required {
            let instead = "calls in channels cannot be enforced, let the model decide";
            return Err(ConversationError::unsupported("tool_choice", instead));
        }
        Ok(Some(ToolPlan { set: Arc::new(set), syntax }))
    }

    #[cfg(test)]
    pub(super) fn with(syntax: &'static Syntax, set: ToolSet) -> Self {
        ToolPlan { set: Arc::new(set), syntax }
    }

    /// The name of the format.
    pub fn format(&self) -> &'static str {
        self.syntax.name
    }

    /// Whether the prompt explains the tools, because the template does not.
    pub fn explains(&self) -> bool {
        *self.syntax == GENERIC
    }

    /// The mark that calls begin with, where they have one.
    pub fn mark(&self) -> Option<&'static str> {
        self.syntax.mark()
    }

    /// What reads calls; `None` where nothing may be called.
    pub fn parser(&self) -> Option<CallParser> {
        let reads = self.set.mode != Mode::None && *self.syntax != HARMONY;
        reads.then(|| CallParser::new(self.syntax, self.set.clone()))
    }

    /// Special tokens that calls are written with: they must appear in the text.
    pub fn specials(&self, tokenizer: &Tokenizer) -> Vec<u32> {
        let syntax = self.syntax;
        let pieces = syntax.open.iter().chain(syntax.call).chain(syntax.close);
        let texts: Vec<&str> = pieces
            .filter_map(|piece| match piece {
                Piece::Text(text) => Some(*text),
                Piece::Gemma => Some(QUOTE),
                _ => None,
            })
            .collect();
        let named = |name: &&String| texts.iter().any(|text| text.contains(name.as_str()));
        let specials = tokenizer.template_tokens().specials.iter().filter(named);
        specials.filter_map(|name| tokenizer.id_of(name)).collect()
    }

    /// What the answer must look like, if `answer` is what it must look like without calls.
    pub fn constraint(
        &self,
        answer: Option<ConstraintSpec>,
        tokenizer: &Tokenizer,
    ) -> Option<ConstraintSpec> {
        let calls = |from| grammar::calls(self.syntax, &self.set, tokenizer, from);
        match (self.set.mode, answer, self.mark()) {
            (Mode::None, answer, _) => answer,
            (_, answer, _) if *self.syntax == HARMONY => answer,
            (Mode::Required, ..) => Some(calls(From::Beginning)),
            (Mode::Auto, ..) if self.set.callable().next().is_none() => None,
            // Either calls or the answer that was asked for.
            (Mode::Auto, Some(answer), _) => {
                Some(ConstraintSpec::Any(vec![answer, calls(From::Beginning)]))
            }
            (Mode::Auto, None, Some(mark)) => {
                let then = Box::new(calls(From::Mark));
                Some(ConstraintSpec::Lazy { trigger: mark.to_owned(), then })
            }
            (Mode::Auto, None, None) => {
                let texts = grammar::openings(self.syntax, &self.set);
                let then = Box::new(calls(From::Beginning));
                Some(ConstraintSpec::Opening { texts, then })
            }
        }
    }

    /// Leaves out more of the schemas, where what was kept of them does not compile. A strict tool
    /// keeps its schema, whatever follows.
    pub fn loosen(
        &mut self,
        answer: Option<&ConstraintSpec>,
        tokenizer: &Tokenizer,
        time: Duration,
        compiles: impl Fn(&ConstraintSpec) -> bool,
    ) {
        let whole = |plan: &ToolPlan| {
            let spec = plan.constraint(answer.cloned(), tokenizer);
            spec.is_none_or(|spec| compiles(&spec))
        };
        if self.set.callable().all(|tool| tool.strict) || whole(self) {
            return;
        }
        let begun = Instant::now();
        let alone = |tool: &Tool| {
            let schema = ConstraintSpec::JsonSchema(tool.enforced.clone());
            begun.elapsed() < time && compiles(&schema)
        };
        self.leave_out(|tool| !alone(tool));
        if !whole(self) {
            self.leave_out(|_| true);
        }
    }

    fn leave_out(&mut self, which: impl Fn(&Tool) -> bool) {
        let set = Arc::make_mut(&mut self.set);
        for tool in set.tools.iter_mut().filter(|tool| !tool.strict && tool.input.is_none()) {
            let less = outline(&tool.parameters);
            if tool.enforced != less && which(tool) {
                set.unenforced.push(told(&tool.name, ""));
                tool.enforced = less;
            }
        }
    }

    /// Keeps the model from beginning a call where nothing may be called.
    pub fn deny(&self, job: &mut JobOptions, tokenizer: &Tokenizer) {
        let (Mode::None, Some(mark)) = (self.set.mode, self.mark()) else { return };
        match tokenizer.id_of(mark) {
            Some(id) => job.sampling.deny.push(id),
            None => job.banned.push(BanRule::text(mark)),
        }
    }
}
