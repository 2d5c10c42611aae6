//! Linears made in memory, for benchmarks and tests that need a shape and not a model.
//!
//! Values are random but valid: tables pass every check, scales give weights of the size that a
//! trained matrix of that shape has, padding columns decode to zero. The same seed gives the same
//! bytes.

mod exl2;
mod exl3;
mod gptq;
mod plain;
mod random;
mod recipe;
mod small_float;

pub use exl2::exl2;
pub use exl3::exl3;
pub use gptq::{IntegerForm, RowOrder, gptq, integer};
pub use plain::plain_f16;
pub use recipe::{IntegerFormat, IntegerMatrix, RecipeTensor, Rounding};
pub use small_float::{SmallFloatKind, small_float};

use crate::linear::Linear;
use crate::safetensors::write::TensorData;

/// Columns of quantised matrices are padded to a multiple of this.
const PADDED_COLUMNS: usize = 32;

/// A linear that owns its bytes.
#[derive(Clone, Debug)]
pub struct OwnedLinear(Owned);

#[derive(Clone, Debug)]
enum Owned {
    Exl2(exl2::OwnedExl2),
    Exl3(exl3::OwnedExl3),
    Gptq(gptq::OwnedGptq),
    Plain(plain::OwnedPlain),
    SmallFloat(small_float::OwnedSmallFloat),
}

impl OwnedLinear {
    /// The linear, borrowing its bytes.
    pub fn view(&self) -> Linear<'_> {
        match &self.0 {
            Owned::Exl2(linear) => Linear::Exl2(linear.view()),
            Owned::Exl3(linear) => Linear::Exl3(linear.view()),
            Owned::Gptq(linear) => Linear::Gptq(linear.view()),
            Owned::Plain(linear) => Linear::Plain(linear.view()),
            Owned::SmallFloat(linear) => Linear::SmallFloat(linear.view()),
        }
    }

    /// Its tensors under the names they would have in a file.
    pub fn named(&self, base: &str) -> Vec<TensorData<'_>> {
        match &self.0 {
            Owned::Exl2(linear) => linear.tensors.named(base),
            Owned::Exl3(linear) => linear.named(base),
            Owned::Gptq(linear) => linear.named(base),
            Owned::Plain(linear) => linear.named(base),
            Owned::SmallFloat(linear) => linear.named(base),
        }
    }
}

#[cfg(test)]
mod tests;
