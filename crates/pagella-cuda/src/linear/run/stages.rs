//! How many warps and stages of weights a tile kernel gets, by the shared memory of the chip.
//!
//! Neither changes a result. A block of more warps shares its inputs more widely; more stages hide
//! more of the way from memory. Two are enough where a tile has many tokens, because multiplying then
//! takes several times as long as fetching.

use pagella_backend::BackendError;

use crate::limits::Limits;

/// Shared memory that the tile kernels declare for themselves, at most.
const SHARED_STATIC: u32 = 512;

/// A tile kernel: tokens of a tile, stages in flight, names for dense linears and for experts.
struct TileKernel {
    tokens: u32,
    depth: u32,
    dense: &'static str,
    experts: &'static str,
}

/// Deeper first.
const KERNELS: &[TileKernel] = &[
    TileKernel { tokens: 8, depth: 4, dense: "pg_tile_8", experts: "pg_moe_tile_8" },
    TileKernel { tokens: 16, depth: 4, dense: "pg_tile_16", experts: "pg_moe_tile_16" },
    TileKernel { tokens: 32, depth: 4, dense: "pg_tile_32", experts: "pg_moe_tile_32" },
    TileKernel { tokens: 64, depth: 4, dense: "pg_tile_64", experts: "pg_moe_tile_64" },
    TileKernel { tokens: 64, depth: 2, dense: "pg_tile_64_2", experts: "pg_moe_tile_64_2" },
];

/// What a launch of tiles is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stages {
    /// Kernel for dense linears.
    pub(crate) dense: &'static str,
    /// Kernel for linears of experts.
    pub(crate) experts: &'static str,
    /// Warps of a block, one strip each.
    pub(crate) warps: u32,
    /// Dynamic shared memory.
    pub(crate) shared_bytes: u32,
}

/// What a stage and the directory take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TileShape {
    /// Tokens of a tile: 8, 16, 32 or 64.
    pub(crate) tokens: u32,
    /// Bytes of the largest chunk of a strip.
    pub(crate) slot_bytes: u32,
    /// Chunks of a strip.
    pub(crate) chunks: u32,
}

impl TileShape {
    /// The deepest kernel with the first of these numbers of warps that fits at all.
    pub(crate) fn stages(&self, limits: &Limits, warps: &[u32]) -> Result<Stages, BackendError> {
        let of_tokens = || KERNELS.iter().filter(|kernel| kernel.tokens == self.tokens);
        let ways = warps.iter().flat_map(|warps| of_tokens().map(|kernel| (*warps, kernel)));
        let fitting = ways.map(|(warps, kernel)| (warps, kernel, self.bytes(warps, kernel.depth)));
        let most = u64::from(limits.shared_bytes_max.saturating_sub(SHARED_STATIC));
        let found = fitting.into_iter().find(|(.., bytes)| *bytes <= most);
        let (warps, kernel, bytes) = found.ok_or_else(|| {
            BackendError::unsupported(
                "cuda",
                format!("a linear of {} chunks of {} bytes", self.chunks, self.slot_bytes),
                format!("it does not fit {} bytes of shared memory", limits.shared_bytes_max),
            )
        })?;
        let shared_bytes = bytes as u32;
        Ok(Stages { dense: kernel.dense, experts: kernel.experts, warps, shared_bytes })
    }

    fn bytes(&self, warps: u32, depth: u32) -> u64 {
        let stage = u64::from(warps) * u64::from(self.slot_bytes) + 256 * u64::from(self.tokens);
        u64::from(depth) * stage + 16 * u64::from(self.chunks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest chunk that there is, in bytes.
    const SLOT_MAX: u32 = 208 * 16;

    fn limits(shared_bytes_max: u32) -> Limits {
        Limits { capability: (8, 6), sms: 82, shared_bytes_max }
    }

    #[test]
    fn every_shape_of_a_model_fits_the_smallest_chip() {
        // Up to 53,248 features, the most that a known model has, in the smallest chunks.
        for (tokens, warps) in [(8, 4), (16, 4), (32, 2), (64, 8)] {
            for slot_bytes in [1024, 2112, 2624, 3136, SLOT_MAX] {
                for chunks in [16, 112, 224, 512] {
                    let shape = TileShape { tokens, slot_bytes, chunks };
                    let stages = shape.stages(&limits(101_376), &[warps]).unwrap();
                    assert!(stages.shared_bytes + SHARED_STATIC <= 101_376, "{shape:?}");
                }
            }
        }
    }

    #[test]
    fn more_shared_memory_means_more_stages() {
        let shape = TileShape { tokens: 64, slot_bytes: 2112, chunks: 32 };
        let chosen = |bytes| shape.stages(&limits(bytes), &[8, 4]).unwrap().dense;
        assert_eq!(chosen(232_448), "pg_tile_64");
        assert_eq!(chosen(166_912), "pg_tile_64");
        assert_eq!(chosen(101_376), "pg_tile_64_2");
        assert!(shape.stages(&limits(49_152), &[8]).is_err());
    }
}
