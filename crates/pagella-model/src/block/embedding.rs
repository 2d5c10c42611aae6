//! Token ids to the residual stream.

use pagella_arch::ModelSpec;
use pagella_backend::{AdapterSlots, Backend};

use super::Pass;
use crate::adapter::StageSlots;
use crate::error::ModelError;
use crate::load::Loader;
use crate::weights::WeightSource;

/// The embedding, and learned positions where a family has them. Both stay where they are stored.
pub(crate) struct Embedding<B: Backend> {
    table: B::Table,
    positions: Option<B::Table>,
    scale: f32,
}

impl<B: Backend> Embedding<B> {
    /// Takes the tables.
    pub(crate) fn load(
        spec: &ModelSpec,
        loader: &mut Loader<'_, B, impl WeightSource>,
    ) -> Result<Self, ModelError> {
        let table = loader.table(&spec.embed.name, spec.vocab, spec.hidden)?;
        let positions = spec.embed.positions.as_ref();
        let positions = positions.map(|base| loader.table(base, spec.context, spec.hidden));
        Ok(Self { table, positions: positions.transpose()?, scale: spec.embed.scale })
    }

    /// Writes the rows of the step's ids to `residual`, `[t, hidden]`.
    pub(crate) fn run(
        &self,
        pass: &Pass<'_, B>,
        adapters: Option<&StageSlots<B>>,
        residual: &mut B::Tensor,
    ) -> Result<(), ModelError> {
        let Pass { backend, step, .. } = *pass;
        let positions = self.positions.as_ref();
        backend.embed(step, &self.table, self.scale, positions, residual)?;
        for (slot, table) in adapters.into_iter().flat_map(StageSlots::tables) {
            B::Slots::embed(backend, step, slot, table, self.scale, positions, residual)?;
        }
        Ok(())
    }
}
