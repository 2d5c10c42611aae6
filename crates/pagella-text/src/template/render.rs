//! Runs a template on messages and returns spans.
//!
//! The template is rendered once plainly, which gives the text, and then with its content marked. If
//! the marked text, marks taken out, is the plain text, every character's origin is known without
//! knowing what the template does. A template that transforms its content is rendered once more, with
//! marks only where a special token could come about.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use minijinja::machinery::{Instructions, eval, make_string_output};
use minijinja::{AutoEscape, Environment, ErrorKind};
use serde_json::{Map, Value};

use super::budget::Budget;
use super::environment::environment;
use super::mark::{Marker, Strategy};
use super::program::{self, ONE};
use super::twin::{SharedTwins, Twins};
use super::{ChatTemplate, ContentTracking, Message, RenderOptions, Rendered, TemplateTokens};
use crate::error::TextError;
use crate::span::{Span, spans_to_string};

/// Stack of the rendering thread; deep expressions in a hostile template need much of it.
const STACK_BYTES: usize = 128 << 20;
/// Text may be written this often on its way to the output: macros and `set` blocks capture it first.
const CAPTURES: usize = 4;
/// Most messages of one conversation.
const MESSAGES_MAX: usize = 65_536;
/// Longest role name in bytes.
const ROLE_BYTES_MAX: usize = 64;
/// Names that extra variables may not take.
const RESERVED: [&str; 14] = [
    "messages",
    // What other programs hand to the renderer itself under these names is never a variable.
    "chat_template",
    "tokenize",
    "tools",
    "functions",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
    "raise_exception",
    "strftime_now",
    "namespace",
    "range",
    "dict",
    ONE,
];

impl ChatTemplate {
    /// Renders a conversation into spans; message content is inert text.
    pub fn render(
        &self,
        messages: &[Message],
        options: &RenderOptions,
    ) -> Result<Vec<Span>, TextError> {
        self.render_tracked(messages, options).map(|rendered| rendered.spans)
    }

    /// As [`ChatTemplate::render`], and says how reliably content was found.
    pub fn render_tracked(
        &self,
        messages: &[Message],
        options: &RenderOptions,
    ) -> Result<Rendered, TextError> {
        check(messages, options)?;
        let chosen = match options.tools {
            Value::Null => None,
            _ => self.variants.iter().find(|(name, _)| name == "tool_use"),
        };
        let source = chosen.map_or(&self.source, |(_, source)| source);
        on_own_stack(&self.name, || {
            let job = Job::new(&self.name, source, options);
            job.render(messages, options.continue_final_message)
        })
    }

    /// What the template writes after an assistant message, where the end-of-turn token is.
    pub(crate) fn text_after_assistant(&self, tokens: &TemplateTokens) -> Option<String> {
        let messages = [Message::new("user", "a"), Message::new("assistant", "b")];
        let options = RenderOptions { tokens: tokens.clone(), ..RenderOptions::default() };
        let rendered = on_own_stack(&self.name, || {
            Job::new(&self.name, &self.source, &options).after_final_message(&messages)
        });
        rendered.ok()
    }
}

/// Runs `work` on a thread with a large stack; a panic in it becomes an error.
pub(super) fn on_own_stack<T: Send>(
    name: &str,
    work: impl FnOnce() -> Result<T, TextError> + Send,
) -> Result<T, TextError> {
    let fail = |problem: String| TextError::Template { name: name.into(), problem };
    std::thread::scope(|scope| {
        let guarded = || catch_unwind(AssertUnwindSafe(work));
        let thread =
            std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, guarded);
        let thread = thread.map_err(|e| fail(format!("no thread to render on: {e}")))?;
        match thread.join() {
            Ok(Ok(result)) => result,
            _ => Err(fail("the template engine panicked".into())),
        }
    })
}

/// The reason of an engine error, with its line.
pub(super) fn describe(error: &minijinja::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

/// One rendering call: several passes over one budget.
struct Job<'a> {
    name: &'a str,
    source: &'a str,
    options: &'a RenderOptions,
    budget: Arc<Budget>,
    twins: SharedTwins,
    env: Environment<'static>,
}

impl<'a> Job<'a> {
    fn new(name: &'a str, source: &'a str, options: &'a RenderOptions) -> Self {
        let budget = Arc::new(Budget::new(options.limits));
        let twins = SharedTwins::default();
        let env = environment(&budget, &twins, options.now.unwrap_or_else(SystemTime::now));
        Self { name, source, options, budget, twins, env }
    }

    fn render(&self, messages: &[Message], continue_final: bool) -> Result<Rendered, TextError> {
        let mut messages: Vec<Value> = messages.iter().map(Message::to_value).collect();
        let mut marker = self.marker(&messages)?;
        let tail = match continue_final {
            true => Some(mark_cut(&mut messages, marker.cut_mark())?),
            false => None,
        };
        let messages = Value::Array(messages);
        let program = program::compile(self.name, self.source).map_err(|e| self.error(&e))?;
        let plain = self.run(&program, &messages, None)?;
        // A marked pass may fail where the plain one did not, if the template transforms content.
        let everything = self.run(&program, &messages, Some((&mut marker, Strategy::Everything)));
        let mut rendered = match everything.map(|marked| marker.unmark(&marked)) {
            Ok(spans) if spans_to_string(&spans) == plain => {
                Rendered { spans, tracking: ContentTracking::Exact }
            }
            _ => {
                let mut marker = self.marker(messages.as_array().map_or(&[], Vec::as_slice))?;
                let mark = Some((&mut marker, Strategy::Dangerous));
                let spans = {
                    let marked = self.run(&program, &messages, mark)?;
                    marker.unmark(&marked)
                };
                let tracking = match spans_to_string(&spans) == plain {
                    true => ContentTracking::Specials,
                    false => ContentTracking::Escaped,
                };
                Rendered { spans, tracking }
            }
        };
        if let Some(tail) = tail {
            rendered.spans =
                cut_spans(rendered.spans, marker.cut_mark(), &tail).ok_or_else(not_continuable)?;
        }
        Ok(rendered)
    }

    fn after_final_message(&self, messages: &[Message]) -> Result<String, TextError> {
        let mut messages: Vec<Value> = messages.iter().map(Message::to_value).collect();
        let marker = self.marker(&messages)?;
        mark_cut(&mut messages, marker.cut_mark())?;
        let program = program::compile(self.name, self.source).map_err(|e| self.error(&e))?;
        let text = self.run(&program, &Value::Array(messages), None)?;
        let (_, after) = text.rsplit_once(marker.cut_mark()).ok_or_else(not_continuable)?;
        Ok(after.to_owned())
    }

    fn marker(&self, messages: &[Value]) -> Result<Marker, TextError> {
        let variables = Value::Object(self.options.variables.clone());
        let mut inputs: Vec<&Value> = messages.iter().collect();
        inputs.extend([&self.options.tools, &self.options.documents, &variables]);
        Marker::new(&self.options.tokens, &inputs, self.source)
    }

    /// One pass, with or without marks.
    fn run(
        &self,
        program: &Instructions<'_>,
        messages: &Value,
        mark: Option<(&mut Marker, Strategy)>,
    ) -> Result<String, TextError> {
        // Marks are no output: once the plain text fits, the others do.
        let is_plain = mark.is_none();
        let most = self.options.limits.output_bytes_max;
        self.budget.begin_output(if is_plain { most.saturating_mul(CAPTURES) } else { usize::MAX });
        let (context, twins) = self.context(messages, mark);
        *self.twins.write().unwrap_or_else(PoisonError::into_inner) = twins;
        let mut out = String::new();
        let blocks = BTreeMap::new();
        let result = eval(
            &self.env,
            program,
            minijinja::Value::from(minijinja::value::Serde(&context)),
            &blocks,
            &mut make_string_output(&mut out),
            AutoEscape::None,
        );
        match result {
            Ok(_) if is_plain && out.len() > most => {
                let name = self.name.to_owned();
                Err(TextError::TemplateLimit { name, what: "output", limit: most as u64 })
            }
            Ok(_) => Ok(out),
            Err(e) => Err(self.error(&e)),
        }
    }

    fn context(&self, messages: &Value, mark: Option<(&mut Marker, Strategy)>) -> (Value, Twins) {
        let o = self.options;
        let mut context = Map::new();
        let mut twins = Twins::default();
        let content = [("messages", messages), ("tools", &o.tools), ("documents", &o.documents)];
        match mark {
            None => {
                for (key, value) in content {
                    context.insert(key.into(), value.clone());
                }
                context.extend(o.variables.clone());
            }
            Some((marker, strategy)) => {
                for (key, value) in content {
                    context.insert(key.into(), marker.mark(value, strategy));
                }
                for (key, value) in &o.variables {
                    context.insert(key.clone(), marker.mark(value, strategy));
                }
                twins = marker.twins().clone();
            }
        }
        context.insert("add_generation_prompt".into(), o.add_generation_prompt.into());
        let t = &o.tokens;
        for (key, text) in [
            ("bos_token", &t.bos),
            ("eos_token", &t.eos),
            ("pad_token", &t.pad),
            ("unk_token", &t.unk),
        ] {
            if let Some(text) = text {
                context.insert(key.into(), text.as_str().into());
            }
        }
        (Value::Object(context), twins)
    }

    fn error(&self, error: &minijinja::Error) -> TextError {
        let name = self.name.to_owned();
        if let Some(message) = self.budget.refusal() {
            return TextError::TemplateRefused { message };
        }
        if let Some(tripped) = self.budget.tripped() {
            return TextError::TemplateLimit { name, what: tripped.what, limit: tripped.limit };
        }
        let limits = self.options.limits;
        if error.kind() == ErrorKind::OutOfFuel {
            return TextError::TemplateLimit { name, what: "step", limit: limits.steps_max };
        }
        let problem = describe(error);
        if problem.contains("recursion limit") {
            let limit = limits.recursion_max as u64;
            return TextError::TemplateLimit { name, what: "recursion", limit };
        }
        TextError::Template { name, problem }
    }
}

fn check(messages: &[Message], options: &RenderOptions) -> Result<(), TextError> {
    let problem = |index, problem: &str| Err(TextError::Message { index, problem: problem.into() });
    if messages.len() > MESSAGES_MAX {
        return problem(MESSAGES_MAX, &format!("at most {MESSAGES_MAX} messages are allowed"));
    }
    for (i, message) in messages.iter().enumerate() {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        let role = &message.role;
        if role.is_empty() || role.len() > ROLE_BYTES_MAX || !role.chars().all(plain) {
            return problem(
                i,
                "the role must be a short word of letters, digits, '_', '-' and '.'",
            );
        }
        if message.extra.contains_key("role") || message.extra.contains_key("content") {
            return problem(i, "role and content cannot be given twice");
        }
    }
    if options.continue_final_message {
        if options.add_generation_prompt {
            let text = "a final message is either continued or followed by a new one: choose \
                        continue_final_message or add_generation_prompt";
            return problem(messages.len().saturating_sub(1), text);
        }
        if messages.is_empty() {
            return problem(0, "there is no message to continue");
        }
    }
    for name in options.variables.keys() {
        if is_reserved_variable(name) {
            return Err(TextError::ReservedVariable { name: name.clone() });
        }
    }
    Ok(())
}

/// Whether every template has a variable or function of this name, so that no other may be given.
pub fn is_reserved_variable(name: &str) -> bool {
    RESERVED.contains(&name) || name.ends_with("_token")
}

fn not_continuable() -> TextError {
    TextError::Message {
        index: 0,
        problem: "the template drops or rewrites the final message, so it cannot be continued"
            .into(),
    }
}

/// Puts `mark` behind the text of the final message, before its trailing white space, which is
/// returned.
fn mark_cut(messages: &mut [Value], mark: char) -> Result<String, TextError> {
    let content = messages.last_mut().and_then(|m| m.get_mut("content"));
    let text = match content {
        Some(Value::String(text)) => Some(text),
        Some(Value::Array(parts)) => {
            parts.iter_mut().rev().find_map(|part| match part.get_mut("text") {
                Some(Value::String(text)) => Some(text),
                _ => None,
            })
        }
        _ => None,
    };
    let text = text.ok_or_else(not_continuable)?;
    let tail = text.split_off(text.trim_end().len());
    text.push(mark);
    text.push_str(&tail);
    Ok(tail)
}

/// Cuts at the last `mark`; the white space behind it stays if the template left it there.
fn cut_spans(mut spans: Vec<Span>, mark: char, tail: &str) -> Option<Vec<Span>> {
    let at = spans.iter().rposition(|s| s.as_str().contains(mark))?;
    let after: String = spans.split_off(at + 1).iter().map(Span::as_str).collect();
    let last = spans.last_mut()?;
    let (Span::Text(text) | Span::Special(text)) = last;
    let rest = text.split_off(text.rfind(mark)?);
    let rest = format!("{}{after}", &rest[mark.len_utf8()..]);
    if rest.starts_with(tail) {
        text.push_str(tail);
    }
    // A template that repeats the message repeats the mark.
    for span in &mut spans {
        let (Span::Text(text) | Span::Special(text)) = span;
        text.retain(|c| c != mark);
    }
    spans.retain(|s| !s.as_str().is_empty());
    Some(spans)
}
