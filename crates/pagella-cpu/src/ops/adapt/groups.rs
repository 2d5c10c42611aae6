//! Rows of a step by the adapters they have.

use pagella_backend::StepPlan;

/// Which rows have the same adapters, whatever their scales.
#[derive(Debug, Default)]
pub(crate) struct AdapterGroups {
    /// Slots of every group, in the order of its rows.
    groups: Vec<Vec<u32>>,
    /// Group of every row of the plan that has adapters.
    of_row: Vec<Option<u32>>,
    /// Row of every token.
    row_of: Vec<u32>,
}

impl AdapterGroups {
    /// Of a plan; nothing is allocated for one without adapters.
    pub(crate) fn new(plan: &StepPlan) -> Self {
        let mut all = Self::default();
        if !plan.has_adapters() {
            return all;
        }
        for row in 0..plan.rows() {
            let slots: Vec<u32> = plan.adapters(row).iter().map(|used| used.slot).collect();
            let known = all.groups.iter().position(|group| *group == slots);
            let group = known.unwrap_or(all.groups.len()) as u32;
            all.of_row.push((!slots.is_empty()).then_some(group));
            if known.is_none() {
                all.groups.push(slots);
            }
            all.row_of.extend(plan.token_range(row).map(|_| row as u32));
        }
        all
    }

    /// The row of the plan that brings a token.
    pub(crate) fn row_of(&self, token: u32) -> usize {
        self.row_of[token as usize] as usize
    }

    /// The group of a token; `None`: it has no adapters.
    pub(crate) fn of_token(&self, token: u32) -> Option<u32> {
        let row = *self.row_of.get(token as usize)?;
        *self.of_row.get(row as usize)?
    }

    /// The slots of a group.
    pub(crate) fn slots(&self, group: u32) -> &[u32] {
        &self.groups[group as usize]
    }
}

#[cfg(test)]
mod tests {
    use pagella_backend::{AdapterUse, LogitUse, StepRow};

    use super::*;

    #[test]
    fn rows_with_the_same_slots_in_the_same_order_are_one_group() {
        let used = |slot, scale| AdapterUse { slot, scale };
        let plain = StepRow::new(&[1, 2], 0, &[0], LogitUse::None);
        let adapters = [
            vec![used(3, 1.0), used(5, 2.0)],
            vec![],
            vec![used(5, 1.0), used(3, 1.0)],
            vec![used(3, 0.5), used(5, 0.0)],
        ];
        let rows: Vec<_> = adapters.iter().map(|adapters| StepRow { adapters, ..plain }).collect();
        let groups = AdapterGroups::new(&StepPlan::new(&rows).unwrap());
        let found: Vec<_> = (0..8).map(|token| groups.of_token(token)).collect();
        let (first, second) = (found[0], found[4]);
        assert_eq!(found, [first, first, None, None, second, second, first, first]);
        assert_eq!(groups.slots(first.unwrap()), [3, 5]);
        assert_eq!(groups.slots(second.unwrap()), [5, 3]);
        assert_eq!((groups.row_of(1), groups.row_of(7)), (0, 3));
    }
}
