//! Adapters of a model: from the modules that a PEFT directory names to the linears of a spec, and
//! from there into slots beside the weights.
//!
//! `bind` says what each module is in this model and checks every shape; nothing of it needs a
//! machine. `place` is the linears by number; `slots` is what a stage keeps; `synthetic` makes adapters
//! for measuring. Invariant: a slot that was begun and not cleared belongs to one adapter; a step may name only such slots.

mod bind;
mod place;
mod slots;
mod synthetic;

pub use bind::{AdapterPart, BoundAdapter};
pub(crate) use place::Part;
pub(crate) use slots::{LayerSlots, StageSlots};

use pagella_backend::{ADAPTER_SLOTS_MAX, Backend, StepPlan};

use crate::error::ModelError;
use crate::model::Model;

impl<B: Backend> Model<B> {
    /// Puts all of an adapter into a slot; what it took is returned if that fails.
    pub fn add_adapter(&mut self, slot: u32, adapter: &BoundAdapter) -> Result<(), ModelError> {
        let filled = adapter.parts().iter().try_for_each(|part| self.fill_adapter(slot, part));
        if filled.is_err() {
            // The error that matters is the first one.
            drop(self.remove_adapter(slot));
        }
        filled
    }

    /// Puts a part of an adapter into a slot. Steps that name the slot have it from then on.
    pub fn fill_adapter(&mut self, slot: u32, part: &AdapterPart) -> Result<(), ModelError> {
        part.expect_in(self.spec())?;
        let Some(used) = self.adapter_slots.get_mut(slot as usize) else {
            return Err(ModelError::NoSuchAdapter { slot });
        };
        *used = true;
        let (first, last) = (0, self.stages.len() - 1);
        for (index, stage) in self.stages.iter_mut().enumerate() {
            stage.fill_adapter(slot, part, index == first, index == last)?;
        }
        Ok(())
    }

    /// Empties a slot and returns its memory. The adapters of other slots stay.
    pub fn remove_adapter(&mut self, slot: u32) -> Result<(), ModelError> {
        if let Some(used) = self.adapter_slots.get_mut(slot as usize) {
            *used = false;
        }
        self.stages.iter_mut().try_for_each(|stage| stage.clear_adapter(slot))
    }

    /// Bytes that adapters hold.
    pub fn adapter_bytes(&self) -> u64 {
        self.stages.iter().map(|stage| stage.adapters.bytes()).sum()
    }

    /// Refuses steps with adapters that are not there.
    pub(crate) fn check_adapters(&self, plan: &StepPlan) -> Result<(), ModelError> {
        let used = (0..plan.rows()).flat_map(|row| plan.adapters(row));
        let is_there = |slot: u32| self.adapter_slots.get(slot as usize).is_some_and(|used| *used);
        match used.map(|used| used.slot).find(|slot| !is_there(*slot)) {
            None => Ok(()),
            Some(slot) => Err(ModelError::NoSuchAdapter { slot }),
        }
    }
}

/// Which slots are in use; none.
pub(crate) fn no_adapters() -> Vec<bool> {
    vec![false; ADAPTER_SLOTS_MAX]
}
