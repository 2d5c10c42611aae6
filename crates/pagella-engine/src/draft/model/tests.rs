//! A draft model by itself: it trusts nothing that was overwritten, and serves rows of any depth.

use super::*;
use crate::pages::Namespace;
use crate::tests::stand_in::{StandIn, greedy_ids, tokenizer};

/// A draft model that runs all levels at once or one by one, and its record of steps.
fn model(at_once: bool) -> (DraftModel, StandIn) {
    let model = StandIn::new(4096, 512);
    let model = if at_once { model.narrowing(8) } else { model };
    (DraftModel::new(Box::new(model.clone()), &tokenizer(), &tokenizer()).unwrap(), model)
}

fn sequence(ids: &[u32], pages: &[u32]) -> Sequence {
    let pages = pages.to_vec();
    Sequence { pages, ..Sequence::new(ids.to_vec(), 1.0, Namespace::EMPTY) }
}

fn guesses(
    model: &mut DraftModel,
    sequence: &Sequence,
    depth: usize,
    probability_min: f32,
) -> Result<Vec<u32>, EngineError> {
    let mut rows = [DraftRow { sequence, depth, guesses: Vec::new() }];
    model.draft(&mut rows, probability_min)?;
    let [row] = rows;
    Ok(row.guesses)
}

fn text() -> Vec<u32> {
    // Ends among the cells that guesses behind the first page go to.
    (0..260u32).map(|at| at * at % 53).collect()
}

#[test]
fn what_guesses_overwrote_is_not_trusted() {
    for at_once in [true, false] {
        let (mut model, _) = model(at_once);
        let long = sequence(&text(), &[0, 1]);
        assert_eq!(guesses(&mut model, &long, 1, 0.0).unwrap(), greedy_ids(&text(), 1));
        // Ends where the second page begins: guesses go there, and none is kept.
        let short = sequence(&text()[..256], &[0, 1]);
        assert_eq!(guesses(&mut model, &short, 8, 2.0).unwrap(), [0u32; 0]);
        assert_eq!(guesses(&mut model, &long, 4, 0.0).unwrap(), greedy_ids(&text(), 4));
    }
}

#[test]
fn what_a_draft_that_failed_wrote_is_not_trusted() {
    for at_once in [true, false] {
        for failing in 0..8 {
            let (mut model, record) = model(at_once);
            let long = sequence(&text(), &[0, 1]);
            guesses(&mut model, &long, 1, 0.0).unwrap();
            let short = sequence(&text()[..256], &[0, 1]);
            record.fail_at_step(record.steps().len() + failing);
            guesses(&mut model, &short, 8, 0.0).unwrap_err();
            let again = guesses(&mut model, &long, 4, 0.0).unwrap();
            assert_eq!(again, greedy_ids(&text(), 4), "after a failure at level {failing}");
        }
    }
}

#[test]
fn rows_of_all_depths_get_their_guesses() {
    for at_once in [true, false] {
        let (mut model, _) = model(at_once);
        // The last has no room to go as far as the others.
        let sequences =
            [(32, 2), (38, 3), (251, 4)].map(|(len, page)| sequence(&text()[..len], &[page]));
        let mut rows: Vec<DraftRow<'_>> = sequences
            .iter()
            .zip([2, 8, 5])
            .map(|(sequence, depth)| DraftRow { sequence, depth, guesses: Vec::new() })
            .collect();
        model.draft(&mut rows, 0.0).unwrap();
        for row in rows {
            assert_eq!(row.guesses, greedy_ids(&row.sequence.ids, row.depth), "at once: {at_once}");
        }
    }
}
