//! The one list of weight formats: how each is found, what it is called, who reads it.
//!
//! A format is a folder with a [`WeightFormat`] and a line here. Per base name the first line whose
//! tensors are there wins, so a format that shares names with another stands above it and looks
//! closer. What comes out is a [`Linear`](crate::Linear); its variant says what kernels must know,
//! several formats may share one, and [`LinearKind::form`] tells it without reading anything.

use crate::checkpoint::Checkpoint;
use crate::linear::{LinearForm, Reader};
use crate::tensor::TensorView;

/// What there is to know of a weight format without reading weights.
pub struct WeightFormat {
    /// Name in reports.
    pub name: &'static str,
    /// Name on model cards and in `quant_method`.
    pub id: &'static str,
    /// Every `quant_method` of a `quantization_config` that promises this format.
    pub methods: &'static [&'static str],
    /// Suffixes of every tensor that such a linear may have, its bias excepted.
    pub tensors: &'static [&'static str],
    /// Whether a model in this format is worth quantising further. Others are results of that: what
    /// they have lost nobody can calibrate back, and the model they were made of is there.
    pub is_source: bool,
    /// The weights of the linear of this base name, if it is stored so.
    pub(crate) find: for<'a> fn(&'a Checkpoint, &str) -> Option<TensorView<'a>>,
    /// Reads what was found; which variant of [`Linear`](crate::Linear) comes out.
    pub(crate) reader: Reader,
    /// Whether a tensor that stacks experts can be read.
    pub(crate) stacked: bool,
}

/// Makes the list and the enum of its names.
macro_rules! registry {
    ($($(#[$doc:meta])* $kind:ident = $module:ident;)*) => {
        /// How a linear is stored.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum LinearKind {
            $($(#[$doc])* $kind,)*
        }

        impl LinearKind {
            /// Every format, in the order of precedence.
            pub const ALL: &[LinearKind] = &[$(LinearKind::$kind),*];

            /// What is known of the format.
            pub fn format(self) -> &'static WeightFormat {
                match self {
                    $(LinearKind::$kind => &crate::$module::FORMAT,)*
                }
            }
        }
    };
}

registry! {
    /// EXL2: mixed widths, permuted rows.
    Exl2 = exl2;
    /// EXL3: a trellis of codebook values between two rotations.
    Exl3 = exl3;
    /// AWQ: 4 bits, packed along the outputs.
    Awq = awq;
    /// GPTQ: 2, 3, 4 or 8 bits.
    Gptq = gptq;
    /// Integers of compressed-tensors, packed.
    PackQuantized = pack_quantized;
    /// bitsandbytes, 8 bits.
    BnbInt8 = bnb_int8;
    /// Integers of compressed-tensors, a byte each.
    IntQuantized = int_quantized;
    /// NVFP4: 4-bit floats in groups of 16.
    Nvfp4 = nvfp4;
    /// MXFP4: 4-bit floats in groups of 32.
    Mxfp4 = mxfp4;
    /// bitsandbytes, 4 bits.
    Bnb4 = bnb4;
    /// FP8: 8-bit floats.
    Fp8 = fp8;
    /// Unquantised F16, BF16 or F32.
    Plain = plain;
}

impl LinearKind {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        self.format().name
    }

    /// Every name that a tensor of such a linear may have, for its base name.
    pub fn tensor_names(self, base: &str) -> impl Iterator<Item = String> {
        let suffixes = self.format().tensors.iter().chain(&[".bias"]);
        suffixes.map(move |suffix| format!("{base}{suffix}"))
    }

    /// Which variant of [`Linear`](crate::Linear) it becomes, which is all that a backend must know.
    pub fn form(self) -> LinearForm {
        self.format().reader.form()
    }

    /// Whether a model in this format is worth quantising further.
    pub fn is_source(self) -> bool {
        self.format().is_source
    }

    /// Whether a `quantization_config` with this method, in lower case, promises a format that is
    /// read.
    pub fn is_method(method: &str) -> bool {
        Self::ALL.iter().any(|kind| kind.format().methods.contains(&method))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_differ_in_name_and_weights() {
        for (index, kind) in LinearKind::ALL.iter().enumerate() {
            for other in &LinearKind::ALL[..index] {
                assert_ne!(kind.name(), other.name());
                assert_ne!(kind.format().id, other.format().id);
            }
            assert!(!kind.format().tensors.is_empty(), "{}", kind.name());
        }
        assert_eq!(
            LinearKind::ALL.last(),
            Some(&LinearKind::Plain),
            "everything else looks closer"
        );
    }
}
