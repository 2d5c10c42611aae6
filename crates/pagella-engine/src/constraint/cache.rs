//! Compiled constraints of one model: each compiled once, kept while it is in use.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pagella_text::Tokenizer;

use super::{Block, ConstraintError, ConstraintFactory, ConstraintLimits, ConstraintSpec};
use crate::BoxedConstraint;

/// Compiled constraints that are kept.
const KEPT_MAX: usize = 256;
/// Longest text of a constraint that is kept.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// Compiles constraints and remembers the last used.
pub struct ConstraintCache {
    tokenizer: Tokenizer,
    vocab: usize,
    /// Made at the first use, and again when limits have changed: it indexes the whole vocabulary.
    factory: Mutex<Option<ConstraintFactory>>,
    /// By their JSON; the last used at the back.
    kept: Mutex<VecDeque<(String, BoxedConstraint)>>,
}

impl ConstraintCache {
    /// For a model with `vocab` logits. Does nothing yet.
    pub fn new(tokenizer: Tokenizer, vocab: usize) -> Self {
        ConstraintCache { tokenizer, vocab, factory: Mutex::default(), kept: Mutex::default() }
    }

    /// A constraint at its beginning, behind the end of a block of reasoning where there is one;
    /// `None` where nothing is asked for. Takes up to seconds for a new one; `compiled` is told how
    /// long.
    pub fn compile(
        &self,
        spec: Option<&ConstraintSpec>,
        block: Option<&Block>,
        limits: &ConstraintLimits,
        compiled: impl FnOnce(Duration),
    ) -> Result<Option<BoxedConstraint>, ConstraintError> {
        if spec.is_none() && block.is_none() {
            return Ok(None);
        }
        let factory = self.factory(limits)?;
        let then = spec.map(|spec| self.compile_once(&factory, spec, compiled)).transpose()?;
        match block {
            None => Ok(then),
            Some(block) => {
                let after = factory.after(block, then.map(|then| then.0))?;
                Ok(Some(BoxedConstraint(after)))
            }
        }
    }

    /// Both of two constraints, where there are two.
    pub fn both(
        &self,
        one: Option<BoxedConstraint>,
        other: Option<BoxedConstraint>,
        limits: &ConstraintLimits,
    ) -> Result<Option<BoxedConstraint>, ConstraintError> {
        match (one, other) {
            (Some(one), Some(other)) => {
                let parts = vec![one.0, other.0];
                Ok(Some(BoxedConstraint(self.factory(limits)?.all(parts))))
            }
            (one, other) => Ok(one.or(other)),
        }
    }

    fn compile_once(
        &self,
        factory: &ConstraintFactory,
        spec: &ConstraintSpec,
        compiled: impl FnOnce(Duration),
    ) -> Result<BoxedConstraint, ConstraintError> {
        let name = serde_json::to_string(spec).ok();
        let name = name.filter(|name| name.len() <= KEPT_BYTES_MAX);
        if let Some(known) = name.as_deref().and_then(|name| self.known(name)) {
            return Ok(known);
        }
        let begun = Instant::now();
        let outcome = factory.compile(spec);
        compiled(begun.elapsed());
        let constraint = BoxedConstraint(outcome?);
        if let Some(name) = name {
            let mut kept = self.kept();
            kept.push_back((name, constraint.clone()));
            if kept.len() > KEPT_MAX {
                kept.pop_front();
            }
        }
        Ok(constraint)
    }

    fn known(&self, name: &str) -> Option<BoxedConstraint> {
        let mut kept = self.kept();
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
        self.kept().clear();
        Ok(made.insert(factory).clone())
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<(String, BoxedConstraint)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
