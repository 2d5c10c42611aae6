//! One step of texts: as many as fit, the one that was begun first.

use std::sync::Arc;

use pagella_backend::{LogitUse, StepPlan, StepRow};

use crate::embed::queue::OpenText;
use crate::generator::Generator;
use crate::job::Sequence;
use crate::pages::{PageIdx, PageTable, Parent};
use crate::{EngineError, Forward};

/// While jobs run, a step of texts has this part of a step's tokens.
const SHARE_WHILE_RUNNING: usize = 4;

impl Generator {
    /// Computes one step of texts. False if there was nothing to do, or no room for it.
    pub(crate) fn embed_step(&mut self) -> bool {
        let mut texts = self.gather_texts();
        if texts.is_empty() {
            return false;
        }
        let hidden = self.forward.spec().hidden;
        let lens: Vec<usize> = texts.iter().map(|(_, len)| *len).collect();
        match compute(self.forward.as_mut(), &texts) {
            Ok(states) => {
                let mut rest = states.as_slice();
                for ((text, _), len) in texts.iter_mut().zip(lens) {
                    let (own, after) = rest.split_at((len * hidden).min(rest.len()));
                    text.pool.add(own, hidden);
                    text.fed += len;
                    rest = after;
                }
                for (text, _) in texts {
                    match text.left() {
                        0 => {
                            release(&text.pages, &mut self.table);
                            self.embeddings.finish(text);
                        }
                        _ => self.embeddings.keep_open(text),
                    }
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                for (text, _) in texts {
                    release(&text.pages, &mut self.table);
                    self.embeddings.fail(text.serial, &error);
                }
            }
        }
        true
    }

    /// Texts of the next step with the number of their tokens in it. All but the last end in it.
    fn gather_texts(&mut self) -> Vec<(OpenText, usize)> {
        let step_tokens = self.options.step_tokens.unwrap_or(1);
        let mut budget = match self.active.is_empty() {
            true => step_tokens,
            false => step_tokens.div_ceil(SHARE_WHILE_RUNNING),
        };
        let mut texts = Vec::new();
        while budget > 0 && texts.len() < self.options.batch_max {
            let text = match self.embeddings.take_open() {
                Some(text) => text,
                None => match self.open_text() {
                    Some(text) => text,
                    None => break,
                },
            };
            let len = text.left().min(budget);
            budget -= len;
            texts.push((text, len));
        }
        texts
    }

    /// Finds pages for the next text.
    fn open_text(&mut self) -> Option<OpenText> {
        let n_pages = Sequence::pages_for(self.embeddings.next_len()?);
        if self.table.n_unreferenced() < n_pages {
            return None;
        }
        // Of unknown origin, so that nobody finds them: they stay empty in the table.
        let pages: Vec<PageIdx> =
            (0..n_pages).map_while(|_| self.table.grow(Parent::Detached)).collect();
        pages.iter().for_each(|page| self.table.begin_write(*page));
        self.embeddings.begin(pages)
    }
}

fn release(pages: &[PageIdx], table: &mut PageTable) {
    pages.iter().for_each(|page| table.release(*page));
}

fn compute(
    forward: &mut dyn Forward,
    texts: &[(OpenText, usize)],
) -> Result<Vec<f32>, EngineError> {
    let rows: Vec<StepRow<'_>> = texts
        .iter()
        .map(|(text, len)| {
            let ids = &text.ids[text.fed..text.fed + len];
            let row = StepRow::new(ids, text.fed, &text.pages, LogitUse::None);
            StepRow { adapters: &text.adapters, ..row }
        })
        .collect();
    let plan = StepPlan::new(&rows)?;
    let mut states = Vec::new();
    forward.hidden_states(&plan, &mut states)?;
    let (expected, found) = (plan.tokens() * forward.spec().hidden, states.len());
    match expected == found {
        true => Ok(states),
        false => Err(EngineError::LogitsShape { expected, found }),
    }
}
