//! Low-rank adapters as PEFT writes them: a directory with `adapter_config.json` and safetensors.
//!
//! [`Adapter::open`] maps the file, sorts its tensors by the module they belong to and checks
//! everything that needs no model: kinds, shapes, ranks, scales. Which linear of a model a module is,
//! is for others to say. Invariant: both halves of every pair are there, with one rank and a bounded
//! scale; what a module holds besides is a full weight or nothing.

mod config;
mod file;
mod key;
mod pattern;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use crate::checkpoint::Checkpoint;
use crate::error::{FormatError, Result};
use crate::tensor::TensorView;
use config::AdapterConfig;
use key::{Key, Kind};

/// Largest rank of a pair.
pub const RANK_MAX: usize = 1024;

/// Largest magnitude of `alpha / rank`; real adapters have at most a few hundred.
pub const SCALE_MAX: f64 = 4096.0;

/// Largest magnitude of a bias that counts as none.
const BIAS_MAX: f32 = 1e-6;

/// Most modules of an adapter.
const MODULES_MAX: usize = 1 << 20;

/// An opened adapter. Its tensors stay in their file until they are read.
#[derive(Debug)]
pub struct Adapter {
    config: AdapterConfig,
    checkpoint: Checkpoint,
    /// By path inside the model.
    modules: BTreeMap<String, Names>,
}

/// Names of the tensors of a module.
#[derive(Clone, Debug, Default)]
struct Names {
    a: Option<String>,
    b: Option<String>,
    full: Option<String>,
}

/// What an adapter says about one module of the model.
#[derive(Clone, Copy, Debug)]
pub struct AdapterModule<'a> {
    /// Where the module is, e.g. `model.layers.0.self_attn.q_proj`, as the adapter calls it.
    pub path: &'a str,
    /// What is added to its weight.
    pub low_rank: Option<LowRankPair<'a>>,
    /// What takes the place of its weight.
    pub full: Option<TensorView<'a>>,
}

/// `scale · B · A`, which is added to a weight `[out, in]`.
#[derive(Clone, Copy, Debug)]
pub struct LowRankPair<'a> {
    /// `[rank, in]`.
    pub a: TensorView<'a>,
    /// `[out, rank]`.
    pub b: TensorView<'a>,
    /// Rows of `a` and columns of `b`.
    pub rank: usize,
    /// Multiplies the product.
    pub scale: f32,
}

impl LowRankPair<'_> {
    /// Inputs of the linear.
    pub fn in_features(&self) -> usize {
        self.a.shape.last().copied().unwrap_or(0)
    }

    /// Outputs of the linear.
    pub fn out_features(&self) -> usize {
        self.b.shape.first().copied().unwrap_or(0)
    }
}

impl Adapter {
    /// Opens the adapter in `dir` and checks all of it but the values.
    pub fn open(dir: &Path) -> Result<Self> {
        let config = AdapterConfig::read(dir)?;
        let checkpoint = file::open(dir)?;
        let mut modules: BTreeMap<String, Names> = BTreeMap::new();
        for name in checkpoint.names() {
            let Key { path, kind } = Key::parse(name);
            let tensor = checkpoint.require(name)?;
            let refused = |problem: &'static str| Err(wrong(&tensor, problem));
            match kind {
                Kind::Ignored => continue,
                Kind::Bias => {
                    // What training left of zero is as good as zero; NaN is not.
                    let is_zero = |value: &f32| value.abs() <= BIAS_MAX;
                    if !tensor.to_f32()?.iter().all(is_zero) {
                        return refused(
                            "is a bias that is not zero, and adapters with biases cannot be used: train with bias \"none\"",
                        );
                    }
                    continue;
                }
                Kind::Magnitude => {
                    return refused(
                        "is a magnitude of DoRA, which is not supported: merge the adapter into the model",
                    );
                }
                Kind::Embedding => {
                    return refused(
                        "is a low-rank pair of an embedding, which is not supported: use modules_to_save for the embedding, or merge the adapter into the model",
                    );
                }
                Kind::Unknown => {
                    return refused("is not a tensor of a LoRA adapter that is known here");
                }
                Kind::A | Kind::B | Kind::Full => {}
            }
            let names = modules.entry(path.to_owned()).or_default();
            let slot = match kind {
                Kind::A => &mut names.a,
                Kind::B => &mut names.b,
                _ => &mut names.full,
            };
            if slot.replace(name.to_owned()).is_some() {
                return refused("is there under two names: the file is damaged");
            }
        }
        let adapter = Self { config, checkpoint, modules };
        adapter.check(dir)?;
        Ok(adapter)
    }

    fn check(&self, dir: &Path) -> Result<()> {
        if self.modules.is_empty() || self.modules.len() > MODULES_MAX {
            let modules = self.modules.len();
            return Err(FormatError::EmptyAdapter { path: dir.to_owned(), modules });
        }
        for (path, names) in &self.modules {
            self.module(path, names)?;
        }
        Ok(())
    }

    /// Everything the adapter changes, in order of path.
    pub fn modules(&self) -> impl Iterator<Item = Result<AdapterModule<'_>>> {
        self.modules.iter().map(|(path, names)| self.module(path, names))
    }

    /// The directory or file that was opened.
    pub fn source(&self) -> &Path {
        self.checkpoint.source()
    }

    /// Ends of paths that the configuration lists and for which the file has nothing: with pairs, and
    /// stored whole.
    pub fn absent(&self) -> (Vec<String>, Vec<String>) {
        let without = |endings: &[String], has: fn(&Names) -> bool| {
            let lacks = |ending: &&String| {
                let mut modules = self.modules.iter();
                !modules.any(|(path, names)| has(names) && config::ends_with(path, ending))
            };
            endings.iter().filter(lacks).cloned().collect::<Vec<_>>()
        };
        (
            without(self.config.target_endings(), |names| names.a.is_some()),
            without(self.config.saved_endings(), |names| names.full.is_some()),
        )
    }

    /// The model that the adapter says it was trained for.
    pub fn base_model(&self) -> Option<&str> {
        self.config.base_model()
    }

    /// Lets the system take back the memory of a tensor that was copied.
    pub fn release(&self, tensor: &TensorView<'_>) {
        self.checkpoint.release(tensor);
    }

    fn module<'a>(&'a self, path: &'a str, names: &Names) -> Result<AdapterModule<'a>> {
        let tensor =
            |name: &Option<String>| name.as_ref().map(|name| self.checkpoint.require(name));
        let full = tensor(&names.full).transpose()?;
        if let Some(full) = &full {
            expect_matrix(full)?;
        }
        let low_rank = match (tensor(&names.a).transpose()?, tensor(&names.b).transpose()?) {
            (None, None) => None,
            (Some(one), None) | (None, Some(one)) => {
                let problem =
                    "has no other half: a pair needs lora_A and lora_B, download the adapter again";
                return Err(wrong(&one, problem));
            }
            (Some(a), Some(b)) => Some(self.pair(path, a, b)?),
        };
        Ok(AdapterModule { path, low_rank, full })
    }

    fn pair<'a>(
        &self,
        path: &str,
        a: TensorView<'a>,
        b: TensorView<'a>,
    ) -> Result<LowRankPair<'a>> {
        let ([rank, _], [_, columns]) = (expect_matrix(&a)?, expect_matrix(&b)?);
        if rank != columns {
            return Err(a.wrong_shape(format!("a first extent of {columns}, as lora_B has,")));
        }
        if rank > RANK_MAX {
            return Err(a.wrong_shape(format!("a rank of at most {RANK_MAX}")));
        }
        let stated = self.config.rank_of(path);
        if stated != rank {
            return Err(a.wrong_shape(format!("the rank {stated} that adapter_config.json states")));
        }
        if !self.config.is_target(path) {
            let problem = "belongs to a module that adapter_config.json does not target: the files are of different adapters";
            return Err(wrong(&a, problem));
        }
        let scale = self.config.scale_of(path, rank)?;
        Ok(LowRankPair { a, b, rank, scale })
    }
}

/// The extents of a matrix of floats with something in it.
fn expect_matrix(tensor: &TensorView<'_>) -> Result<[usize; 2]> {
    if !tensor.dtype.is_weight_float() {
        return Err(tensor.wrong_dtype("F16, BF16 or F32"));
    }
    match *tensor.shape {
        [rows, columns] if rows > 0 && columns > 0 => Ok([rows, columns]),
        _ => Err(tensor.wrong_shape("a matrix")),
    }
}

fn wrong(tensor: &TensorView<'_>, problem: &'static str) -> FormatError {
    FormatError::AdapterTensor {
        path: tensor.file.to_owned(),
        tensor: tensor.name.to_owned(),
        problem,
    }
}
