//! Weights as a recipe: the same tensors in Rust and Python without storing any of them.
//!
//! Included by tests with `#[path]`. The Python twin is `recipe.py`, which also explains the
//! formula; `recipe.json` pins both. Every value is exact in f16 and f32.

/// What a tensor is for, which decides the scale of its values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A linear whose rows are so long: about ±1/√fan_in.
    Linear { fan_in: usize },
    /// An embedding, or attention sinks: ±1.
    Embedding,
    /// A bias: ±1/4.
    Bias,
    /// A norm weight: `centre` ± 1/2; the centre is 0 in families that add 1 to it, else 1.
    Norm { centre: f32 },
}

impl Kind {
    /// The kind of the state-dict tensor `name`; `fan_in` matters only for linears.
    pub fn of(name: &str, fan_in: usize, norm_centre: f32) -> Self {
        const EMBEDDINGS: [&str; 5] =
            ["embed_tokens.weight", "tok_embeddings.weight", "wte.weight", "wpe.weight", "sinks"];
        if is_norm(name) {
            Self::Norm { centre: norm_centre }
        } else if EMBEDDINGS.iter().any(|ending| name.ends_with(ending)) {
            Self::Embedding
        } else if name.ends_with("bias") {
            Self::Bias
        } else {
            Self::Linear { fan_in }
        }
    }
}

fn is_norm(name: &str) -> bool {
    let last = name.strip_suffix(".weight").and_then(|base| base.rsplit('.').next());
    last.is_some_and(|last| last.contains("norm") || last.starts_with("ln"))
}

/// The first `len` elements of the state-dict tensor `name` (with its `.weight` or `.bias`).
pub fn values(name: &str, len: usize, kind: Kind) -> Vec<f32> {
    let seed = fnv1a64(name);
    let scale = |k: i16| match kind {
        Kind::Norm { centre } => centre + f32::from(k >> 1) / 1024.0,
        Kind::Embedding => f32::from(k) / 1024.0,
        Kind::Bias => f32::from(k) / 4096.0,
        Kind::Linear { fan_in } => {
            let bits = (usize::BITS - fan_in.leading_zeros()) as i32;
            f32::from(k) / 1024.0 * 2f32.powi(1 - bits / 2)
        }
    };
    (1..=len as u64).map(|i| scale(integer(seed, i))).collect()
}

/// Integer number `i` (from 1) of a tensor, in −1024 ..= 1023.
fn integer(seed: u64, i: u64) -> i16 {
    let mut z = seed.wrapping_add(i.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    (z >> 53) as i16 - 1024
}

fn fnv1a64(name: &str) -> u64 {
    name.bytes().fold(0xCBF2_9CE4_8422_2325, |digest, byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}
