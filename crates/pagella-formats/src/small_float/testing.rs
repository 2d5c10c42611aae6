//! Files of one linear for the tests of the formats.

use crate::dtype::Dtype;
use crate::linear::{BiasRule, FusedPart, LinearRequest, load_linear};
use crate::safetensors::write::{TensorData, write_file};
use crate::small_float::SmallFloatLinear;
use crate::{Checkpoint, Linear};

/// Name, type, shape and bytes of a tensor.
pub(crate) type TestTensor = (&'static str, Dtype, Vec<usize>, Vec<u8>);

/// A directory with these tensors.
pub(crate) struct Files(Checkpoint, #[allow(dead_code, reason = "kept alive")] tempfile::TempDir);

pub(crate) fn files(tensors: &[TestTensor]) -> Files {
    let dir = tempfile::tempdir().unwrap();
    let tensors: Vec<_> = tensors
        .iter()
        .map(|(name, dtype, shape, data)| TensorData {
            name: (*name).to_owned(),
            dtype: *dtype,
            shape: shape.clone(),
            data,
        })
        .collect();
    write_file(&dir.path().join("m.safetensors"), &tensors).unwrap();
    Files(Checkpoint::open(dir.path(), &[]).unwrap(), dir)
}

impl Files {
    /// The same with rectangles of this size.
    pub fn with_groups(self, groups: [usize; 2]) -> Self {
        Self(self.0.with_scale_groups(Some(groups)), self.1)
    }

    /// The linear `p` of that many inputs and outputs, checked, or what is wrong with it.
    pub fn linear(&self, inputs: usize, outputs: usize) -> Result<SmallFloatLinear<'_>, String> {
        self.load(&request(&["p".to_owned()], inputs, outputs))
    }

    /// The part of a fused tensor, checked.
    pub fn part(
        &self,
        fused: FusedPart<'_>,
        transposed: bool,
        inputs: usize,
        outputs: usize,
    ) -> Result<SmallFloatLinear<'_>, String> {
        let fused = Some(fused);
        self.load(&LinearRequest { fused, transposed, ..request(&[], inputs, outputs) })
    }

    fn load(&self, request: &LinearRequest<'_>) -> Result<SmallFloatLinear<'_>, String> {
        let linear = load_linear(&self.0, request).map_err(|error| error.to_string())?;
        linear.check_values().map_err(|error| error.to_string())?;
        match linear {
            Linear::SmallFloat(linear) => Ok(linear),
            other => Err(format!("read as {}", other.kind().name())),
        }
    }
}

fn request(bases: &[String], in_features: usize, out_features: usize) -> LinearRequest<'_> {
    LinearRequest {
        bases,
        fused: None,
        in_features,
        out_features,
        bias: BiasRule::IfPresent,
        transposed: false,
        gptq_zeros: crate::gptq::GptqZeros::default(),
    }
}

/// Weights as rows of outputs.
pub(crate) fn rows(linear: &SmallFloatLinear<'_>) -> Vec<f32> {
    let outputs: Vec<usize> = linear.stored_outputs().collect();
    let row = |stored| (0..linear.in_features).map(move |input| linear.weight(stored, input));
    outputs.into_iter().flat_map(row).collect()
}

/// Little-endian bytes.
pub(crate) fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}
