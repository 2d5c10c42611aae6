//! What is known of the inputs of linears after all rows: the Hessian of every shared input, and how
//! far the quantised stream is from the unquantised one.

use std::collections::BTreeMap;

use crate::cross::CrossSum;
use crate::error::QuantError;
use crate::hessian::{Hessian, HessianSum};
use crate::layer::Seen;

/// Sums in the making, by the number of the first linear that reads an input.
#[derive(Default)]
pub(crate) struct Sums {
    by_key: BTreeMap<usize, Sum>,
    /// The key of every linear.
    keys: BTreeMap<usize, usize>,
}

struct Sum {
    hessian: HessianSum,
    cross: Option<CrossSum>,
    tokens: u64,
}

/// What is known of one input.
pub(crate) struct Known {
    /// `Σ aᵀa`.
    pub hessian: Hessian,
    /// `Σ aᵀ(a_full − a)`.
    pub cross: Option<Vec<f32>>,
    /// Tokens that were seen.
    pub tokens: u64,
}

impl Sums {
    /// Adds what was seen in one row. `full` is the same of the unquantised model.
    pub fn add(&mut self, seen: &Seen, full: Option<&Seen>) {
        let Some(key) = seen.linears.first().copied() else { return };
        self.keys.extend(seen.linears.iter().map(|linear| (*linear, key)));
        let Seen { rows, width, .. } = seen;
        let (tokens, width) = (rows.len() / (*width).max(1), *width);
        let sum = self.by_key.entry(key).or_insert_with(|| Sum {
            hessian: HessianSum::new(width),
            cross: None,
            tokens: 0,
        });
        sum.hessian.add(rows);
        sum.tokens += tokens as u64;
        // Experts see other tokens in the two streams.
        let Some(full) = full.filter(|full| full.rows.len() == rows.len()) else { return };
        let shift = difference(&full.rows, rows);
        sum.cross.get_or_insert_with(|| CrossSum::new(width, width)).add(rows, &shift);
    }

    /// The key of a linear: linears with one key share what enters them.
    pub fn key(&self, number: usize) -> Option<usize> {
        self.keys.get(&number).copied()
    }

    /// All inputs of one width together, for experts that saw too little of their own.
    pub fn pooled(&self) -> Pooled {
        let mut by_width: BTreeMap<usize, HessianSum> = BTreeMap::new();
        for sum in self.by_key.values() {
            let width = sum.hessian.inputs();
            by_width.entry(width).or_insert_with(|| HessianSum::new(width)).join(&sum.hessian);
        }
        Pooled(by_width)
    }

    /// What is known of every input; `name` says whose it is.
    pub fn finish(
        self,
        name: impl Fn(usize) -> String,
    ) -> Result<BTreeMap<usize, Known>, QuantError> {
        let finish = |(key, sum): (usize, Sum)| {
            let known = Known {
                hessian: sum.hessian.finish(&name(key))?,
                cross: sum.cross.map(CrossSum::finish),
                tokens: sum.tokens,
            };
            Ok((key, known))
        };
        self.by_key.into_iter().map(finish).collect()
    }
}

/// Sums over all inputs of a width.
pub(crate) struct Pooled(BTreeMap<usize, HessianSum>);

impl Pooled {
    /// The Hessian of inputs of this width; the identity if there were none.
    pub fn get(&self, width: usize, name: &str) -> Result<Hessian, QuantError> {
        let sum = self.0.get(&width).cloned();
        sum.unwrap_or_else(|| HessianSum::new(width)).finish(name)
    }
}

fn difference(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}
