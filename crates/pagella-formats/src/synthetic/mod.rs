//! Linears made in memory, for benchmarks and tests that need a shape and not a model.
//!
//! Values are random but valid: tables pass every check, scales give weights of the size that a
//! trained matrix of that shape has, padding columns decode to zero. The same seed gives the same
//! bytes.

mod exl2;
mod gptq;
mod plain;
mod random;

pub use exl2::exl2;
pub use gptq::{RowOrder, gptq};
pub use plain::plain_f16;

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
    Gptq(gptq::OwnedGptq),
    Plain(plain::OwnedPlain),
}

impl OwnedLinear {
    /// The linear, borrowing its bytes.
    pub fn view(&self) -> Linear<'_> {
        match &self.0 {
            Owned::Exl2(linear) => Linear::Exl2(linear.view()),
            Owned::Gptq(linear) => Linear::Gptq(linear.view()),
            Owned::Plain(linear) => Linear::Plain(linear.view()),
        }
    }

    /// Its tensors under the names they would have in a file.
    pub fn named(&self, base: &str) -> Vec<TensorData<'_>> {
        match &self.0 {
            Owned::Exl2(linear) => linear.tensors.named(base),
            Owned::Gptq(linear) => linear.named(base),
            Owned::Plain(linear) => linear.named(base),
        }
    }
}

#[cfg(test)]
mod tests;
