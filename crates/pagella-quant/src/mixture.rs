//! Which rows of a linear get how many bits: every mixture of widths that could pay.
//!
//! A linear is rounded once in each uniform way, and the loss of every block of 32 rows is kept. Losses
//! add up over blocks and hardly depend on how the other rows are rounded, so the loss of any mixture
//! is the sum of what its blocks lost. For one exchange rate between loss and bits the best mixture is
//! found exactly, block by block; trying the rates between two mixtures again and again gives all of
//! those on the lower hull.

use serde::{Deserialize, Serialize};

use crate::error::QuantError;
use crate::factor::Factor;
use crate::layout::{self, GroupLayout, GroupShape};
use crate::linear::{QuantizedLinear, Recipe, quantize_linear};
use crate::weights::WeightMatrix;

/// Rows of a block.
pub(crate) const BLOCK_ROWS: usize = 32;

/// Widths and rows per group that are measured.
pub(crate) const WAYS: [(u8, usize); 10] = [
    (8, 128),
    (6, 128),
    (5, 32),
    (5, 128),
    (4, 32),
    (4, 128),
    (3, 32),
    (3, 128),
    (2, 32),
    (2, 128),
];

/// The way whose loss stands for the linear when its weight in the whole is measured: 3 bits in groups
/// of 128.
const REFERENCE: usize = 7;

/// Widths and rows per group that are mixed, in the order in which rows may have them. What is not
/// measured follows from what is.
const KINDS: [(u8, usize); 18] = [
    (8, 32),
    (8, 64),
    (8, 128),
    (6, 32),
    (6, 64),
    (6, 128),
    (5, 32),
    (5, 64),
    (5, 128),
    (4, 32),
    (4, 64),
    (4, 128),
    (3, 32),
    (3, 64),
    (3, 128),
    (2, 32),
    (2, 64),
    (2, 128),
];

/// How often the hull is refined: at most 2⁶ + 1 mixtures.
const DEPTH: u32 = 6;

/// What every block of a linear loses in every uniform way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossTable {
    /// The linear.
    pub linear: String,
    /// Its outputs, with padding.
    pub columns: usize,
    /// Whether a bias is stored with it.
    pub has_bias: bool,
    /// Per way, per block of 32 packed rows.
    pub losses: Vec<Vec<f64>>,
}

/// Widths and groups for all rows of a linear, and what they do.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixture {
    /// The groups.
    pub layout: GroupLayout,
    /// Bits it takes.
    pub cost_bits: u64,
    /// Loss of all blocks.
    pub loss: f64,
}

impl LossTable {
    /// Rounds a linear in every way; with the table comes the linear as the reference way rounds it, to
    /// measure what a loss means for the whole model.
    pub fn measure(
        weights: &WeightMatrix,
        factor: &Factor,
        has_bias: bool,
        recipe: &Recipe,
    ) -> Result<(Self, QuantizedLinear), QuantError> {
        let mut losses = Vec::with_capacity(WAYS.len());
        let round = |way| quantize_linear(weights, factor, &uniform(way, weights.inputs()), recipe);
        let reference = round(WAYS[REFERENCE])?;
        for (idx, way) in WAYS.iter().enumerate() {
            losses.push(match idx {
                REFERENCE => reference.block_losses().to_vec(),
                _ => round(*way)?.block_losses().to_vec(),
            });
        }
        let (linear, columns) = (weights.name().to_owned(), weights.columns());
        Ok((Self { linear, columns, has_bias, losses }, reference))
    }

    /// The loss of the whole linear in the reference way.
    pub fn reference_loss(&self) -> f64 {
        self.losses.get(REFERENCE).into_iter().flatten().sum()
    }

    /// Blocks that losses are of.
    pub(crate) fn blocks(&self) -> usize {
        self.losses.first().map_or(0, Vec::len)
    }

    /// The mixtures that are best for some rate between loss and bits, cheapest first.
    pub fn mixtures(&self) -> Result<Vec<Mixture>, QuantError> {
        let blocks = self.blocks();
        let is_whole = self.losses.len() == WAYS.len()
            && blocks > 0
            && self.losses.iter().all(|losses| losses.len() == blocks)
            && self.losses.iter().flatten().all(|loss| *loss >= 0.0 && loss.is_finite());
        if !is_whole {
            let fault = "its losses are not whole".to_owned();
            return Err(QuantError::Slot { slot: self.linear.clone(), fault });
        }
        let hull = Hull { table: self, losses: self.kinds() };
        let cheapest = hull.best(0.0, 1.0);
        let finest = hull.best(1.0, 0.0);
        let mut found = vec![cheapest.clone()];
        hull.between(&cheapest, &finest, DEPTH, &mut found);
        found.push(finest);
        found.dedup_by(|next, last| next.cost_bits <= last.cost_bits || next.loss >= last.loss);
        Ok(found)
    }

    /// The losses of all kinds of groups, of a table that is whole.
    fn kinds(&self) -> Vec<Vec<f64>> {
        KINDS.iter().map(|kind| self.losses_of(*kind)).collect()
    }

    /// Groups of 64 lose the geometric mean of what smaller and larger ones lose; what small groups
    /// save at the widths where they are not measured is what they save at 5 bits.
    fn losses_of(&self, (bits, rows): (u8, usize)) -> Vec<f64> {
        let measured = |way| {
            let index = WAYS.iter().position(|found| *found == way)?;
            self.losses.get(index).cloned()
        };
        if let Some(losses) = measured((bits, rows)) {
            return losses;
        }
        let large = measured((bits, 128)).unwrap_or_default();
        if rows == 64 {
            let small = self.losses_of((bits, 32));
            return small.iter().zip(&large).map(|(small, large)| (small * large).sqrt()).collect();
        }
        let [fine, coarse] = [32, 128].map(|rows| measured((5, rows)).unwrap_or_default());
        let pairs = fine.iter().zip(&coarse);
        let saved = pairs.map(|(fine, coarse)| if fine < coarse { fine / coarse } else { 1.0 });
        large.iter().zip(saved).map(|(loss, saved)| loss * saved).collect()
    }
}

/// What the lower hull of a table is found from.
struct Hull<'a> {
    table: &'a LossTable,
    /// Per kind of group, per block.
    losses: Vec<Vec<f64>>,
}

impl Hull<'_> {
    /// Appends the mixtures on the hull between two of them.
    fn between(&self, low: &Mixture, high: &Mixture, depth: u32, found: &mut Vec<Mixture>) {
        if depth == 0 || high.cost_bits <= low.cost_bits || low.loss <= high.loss {
            return;
        }
        let bits = (high.cost_bits - low.cost_bits) as f64;
        let rate = (low.loss - high.loss) / bits;
        let middle = self.best(1.0, rate);
        let value = |mixture: &Mixture| mixture.loss + rate * mixture.cost_bits as f64;
        // Both ends have the same value; what is not clearly better is one of them.
        if value(&middle) >= value(low) - 1e-9 * value(low).abs() {
            return;
        }
        self.between(low, &middle, depth - 1, found);
        found.push(middle.clone());
        self.between(&middle, high, depth - 1, found);
    }

    /// The mixture of least `of_loss · loss + of_bits · bits`.
    fn best(&self, of_loss: f64, of_bits: f64) -> Mixture {
        let LossTable { columns, has_bias, .. } = *self.table;
        let path = Path::find(&self.losses, columns, of_loss, of_bits);
        let mut groups: Vec<GroupShape> = Vec::new();
        let mut loss = 0.0;
        for (block, Place { kind, phase }) in path.iter().enumerate() {
            loss += self.losses[*kind][block];
            match groups.last_mut() {
                Some(group) if *phase > 0 => group.rows += BLOCK_ROWS,
                _ => groups.push(GroupShape { bits: KINDS[*kind].0, rows: BLOCK_ROWS }),
            }
        }
        let layout = GroupLayout::of(groups);
        let cost_bits = layout.cost_bits(columns, has_bias);
        Mixture { layout, cost_bits, loss }
    }
}

/// All rows in one way.
fn uniform((bits, group_rows): (u8, usize), inputs: usize) -> GroupLayout {
    let rows = |first| group_rows.min(inputs - first);
    let groups = (0..inputs).step_by(group_rows);
    GroupLayout::of(groups.map(|first| GroupShape { bits, rows: rows(first) }).collect())
}

/// The kind of group of a block, and how many blocks of its group are before it.
#[derive(Clone, Copy)]
struct Place {
    kind: usize,
    phase: usize,
}

/// The places of all blocks: what is found by looking at one block after the other.
struct Path {
    places: Vec<Place>,
    /// Value of the best path that ends in each place.
    values: Vec<f64>,
    /// Per block and place, the place of the block before.
    parents: Vec<Vec<usize>>,
}

impl Path {
    fn find(losses: &[Vec<f64>], columns: usize, of_loss: f64, of_bits: f64) -> Vec<Place> {
        let places: Vec<Place> = (0..KINDS.len())
            .flat_map(|kind| {
                (0..KINDS[kind].1 / BLOCK_ROWS).map(move |phase| Place { kind, phase })
            })
            .collect();
        let group = of_bits * layout::group_bits(columns as u64) as f64;
        let row_bits = of_bits * (BLOCK_ROWS * columns) as f64;
        let value = |block: usize, place: &Place| {
            let opening = if place.phase == 0 { group } else { 0.0 };
            of_loss * losses[place.kind][block]
                + row_bits * f64::from(KINDS[place.kind].0)
                + opening
        };
        let first = |place: &Place| {
            if place.phase == 0 { value(0, place) } else { f64::INFINITY }
        };
        let values = places.iter().map(first).collect();
        let mut path = Self { places, values, parents: Vec::new() };
        for block in 1..losses.first().map_or(0, Vec::len) {
            path.extend(|place| value(block, place));
        }
        path.trace()
    }

    fn extend(&mut self, value: impl Fn(&Place) -> f64) {
        let mut parents = Vec::with_capacity(self.places.len());
        let mut values = Vec::with_capacity(self.places.len());
        for place in &self.places {
            let (mut parent, mut least) = (0, f64::INFINITY);
            for (idx, (before, value)) in self.places.iter().zip(&self.values).enumerate() {
                if *value < least && may_follow(before, place) {
                    (parent, least) = (idx, *value);
                }
            }
            parents.push(parent);
            values.push(least + value(place));
        }
        self.values = values;
        self.parents.push(parents);
    }

    fn trace(&self) -> Vec<Place> {
        let ends = self.values.iter().enumerate();
        let mut at = ends.min_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(idx, _)| idx);
        let mut places = vec![self.places[at]];
        for parents in self.parents.iter().rev() {
            at = parents[at];
            places.push(self.places[at]);
        }
        places.reverse();
        places
    }
}

/// A group goes on, or is full and another begins, or it ends early because the rows after it are of a later kind.
fn may_follow(before: &Place, place: &Place) -> bool {
    if before.kind == place.kind {
        let phases = KINDS[place.kind].1 / BLOCK_ROWS;
        return place.phase == (before.phase + 1) % phases;
    }
    before.kind < place.kind && place.phase == 0
}

#[cfg(test)]
mod tests;
