//! Token ids to the residual stream.

use pagella_arch::ModelSpec;
use pagella_backend::Backend;

use super::Pass;
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
        residual: &mut B::Tensor,
    ) -> Result<(), ModelError> {
        let positions = self.positions.as_ref();
        Ok(pass.backend.embed(pass.step, &self.table, self.scale, positions, residual)?)
    }
}
