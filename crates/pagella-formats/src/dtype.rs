//! Element types of safetensors files: the five of plain weights and tables, and the rest by name.
//!
//! A tensor of another type may sit in a file unused; it is refused only when it is read.

use std::fmt;

/// Element type of a stored tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    BF16,
    /// Signed 32-bit integer; also the carrier of packed words.
    I32,
    /// Signed 16-bit integer; carries EXL2 group tables.
    I16,
    /// A type that no plain weight has: codes, scales and whatever else lies in files.
    Other(OtherDtype),
}

/// Element types that no plain linear, norm or embedding can have; formats read codes of some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OtherDtype {
    /// One byte per truth value.
    Bool,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 64-bit integer.
    U64,
    /// Signed 64-bit integer.
    I64,
    /// IEEE binary64.
    F64,
    /// 8-bit float, 4 exponent and 3 mantissa bits.
    F8E4M3,
    /// 8-bit float, 5 exponent and 2 mantissa bits.
    F8E5M2,
    /// 8-bit float, 4 exponent bits, no negative zero.
    F8E4M3Fnuz,
    /// 8-bit float, 5 exponent bits, no negative zero.
    F8E5M2Fnuz,
    /// 8-bit exponent without mantissa.
    F8E8M0,
    /// 6-bit float, 2 exponent and 3 mantissa bits.
    F6E2M3,
    /// 6-bit float, 3 exponent and 2 mantissa bits.
    F6E3M2,
    /// 4-bit float.
    F4,
    /// Two binary32, real and imaginary part.
    C64,
    /// A tag that this version does not know.
    Unknown,
}

/// Tag, type and bits per element of everything with a known size.
const TAGS: &[(&str, Dtype, u64)] = &[
    ("F32", Dtype::F32, 32),
    ("F16", Dtype::F16, 16),
    ("BF16", Dtype::BF16, 16),
    ("I32", Dtype::I32, 32),
    ("I16", Dtype::I16, 16),
    ("BOOL", Dtype::Other(OtherDtype::Bool), 8),
    ("U8", Dtype::Other(OtherDtype::U8), 8),
    ("I8", Dtype::Other(OtherDtype::I8), 8),
    ("U16", Dtype::Other(OtherDtype::U16), 16),
    ("U32", Dtype::Other(OtherDtype::U32), 32),
    ("U64", Dtype::Other(OtherDtype::U64), 64),
    ("I64", Dtype::Other(OtherDtype::I64), 64),
    ("F64", Dtype::Other(OtherDtype::F64), 64),
    ("F8_E4M3", Dtype::Other(OtherDtype::F8E4M3), 8),
    ("F8_E5M2", Dtype::Other(OtherDtype::F8E5M2), 8),
    ("F8_E4M3FNUZ", Dtype::Other(OtherDtype::F8E4M3Fnuz), 8),
    ("F8_E5M2FNUZ", Dtype::Other(OtherDtype::F8E5M2Fnuz), 8),
    ("F8_E8M0", Dtype::Other(OtherDtype::F8E8M0), 8),
    ("F6_E2M3", Dtype::Other(OtherDtype::F6E2M3), 6),
    ("F6_E3M2", Dtype::Other(OtherDtype::F6E3M2), 6),
    ("F4", Dtype::Other(OtherDtype::F4), 4),
    ("C64", Dtype::Other(OtherDtype::C64), 64),
];

impl Dtype {
    /// The type that a safetensors header calls `tag`.
    pub fn from_tag(tag: &str) -> Self {
        TAGS.iter()
            .find(|(known, ..)| *known == tag)
            .map_or(Dtype::Other(OtherDtype::Unknown), |(_, dtype, _)| *dtype)
    }

    /// How a safetensors header spells this type.
    pub fn tag(self) -> &'static str {
        TAGS.iter().find(|(_, dtype, _)| *dtype == self).map_or("unknown", |(tag, ..)| tag)
    }

    /// Bits per element; `None` for an unknown tag.
    pub fn bits(self) -> Option<u64> {
        TAGS.iter().find(|(_, dtype, _)| *dtype == self).map(|(.., bits)| *bits)
    }

    /// Whether this is F16, BF16 or F32: what a plain weight, a norm or a bias may be.
    pub fn is_weight_float(self) -> bool {
        matches!(self, Dtype::F32 | Dtype::F16 | Dtype::BF16)
    }

    /// Whether this is an 8-bit float, the mark of an FP8 checkpoint.
    pub fn is_float8(self) -> bool {
        matches!(
            self,
            Dtype::Other(
                OtherDtype::F8E4M3
                    | OtherDtype::F8E5M2
                    | OtherDtype::F8E4M3Fnuz
                    | OtherDtype::F8E5M2Fnuz
                    | OtherDtype::F8E8M0
            )
        )
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.tag())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tag_survives_a_round_trip() {
        for (tag, dtype, bits) in TAGS {
            assert_eq!(Dtype::from_tag(tag), *dtype);
            assert_eq!(dtype.tag(), *tag);
            assert_eq!(dtype.bits(), Some(*bits));
        }
        assert_eq!(Dtype::from_tag("f16"), Dtype::Other(OtherDtype::Unknown));
        assert_eq!(Dtype::Other(OtherDtype::Unknown).bits(), None);
    }
}
