//! What a format is brought to when it is read: one variant of [`Linear`] each.
//!
//! Kernels know variants and no formats. A format names its reader as one of [`Reader`], so that what
//! is said of it beforehand is what comes out.

use super::{Found, Linear, LinearRequest};
use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::exl2::Exl2Linear;
use crate::exl3::Exl3Linear;
use crate::gptq::GptqLinear;
use crate::plain::PlainLinear;
use crate::small_float::SmallFloatLinear;

/// Makes the enum of variants and that of their readers.
macro_rules! forms {
    ($($form:ident: $linear:ident;)*) => {
        /// Which variant of [`Linear`] a format becomes: all that a backend must know to say whether
        /// it multiplies with it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum LinearForm {
            $(#[doc = concat!("[`Linear::", stringify!($form), "`].")] $form,)*
        }

        /// Reads what was found and checks everything that kernels rely on.
        pub(crate) enum Reader {
            $($form(
                for<'a> fn(&'a Checkpoint, &LinearRequest<'_>, &Found<'a>) -> Result<$linear<'a>>,
            ),)*
        }

        impl Reader {
            /// What comes out.
            pub fn form(&self) -> LinearForm {
                match self {
                    $(Reader::$form(_) => LinearForm::$form,)*
                }
            }

            /// Reads one linear.
            pub fn read<'a>(
                &self,
                checkpoint: &'a Checkpoint,
                request: &LinearRequest<'_>,
                found: &Found<'a>,
            ) -> Result<Linear<'a>> {
                match self {
                    $(Reader::$form(read) => read(checkpoint, request, found).map(Linear::$form),)*
                }
            }
        }
    };
}

forms! {
    Exl2: Exl2Linear;
    Exl3: Exl3Linear;
    Gptq: GptqLinear;
    SmallFloat: SmallFloatLinear;
    Plain: PlainLinear;
}
