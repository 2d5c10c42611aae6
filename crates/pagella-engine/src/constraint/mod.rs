//! Constrained decoding: which ids may come next so that the output follows a schema, a grammar, a
//! regular expression or a list of strings.
//!
//! A [`ConstraintSpec`] says what is wanted. A [`ConstraintFactory`], made once per tokenizer,
//! compiles it into a [`Constraint`]; that happens outside the engine's thread and within
//! [`ConstraintLimits`]. A [`ConstraintCache`] compiles each once. The engine then asks for a [`Bitmask`] before every choice and reports every
//! id it took. [`HealingConstraint`] lets a constraint begin in the middle of a token, a [`Block`] of
//! reasoning lets it begin after one.
//!
//! What always holds:
//! - A constraint is enforced or refused. Nothing in a schema or grammar is ignored in silence.
//! - An id in the mask can be accepted; every other id is refused and changes nothing.
//! - Ids that end the output are in the mask exactly if [`Verdict::can_end`]. Other special ids are
//!   text for no grammar; only output that is free may contain them.
//! - Everything is over bytes, so half a character is no special case.
//! - No input panics: failures inside the grammar engine are caught and become errors.

mod all;
mod any;
mod cache;
mod compiler;
mod digits;
mod error;
mod factory;
mod gbnf;
mod grammar;
mod healing;
mod lark_json;
mod lazy;
mod mask;
mod opening;
mod prefix;
mod reasoning;
mod regex;
mod schema;
mod spec;
#[cfg(test)]
mod tests;
mod trigger;
mod vocab;

pub use cache::ConstraintCache;
pub use error::ConstraintError;
pub use factory::ConstraintFactory;
pub use healing::HealingConstraint;
pub use mask::Bitmask;
pub use reasoning::{Block, Switch};
pub use schema::enforceable;
pub use spec::{ConstraintLimits, ConstraintSpec, InputRule};

/// What a mask alone does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The output may end here.
    pub can_end: bool,
    /// Ids that may be appended without sampling, because the text they stand for is the only one
    /// possible. The first of them is in the mask.
    pub forced: Vec<u32>,
    /// Every id is allowed, so nobody need look at the mask.
    pub free: bool,
}

/// The state of one constraint on one output.
///
/// Small and free of locks held between calls, so masks can be computed on a worker thread.
pub trait Constraint: Send {
    /// Starts over, with `prefix` as bytes of the output that exist already. They are no accept and
    /// cannot be rewound. On error the state is that of an output without them.
    fn begin(&mut self, prefix: &[u8]) -> Result<(), ConstraintError>;

    /// Writes which ids may come next. An empty mask means that this vocabulary cannot go on, or
    /// that the output was ended.
    fn mask(&mut self, out: &mut Bitmask) -> Result<Verdict, ConstraintError>;

    /// Reports that `id` was taken. An id outside the mask is an error that changes nothing.
    fn accept(&mut self, id: u32) -> Result<(), ConstraintError>;

    /// How many leading bytes of `bytes` could be written next.
    fn viable(&mut self, bytes: &[u8]) -> Result<usize, ConstraintError>;

    /// Whether nothing may follow.
    fn is_completed(&self) -> bool;

    /// Undoes the last `n` accepts. False, and nothing happens, if there were fewer.
    fn rewind(&mut self, n: usize) -> bool;

    /// An independent copy of the state.
    fn fork(&self) -> Box<dyn Constraint>;
}
