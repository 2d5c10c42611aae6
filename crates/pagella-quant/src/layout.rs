//! Where the groups of a linear begin and how wide they are.
//!
//! A layout that exists can be written: widths do not increase, every group has a multiple of 32 rows.

use std::fmt;

use pagella_formats::exl2::groups::{GROUP_ROWS_MULTIPLE, WIDTHS};

use crate::error::QuantError;
use crate::params::SCALE_BITS;

/// One group: rows that share scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupShape {
    /// Bits per weight: 2, 3, 4, 5, 6 or 8.
    pub bits: u8,
    /// Rows, a multiple of 32.
    pub rows: usize,
}

/// The groups of a linear in packed order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLayout {
    groups: Vec<GroupShape>,
}

impl GroupLayout {
    /// Checks `groups`.
    pub fn new(groups: Vec<GroupShape>) -> Result<Self, QuantError> {
        let refuse = |fault: String| {
            Err(QuantError::Params { params: Self { groups: groups.clone() }.to_string(), fault })
        };
        let mut widest = u8::MAX;
        for GroupShape { bits, rows } in &groups {
            if !WIDTHS.contains(bits) {
                return refuse(format!("{bits} bits; 2, 3, 4, 5, 6 and 8 are possible"));
            }
            if *bits > widest {
                return refuse("widths must not increase".to_owned());
            }
            if *rows == 0 || !rows.is_multiple_of(GROUP_ROWS_MULTIPLE) {
                return refuse(format!("a group of {rows} rows; multiples of 32 are possible"));
            }
            widest = *bits;
        }
        Ok(Self { groups })
    }

    /// Groups that are known to keep the rules.
    pub(crate) fn of(groups: Vec<GroupShape>) -> Self {
        debug_assert!(Self::new(groups.clone()).is_ok());
        Self { groups }
    }

    /// The groups.
    pub fn groups(&self) -> &[GroupShape] {
        &self.groups
    }

    /// Rows of all groups.
    pub fn inputs(&self) -> usize {
        self.groups.iter().map(|group| group.rows).sum()
    }

    /// Bits that the linear takes in its file, headers excluded; `columns` are its outputs with padding.
    pub fn cost_bits(&self, columns: usize, has_bias: bool) -> u64 {
        let columns = columns as u64;
        let codes: u64 = self
            .groups
            .iter()
            .map(|group| group.rows as u64 * columns * u64::from(group.bits))
            .sum();
        let bias = if has_bias { 16 * columns } else { 0 };
        codes + self.groups.len() as u64 * group_bits(columns) + 32 * self.inputs() as u64 + bias
    }
}

/// What a group takes beside its weights: a ceiling, two entries of the table, a code per column.
pub(crate) fn group_bits(columns: u64) -> u64 {
    16 + 32 + SCALE_BITS * columns
}

/// Runs of equal groups, `4b/32 × 3 + 3b/128 × 28`.
impl fmt::Display for GroupLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (idx, run) in self.groups.chunk_by(|a, b| a == b).enumerate() {
            let separator = if idx == 0 { "" } else { " + " };
            if let Some(GroupShape { bits, rows }) = run.first() {
                write!(f, "{separator}{bits}b/{rows} × {}", run.len())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(groups: &[(u8, usize)]) -> Result<GroupLayout, QuantError> {
        GroupLayout::new(
            groups.iter().map(|(bits, rows)| GroupShape { bits: *bits, rows: *rows }).collect(),
        )
    }

    #[test]
    fn layouts_that_cannot_be_written_say_why() {
        for (groups, reason) in [
            (&[(7, 32)][..], "7 bits"),
            (&[(3, 32), (4, 32)], "must not increase"),
            (&[(3, 48)], "48 rows"),
            (&[(3, 0)], "0 rows"),
        ] {
            let message = layout(groups).unwrap_err().to_string();
            assert!(message.contains(reason), "{message}");
        }
    }

    #[test]
    fn equal_groups_are_counted() {
        let layout = layout(&[(4, 32), (4, 32), (4, 128), (3, 128), (3, 64)]).unwrap();
        assert_eq!(layout.to_string(), "4b/32 × 2 + 4b/128 × 1 + 3b/128 × 1 + 3b/64 × 1");
        assert_eq!(layout.inputs(), 384);
    }
}
