//! The paged cache on the device: keys and values of all layers in pages of 256 tokens.
//!
//! Per layer a plane of keys and one of values, `[page][kv head][256 tokens][row]`, and for coded
//! formats their scales. `kernels/kv_code.cuh` says what a row holds.

use std::sync::atomic::{AtomicU64, Ordering};

use pagella_backend::{
    AttentionOp, BackendError, KvFormat, KvLayer, KvSpec, KvValues, PAGE_TOKENS, StepPlan,
};

use crate::device::{Device, KernelArgs, Launch};
use crate::memory::DeviceBuffer;

/// Elements that share a scale.
const SCALED: usize = 32;
/// Elements that are rotated together.
const ROTATION: usize = 64;
/// Largest head the kernels hold.
const HEAD_DIM_MAX: usize = 256;
/// Largest entry of latent attention, and how much of it may be value.
const ENTRY_MAX: usize = 576;
const RANK_MAX: usize = 512;
/// Blocks of threads per plane and move.
const COPY_BLOCKS: u32 = 8;
/// Most moves of one launch.
const MOVES_MAX: usize = 1 << 15;

/// How elements are stored, as kernels count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum KvCode {
    F16 = 0,
    Fp8 = 1,
    Q8 = 2,
    Q4 = 3,
}

impl KvCode {
    /// Bytes of one token of a head.
    fn row_bytes(self, head_dim: usize) -> usize {
        match self {
            KvCode::F16 => 2 * head_dim,
            KvCode::Fp8 | KvCode::Q8 => head_dim,
            KvCode::Q4 => head_dim / 2,
        }
    }

    pub(crate) fn is_scaled(self) -> bool {
        matches!(self, KvCode::Q8 | KvCode::Q4)
    }
}

/// Slots of equal size in every page and head.
struct Plane {
    buffer: DeviceBuffer,
    row_bytes: usize,
}

/// Keys and values of one layer.
pub(crate) struct LayerPages {
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) key_code: KvCode,
    pub(crate) value_code: KvCode,
    /// Where values are; if in the keys, planes of theirs are absent.
    pub(crate) place_of_values: KvValues,
    keys: Plane,
    key_scales: Option<Plane>,
    values: Option<Plane>,
    value_scales: Option<Plane>,
}

/// The cache of all layers.
pub struct CudaKv {
    /// Tells caches apart.
    pub(crate) id: u64,
    pages: usize,
    layers: Vec<LayerPages>,
    /// `PagePlane` of every plane, on the device.
    planes: DeviceBuffer,
    n_planes: usize,
}

/// `PagePlane` of `kernels/pages.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
struct PagePlane {
    base: u64,
    row_bytes: u32,
    kv_heads: u32,
}

/// `CopyPagesArgs` of `kernels/pages.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
struct CopyPagesArgs {
    planes: u64,
    moves: u64,
    tokens: u32,
    pad: u32,
}

// SAFETY: field for field the struct of the same name in `kernels/pages.cuh`.
unsafe impl KernelArgs for CopyPagesArgs {}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

fn size<T>(what: &'static str, expected: usize, found: usize) -> Result<T, BackendError> {
    Err(BackendError::Size { what, expected, found })
}

impl LayerPages {
    fn new(
        device: &Device,
        layer: &KvLayer,
        format: KvFormat,
        pages: usize,
    ) -> Result<Self, BackendError> {
        let KvLayer { kv_heads, head_dim, values: place_of_values } = *layer;
        let (key_code, value_code) = codes(format)?;
        if let KvValues::InKeys(rank) = place_of_values {
            expect_entry(kv_heads, head_dim, rank)?;
        }
        let is_stored = place_of_values == KvValues::Stored;
        let scaled = key_code.is_scaled();
        let fits =
            head_dim.is_multiple_of(SCALED) && (kv_heads * head_dim).is_multiple_of(ROTATION);
        if (is_stored && head_dim > HEAD_DIM_MAX) || (scaled && !fits) {
            return Err(unsupported(format, (kv_heads, head_dim), !is_stored));
        }
        let plane = |row_bytes: usize| {
            let what = "the cache";
            let bytes = pages.checked_mul(kv_heads * PAGE_TOKENS * row_bytes);
            let bytes = bytes.ok_or(BackendError::OutOfMemory { what, bytes: usize::MAX })?;
            Ok(Plane { buffer: device.zeroed(bytes, what)?, row_bytes })
        };
        let scales = || scaled.then(|| plane(2 * head_dim / SCALED)).transpose();
        Ok(LayerPages {
            kv_heads,
            head_dim,
            key_code,
            value_code,
            keys: plane(key_code.row_bytes(head_dim))?,
            key_scales: scales()?,
            place_of_values,
            values: is_stored.then(|| plane(value_code.row_bytes(head_dim))).transpose()?,
            value_scales: if is_stored { scales()? } else { None },
        })
    }

    /// In the order in which a page is read and written.
    fn planes(&self) -> impl Iterator<Item = &Plane> {
        let keys = std::iter::once(&self.keys).chain(&self.key_scales);
        keys.chain(&self.values).chain(&self.value_scales)
    }

    fn page_bytes(&self, plane: &Plane) -> usize {
        self.kv_heads * PAGE_TOKENS * plane.row_bytes
    }

    /// Addresses of keys, values, and their scales, or 0 where there are none.
    pub(crate) fn pointers(&self) -> [u64; 4] {
        let of = |plane: &Option<Plane>| plane.as_ref().map_or(0, |plane| plane.buffer.ptr());
        [self.keys.buffer.ptr(), of(&self.values), of(&self.key_scales), of(&self.value_scales)]
    }
}

fn codes(format: KvFormat) -> Result<(KvCode, KvCode), BackendError> {
    Ok(match format {
        KvFormat::F16 => (KvCode::F16, KvCode::F16),
        KvFormat::Fp8 => (KvCode::Fp8, KvCode::Fp8),
        KvFormat::Q8 => (KvCode::Q8, KvCode::Q8),
        KvFormat::K8V4 => (KvCode::Q8, KvCode::Q4),
        KvFormat::Q4 => (KvCode::Q4, KvCode::Q4),
        KvFormat::F32 => {
            return Err(BackendError::unsupported(
                "cuda",
                format!("a {} cache", format.name()),
                "tensor cores read keys and values as 16-bit numbers; use fp16",
            ));
        }
    })
}

fn unsupported(
    format: KvFormat,
    (kv_heads, head_dim): (usize, usize),
    is_latent: bool,
) -> BackendError {
    let name = format.name();
    BackendError::unsupported(
        "cuda",
        format!("a {name} cache for {kv_heads} heads of {head_dim} elements"),
        if !is_latent && head_dim > HEAD_DIM_MAX {
            format!("heads have at most {HEAD_DIM_MAX} elements; use the CPU")
        } else {
            format!(
                "quantised caches need heads of a multiple of {SCALED} elements, {ROTATION} in \
                 all; use fp16"
            )
        },
    )
}

/// Refuses entries of latent attention that the kernels do not hold.
pub(crate) fn expect_entry(
    kv_heads: usize,
    head_dim: usize,
    rank: usize,
) -> Result<(), BackendError> {
    if kv_heads != 1 || rank > head_dim {
        return size("values in keys", head_dim, kv_heads * rank);
    }
    if head_dim <= ENTRY_MAX && rank <= RANK_MAX {
        return Ok(());
    }
    Err(BackendError::unsupported(
        "cuda",
        format!("latent attention over entries of {head_dim} elements, {rank} of them values"),
        format!("at most {ENTRY_MAX} and {RANK_MAX} are; use --device cpu"),
    ))
}

impl CudaKv {
    pub(crate) fn new(device: &Device, spec: &KvSpec) -> Result<Self, BackendError> {
        let layer = |layer| LayerPages::new(device, layer, spec.format, spec.pages);
        let layers: Vec<LayerPages> =
            spec.layers.iter().map(layer).collect::<Result<_, BackendError>>()?;
        let mut planes = Vec::new();
        for layer in &layers {
            planes.extend(layer.planes().map(|plane| PagePlane {
                base: plane.buffer.ptr(),
                row_bytes: plane.row_bytes as u32,
                kv_heads: layer.kv_heads as u32,
            }));
        }
        Ok(CudaKv {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            pages: spec.pages,
            planes: device.upload(&planes, "the cache")?,
            n_planes: planes.len(),
            layers,
        })
    }

    /// The pages of a layer, checked against the caller's geometry.
    pub(crate) fn layer(&self, op: &AttentionOp) -> Result<&LayerPages, BackendError> {
        let Some(layer) = self.layers.get(op.layer) else {
            return size("cache layers", op.layer + 1, self.layers.len());
        };
        if layer.kv_heads != op.kv_heads {
            return size("cache heads", layer.kv_heads, op.kv_heads);
        }
        if layer.head_dim != op.head_dim {
            return size("cache head size", layer.head_dim, op.head_dim);
        }
        if layer.place_of_values != op.values {
            let in_keys = |values| match values {
                KvValues::Stored => 0,
                KvValues::InKeys(elements) => elements,
            };
            let found = in_keys(op.values);
            return size("values in cached keys", in_keys(layer.place_of_values), found);
        }
        Ok(layer)
    }

    /// Checks that every page of the plan exists.
    pub(crate) fn expect_pages(&self, plan: &StepPlan) -> Result<(), BackendError> {
        let largest = (0..plan.rows()).flat_map(|row| plan.pages(row)).copied().max();
        self.expect_page(largest.unwrap_or(0))
    }

    /// Checks that no two rows of the plan write to one page.
    pub(crate) fn expect_own_pages(&self, plan: &StepPlan) -> Result<(), BackendError> {
        let tails =
            (0..plan.rows()).flat_map(|row| &plan.pages(row)[plan.past(row) / PAGE_TOKENS..]);
        let mut written: Vec<u32> = tails.copied().collect();
        let expected = written.len();
        written.sort_unstable();
        written.dedup();
        if written.len() == expected {
            Ok(())
        } else {
            size("pages to write", expected, written.len())
        }
    }

    fn expect_page(&self, page: u32) -> Result<(), BackendError> {
        if (page as usize) < self.pages {
            return Ok(());
        }
        size("cache pages", page as usize + 1, self.pages)
    }

    /// Copies the first `tokens` tokens of pages, `(from, to)` one after the other, in all layers.
    pub(crate) fn copy(
        &self,
        device: &Device,
        moves: &[(u32, u32)],
        tokens: usize,
    ) -> Result<(), BackendError> {
        if tokens > PAGE_TOKENS {
            return size("tokens of a page", PAGE_TOKENS, tokens);
        }
        for &(from, to) in moves {
            self.expect_page(from.max(to))?;
        }
        let moves: Vec<[u32; 2]> =
            moves.iter().filter(|(from, to)| from != to).map(|&(from, to)| [from, to]).collect();
        let mut rest = &moves[..];
        while !rest.is_empty() {
            let n = independent(rest).min(MOVES_MAX);
            let list = device.upload(&rest[..n], "moves of pages")?;
            let args = CopyPagesArgs {
                planes: self.planes.ptr(),
                moves: list.ptr(),
                tokens: tokens as u32,
                pad: 0,
            };
            let grid = [COPY_BLOCKS, self.n_planes as u32, n as u32];
            device.launch(
                "pg_copy_pages",
                Launch { grid, threads: 256, shared_bytes: 0 },
                &args,
            )?;
            rest = &rest[n..];
        }
        Ok(())
    }

    /// Bytes of one page in all layers.
    pub(crate) fn page_bytes(&self) -> usize {
        let of = |layer: &LayerPages| -> usize {
            layer.planes().map(|plane| layer.page_bytes(plane)).sum()
        };
        self.layers.iter().map(of).sum()
    }

    /// Replaces `out` by the bytes of one page, plane by plane.
    pub(crate) fn read_page(
        &self,
        device: &Device,
        page: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), BackendError> {
        self.expect_page(page)?;
        out.clear();
        out.resize(self.page_bytes(), 0);
        let mut rest = &mut out[..];
        for layer in &self.layers {
            for plane in layer.planes() {
                let bytes = layer.page_bytes(plane);
                let (part, after) = rest.split_at_mut(bytes);
                device.read(&plane.buffer, page as usize * bytes, part)?;
                rest = after;
            }
        }
        Ok(())
    }

    /// Overwrites one page by what was read.
    pub(crate) fn write_page(
        &self,
        device: &Device,
        page: u32,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        self.expect_page(page)?;
        if bytes.len() != self.page_bytes() {
            return size("bytes of a page", self.page_bytes(), bytes.len());
        }
        let mut rest = bytes;
        for layer in &self.layers {
            for plane in layer.planes() {
                let bytes = layer.page_bytes(plane);
                let (part, after) = rest.split_at(bytes);
                device.write(&plane.buffer, page as usize * bytes, part)?;
                rest = after;
            }
        }
        Ok(())
    }
}

/// How many moves, from the first on, can run at the same time and still mean one after the other.
fn independent(moves: &[[u32; 2]]) -> usize {
    let mut sources = std::collections::HashSet::new();
    let mut targets = std::collections::HashSet::new();
    for (i, [from, to]) in moves.iter().enumerate() {
        if targets.contains(from) || targets.contains(to) || sources.contains(to) {
            return i;
        }
        sources.insert(*from);
        targets.insert(*to);
    }
    moves.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_that_depend_on_each_other_are_kept_apart() {
        assert_eq!(independent(&[[0, 1], [2, 3], [0, 4]]), 3);
        assert_eq!(independent(&[[0, 1], [1, 2]]), 1, "the source was written");
        assert_eq!(independent(&[[0, 1], [2, 1]]), 1, "the target was written");
        assert_eq!(independent(&[[0, 1], [2, 0]]), 1, "the target was read");
        assert_eq!(independent(&[[0, 1]]), 1);
    }
}
