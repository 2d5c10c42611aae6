//! A linear layer as stored: what to ask for, how it is found, what comes back.
//!
//! The kind is decided per linear from its tensors, see [`crate::LinearKind`]; what `config.json`
//! claims does not matter. Everything returned has been validated, so that kernels
//! may index words, scales and permutations freely.

mod bias;
mod columns;
mod find;
mod form;
mod request;
mod split;

pub use columns::Columns;
pub use find::{find_linear, other_kinds};
pub use form::LinearForm;
pub use request::{BiasRule, FusedPart, LinearRequest};

pub(crate) use bias::read_bias;
pub(crate) use find::Found;
pub(crate) use form::Reader;
pub(crate) use split::Cut;

use crate::checkpoint::Checkpoint;
use crate::dtype::Dtype;
use crate::error::{FormatError, Result};
use crate::exl2::Exl2Linear;
use crate::exl3::Exl3Linear;
use crate::gptq::GptqLinear;
use crate::plain::PlainLinear;
use crate::registry::LinearKind;
use crate::small_float::SmallFloatLinear;
use crate::tensor::TensorView;

/// A linear as stored, validated. The variant says what a kernel must know to multiply with it.
#[derive(Clone, Debug)]
pub enum Linear<'a> {
    /// EXL2.
    Exl2(Exl2Linear<'a>),
    /// EXL3.
    Exl3(Exl3Linear<'a>),
    /// Integer codes in the form of GPTQ, whatever their files hold.
    Gptq(GptqLinear<'a>),
    /// Codes of small floats in groups with scales: MXFP4, NVFP4, FP8, bitsandbytes of 4 bits.
    SmallFloat(SmallFloatLinear<'a>),
    /// Unquantised.
    Plain(PlainLinear<'a>),
}

/// What every stored linear can say of itself. Nothing outside of the kernels needs more.
pub(crate) trait Stored<'a> {
    fn kind(&self) -> LinearKind;
    fn name(&self) -> &str;
    fn in_features(&self) -> usize;
    fn out_features(&self) -> usize;
    fn stored_columns(&self) -> usize;
    fn bias(&self) -> &Option<Vec<f32>>;
    fn bias_mut(&mut self) -> &mut Option<Vec<f32>>;
    fn weight_bytes(&self) -> u64;
    fn tensors(&self) -> &[TensorView<'a>];
    /// The narrowest type that holds every weight.
    fn value_dtype(&self) -> Dtype;
    /// `[in_features, out_features]`, row-major, exact.
    fn values(&self) -> Vec<f32>;
    /// Width in bits and number of weights, by width.
    fn widths(&self) -> Vec<(u8, u64)>;
    /// Some weights from all over the matrix, for a look at their size; none where that is dear.
    fn sample(&self) -> Vec<f32> {
        Vec::new()
    }
    /// Bytes that are made of it while somebody reads its weights, besides the files.
    fn made_bytes(&self) -> u64 {
        0
    }
    /// What else there is to say, in the words of the format.
    fn details(&self) -> String {
        String::new()
    }
    /// What a person should know before trusting the weights, after "has" or "have".
    fn caution(&self) -> Option<&'static str> {
        None
    }
    /// Reads everything once, where codes or scales may hold what is no number.
    fn check_values(&self) -> Result<()> {
        Ok(())
    }
}

/// Some of so many indices, evenly spread.
pub(crate) fn spread(len: usize) -> impl Iterator<Item = usize> + Clone {
    const COUNT: usize = 64;
    (0..len).step_by(len.div_ceil(COUNT).max(1))
}

/// Finds, reads and validates one linear.
pub fn load_linear<'a>(
    checkpoint: &'a Checkpoint,
    request: &LinearRequest<'_>,
) -> Result<Linear<'a>> {
    let found =
        find::locate(checkpoint, request).ok_or_else(|| find::missing(checkpoint, request))?;
    if let (Some((index, count)), true) = (found.slab, !found.kind.format().stacked) {
        return Err(FormatError::FusedSplit {
            path: found.weight.file.to_owned(),
            tensor: found.weight.name.to_owned(),
            begin: index,
            end: count,
            reason: "experts stacked in one tensor are not read in this format",
        });
    }
    found.kind.format().reader.read(checkpoint, request, &found)
}

impl<'a> Linear<'a> {
    fn stored(&self) -> &dyn Stored<'a> {
        match self {
            Linear::Exl2(linear) => linear,
            Linear::Exl3(linear) => linear,
            Linear::Gptq(linear) => linear,
            Linear::SmallFloat(linear) => linear,
            Linear::Plain(linear) => linear,
        }
    }

    /// How it is stored.
    pub fn kind(&self) -> LinearKind {
        self.stored().kind()
    }

    /// Base name of its tensors.
    pub fn name(&self) -> &str {
        self.stored().name()
    }

    /// Length of the vectors it takes.
    pub fn in_features(&self) -> usize {
        self.stored().in_features()
    }

    /// Length of the vectors it gives, padding excluded.
    pub fn out_features(&self) -> usize {
        self.stored().out_features()
    }

    /// Columns of the stored matrix, padding and other parts of a fused tensor included.
    pub fn columns(&self) -> usize {
        self.stored().stored_columns()
    }

    /// What is added to each output, `[out_features]`.
    pub fn bias(&self) -> Option<&[f32]> {
        self.stored().bias().as_deref()
    }

    /// The linear with this bias, `[out_features]`, in place of its own.
    pub fn with_bias(mut self, bias: Option<Vec<f32>>) -> Self {
        let stored: &mut dyn Stored<'a> = match &mut self {
            Linear::Exl2(linear) => linear,
            Linear::Exl3(linear) => linear,
            Linear::Gptq(linear) => linear,
            Linear::SmallFloat(linear) => linear,
            Linear::Plain(linear) => linear,
        };
        *stored.bias_mut() = bias;
        self
    }

    /// Bytes on disk of its weights with scales and tables, without bias; for a part of a fused
    /// tensor its share.
    pub fn weight_bytes(&self) -> u64 {
        self.stored().weight_bytes()
    }

    /// Bytes that it takes besides those of its files while its weights are read, and gives back when
    /// it is dropped: what is re-packed to the form that kernels know.
    pub fn made_bytes(&self) -> u64 {
        self.stored().made_bytes()
    }

    /// Average bits per weight, scales and tables included.
    pub fn bits_per_weight(&self) -> f64 {
        let weights = self.in_features() as f64 * self.out_features() as f64;
        self.weight_bytes() as f64 * 8.0 / weights.max(1.0)
    }

    /// The narrowest of F16, BF16 and F32 that holds every weight.
    pub fn value_dtype(&self) -> Dtype {
        self.stored().value_dtype()
    }

    /// The matrix `[in_features, out_features]`, row-major, with the exact values of the format.
    pub fn values(&self) -> Vec<f32> {
        self.stored().values()
    }

    /// Root mean square of some weights; `None` for formats that decode only whole matrices.
    pub fn sample_rms(&self) -> Option<f64> {
        let sample = self.stored().sample();
        let squares: f64 = sample.iter().map(|value| f64::from(*value).powi(2)).sum();
        (!sample.is_empty()).then(|| (squares / sample.len() as f64).sqrt())
    }

    /// How many weights have codes of how many bits, scales not counted.
    pub fn widths(&self) -> Vec<(u8, u64)> {
        self.stored().widths()
    }

    /// Groups, codebook and the like, in a few words; empty where there is nothing to say.
    pub fn details(&self) -> String {
        self.stored().details()
    }

    /// What a person should know before trusting the weights, after "has" or "have".
    pub fn caution(&self) -> Option<&'static str> {
        self.stored().caution()
    }

    /// Checks what only reading every weight can show, such as a NaN among codes. To be called once
    /// before weights are used; loading alone looks at shapes and tables.
    pub fn check_values(&self) -> Result<()> {
        self.stored().check_values()
    }

    /// The tensors it was read from, to hand to [`Checkpoint::release`] once copied.
    /// Empty for a linear that was made in memory.
    pub fn tensors(&self) -> &[TensorView<'a>] {
        self.stored().tensors()
    }
}

/// The accessors of [`Stored`] that are fields of the same name everywhere.
macro_rules! stored_fields {
    () => {
        fn name(&self) -> &str {
            &self.name
        }
        fn in_features(&self) -> usize {
            self.in_features
        }
        fn out_features(&self) -> usize {
            self.out_features
        }
        fn bias(&self) -> &Option<Vec<f32>> {
            &self.bias
        }
        fn bias_mut(&mut self) -> &mut Option<Vec<f32>> {
            &mut self.bias
        }
        fn tensors(&self) -> &[$crate::tensor::TensorView<'a>] {
            &self.tensors
        }
    };
}
pub(crate) use stored_fields;
