//! What the text of an answer must and must not look like.

use pagella_engine::BoxedConstraint;
use pagella_engine::constraint::{Constraint, ConstraintSpec};
use pagella_text::BanRule;
use serde_json::Value;

use super::Complete;

/// Where the text ends and what never appears in it.
impl Complete {
    /// Ends the text where this string would begin; can be called several times.
    pub fn stop(mut self, text: impl Into<String>) -> Self {
        self.options.stop_strings.push(text.into());
        self
    }

    /// Ends the text at this token; can be called several times.
    pub fn stop_id(mut self, id: u32) -> Self {
        self.options.stop_ids.push(id);
        self
    }

    /// Does not end the text at the model's own end tokens.
    pub fn no_default_stops(mut self) -> Self {
        self.default_stops = false;
        self
    }

    /// Never writes this text, in upper or lower case: where it would appear, the model goes back
    /// and takes another way. Can be called several times.
    pub fn ban(self, text: impl Into<String>) -> Self {
        self.ban_rule(BanRule::text(text))
    }

    /// As [`ban`](Self::ban), for whole words, exact case or regular expressions.
    pub fn ban_rule(mut self, rule: BanRule) -> Self {
        self.options.banned.push(rule);
        self
    }
}

/// What the whole text must look like. Several constraints must all hold.
impl Complete {
    /// Follows a constraint.
    pub fn constrain(mut self, constraint: ConstraintSpec) -> Self {
        self.constraints.push(constraint);
        self
    }

    /// Follows a constraint that the program computes itself.
    pub fn constrain_by(mut self, constraint: Box<dyn Constraint>) -> Self {
        self.options.constraint = Some(BoxedConstraint(constraint));
        self
    }

    /// Is a JSON value that is valid under this schema.
    pub fn json_schema(self, schema: Value) -> Self {
        self.constrain(ConstraintSpec::JsonSchema(schema))
    }

    /// Is a JSON object.
    pub fn json(self) -> Self {
        self.constrain(ConstraintSpec::JsonObject)
    }

    /// Matches a regular expression as a whole.
    pub fn regex(self, pattern: impl Into<String>) -> Self {
        self.constrain(ConstraintSpec::Regex(pattern.into()))
    }

    /// Follows a context-free grammar in Lark's syntax, from its rule `start`.
    pub fn grammar(self, lark: impl Into<String>) -> Self {
        self.constrain(ConstraintSpec::Lark(lark.into()))
    }

    /// Follows a context-free grammar in llama.cpp's syntax, from its rule `root`.
    pub fn gbnf(self, grammar: impl Into<String>) -> Self {
        self.constrain(ConstraintSpec::Gbnf(grammar.into()))
    }

    /// Is one of these strings.
    pub fn choice(self, options: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let options = options.into_iter().map(Into::into).collect();
        self.constrain(ConstraintSpec::Choice { options, case_insensitive: false })
    }

    /// Ends the text as soon as its constraint allows it.
    pub fn prefer_end(mut self) -> Self {
        self.options.prefer_end = true;
        self
    }
}
