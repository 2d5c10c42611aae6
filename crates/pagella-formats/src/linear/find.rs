//! Which tensors make a linear, by the registry of formats.

use super::{Linear, LinearRequest};
use crate::checkpoint::Checkpoint;
use crate::error::FormatError;
use crate::registry::LinearKind;
use crate::tensor::TensorView;
use crate::unsupported;

/// The weights of a linear.
pub(crate) struct Found<'a> {
    pub kind: LinearKind,
    pub base: String,
    pub weight: TensorView<'a>,
    /// Whether this is the fused tensor of the request.
    pub fused: bool,
    /// Index and count of the matrix that is meant, if the tensor stacks several.
    pub slab: Option<(usize, usize)>,
}

/// The kind and base name under which a linear is stored; `None` when it is not there.
pub fn find_linear(
    checkpoint: &Checkpoint,
    request: &LinearRequest<'_>,
) -> Option<(LinearKind, String)> {
    locate(checkpoint, request).map(|found| (found.kind, found.base))
}

/// Formats in which `linear` is stored, too, by weights of the same base name.
pub fn other_kinds(checkpoint: &Checkpoint, linear: &Linear<'_>) -> Vec<LinearKind> {
    let is_taken = |name: &str| linear.tensors().iter().any(|tensor| tensor.name == name);
    let is_other = |kind: &LinearKind| {
        let weight = (kind.format().find)(checkpoint, linear.name());
        weight.is_some_and(|weight| !is_taken(weight.name))
    };
    LinearKind::ALL.iter().copied().filter(is_other).collect()
}

/// The first existing weights: the fused tensor, then the bases in order.
pub(super) fn locate<'a>(
    checkpoint: &'a Checkpoint,
    request: &LinearRequest<'_>,
) -> Option<Found<'a>> {
    candidates(request).find_map(|(base, fused)| {
        LinearKind::ALL.iter().find_map(|kind| {
            let weight = (kind.format().find)(checkpoint, base)?;
            let slab = request.fused.filter(|_| fused).and_then(|part| part.slab);
            Some(Found { kind: *kind, base: base.to_owned(), weight, fused, slab })
        })
    })
}

/// Why nothing was found: another format under these names, or nothing at all.
pub(super) fn missing(checkpoint: &Checkpoint, request: &LinearRequest<'_>) -> FormatError {
    candidates(request)
        .find_map(|(base, _)| unsupported::betrayed(checkpoint, base))
        .unwrap_or_else(|| FormatError::MissingLinear {
            path: checkpoint.source().to_owned(),
            tried: candidates(request).map(|(base, _)| format!("`{base}`")).collect(),
        })
}

/// Base names to try, with whether they are the fused one.
fn candidates<'r>(request: &LinearRequest<'r>) -> impl Iterator<Item = (&'r str, bool)> {
    let fused = request.fused.map(|part| (part.base, true));
    fused.into_iter().chain(request.bases.iter().map(|base| (base.as_str(), false)))
}
