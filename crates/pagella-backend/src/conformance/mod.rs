//! Cases every backend must pass, against plain f64 references.
//!
//! A backend's test lists [`cases`] and runs each with the [`Tolerances`] of its arithmetic; a
//! stand-alone runner on another machine can do the same. Inputs are pseudo-random and the same
//! everywhere; outputs are NaN beforehand, so an element that nobody writes is found.
//!
//! One file per op, then the contract: `invariance` (same row, same bits), `formats` (every cache
//! format works or is refused), `sizes` (a wrong size is an error), and [`real_shapes`] for devices. What they share: `noise`
//! (inputs), `fixture` (tensors and steps), `reference` (the f64 side), `compare` (verdicts).
//!
//! ```
//! use pagella_backend::{Backend, conformance};
//! fn check_all<B: Backend>(backend: &B) -> Result<(), String> {
//!     for case in conformance::cases::<B>() {
//!         (case.run)(backend, &conformance::Tolerances::SINGLE)
//!             .map_err(|reason| format!("{}: {reason}", case.name))?;
//!     }
//!     Ok(())
//! }
//! ```

mod activate;
mod adapt;
mod attention;
mod compare;
mod embed;
mod experts;
mod fixture;
mod formats;
mod guess;
mod heads;
mod invariance;
mod latent;
mod linears;
mod logits;
mod narrow;
mod noise;
mod norm_add;
mod page_bytes;
mod pages;
mod project;
mod project_add;
mod real_shapes;
mod reference;
mod sizes;
mod tolerance;

pub use real_shapes::real_shapes;
pub use tolerance::Tolerances;

use crate::Backend;

/// One thing a backend must get right.
pub struct Case<B: Backend> {
    /// `op/what`, unique.
    pub name: &'static str,
    /// Runs it; an error says what was expected and what was found.
    pub run: fn(&B, &Tolerances) -> Result<(), String>,
}

/// Every case, in an order in which the first failure is the most telling one.
pub fn cases<B: Backend>() -> Vec<Case<B>> {
    let mut cases = Vec::new();
    cases.extend(embed::cases());
    cases.extend(norm_add::cases());
    cases.extend(project::cases());
    cases.extend(project_add::cases());
    cases.extend(attention::cases());
    cases.extend(heads::cases());
    cases.extend(latent::cases());
    cases.extend(activate::cases());
    cases.extend(experts::cases());
    cases.extend(logits::cases());
    cases.extend(adapt::cases());
    cases.extend(narrow::cases());
    cases.extend(guess::cases());
    cases.extend(pages::cases());
    cases.extend(page_bytes::cases());
    cases.extend(formats::cases());
    cases.extend(invariance::cases());
    cases.extend(sizes::cases());
    cases
}
