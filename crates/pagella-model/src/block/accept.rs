//! Whether a machine does what a model asks for, found out before any weight is read.

use pagella_arch::{MlpSpec, ModelSpec};
use pagella_backend::Backend;

use super::{attention, experts};
use crate::error::ModelError;

/// Refuses layers that the backend cannot run.
pub(crate) fn check_backend<B: Backend>(spec: &ModelSpec, backend: &B) -> Result<(), ModelError> {
    for (index, layer) in spec.layers.iter().enumerate() {
        let attn = &layer.attn;
        backend.accept_attention(&attention::op(index, attn), attn.sinks.is_some())?;
        if let MlpSpec::Moe(moe) = &layer.mlp {
            let weighed = moe.shared.as_ref().is_some_and(|shared| shared.weight.is_some());
            backend.accept_experts(&experts::op(layer, moe), weighed)?;
        }
    }
    Ok(())
}
