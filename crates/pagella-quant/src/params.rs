//! How one linear is stored: widths, the share of its rows that each gets, rows per group.
//!
//! Parameters that exist can be written: widths decrease and are those of the format, groups are
//! multiples of 32 rows, shares add up to 1.

use std::fmt;

use pagella_formats::exl2::groups::{GROUP_ROWS_MULTIPLE, WIDTHS};

use crate::error::QuantError;
use crate::layout::{GroupLayout, GroupShape};

/// Bits of one scale code; the format has no other.
pub(crate) const SCALE_BITS: u64 = 4;

/// How far shares may be from adding up to 1: they are decimal fractions in binary.
const SHARE_TOLERANCE: f64 = 1e-6;

/// Rows of one width.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WidthShare {
    /// Bits per weight: 2, 3, 4, 5, 6 or 8.
    pub bits: u8,
    /// Share of the rows, from 0 to 1; what is rounded goes to the wider rows.
    pub share: f64,
    /// Rows per group, a multiple of 32.
    pub group_rows: usize,
}

/// The parameters of one linear, widest rows first.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearParams {
    widths: Vec<WidthShare>,
}

impl LinearParams {
    /// Checks `widths`, widest first.
    pub fn new(widths: Vec<WidthShare>) -> Result<Self, QuantError> {
        let params = Self { widths };
        match params.fault() {
            None => Ok(params),
            Some(fault) => Err(QuantError::Params { params: params.to_string(), fault }),
        }
    }

    /// One of the sets that are written down in this crate, whose tests check them.
    pub(crate) fn preset(widths: &[WidthShare]) -> Self {
        Self { widths: widths.to_vec() }
    }

    fn fault(&self) -> Option<String> {
        let mut widest = u8::MAX;
        for WidthShare { bits, share, group_rows } in &self.widths {
            if !WIDTHS.contains(bits) {
                return Some(format!("{bits} bits; 2, 3, 4, 5, 6 and 8 are possible"));
            }
            if *bits >= widest {
                return Some("widths must decrease".to_owned());
            }
            if *group_rows == 0 || !group_rows.is_multiple_of(GROUP_ROWS_MULTIPLE) {
                return Some(format!("groups of {group_rows} rows; multiples of 32 are possible"));
            }
            if !(0.0..=1.0).contains(share) {
                return Some(format!("a share of {share}; it must be from 0 to 1"));
            }
            widest = *bits;
        }
        let sum = self.widths.iter().fold(0.0, |sum, width| sum + width.share);
        let whole = (sum - 1.0).abs() <= SHARE_TOLERANCE;
        (!whole).then(|| format!("shares add up to {sum}; they must make 1"))
    }

    /// The widths, widest first.
    pub fn widths(&self) -> &[WidthShare] {
        &self.widths
    }

    /// The groups of a linear with `inputs` inputs, in packed order: every width gets whole groups,
    /// rounded up, so only the last group may be shorter than its width says.
    pub fn layout(&self, inputs: usize) -> GroupLayout {
        let mut groups = Vec::new();
        let mut left = inputs;
        let last = self.widths.len().saturating_sub(1);
        for (idx, WidthShare { bits, share, group_rows }) in self.widths.iter().enumerate() {
            let wanted = (inputs as f64 * share).min(left as f64);
            let mut count = (wanted / *group_rows as f64).ceil() as usize;
            if idx == last {
                // The same, unless shares that fall short of 1 by a rounding left a group over.
                count = left.div_ceil(*group_rows);
            }
            for _ in 0..count {
                let rows = left.min(*group_rows);
                if rows > 0 {
                    groups.push(GroupShape { bits: *bits, rows });
                }
                left -= rows;
            }
        }
        GroupLayout::of(groups)
    }

    /// Bits that a linear takes in its file, headers excluded; `columns` are its outputs with padding.
    pub fn cost_bits(&self, inputs: usize, columns: usize, has_bias: bool) -> u64 {
        self.layout(inputs).cost_bits(columns, has_bias)
    }
}

/// As ExLlamaV2's logs say it: `0.05:8b_32g/0.95:4b_128g s4`.
impl fmt::Display for LinearParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (idx, WidthShare { bits, share, group_rows }) in self.widths.iter().enumerate() {
            let separator = if idx == 0 { "" } else { "/" };
            write!(f, "{separator}{share}:{bits}b_{group_rows}g")?;
        }
        write!(f, " s{SCALE_BITS}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(widths: &[(f64, u8, usize)]) -> LinearParams {
        let width = |(share, bits, group_rows)| WidthShare { bits, share, group_rows };
        LinearParams::new(widths.iter().copied().map(width).collect()).unwrap()
    }

    /// Number of groups and rows of each width.
    fn counts(params: &LinearParams, inputs: usize) -> Vec<(u8, usize, usize)> {
        let layout = params.layout(inputs);
        let groups = layout.groups();
        let of = |bits| {
            let rows: Vec<usize> =
                groups.iter().filter(|group| group.bits == bits).map(|group| group.rows).collect();
            (bits, rows.len(), rows.iter().sum())
        };
        params.widths().iter().map(|width| of(width.bits)).collect()
    }

    #[test]
    fn rows_are_shared_out_and_paid_for_as_in_exllamav2() {
        let two = params(&[(0.1, 4, 128), (0.9, 3, 128)]);
        assert_eq!(counts(&two, 4096), [(4, 4, 512), (3, 28, 3584)]);
        assert_eq!(two.cost_bits(4096, 4096, false), 53_085_696);

        let three = params(&[(0.05, 8, 32), (0.1, 4, 128), (0.85, 3, 128)]);
        assert_eq!(counts(&three, 11008), [(8, 18, 576), (4, 9, 1152), (3, 73, 9280)]);
        assert_eq!(three.layout(11008).groups().last(), Some(&GroupShape { bits: 3, rows: 64 }));
        assert_eq!(three.cost_bits(11008, 4096, false), 153_776_832);

        let down = params(&[(0.05, 6, 32), (0.2, 3, 64), (0.75, 2, 64)]);
        assert_eq!(counts(&down, 14336), [(6, 23, 736), (3, 45, 2880), (2, 168, 10720)]);
        assert_eq!(down.layout(14336).groups().last(), Some(&GroupShape { bits: 2, rows: 32 }));
        assert_eq!(down.cost_bits(14336, 4096, false), 145_632_320);
        assert_eq!(down.cost_bits(14336, 4096, true), 145_632_320 + 16 * 4096);
    }

    #[test]
    fn groups_cover_every_number_of_inputs() {
        let three = params(&[(0.05, 8, 32), (0.1, 4, 128), (0.85, 3, 64)]);
        for inputs in (32..4096).step_by(32) {
            let layout = three.layout(inputs);
            assert_eq!(layout.inputs(), inputs);
            assert!(GroupLayout::new(layout.groups().to_vec()).is_ok());
        }
    }

    #[test]
    fn parameters_that_cannot_be_written_say_why() {
        for (widths, reason) in [
            (vec![(1.0, 7, 32)], "7 bits"),
            (vec![(0.5, 3, 32), (0.5, 4, 32)], "decrease"),
            (vec![(0.5, 4, 32), (0.5, 4, 64)], "decrease"),
            (vec![(1.0, 4, 48)], "48 rows"),
            (vec![(0.5, 4, 32), (0.4, 3, 32)], "add up to 0.9"),
            (vec![(1.5, 4, 32), (-0.5, 3, 32)], "share of 1.5"),
            (vec![(f64::NAN, 4, 32)], "share of NaN"),
            (vec![], "add up to 0"),
        ] {
            let width = |(share, bits, group_rows)| WidthShare { bits, share, group_rows };
            let found = LinearParams::new(widths.into_iter().map(width).collect());
            let message = found.unwrap_err().to_string();
            assert!(message.contains(reason), "{message}");
        }
    }

    #[test]
    fn the_text_is_that_of_exllamav2() {
        let three = params(&[(0.05, 8, 32), (0.1, 4, 128), (0.85, 3, 128)]);
        assert_eq!(three.to_string(), "0.05:8b_32g/0.1:4b_128g/0.85:3b_128g s4");
    }
}
