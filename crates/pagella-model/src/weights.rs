//! Where weights come from: one trait over files and random weights, and the reading of files.
//!
//! A source hands a linear to a closure instead of returning it, so that the memory behind it can
//! be given back as soon as the backend has its own copy.

use std::sync::Arc;

use pagella_arch::{BiasRule, LinearSpec, NormKind, NormSpec};
use pagella_backend::{NormWeights, TableDtype, TableSource};
use pagella_formats::{
    Checkpoint, Dtype, FormatError, FusedPart, GptqZeros, Linear, LinearRequest, TensorView,
    load_linear,
};

use crate::error::ModelError;

/// What a linear is for; random heads and routers have a format of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum LinearUse {
    Layer,
    /// Routers are never quantised, nor what weighs a shared expert.
    Router,
    Head,
}

impl LinearUse {
    /// The use of a linear with this label, see [`pagella_arch::ModelSpec::linear_specs`].
    pub(crate) fn of(label: &str) -> Self {
        match label {
            "head" => Self::Head,
            _ if label.ends_with("mlp.router") || label.ends_with("mlp.shared.weight") => {
                Self::Router
            }
            _ => Self::Layer,
        }
    }
}

/// Something that has the weights of a spec.
pub(crate) trait WeightSource {
    /// Passes the linear to `take` and lets go of it afterwards.
    fn linear<T>(
        &mut self,
        spec: &LinearSpec,
        usage: LinearUse,
        take: impl FnOnce(&Linear<'_>) -> Result<T, ModelError>,
    ) -> Result<T, ModelError>;

    /// The weights of a norm, the family's offset added; `heads` is 1 except for per-head norms.
    fn norm(&mut self, spec: &NormSpec, heads: usize) -> Result<NormWeights, ModelError>;

    /// The values of a vector, `[len]`.
    fn vector(&mut self, base: &str, len: usize) -> Result<Vec<f32>, ModelError>;

    /// A table `[rows, width]`; files may hold more rows.
    fn table(&mut self, base: &str, rows: usize, width: usize) -> Result<TableSource, ModelError>;
}

/// Weights in a directory that passed the survey.
pub(crate) struct CheckpointSource {
    pub checkpoint: Arc<Checkpoint>,
    /// How zero points of GPTQ are stored.
    pub gptq_zeros: GptqZeros,
}

impl WeightSource for CheckpointSource {
    fn linear<T>(
        &mut self,
        spec: &LinearSpec,
        _usage: LinearUse,
        take: impl FnOnce(&Linear<'_>) -> Result<T, ModelError>,
    ) -> Result<T, ModelError> {
        let linear = load_linear(&self.checkpoint, &request(spec, self.gptq_zeros))?;
        linear.check_values()?;
        let taken = take(&linear);
        for tensor in linear.tensors() {
            self.checkpoint.release(tensor);
        }
        taken
    }

    fn norm(&mut self, spec: &NormSpec, heads: usize) -> Result<NormWeights, ModelError> {
        read_norm(&self.checkpoint, spec, heads)
    }

    fn vector(&mut self, base: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        read_vector(&self.checkpoint, base, len)
    }

    fn table(&mut self, base: &str, _rows: usize, width: usize) -> Result<TableSource, ModelError> {
        let missing = || FormatError::MissingTensor {
            path: self.checkpoint.source().to_owned(),
            tensor: base.to_owned(),
        };
        let tensor = table_tensor(&self.checkpoint, base).ok_or_else(missing)?;
        let dtype = match tensor.dtype {
            Dtype::F32 => TableDtype::F32,
            Dtype::BF16 => TableDtype::BF16,
            _ => TableDtype::F16,
        };
        let rows = tensor.shape.first().copied().unwrap_or_default();
        let name = tensor.name.to_owned();
        let bytes = Arc::new(MappedTensor { checkpoint: self.checkpoint.clone(), name });
        Ok(TableSource { bytes, dtype, rows, width })
    }
}

/// A tensor that keeps its file mapped.
struct MappedTensor {
    checkpoint: Arc<Checkpoint>,
    name: String,
}

impl AsRef<[u8]> for MappedTensor {
    fn as_ref(&self) -> &[u8] {
        self.checkpoint.tensor(&self.name).map_or(&[], |tensor| tensor.data)
    }
}

/// What to ask the files for.
pub(crate) fn request(spec: &LinearSpec, gptq_zeros: GptqZeros) -> LinearRequest<'_> {
    let fused = spec.fused.as_ref().map(|fused| FusedPart {
        base: &fused.base,
        total_out: fused.total_out,
        rows: &fused.rows,
        step: fused.step,
        slab: fused.slab.map(|slab| (slab.index, slab.count)),
    });
    LinearRequest {
        bases: &spec.bases,
        fused,
        in_features: spec.in_features,
        out_features: spec.out_features,
        bias: match spec.bias {
            BiasRule::Required => pagella_formats::BiasRule::Required,
            BiasRule::Forbidden => pagella_formats::BiasRule::Forbidden,
            BiasRule::IfPresent => pagella_formats::BiasRule::IfPresent,
        },
        transposed: spec.transposed,
        gptq_zeros,
    }
}

/// The tensor of a table, with or without the suffix.
pub(crate) fn table_tensor<'a>(checkpoint: &'a Checkpoint, base: &str) -> Option<TensorView<'a>> {
    checkpoint.tensor(&format!("{base}.weight")).or_else(|| checkpoint.tensor(base))
}

/// Reads a vector, stored `[len]` or `[1, len]`.
pub(crate) fn read_vector(
    checkpoint: &Checkpoint,
    base: &str,
    len: usize,
) -> Result<Vec<f32>, ModelError> {
    let tensor = table_tensor(checkpoint, base).ok_or_else(|| FormatError::MissingTensor {
        path: checkpoint.source().to_owned(),
        tensor: base.to_owned(),
    })?;
    if tensor.shape != [len] && tensor.shape != [1, len] {
        return Err(wrong_shape(&tensor, format!("[{len}]")).into());
    }
    Ok(tensor.to_f32()?)
}

fn wrong_shape(tensor: &TensorView<'_>, expected: String) -> FormatError {
    FormatError::WrongShape {
        path: tensor.file.to_owned(),
        tensor: tensor.name.to_owned(),
        expected,
        found: tensor.shape.to_vec(),
    }
}

/// Whether a norm's weights are there: the base name they have, empty for norms without weights.
pub(crate) fn find_norm<'s>(checkpoint: &Checkpoint, spec: &'s NormSpec) -> Option<&'s str> {
    if spec.bases.is_empty() {
        return Some("");
    }
    let found = spec.bases.iter().find(|base| table_tensor(checkpoint, base).is_some());
    found.map(String::as_str)
}

/// Reads a norm: weight plus offset in f32, and the bias of layer norms.
///
/// Per-head norms are stored once for all heads, `[width]`, or expanded, `[heads, width]`.
pub(crate) fn read_norm(
    checkpoint: &Checkpoint,
    spec: &NormSpec,
    heads: usize,
) -> Result<NormWeights, ModelError> {
    let (kind, eps) = (spec.kind, spec.eps);
    let base = find_norm(checkpoint, spec).ok_or_else(|| FormatError::MissingTensor {
        path: checkpoint.source().to_owned(),
        tensor: spec.bases.join(" or "),
    })?;
    let Some(stored) = table_tensor(checkpoint, base).filter(|_| !base.is_empty()) else {
        return Ok(NormWeights { kind, eps, weight: vec![1.0; spec.width], bias: None });
    };
    check_norm_shape(&stored, spec.width, heads)?;
    let weight = stored.to_f32()?.into_iter().map(|weight| weight + spec.offset).collect();
    let bias = match checkpoint.tensor(&format!("{base}.bias")) {
        None => None,
        Some(bias) => {
            let values = bias.to_f32()?;
            match kind {
                NormKind::Layer => {
                    check_norm_shape(&bias, spec.width, heads)?;
                    Some(values)
                }
                NormKind::Rms if values.iter().all(|value| *value == 0.0) => None,
                NormKind::Rms => {
                    return Err(ModelError::UnexpectedNormBias {
                        path: bias.file.to_owned(),
                        tensor: bias.name.to_owned(),
                    });
                }
            }
        }
    };
    Ok(NormWeights { kind, eps, weight, bias })
}

fn check_norm_shape(
    tensor: &TensorView<'_>,
    width: usize,
    heads: usize,
) -> Result<(), FormatError> {
    let fits = tensor.shape == [width] || tensor.shape == [heads, width];
    if fits {
        return Ok(());
    }
    let expanded = if heads > 1 { format!(" or [{heads}, {width}]") } else { String::new() };
    Err(wrong_shape(tensor, format!("[{width}]{expanded}")))
}
