//! Zero points of GPTQ: the conventions in which files hold them.

use serde_json::Value;

use super::repack::map_words;
use crate::promise::text;
use crate::words::{WordMatrix, Words};

/// How a file holds zero points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GptqZeros {
    /// Less one, as GPTQ began; a 4-bit 15 means 16.
    #[default]
    LessOne,
    /// Less one, and taken off whole words, so that a 0 has borrowed from the code above it.
    LessOneByWord,
    /// As they are: `gptq_v2`.
    AsTheyAre,
}

impl GptqZeros {
    /// The convention that a `quantization_config` names.
    pub fn of(config: &Value) -> Self {
        let is_v2 = |key: &str| text(config, &[key]).as_deref() == Some("gptq_v2");
        if is_v2("checkpoint_format") || is_v2("format") {
            return Self::AsTheyAre;
        }
        let is_gptqmodel =
            |name: &Value| name.as_str().is_some_and(|name| name.contains("gptqmodel"));
        let writer = config.get("meta").and_then(|meta| meta.get("quantizer"));
        let by_gptqmodel = match writer {
            Some(Value::Array(names)) => names.iter().any(is_gptqmodel),
            Some(name) => is_gptqmodel(name),
            None => false,
        };
        let asymmetric = config.get("sym").and_then(Value::as_bool) == Some(false);
        if by_gptqmodel && asymmetric { Self::LessOneByWord } else { Self::LessOne }
    }
}

/// Zero codes and what to add to each of them.
///
/// A stored maximum of 2, 3 or 8 bits can only be a 0 that wrapped, since no true zero point is larger.
pub(super) fn resolve(
    zeros: WordMatrix<'_>,
    bits: u8,
    stored: GptqZeros,
) -> Option<(Words<'_>, u8)> {
    let ones = match (stored, bits) {
        (GptqZeros::AsTheyAre, _) => return Some((zeros.into(), 0)),
        (GptqZeros::LessOne, 4) => return Some((zeros.into(), 1)),
        (_, 3) => {
            let add = move |out: &mut [u8]| add_one_to_thirds(zeros, out);
            return Some((Words::repacked(zeros.rows(), zeros.columns(), add)?, 0));
        }
        (_, 2) => 0x5555_5555,
        (_, 4) => 0x1111_1111,
        _ => 0x0101_0101u32,
    };
    let add = move |out: &mut [u8]| map_words(zeros, out, |word| word.wrapping_add(ones));
    Some((Words::repacked(zeros.rows(), zeros.columns(), add)?, 0))
}

/// Adds one to every 3-bit code of every row; 7 becomes 0.
fn add_one_to_thirds(zeros: WordMatrix<'_>, out: &mut [u8]) {
    let row_bytes = (zeros.columns() * 4).max(1);
    for (row, out) in out.chunks_exact_mut(row_bytes).enumerate() {
        for index in 0..zeros.columns() * 32 / 3 {
            let code = u16::from((zeros.code_along(row, index, 3) + 1) & 7);
            let (byte, shift) = (index * 3 / 8, index * 3 % 8);
            for (out, part) in out.iter_mut().skip(byte).zip((code << shift).to_le_bytes()) {
                *out |= part;
            }
        }
    }
}
