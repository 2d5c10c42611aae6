//! The codebooks: from the 16-bit state of a weight to its binary16 value.
//!
//! Integers wrap at 32 bits. Every intermediate result is exact in f32, so one conversion at the end
//! is the one rounding there is.

use half::f16;

/// Multiplier of [`Codebook::Mcg`] in every file since the format settled.
pub const MCG_MULTIPLIER: u32 = 0xCBAC_1FED;
/// Multiplier of [`Codebook::Mul1`] in every file since the format settled.
pub const MUL1_MULTIPLIER: u32 = 0x83DC_D12D;

const LCG_MULTIPLIER: u32 = 89_226_354;
const LCG_ADDEND: u32 = 64_248_484;
const HALVES_KEPT: u32 = 0x8FFF_8FFF;
const HALVES_FLIPPED: u32 = 0x3B60_3B60;
/// Step of [`Codebook::Mul1`], binary16 0x1EEE.
const SUM_STEP: f32 = 1774.0 / 262_144.0;
/// Its value at a byte sum of −1024, binary16 0xC931.
const SUM_ORIGIN: f32 = -10.382_812_5;

/// How states become values; chosen per tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codebook {
    /// A multiplication and an addition, then the sum of two halves.
    ThreeInst,
    /// A multiplication by this, then the sum of two halves.
    Mcg(u32),
    /// A multiplication by this, then the sum of four bytes.
    Mul1(u32),
}

impl Codebook {
    /// What the state is multiplied with, and what is added.
    pub fn factors(self) -> (u32, u32) {
        match self {
            Codebook::ThreeInst => (LCG_MULTIPLIER, LCG_ADDEND),
            Codebook::Mcg(multiplier) | Codebook::Mul1(multiplier) => (multiplier, 0),
        }
    }

    /// The value of a state.
    pub fn value(self, state: u16) -> f16 {
        let (multiplier, addend) = self.factors();
        let x = u32::from(state).wrapping_mul(multiplier).wrapping_add(addend);
        f16::from_f32(match self {
            Codebook::Mul1(_) => {
                let sum: u32 = x.to_le_bytes().into_iter().map(u32::from).sum();
                (1024 + sum) as f32 * SUM_STEP + SUM_ORIGIN
            }
            Codebook::ThreeInst | Codebook::Mcg(_) => {
                let x = x & HALVES_KEPT ^ HALVES_FLIPPED;
                let half = |bits: u32| f16::from_bits(bits as u16).to_f32();
                half(x) + half(x >> 16)
            }
        })
    }

    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Codebook::ThreeInst => "3inst",
            Codebook::Mcg(_) => "mcg",
            Codebook::Mul1(_) => "mul1",
        }
    }

    /// Whether the multiplier is not the one that the format settled on.
    pub fn is_experimental(self) -> bool {
        match self {
            Codebook::ThreeInst => false,
            Codebook::Mcg(multiplier) => multiplier != MCG_MULTIPLIER,
            Codebook::Mul1(multiplier) => multiplier != MUL1_MULTIPLIER,
        }
    }
}
