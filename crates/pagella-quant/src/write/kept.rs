//! Tensors that stay unquantised: tables, norms, vectors, routers, biases, and what models see and
//! hear with. Weights are rounded to binary16; what is not a weight keeps its type.

use half::f16;
use pagella_arch::{LayerSpec, LinearSpec, ModelSpec, NormSpec, QkNormSpan};
use pagella_formats::{
    Checkpoint, Dtype, FormatError, GptqZeros, Linear, LinearRequest, TensorView, load_linear,
};

use super::OwnedTensor;
use crate::error::QuantError;

/// What stands before the names of a language model that is a part of another model, which readers
/// expect: `language_model.`, or, since the head stands beside that model, `model.language_` before all
/// names but the head's.
#[derive(Clone, Default)]
pub(crate) struct Naming {
    prefix: String,
}

impl Naming {
    /// The name of a tensor inside the other model.
    pub fn full(&self, name: &str) -> String {
        let is_before_all = self.prefix.is_empty() || self.prefix.ends_with('.');
        match is_before_all || name.starts_with("model.") {
            true => format!("{}{name}", self.prefix),
            false => name.to_owned(),
        }
    }
}

/// Reads what stays from a source.
pub(crate) struct Kept<'a> {
    checkpoint: &'a Checkpoint,
    spec: &'a ModelSpec,
}

impl<'a> Kept<'a> {
    /// What stays of this source.
    pub fn new(checkpoint: &'a Checkpoint, spec: &'a ModelSpec) -> Self {
        Self { checkpoint, spec }
    }

    /// How the tensors of the language model are called inside the source.
    pub fn naming(&self) -> Naming {
        let embed = format!("{}.weight", self.spec.embed.name);
        let stored = self.checkpoint.stored_name(&embed);
        let prefix = stored.and_then(|name| name.strip_suffix(&embed)).unwrap_or_default();
        Naming { prefix: prefix.to_owned() }
    }

    /// Embedding and learned positions.
    pub fn embedding(&self) -> Result<Vec<OwnedTensor>, QuantError> {
        let tables = [Some(self.spec.embed.name.as_str()), self.spec.embed.positions.as_deref()];
        tables.into_iter().flatten().map(|base| self.f16(base, &format!("{base}.weight"))).collect()
    }

    /// Norms, vectors and unquantised linears of a layer. `is_quantized` says of which linears not.
    pub fn layer(
        &self,
        layer: &LayerSpec,
        is_quantized: &dyn Fn(usize) -> bool,
    ) -> Result<Vec<OwnedTensor>, QuantError> {
        let mut tensors = Vec::new();
        for (label, norm) in layer.norm_specs() {
            tensors.extend(self.norm(norm, norm_heads(layer, label))?);
        }
        let bias = match &layer.mlp {
            pagella_arch::MlpSpec::Moe(moe) => moe.selection_bias.as_deref(),
            _ => None,
        };
        for base in layer.attn.sinks.as_deref().into_iter().chain(bias) {
            tensors.push(self.as_stored(base)?);
        }
        for (number, (_, linear)) in layer.linear_specs().into_iter().enumerate() {
            if !is_quantized(number) {
                tensors.extend(self.linear(linear)?);
            }
        }
        Ok(tensors)
    }

    /// The final norm.
    pub fn final_norm(&self) -> Result<Vec<OwnedTensor>, QuantError> {
        self.norm(&self.spec.final_norm, 1)
    }

    /// The tensors of these names as the files have them, names included.
    pub fn verbatim(&self, names: &[String]) -> Result<Vec<OwnedTensor>, QuantError> {
        let tensor = |name: &String| {
            let tensor = self.checkpoint.require(name)?;
            let stored = self.checkpoint.stored_name(name).unwrap_or(name);
            Ok(copy(&tensor, stored.to_owned()))
        };
        names.iter().map(tensor).collect()
    }

    fn norm(&self, spec: &NormSpec, heads: usize) -> Result<Vec<OwnedTensor>, QuantError> {
        let found = spec.bases.iter().find(|base| self.find(base).is_some());
        let (Some(base), Some(name)) = (found, spec.bases.first()) else { return Ok(Vec::new()) };
        let mut weight = self.f16(base, &format!("{name}.weight"))?;
        if spec.offset != 0.0 {
            // Readers add the offset in binary16; what they get must be what is here.
            let offset = f16::from_f32(spec.offset);
            weight.data = each_f16(&weight.data, |w| {
                f16::from_f32(
                    f16::from_f32(w.to_f32() + offset.to_f32()).to_f32() - offset.to_f32(),
                )
            });
        }
        if heads > 1 && weight.shape == [spec.width] {
            weight.data = weight.data.repeat(heads);
            weight.shape = vec![heads, spec.width];
        }
        let mut tensors = vec![weight];
        if self.checkpoint.contains(&format!("{base}.bias")) {
            tensors.push(self.f16_of(&format!("{base}.bias"), format!("{name}.bias"))?);
        }
        Ok(tensors)
    }

    /// A linear as it is, `[out, in]`, or as the family stores it.
    pub fn linear(&self, spec: &LinearSpec) -> Result<Vec<OwnedTensor>, QuantError> {
        let fused = spec.fused.as_ref().map(|fused| pagella_formats::FusedPart {
            base: &fused.base,
            total_out: fused.total_out,
            rows: &fused.rows,
            step: fused.step,
            slab: fused.slab.map(|slab| (slab.index, slab.count)),
        });
        let request = LinearRequest {
            bases: &spec.bases,
            fused,
            in_features: spec.in_features,
            out_features: spec.out_features,
            bias: pagella_formats::BiasRule::IfPresent,
            transposed: spec.transposed,
            gptq_zeros: GptqZeros::LessOne,
        };
        let linear = load_linear(self.checkpoint, &request)?;
        linear.check_values()?;
        let Some(base) = spec.bases.first().filter(|_| linear.kind().is_source()) else {
            return Err(self.quantized(&linear));
        };
        let (inputs, outputs) = (spec.in_features, spec.out_features);
        // A family whose plain linears are transposed expects them so, unless they were fused.
        let is_transposed = spec.transposed && spec.fused.is_none();
        let (values, shape) = match (&linear, is_transposed) {
            (_, true) => (linear.values(), vec![inputs, outputs]),
            (Linear::Plain(plain), false) => (plain.rows_f32(), vec![outputs, inputs]),
            (_, false) => (turned(&linear.values(), outputs), vec![outputs, inputs]),
        };
        let data = f16_bytes(&values);
        let name = format!("{base}.weight");
        let mut tensors = vec![OwnedTensor { name, dtype: Dtype::F16, shape, data }];
        tensors.extend(self.bias(base, &linear));
        Ok(tensors)
    }

    /// The bias of a linear.
    pub fn bias(&self, base: &str, linear: &Linear<'_>) -> Option<OwnedTensor> {
        let bias = linear.bias()?;
        let name = format!("{base}.bias");
        let shape = vec![bias.len()];
        Some(OwnedTensor { name, dtype: Dtype::F16, shape, data: f16_bytes(bias) })
    }

    /// Why a source that is quantised already is not taken.
    pub fn quantized(&self, linear: &Linear<'_>) -> QuantError {
        let dir = self.checkpoint.source().to_owned();
        QuantError::AlreadyQuantized { dir, linear: linear.name().to_owned() }
    }

    fn find(&self, base: &str) -> Option<TensorView<'a>> {
        let weight = self.checkpoint.tensor(&format!("{base}.weight"));
        weight.or_else(|| self.checkpoint.tensor(base))
    }

    fn require(&self, base: &str) -> Result<TensorView<'a>, QuantError> {
        let missing = || FormatError::MissingTensor {
            path: self.checkpoint.source().to_owned(),
            tensor: base.to_owned(),
        };
        Ok(self.find(base).ok_or_else(missing)?)
    }

    fn f16(&self, base: &str, name: &str) -> Result<OwnedTensor, QuantError> {
        self.rounded(&self.require(base)?, name.to_owned())
    }

    fn f16_of(&self, tensor: &str, name: String) -> Result<OwnedTensor, QuantError> {
        self.rounded(&self.checkpoint.require(tensor)?, name)
    }

    fn rounded(&self, tensor: &TensorView<'_>, name: String) -> Result<OwnedTensor, QuantError> {
        let values = tensor.to_f16()?;
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            let reason = format!("value {at} is not a number of binary16");
            return Err(QuantError::Weights { linear: tensor.name.to_owned(), reason });
        }
        let data = values.into_iter().flat_map(f16::to_le_bytes).collect();
        self.checkpoint.release(tensor);
        Ok(OwnedTensor { name, dtype: Dtype::F16, shape: tensor.shape.to_vec(), data })
    }

    fn as_stored(&self, base: &str) -> Result<OwnedTensor, QuantError> {
        let tensor = self.require(base)?;
        Ok(copy(&tensor, tensor.name.to_owned()))
    }
}

/// Heads for which a norm is written one by one.
fn norm_heads(layer: &LayerSpec, label: &str) -> usize {
    let Some(norm) = layer.attn.qk_norm.as_ref().filter(|norm| norm.span == QkNormSpan::Head)
    else {
        return 1;
    };
    let [q, k] = norm.heads(&layer.attn);
    match label {
        "attn.q_norm" => q,
        "attn.k_norm" => k,
        _ => 1,
    }
}

fn copy(tensor: &TensorView<'_>, name: String) -> OwnedTensor {
    let (dtype, shape) = (tensor.dtype, tensor.shape.to_vec());
    OwnedTensor { name, dtype, shape, data: tensor.data.to_vec() }
}

/// `[inputs, outputs]` as `[outputs, inputs]`.
fn turned(values: &[f32], outputs: usize) -> Vec<f32> {
    let column = |output| values.iter().skip(output).step_by(outputs.max(1)).copied();
    (0..outputs).flat_map(column).collect()
}

fn f16_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect()
}

fn each_f16(bytes: &[u8], change: impl Fn(f16) -> f16) -> Vec<u8> {
    let values = bytes.as_chunks::<2>().0.iter();
    values.flat_map(|bytes| change(f16::from_le_bytes(*bytes)).to_le_bytes()).collect()
}
