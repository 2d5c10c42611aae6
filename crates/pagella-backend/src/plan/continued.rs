//! Continued plans: every row brings one more token, whose id the step before it finds.
//!
//! Where everything but the ids is known beforehand, a device goes from step to step by itself.

use super::{LogitUse, PlanError, StepPlan, StepRow};
use crate::BackendError;

impl StepPlan {
    /// The plan in which every row brings one more token, right after those of this plan, and
    /// chooses by its logits. Its ids are not known yet, and 0 stands for each.
    ///
    /// `pages`: those of every row, in order. They begin with the row's pages in this plan, and
    /// reach far enough for one more token.
    ///
    /// ```
    /// use pagella_backend::{LogitUse, StepPlan, StepRow};
    /// let plan = StepPlan::new(&[StepRow::new(&[5, 6], 254, &[3, 8], LogitUse::Choice)]).unwrap();
    /// assert_eq!(plan.pages(0), &[3]);
    /// let next = plan.continued(&[&[3, 8]]).unwrap();
    /// assert_eq!((next.past(0), next.pages(0)), (256, &[3, 8][..]));
    /// assert!(next.awaits_ids());
    /// ```
    pub fn continued(&self, pages: &[&[u32]]) -> Result<StepPlan, PlanError> {
        let n_rows = self.rows();
        if pages.len() != n_rows {
            return Err(PlanError::OtherRows { rows: n_rows, found: pages.len() });
        }
        if let Some(row) = (0..n_rows).find(|row| !pages[*row].starts_with(self.pages(*row))) {
            return Err(PlanError::OtherPages { row });
        }
        let follows = |row: usize| self.positions(row)?.last().map(|last| [last.saturating_add(1)]);
        let positions: Vec<Option<[u32; 1]>> = (0..n_rows).map(follows).collect();
        let rows: Vec<StepRow<'_>> = (0..n_rows)
            .map(|row| {
                let past = self.past(row) + self.token_range(row).len();
                let positions = positions[row].as_ref().map(<[u32; 1]>::as_slice);
                let plain = StepRow::new(&[0], past, pages[row], LogitUse::Choice);
                StepRow { adapters: self.adapters(row), positions, ..plain }
            })
            .collect();
        Ok(StepPlan { awaits_ids: true, ..StepPlan::new(&rows)? })
    }

    /// Whether the ids are those that the step before guesses: one to each row, not known yet.
    pub fn awaits_ids(&self) -> bool {
        self.awaits_ids
    }

    /// Gives a plan that awaits its ids those ids, one to each row.
    pub fn fill_ids(&mut self, ids: &[u32]) -> Result<(), BackendError> {
        let expected = if self.awaits_ids { self.ids.len() } else { 0 };
        if expected == 0 || ids.len() != expected {
            let what = "the ids of a continued plan";
            return Err(BackendError::Size { what, expected, found: ids.len() });
        }
        self.ids.copy_from_slice(ids);
        self.awaits_ids = false;
        Ok(())
    }

    /// Refuses a plan that still awaits its ids, before they are looked at.
    pub fn expect_ids(&self) -> Result<(), BackendError> {
        if !self.awaits_ids {
            return Ok(());
        }
        Err(BackendError::Size { what: "known ids", expected: self.ids.len(), found: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AdapterUse;

    fn ragged() -> StepPlan {
        let rows = [
            StepRow::new(&[1, 2, 3], 253, &[7, 9], LogitUse::Choice),
            StepRow::new(&[4], 0, &[3], LogitUse::None),
            StepRow::new(&[5, 6], 510, &[4, 2, 8], LogitUse::Check { drafted: 1 }),
        ];
        StepPlan::new(&rows).unwrap()
    }

    #[test]
    fn every_row_brings_one_more_token_after_its_last() {
        let pages: [&[u32]; 3] = [&[7, 9], &[3], &[4, 2, 8]];
        let next = ragged().continued(&pages).unwrap();
        assert_eq!((next.rows(), next.ids()), (3, &[0; 3][..]));
        assert_eq!([0, 1, 2].map(|row| next.past(row)), [256, 1, 512]);
        assert_eq!([0, 1, 2].map(|row| next.pages(row)), [&[7, 9][..], &[3], &[4, 2, 8]]);
        assert_eq!(next.logit_tokens(), &[0, 1, 2]);
        assert!((0..3).all(|row| next.logit_use(row) == LogitUse::Choice));
        let third = next.continued(&pages).unwrap();
        assert_eq!([0, 1, 2].map(|row| third.past(row)), [257, 2, 513]);
        assert!(third.awaits_ids() && !ragged().awaits_ids());
    }

    #[test]
    fn what_a_row_says_of_its_adapter_and_positions_goes_on() {
        let plain = StepRow::new(&[1, 2], 0, &[0], LogitUse::Choice);
        let adapters = [AdapterUse { slot: 3, scale: 0.5 }];
        let moved = StepRow { positions: Some(&[7, 9]), adapters: &adapters, ..plain };
        let embedded = StepRow { embeddings: Some(&[0.5; 4]), ..plain };
        let plan = StepPlan::new(&[plain, moved, embedded]).unwrap();
        let next = plan.continued(&[&[0], &[0], &[0]]).unwrap();
        assert_eq!((next.positions(0), next.positions(1)), (None, Some(&[10][..])));
        assert_eq!((next.adapters(0), next.adapters(1)), (&[][..], &adapters[..]));
        assert_eq!(next.embeddings(2), None);
    }

    #[test]
    fn pages_that_do_not_continue_those_of_the_plan_are_refused() {
        let plan = ragged();
        let few = plan.continued(&[&[7], &[3], &[4, 2, 8]]);
        assert!(matches!(few, Err(PlanError::TooFewPages { row: 0, needed: 2, .. })), "{few:?}");
        let other = plan.continued(&[&[7, 9], &[5], &[4, 2, 8]]);
        assert_eq!(other, Err(PlanError::OtherPages { row: 1 }));
        let rows = plan.continued(&[&[7, 9]]);
        assert_eq!(rows, Err(PlanError::OtherRows { rows: 3, found: 1 }));
    }

    #[test]
    fn ids_are_filled_in_once() {
        let mut next = ragged().continued(&[&[7, 9], &[3], &[4, 2, 8]]).unwrap();
        assert!(next.expect_ids().is_err());
        assert!(next.fill_ids(&[8, 9]).is_err() && next.awaits_ids());
        next.fill_ids(&[8, 9, 10]).unwrap();
        assert_eq!((next.ids(), next.awaits_ids()), (&[8, 9, 10][..], false));
        assert!(next.expect_ids().is_ok() && next.fill_ids(&[8, 9, 10]).is_err());
    }

    #[test]
    fn the_last_row_of_logits_is_known_of_every_row() {
        let last: Vec<_> = ragged().last_logit_rows().collect();
        assert_eq!(last, [Some(0), None, Some(2)]);
    }
}
