//! How the paged cache stores keys and values, and how many bytes that takes.

/// Tokens per page. Fixed: page identity, attention spans and copies all count in it.
pub const PAGE_TOKENS: usize = 256;

/// Encoding of cached keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvFormat {
    /// IEEE binary32: nothing is lost, for measurements against full-precision references.
    F32,
    /// IEEE binary16.
    F16,
    /// 8-bit codes with a binary16 scale per 32 rotated elements.
    Q8,
    /// The upper byte of binary16: 5 bits of exponent and 2 of mantissa, rounded toward zero.
    Fp8,
    /// 8-bit keys and 4-bit values, known as Q6 by its average width. Where values are a part of
    /// the keys, everything is 8 bits.
    K8V4,
    /// 4-bit codes with a binary16 scale per 32 rotated elements.
    Q4,
}

impl KvFormat {
    /// Every format, widest first.
    pub const ALL: [KvFormat; 6] =
        [KvFormat::F32, KvFormat::F16, KvFormat::Q8, KvFormat::Fp8, KvFormat::K8V4, KvFormat::Q4];

    /// Name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            KvFormat::F32 => "fp32",
            KvFormat::F16 => "fp16",
            KvFormat::Q8 => "q8",
            KvFormat::Fp8 => "fp8",
            KvFormat::K8V4 => "q6",
            KvFormat::Q4 => "q4",
        }
    }

    /// The format of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|f| f.name() == name)
    }

    /// Bytes that `elements` of the keys of one token take.
    pub fn key_bytes(self, elements: usize) -> usize {
        let scales = 2 * elements.div_ceil(32);
        match self {
            KvFormat::F32 => 4 * elements,
            KvFormat::F16 => 2 * elements,
            KvFormat::Q8 | KvFormat::K8V4 => elements + scales,
            KvFormat::Fp8 => elements,
            KvFormat::Q4 => elements.div_ceil(2) + scales,
        }
    }

    /// Bytes that `elements` keys and as many values of one token take together.
    pub fn bytes(self, elements: usize) -> usize {
        let of_values = if self == KvFormat::K8V4 { KvFormat::Q4 } else { self };
        self.key_bytes(elements) + of_values.key_bytes(elements)
    }
}

/// Where the values of a layer are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvValues {
    /// Beside the keys, as wide as these.
    #[default]
    Stored,
    /// In the keys: their first so many elements, in layers of one key/value head. Nothing else is
    /// stored.
    InKeys(usize),
}

/// Cache geometry of one attention layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayer {
    /// Key/value heads.
    pub kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
    /// Where values are.
    pub values: KvValues,
}

impl KvLayer {
    /// A layer of keys and values of their own.
    pub const fn plain(kv_heads: usize, head_dim: usize) -> Self {
        Self { kv_heads, head_dim, values: KvValues::Stored }
    }

    /// Bytes that one token takes.
    pub fn bytes(&self, format: KvFormat) -> usize {
        let elements = self.kv_heads * self.head_dim;
        match self.values {
            KvValues::Stored => format.bytes(elements),
            KvValues::InKeys(_) => format.key_bytes(elements),
        }
    }
}

/// A paged cache to allocate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvSpec {
    /// Layers in model order.
    pub layers: Vec<KvLayer>,
    /// Encoding.
    pub format: KvFormat,
    /// Pages of [`PAGE_TOKENS`] tokens; page ids are `0..pages`.
    pub pages: usize,
}

impl KvSpec {
    /// Bytes one token takes over all layers.
    pub fn bytes_per_token(&self) -> usize {
        self.layers.iter().map(|layer| layer.bytes(self.format)).sum()
    }

    /// Bytes of the whole cache.
    pub fn bytes(&self) -> usize {
        self.bytes_per_token() * PAGE_TOKENS * self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_per_token_follow_the_formulas() {
        let spec = |format| KvSpec { layers: vec![KvLayer::plain(8, 128); 32], format, pages: 1 };
        let expected = [262_144, 131_072, 69_632, 65_536, 53_248, 36_864];
        for (format, bytes) in KvFormat::ALL.into_iter().zip(expected) {
            assert_eq!(spec(format).bytes_per_token(), bytes, "{}", format.name());
        }
    }

    #[test]
    fn values_in_keys_take_no_bytes_of_their_own() {
        let layer = KvLayer { kv_heads: 1, head_dim: 576, values: KvValues::InKeys(512) };
        let expected = [2304, 1152, 612, 576, 612, 324];
        assert_eq!(KvFormat::ALL.map(|format| layer.bytes(format)), expected);
    }

    #[test]
    fn names_round_trip() {
        for format in KvFormat::ALL {
            assert_eq!(KvFormat::from_name(format.name()), Some(format));
        }
    }
}
