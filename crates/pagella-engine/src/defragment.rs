//! Putting pages in order when nobody uses the cache.
//!
//! Sequences whose pages lie side by side read a little faster on some machines. Nothing depends on
//! it, it is off unless asked for, and it happens only when no job is left.

use crate::generator::Generator;
use crate::pages::Moves;
use crate::schedule::preempt;
use crate::{EngineError, Forward};

impl Generator {
    /// Orders the pages if the generator is idle, wants that, and it is worth it.
    pub(crate) fn defragment_if_idle(&mut self) {
        if self.options.defragment && self.n_jobs() + self.embeddings.len() == 0 {
            // What could not be moved is lost from the cache and no more.
            let _ = self.defragment();
        }
    }

    /// Orders the pages now if it is worth it; whether it was. Jobs may be running. After an error the
    /// cache is empty and running jobs compute their text again.
    pub fn defragment(&mut self) -> Result<bool, EngineError> {
        let moves = self.table.plan_defragment();
        self.table.note_defragment_attempt();
        let Some(moves) = moves else { return Ok(false) };
        if let Err(error) = carry_out(&moves, self.forward.as_mut()) {
            for job in std::mem::take(&mut self.active) {
                preempt(job, &mut self.queue, &mut self.table);
            }
            self.embeddings.close(&mut self.table);
            self.table.reset();
            return Err(error);
        }
        self.table.apply_moves(&moves);
        for sequence in self.active.iter_mut().flat_map(|job| &mut job.sequences) {
            for page in &mut sequence.pages {
                *page = moves.new_index[*page as usize];
            }
        }
        self.embeddings.follow(&moves.new_index);
        self.counters.defragmentations += 1;
        Ok(true)
    }
}

/// Rotates the contents along each cycle, through memory of one page.
fn carry_out(moves: &Moves, forward: &mut dyn Forward) -> Result<(), EngineError> {
    let mut spare = Vec::new();
    for cycle in &moves.cycles {
        let (Some(&first), Some(&last)) = (cycle.first(), cycle.last()) else { continue };
        forward.read_page(first, &mut spare)?;
        let copies: Vec<(u32, u32)> = cycle.windows(2).map(|pair| (pair[1], pair[0])).collect();
        forward.copy_pages(&copies)?;
        forward.write_page(last, &spare)?;
    }
    Ok(())
}
