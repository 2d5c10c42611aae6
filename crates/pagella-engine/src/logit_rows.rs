//! `LogitRows`: what came of a step's logits to the host. Memory is kept from step to step.

use pagella_backend::{NarrowAsk, NarrowRow};
use pagella_model::ModelError;

use crate::EngineError;

/// What is asked of one row of logits.
#[derive(Clone, Copy, Debug)]
pub enum RowAsk<'a> {
    /// Nothing this time.
    Nothing,
    /// All of it.
    Whole,
    /// Its best candidates; its number is the place of the ask.
    Narrowed(NarrowAsk<'a>),
}

/// What is known of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RowAnswer<'a> {
    /// It was not asked for.
    Nothing,
    /// All of it, `[vocab]`.
    Whole(&'a [f32]),
    /// Its best candidates.
    Narrowed(&'a NarrowRow),
}

/// Where the answer to an ask lies.
#[derive(Clone, Copy, Debug)]
enum Place {
    Nothing,
    Whole(usize),
    Narrowed(usize),
}

/// The answers to the asks of a step, in their order.
#[derive(Debug, Default)]
pub struct LogitRows {
    vocab: usize,
    places: Vec<Place>,
    /// Whole rows, back to back.
    whole: Vec<f32>,
    narrowed: Vec<NarrowRow>,
    n_narrowed: usize,
    one: Vec<f32>,
}

impl<'a> RowAsk<'a> {
    /// The ask for candidates, if it is one.
    pub fn narrowed(&self) -> Option<NarrowAsk<'a>> {
        match self {
            RowAsk::Narrowed(ask) => Some(*ask),
            RowAsk::Nothing | RowAsk::Whole => None,
        }
    }
}

impl LogitRows {
    /// No rows, and memory for whole ones.
    pub fn with_memory(whole: Vec<f32>) -> Self {
        LogitRows { whole, ..LogitRows::default() }
    }

    /// All whole rows, back to back.
    pub fn into_whole(self) -> Vec<f32> {
        self.whole
    }

    /// How many asks were answered.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether no ask was.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The answer to the ask with this number.
    pub fn get(&self, ask: usize) -> RowAnswer<'_> {
        match self.places.get(ask) {
            Some(Place::Whole(at)) => {
                RowAnswer::Whole(&self.whole[at * self.vocab..][..self.vocab])
            }
            Some(Place::Narrowed(at)) => RowAnswer::Narrowed(&self.narrowed[*at]),
            Some(Place::Nothing) | None => RowAnswer::Nothing,
        }
    }

    /// Forgets all answers; whole rows to come have `vocab` entries.
    pub fn clear(&mut self, vocab: usize) {
        (self.vocab, self.n_narrowed) = (vocab, 0);
        self.places.clear();
        self.whole.clear();
    }

    /// Answers `rows` asks by whole rows, which `read` puts into the memory it is given.
    pub fn fill_whole(
        &mut self,
        rows: usize,
        vocab: usize,
        read: impl FnOnce(&mut Vec<f32>) -> Result<(), ModelError>,
    ) -> Result<(), EngineError> {
        self.clear(vocab);
        if rows > 0 {
            read(&mut self.whole)?;
        }
        let (expected, found) = (rows * vocab, self.whole.len());
        if expected != found {
            return Err(EngineError::LogitsShape { expected, found });
        }
        self.places.extend((0..rows).map(Place::Whole));
        Ok(())
    }

    /// Where candidates of rows go, before [`LogitRows::push_narrowed`] is called once for each.
    pub fn narrowed_memory(&mut self) -> &mut Vec<NarrowRow> {
        &mut self.narrowed
    }

    /// The next answer is the next of the narrowed rows.
    pub fn push_narrowed(&mut self) {
        self.places.push(Place::Narrowed(self.n_narrowed));
        self.n_narrowed += 1;
    }

    /// The next answer is nothing.
    pub fn push_nothing(&mut self) {
        self.places.push(Place::Nothing);
    }

    /// The next answer is a whole row, which `read` puts in the place of what it is given.
    pub fn push_whole(
        &mut self,
        read: impl FnOnce(&mut Vec<f32>) -> Result<(), ModelError>,
    ) -> Result<(), EngineError> {
        let at = self.whole.len() / self.vocab.max(1);
        let row = if at == 0 { &mut self.whole } else { &mut self.one };
        read(row)?;
        let (expected, found) = (self.vocab, row.len());
        if expected != found {
            return Err(EngineError::LogitsShape { expected, found });
        }
        if at > 0 {
            self.whole.append(&mut self.one);
        }
        self.places.push(Place::Whole(at));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(fill: f32, len: usize) -> impl FnOnce(&mut Vec<f32>) -> Result<(), ModelError> {
        move |out| {
            out.clear();
            out.resize(len, fill);
            Ok(())
        }
    }

    #[test]
    fn answers_are_found_in_the_order_of_the_asks() {
        let mut rows = LogitRows::with_memory(vec![9.0; 7]);
        rows.clear(2);
        rows.narrowed_memory().push(NarrowRow { open: 5, ..NarrowRow::default() });
        rows.push_nothing();
        rows.push_whole(row(1.0, 2)).unwrap();
        rows.push_narrowed();
        rows.push_whole(row(2.0, 2)).unwrap();
        assert_eq!((rows.len(), rows.get(0)), (4, RowAnswer::Nothing));
        assert_eq!(rows.get(1), RowAnswer::Whole(&[1.0; 2]));
        assert!(matches!(rows.get(2), RowAnswer::Narrowed(row) if row.open == 5));
        assert_eq!(rows.get(3), RowAnswer::Whole(&[2.0; 2]));
        assert_eq!(rows.get(4), RowAnswer::Nothing);
        rows.fill_whole(3, 2, row(4.0, 6)).unwrap();
        assert_eq!((rows.len(), rows.get(2)), (3, RowAnswer::Whole(&[4.0; 2])));
        assert_eq!(rows.into_whole(), [4.0; 6]);
    }

    #[test]
    fn rows_of_another_length_are_errors() {
        let mut rows = LogitRows::default();
        let shape = |result| matches!(result, Err(EngineError::LogitsShape { .. }));
        assert!(shape(rows.fill_whole(3, 2, row(0.0, 5))));
        rows.clear(2);
        assert!(shape(rows.push_whole(row(0.0, 3))));
        rows.fill_whole(0, 2, |_| unreachable!()).unwrap();
        assert!(rows.is_empty());
    }
}
