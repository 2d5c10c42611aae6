//! What the files hold, checked against the spec before any weight is laid out.
//!
//! Presence comes first, so that a message lists every missing tensor and not only the first; then
//! every type and shape. Only headers, group tables, row orders, scales and biases are read.

use std::collections::BTreeMap;
use std::path::Path;

use pagella_arch::{BlockOrder, LayerSpec, LinearSpec, MlpSpec, ModelSpec};
use pagella_formats::{
    Checkpoint, FormatError, GptqZeros, Linear, LinearKind, Promise, Rename, find_linear,
    load_linear, refuse_unsupported,
};

use crate::error::{LISTED_MAX, ModelError};
use crate::memory::idle_bytes;
use crate::progress::{LayerBytes, Module, modules};
use crate::unused::{Taken, UnusedTensors};
use crate::weights::{find_norm, read_norm, read_vector, request, table_tensor};

/// What one linear is stored as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinearFacts {
    /// Where it is in the model, e.g. `layers.3.attn.q`.
    pub label: String,
    /// How it is stored.
    pub kind: LinearKind,
    /// Inputs times outputs.
    pub params: u64,
    /// Bytes of weights, scales and tables, without bias.
    pub stored_bytes: u64,
    /// Bytes of the bias as f32.
    pub bias_bytes: u64,
    /// Bytes of the weights in the narrowest plain type that holds them.
    pub values_bytes: u64,
    /// Bytes that are taken besides the files while it is laid out.
    pub made_bytes: u64,
    /// Width in bits and number of weights, scales not counted.
    pub widths: Vec<(u8, u64)>,
    /// Groups, codebook and the like, in a few words.
    pub details: String,
}

/// A checked checkpoint, as facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Every linear, in the order of [`ModelSpec::linear_specs`]; the head is last.
    pub linears: Vec<LinearFacts>,
    /// Bytes of the embedding and of learned positions, which stay mapped.
    pub mapped_bytes: u64,
    /// Bytes of one row of the embedding, as stored.
    pub embed_row_bytes: u64,
    /// Tensors that no part of the model takes, by kind.
    pub unused: Vec<UnusedTensors>,
    /// What a person should know before trusting the weights, as sentences.
    pub warnings: Vec<String>,
}

impl Survey {
    /// Opens the weights of `dir` and checks them; nothing stays open.
    pub fn of(dir: &Path, spec: &ModelSpec) -> Result<Self, ModelError> {
        check_blocks(spec)?;
        survey(&open(dir, spec)?, spec)
    }

    /// Bytes of experts that a token does not read.
    pub(crate) fn idle_bytes(&self, spec: &ModelSpec) -> u64 {
        let mut facts = self.linears.iter();
        let mut idle = 0;
        for layer in &spec.layers {
            let labels = layer.linear_specs();
            let of_layer = labels.iter().zip(&mut facts);
            let experts = of_layer.filter(|((label, _), _)| label.starts_with("mlp.experts."));
            let bytes = experts.map(|(_, fact)| fact.stored_bytes + fact.bias_bytes).sum();
            if let MlpSpec::Moe(moe) = &layer.mlp {
                idle += idle_bytes(moe, bytes);
            }
        }
        idle
    }

    /// The modules in load order with their bytes.
    pub(crate) fn modules(&self, spec: &ModelSpec) -> Vec<Module> {
        let mut facts = self.linears.iter();
        let mut bytes_of = |linear: &str| {
            facts.next().map_or((false, 0), |fact| {
                (linear.starts_with("attn."), fact.stored_bytes + fact.bias_bytes)
            })
        };
        let mut layers = Vec::with_capacity(spec.layers.len());
        for layer in &spec.layers {
            let mut sum = LayerBytes::default();
            for (label, _) in layer.linear_specs() {
                let (is_attn, bytes) = bytes_of(&label);
                *(if is_attn { &mut sum.attn } else { &mut sum.mlp }) += bytes;
            }
            layers.push(sum);
        }
        let (_, head) = bytes_of("head");
        modules(spec, self.mapped_bytes, &layers, head)
    }
}

/// Maps the shards of `dir` under the names of the family.
pub(crate) fn open(dir: &Path, spec: &ModelSpec) -> Result<Checkpoint, ModelError> {
    refuse_unsupported(dir, spec.quant.block.as_ref())?;
    let rename = |rule: &pagella_arch::RenameRule| Rename {
        from: rule.from,
        to: rule.to,
        anchored: rule.anchored,
    };
    let renames: Vec<Rename> = spec.renames.iter().map(rename).collect();
    Ok(Checkpoint::open(dir, &renames)?.with_scale_groups(spec.quant.scale_groups))
}

/// How zero points of GPTQ are stored, by the configuration.
pub(crate) fn gptq_zeros(spec: &ModelSpec) -> GptqZeros {
    spec.quant.block.as_ref().map(GptqZeros::of).unwrap_or_default()
}

/// Refuses layers that the forward pass does not have, before any file is opened.
pub(crate) fn check_blocks(spec: &ModelSpec) -> Result<(), ModelError> {
    let missing = |layer: &LayerSpec| match (&layer.mlp, layer.order, &layer.mlp_post_norm) {
        (_, BlockOrder::Parallel, _) if layer.attn.latent.is_some() => {
            Some("parallel latent attention")
        }
        (MlpSpec::Moe(_), BlockOrder::Parallel, _) => Some("parallel mixture-of-experts"),
        (MlpSpec::Moe(_), _, Some(_)) => Some("post-normed mixture-of-experts"),
        _ => None,
    };
    let mut layers = spec.layers.iter().enumerate();
    match layers.find_map(|(index, layer)| Some((index, missing(layer)?))) {
        None => Ok(()),
        Some((layer, block)) => Err(ModelError::UnsupportedBlock { layer, block }),
    }
}

/// Checks that everything the spec asks for is there, with the right type and shape.
pub(crate) fn survey(checkpoint: &Checkpoint, spec: &ModelSpec) -> Result<Survey, ModelError> {
    check_presence(checkpoint, spec)?;
    let (embed, positions) = check_tables(checkpoint, spec)?;
    for layer in &spec.layers {
        for (label, norm) in layer.norm_specs() {
            let qk_heads = layer.attn.qk_norm.as_ref().map(|norm| norm.heads(&layer.attn));
            let heads = match (label, qk_heads) {
                ("attn.q_norm", Some([heads, _])) | ("attn.k_norm", Some([_, heads])) => heads,
                _ => 1,
            };
            read_norm(checkpoint, norm, heads)?;
        }
    }
    read_norm(checkpoint, &spec.final_norm, 1)?;
    for (_, base, len) in spec.vector_specs() {
        read_vector(checkpoint, base, len)?;
    }
    let mut taken = Taken::new(checkpoint, spec);
    let mut promise = Promise::new(spec.quant.block.as_ref());
    let zeros = gptq_zeros(spec);
    let mut odd = OddSizes::default();
    let mut cautions: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let linears = spec.linear_specs().map(|(label, linear)| {
        let loaded = load_linear(checkpoint, &request(linear, zeros))?;
        promise.check(checkpoint.source(), &loaded)?;
        odd.look(&loaded);
        if let Some(caution) = loaded.caution() {
            cautions.entry(caution).or_default().push(loaded.name().to_owned());
        }
        taken.add(checkpoint, &loaded);
        Ok(facts(label, &loaded))
    });
    let linears = linears.collect::<Result<Vec<_>, ModelError>>()?;
    let broken = promise.finish(checkpoint.source())?;
    let cautions = cautions.into_iter().map(|(caution, linears)| match &linears[..] {
        [name] => format!("`{name}` has {caution}"),
        names => format!("{} linears, such as `{}`, have {caution}", names.len(), names[0]),
    });
    let found = broken.into_iter().chain(odd.warnings).chain(taken.warnings()).chain(cautions);
    Ok(Survey {
        warnings: warnings(spec, &linears).chain(found).collect(),
        linears,
        mapped_bytes: embed + positions,
        embed_row_bytes: embed / (spec.vocab as u64).max(1),
        unused: taken.rest(checkpoint, spec),
    })
}

/// What the files leave open.
fn warnings(spec: &ModelSpec, linears: &[LinearFacts]) -> impl Iterator<Item = String> {
    let open = spec.quant.block.is_none();
    let gptq = linears.iter().any(|facts| facts.kind == LinearKind::Gptq);
    let unsaid = "no quantization_config says how this GPTQ model stores zero points: they are read as \
                  less one, and if its text is nonsense, set checkpoint_format to gptq_v2 in config.json";
    (open && gptq).then(|| unsaid.to_owned()).into_iter()
}

/// Weights of a size that no trained model has: codes or scales that were taken for something else.
#[derive(Default)]
struct OddSizes {
    seen: usize,
    warnings: Vec<String>,
}

impl OddSizes {
    /// Linears that are looked at.
    const LINEARS: usize = 4;
    /// Root mean squares that trained weights have.
    const USUAL: std::ops::RangeInclusive<f64> = 1e-4..=1.0;

    fn look(&mut self, linear: &Linear<'_>) {
        if self.seen == Self::LINEARS {
            return;
        }
        let Some(rms) = linear.sample_rms() else { return };
        self.seen += 1;
        if !Self::USUAL.contains(&rms) {
            let name = linear.name();
            self.warnings.push(format!(
                "weights of `{name}` have a root mean square of {rms:.1e}, which no trained model \
                 has: the files may be damaged, or of a format that they do not name"
            ));
        }
    }
}

fn facts(label: String, linear: &Linear<'_>) -> LinearFacts {
    let params = linear.in_features() as u64 * linear.out_features() as u64;
    LinearFacts {
        label,
        kind: linear.kind(),
        params,
        stored_bytes: linear.weight_bytes(),
        bias_bytes: linear.bias().map_or(0, |bias| 4 * bias.len() as u64),
        values_bytes: params * linear.value_dtype().bits().unwrap_or(32) / 8,
        made_bytes: linear.made_bytes(),
        widths: linear.widths(),
        details: linear.details(),
    }
}

/// Lists everything that is missing, or names the unsupported format that hides it.
fn check_presence(checkpoint: &Checkpoint, spec: &ModelSpec) -> Result<(), ModelError> {
    let mut missing: Vec<String> = Vec::new();
    let tables = [Some(&spec.embed.name), spec.embed.positions.as_ref()];
    for base in tables.into_iter().flatten() {
        if table_tensor(checkpoint, base).is_none() {
            missing.push(base.clone());
        }
    }
    for (_, linear) in spec.linear_specs() {
        missing.extend(missing_linear(checkpoint, linear)?);
    }
    for (_, norm) in spec.norm_specs() {
        if find_norm(checkpoint, norm).is_none() {
            missing.extend(norm.bases.first().cloned());
        }
    }
    for (_, base, _) in spec.vector_specs() {
        if table_tensor(checkpoint, base).is_none() {
            missing.push(base.to_owned());
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let total = missing.len();
    missing.truncate(LISTED_MAX);
    Err(ModelError::MissingTensors { dir: checkpoint.source().to_owned(), missing, total })
}

/// The name of a linear that is in no file; an error when it is there in a foreign format.
fn missing_linear(
    checkpoint: &Checkpoint,
    spec: &LinearSpec,
) -> Result<Option<String>, ModelError> {
    let request = request(spec, GptqZeros::default());
    if find_linear(checkpoint, &request).is_some() {
        return Ok(None);
    }
    match load_linear(checkpoint, &request) {
        Err(error @ FormatError::Unsupported { .. }) => Err(error.into()),
        _ => Ok(spec.bases.first().cloned()),
    }
}

/// Bytes of the embedding and of the learned positions.
fn check_tables(checkpoint: &Checkpoint, spec: &ModelSpec) -> Result<(u64, u64), ModelError> {
    let rows_of = |base: &str| {
        let tensor = table_tensor(checkpoint, base).ok_or_else(|| FormatError::MissingTensor {
            path: checkpoint.source().to_owned(),
            tensor: base.to_owned(),
        })?;
        let [rows, width] = *tensor.shape else { return Err(wrong_table(&tensor, spec)) };
        if width != spec.hidden {
            return Err(wrong_table(&tensor, spec));
        }
        if !tensor.dtype.is_weight_float() {
            return Err(FormatError::WrongDtype {
                path: tensor.file.to_owned(),
                tensor: tensor.name.to_owned(),
                expected: "F16, BF16 or F32",
                found: tensor.dtype,
            });
        }
        Ok((rows, tensor))
    };
    let (rows, embed) = rows_of(&spec.embed.name)?;
    if rows != spec.vocab {
        return Err(ModelError::VocabMismatch {
            path: embed.file.to_owned(),
            tensor: embed.name.to_owned(),
            found: rows,
            vocab: spec.vocab,
        });
    }
    let Some(base) = &spec.embed.positions else { return Ok((embed.data.len() as u64, 0)) };
    let (rows, positions) = rows_of(base)?;
    if rows < spec.context {
        return Err(ModelError::TooFewPositions {
            path: positions.file.to_owned(),
            tensor: positions.name.to_owned(),
            found: rows,
            context: spec.context,
        });
    }
    Ok((embed.data.len() as u64, positions.data.len() as u64))
}

fn wrong_table(tensor: &pagella_formats::TensorView<'_>, spec: &ModelSpec) -> FormatError {
    FormatError::WrongShape {
        path: tensor.file.to_owned(),
        tensor: tensor.name.to_owned(),
        expected: format!("[rows, {}]", spec.hidden),
        found: tensor.shape.to_vec(),
    }
}
