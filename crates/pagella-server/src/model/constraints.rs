//! Compiled constraints of one model: compiled once, kept while they are in use.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use pagella_engine::BoxedConstraint;
use pagella_engine::constraint::{
    Block, ConstraintError, ConstraintFactory, ConstraintLimits, ConstraintSpec,
};
use pagella_text::Tokenizer;

use crate::metrics::Histogram;
use crate::wire::error::{ApiError, Code};

/// Compiled constraints that are kept.
const KEPT_MAX: usize = 256;
/// Longest text of a constraint that is kept.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// Compiles constraints and remembers the newest.
pub struct Constraints {
    tokenizer: Tokenizer,
    vocab: usize,
    /// Made at the first use, and again when limits have changed: it indexes the whole vocabulary.
    factory: Mutex<Option<ConstraintFactory>>,
    /// The last used ones at the back.
    kept: Mutex<VecDeque<(String, BoxedConstraint)>>,
}

impl Constraints {
    pub(super) fn new(tokenizer: Tokenizer, vocab: usize) -> Self {
        Constraints { tokenizer, vocab, factory: Mutex::default(), kept: Mutex::default() }
    }

    /// The constraint at its beginning. Takes up to seconds for a new one, which `times` notes.
    fn compile(
        &self,
        spec: &ConstraintSpec,
        limits: &ConstraintLimits,
        times: &Histogram,
    ) -> Result<BoxedConstraint, ApiError> {
        let factory = self.factory(limits).map_err(|error| refusal(&error))?;
        let name = serde_json::to_string(spec).map_err(|_| ApiError::internal())?;
        if let Some(known) = self.known(&name) {
            return Ok(known);
        }
        let begun = Instant::now();
        let compiled = factory.compile(spec);
        times.note(begun.elapsed().as_secs_f64());
        let compiled = BoxedConstraint(compiled.map_err(|error| refusal(&error))?);
        if name.len() <= KEPT_BYTES_MAX {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push_back((name, compiled.clone()));
            if kept.len() > KEPT_MAX {
                kept.pop_front();
            }
        }
        Ok(compiled)
    }

    /// A constraint at its beginning that waits for the end of a block of reasoning.
    pub fn compile_after(
        &self,
        spec: Option<&ConstraintSpec>,
        block: Option<&Block>,
        limits: &ConstraintLimits,
        times: &Histogram,
    ) -> Result<BoxedConstraint, ApiError> {
        let then = spec.map(|spec| self.compile(spec, limits, times)).transpose()?;
        match (then, block) {
            (Some(then), None) => Ok(then),
            (then, Some(block)) => {
                let factory = self.factory(limits).map_err(|error| refusal(&error))?;
                let after = factory.after(block, then.map(|then| then.0));
                Ok(BoxedConstraint(after.map_err(|error| refusal(&error))?))
            }
            (None, None) => Err(ApiError::internal()),
        }
    }

    fn known(&self, name: &str) -> Option<BoxedConstraint> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let idx = kept.iter().position(|(known, _)| known == name)?;
        let entry = kept.remove(idx)?;
        let copy = entry.1.clone();
        kept.push_back(entry);
        Some(copy)
    }

    fn factory(&self, limits: &ConstraintLimits) -> Result<ConstraintFactory, ConstraintError> {
        let mut made = self.factory.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(factory) = made.as_ref().filter(|factory| factory.limits() == limits) {
            return Ok(factory.clone());
        }
        let factory = ConstraintFactory::new(&self.tokenizer, self.vocab, limits.clone())?;
        // What was compiled within other limits may be beyond these.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(made.insert(factory).clone())
    }
}

/// What a client is told of a constraint that cannot be used.
pub fn refusal(error: &ConstraintError) -> ApiError {
    use ConstraintError as E;
    let code = match error {
        E::TooLarge { .. } | E::TooComplex { .. } | E::CompileTime { .. } => {
            Code::ConstraintTooComplex
        }
        E::InvalidSchema { .. } | E::UnsupportedKeyword { .. } => Code::InvalidSchema,
        E::Impossible { what: "regular expression", .. } | E::InvalidRegex { .. } => {
            Code::InvalidRegex
        }
        E::Impossible { what: "JSON schema", .. } => Code::InvalidSchema,
        E::Impossible { .. }
        | E::InvalidLark { .. }
        | E::InvalidGbnf { .. }
        | E::InvalidStrings { .. } => Code::InvalidGrammar,
        E::NotAllowed { .. } | E::PrefixNotAllowed { .. } => Code::ConstraintDeadEnd,
        _ => Code::InternalError,
    };
    ApiError::new(code, error.to_string()).caused_by(error)
}
