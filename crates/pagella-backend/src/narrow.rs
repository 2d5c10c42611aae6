//! Narrowing: what a host must know of a row of logits to choose an id without reading all of it.
//!
//! A row of logits on a device is half a megabyte; a choice looks at a few hundred entries and one
//! sum. The device therefore leaves out what may not be chosen and returns the highest logits with
//! the number and the mass of all others; whoever chooses either finds that this decides, or reads
//! the row. [`narrow_plain`] says what the answer is.

use crate::BackendError;

/// Most candidates that can be asked for.
pub const NARROW_TOP_MAX: usize = 1024;
/// Most ids that can be set apart in one row.
pub const NARROW_APART_MAX: usize = 8192;
/// How far a mass may be from the exact one, relative.
pub const NARROW_MASS_ERROR: f64 = 4e-6;

/// What is asked of one row.
#[derive(Clone, Copy, Debug)]
pub struct NarrowAsk<'a> {
    /// Which row of the logits.
    pub row: usize,
    /// Only ids below may be chosen.
    pub vocab: usize,
    /// Only these ids may be chosen, of those: bit `id % 32` of word `id / 32`. Ids beyond the last
    /// word are not allowed. `None` allows all.
    pub mask: Option<&'a [u32]>,
    /// Ids below `vocab`, increasing, that are left out of everything but have their logits
    /// reported: those that somebody changes or denies afterwards. At most [`NARROW_APART_MAX`].
    pub apart: &'a [u32],
    /// How many of the highest logits; between 1 and [`NARROW_TOP_MAX`].
    pub top: usize,
    /// Asks for the mass, the sum of `exp((logit − highest) · scale)` over the open ids.
    pub scale: Option<f32>,
}

/// What is known of one row afterwards. An id is open if it may be chosen, is not set apart, and its
/// logit is a number above −∞.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NarrowRow {
    /// The highest logits of open ids with their ids: highest first, lowest id first among equals.
    /// As many as asked for, or all.
    pub top: Vec<(u32, f32)>,
    /// Logits of the ids set apart, in their order.
    pub apart: Vec<f32>,
    /// How many ids are open.
    pub open: usize,
    /// How many entries of the row are not numbers, whether or not they may be chosen.
    pub nan: usize,
    /// The mass, within [`NARROW_MASS_ERROR`]; 0 if not asked for, without open ids, and where the
    /// highest logit is +∞.
    pub mass: f64,
}

impl NarrowAsk<'_> {
    /// Whether the ask can be answered for logits of this shape.
    pub fn check(&self, rows: usize, width: usize) -> Result<(), BackendError> {
        let at_most = |what, found: usize, expected: usize| match found <= expected {
            true => Ok(()),
            false => Err(BackendError::Size { what, expected, found }),
        };
        at_most("rows of a narrowed tensor", self.row + 1, rows)?;
        at_most("vocabulary of a narrowed row", self.vocab, width)?;
        at_most("candidates of a narrowed row", self.top, NARROW_TOP_MAX)?;
        at_most("ids set apart in a narrowed row", self.apart.len(), NARROW_APART_MAX)?;
        if self.top == 0 {
            let what = "candidates of a narrowed row";
            return Err(BackendError::Size { what, expected: 1, found: 0 });
        }
        let highest = self.apart.last().map_or(0, |id| *id as usize + 1);
        at_most("highest id set apart in a narrowed row", highest, self.vocab)?;
        match self.apart.windows(2).position(|pair| pair[0] >= pair[1]) {
            None => Ok(()),
            Some(found) => {
                let what = "increasing ids set apart in a narrowed row";
                Err(BackendError::Size { what, expected: self.apart.len(), found: found + 1 })
            }
        }
    }

    fn allows(&self, id: usize) -> bool {
        let word = |words: &[u32]| words.get(id / 32).copied().unwrap_or(0);
        id < self.vocab && self.mask.is_none_or(|words| word(words) >> (id % 32) & 1 == 1)
    }
}

/// The answer for one row, by sorting all of it. `ask.row` does not matter.
pub fn narrow_plain(logits: &[f32], ask: &NarrowAsk<'_>, out: &mut NarrowRow) {
    out.apart.clear();
    out.apart.extend(ask.apart.iter().map(|id| logits[*id as usize]));
    out.nan = logits.iter().filter(|l| l.is_nan()).count();
    let open = |id: usize, l: f32| {
        l > f32::NEG_INFINITY && ask.allows(id) && ask.apart.binary_search(&(id as u32)).is_err()
    };
    let entries = logits.iter().enumerate().filter(|(id, l)| open(*id, **l));
    let mut list: Vec<(u32, f32)> = entries.map(|(id, l)| (id as u32, *l)).collect();
    // No entry is NaN, and the two zeros are equal.
    list.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap_or(a.0.cmp(&b.0)).then(a.0.cmp(&b.0)));
    out.open = list.len();
    out.mass = match (ask.scale, list.first()) {
        (Some(scale), Some(&(_, max))) if max < f32::INFINITY => {
            let weight = |l: f32| ((f64::from(l) - f64::from(max)) * f64::from(scale)).exp();
            list.iter().map(|(_, l)| weight(*l)).sum()
        }
        _ => 0.0,
    };
    list.truncate(ask.top);
    out.top = list;
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAN: f32 = f32::NAN;
    const INF: f32 = f32::INFINITY;

    fn ask<'a>() -> NarrowAsk<'a> {
        NarrowAsk { row: 0, vocab: 8, mask: None, apart: &[], top: 3, scale: Some(1.0) }
    }

    #[test]
    fn the_answer_is_that_of_the_definition() {
        let logits = [1.0, 3.0, NAN, 3.0, -INF, 2.0, -0.0, 0.0, 9.0, NAN];
        let mut row = NarrowRow::default();
        narrow_plain(&logits, &ask(), &mut row);
        assert_eq!(row.top, [(1, 3.0), (3, 3.0), (5, 2.0)]);
        assert_eq!((row.open, row.nan), (6, 2));
        let mass = 2.0 + (-1f64).exp() + (-2f64).exp() + 2.0 * (-3f64).exp();
        assert!((row.mass - mass).abs() < 1e-12);
        let mask = [0b1110_1001];
        let narrower = NarrowAsk { mask: Some(&mask), apart: &[2, 5], scale: None, ..ask() };
        narrow_plain(&logits, &narrower, &mut row);
        assert_eq!(row.top, [(3, 3.0), (0, 1.0), (6, -0.0)]);
        assert!(row.apart[0].is_nan() && row.apart[1] == 2.0);
        assert_eq!((row.open, row.nan, row.mass), (4, 2, 0.0));
    }

    #[test]
    fn asks_that_cannot_be_answered_are_refused() {
        let sizes = |ask: NarrowAsk<'_>| ask.check(2, 8).is_ok();
        assert!(sizes(ask()) && sizes(NarrowAsk { row: 1, apart: &[0, 7], ..ask() }));
        assert!(!sizes(NarrowAsk { row: 2, ..ask() }));
        assert!(!sizes(NarrowAsk { vocab: 9, ..ask() }));
        assert!(!sizes(NarrowAsk { top: 0, ..ask() }));
        assert!(!sizes(NarrowAsk { top: NARROW_TOP_MAX + 1, ..ask() }));
        assert!(!sizes(NarrowAsk { apart: &[8], ..ask() }));
        assert!(!sizes(NarrowAsk { apart: &[3, 3], ..ask() }));
        assert!(!sizes(NarrowAsk { apart: &[3, 2], ..ask() }));
    }
}
