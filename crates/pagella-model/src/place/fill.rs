//! Filling devices in their order, for a cache of a given length.
//!
//! What neighbouring layers take never shrinks when a layer is added. So if any cut fits, the one that
//! gives every device as much as it holds does, and what it leaves for the last device is least.

use std::ops::Range;

use super::plan::Room;
use super::sizes::PartSizes;

/// What a device takes for some neighbouring parts.
#[derive(Clone, Debug, Default)]
pub(super) struct Load {
    /// Of the model's parts: layers in order, the first with the embedding, and the head at the end.
    pub parts: Range<usize>,
    pub weights_bytes: u64,
    /// Of one page.
    page_bytes: u64,
    /// Which shapes are among the layers.
    shapes: Vec<bool>,
    shapes_bytes: u64,
    shared_bytes: u64,
    head_scratch_bytes: u64,
}

impl Load {
    fn starting_at(part: usize) -> Self {
        Load { parts: part..part, ..Load::default() }
    }

    /// With the next part.
    fn push(&mut self, sizes: &PartSizes) {
        let part = self.parts.end;
        self.parts.end += 1;
        if part == 0 {
            self.add_weights(sizes.embedding_bytes);
        }
        let Some(layer) = sizes.layers.get(part) else {
            self.add_weights(sizes.head_bytes);
            self.head_scratch_bytes = sizes.head_scratch_bytes;
            return;
        };
        self.add_weights(layer.weights_bytes);
        self.page_bytes = self.page_bytes.saturating_add(layer.page_bytes);
        self.shared_bytes = self.shared_bytes.max(layer.shared_bytes);
        self.shapes.resize(sizes.shapes_bytes.len().max(self.shapes.len()), false);
        if let Some(known) = self.shapes.get_mut(layer.shape)
            && !std::mem::replace(known, true)
        {
            self.shapes_bytes = self.shapes_bytes.saturating_add(sizes.shapes_bytes[layer.shape]);
        }
    }

    fn add_weights(&mut self, bytes: u64) {
        self.weights_bytes = self.weights_bytes.saturating_add(bytes);
    }

    /// Whether nothing of the model is there.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Keys and values.
    pub fn cache_bytes(&self, pages: u64) -> u64 {
        self.page_bytes.saturating_mul(pages)
    }

    /// Activations, and what steps need besides.
    pub fn scratch_bytes(&self, sizes: &PartSizes, pages: u64) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let rope = sizes.rope_page_bytes.saturating_mul(pages.min(sizes.rope_pages_max));
        [self.shapes_bytes, self.shared_bytes, self.head_scratch_bytes, rope]
            .into_iter()
            .fold(sizes.stream_bytes, u64::saturating_add)
    }

    /// All of it.
    fn bytes(&self, sizes: &PartSizes, pages: u64) -> u64 {
        let cache = self.cache_bytes(pages);
        self.weights_bytes.saturating_add(cache).saturating_add(self.scratch_bytes(sizes, pages))
    }
}

/// Devices with their loads.
#[derive(Clone, Debug)]
pub(super) struct Filled {
    /// One per device.
    pub loads: Vec<Load>,
    /// The device that has not enough, and how much it lacks.
    pub over: Option<(usize, u64)>,
}

/// Gives every device as much as it holds with a cache of `pages`, and the last one the rest.
/// `boundary`: the part with which the last device begins, whatever others could hold.
pub(super) fn fill(rooms: &[Room<'_>], pages: u64, boundary: Option<usize>) -> Filled {
    let parts = rooms.first().map_or(0, |room| room.sizes.layers.len() + 1);
    let (last, mut at) = (rooms.len().saturating_sub(1), 0);
    let mut filled = Filled { loads: Vec::with_capacity(rooms.len()), over: None };
    for (index, room) in rooms.iter().enumerate() {
        let end = if index < last { boundary.unwrap_or(parts) } else { parts };
        // Who is the last that may take a part takes it, so that what is missing can be told.
        let must = index == last || (boundary.is_some() && index + 1 == last);
        let have = room.usable_bytes(pages);
        let mut load = Load::starting_at(at);
        while load.parts.end < end {
            let mut more = load.clone();
            more.push(room.sizes);
            if !must && have.is_none_or(|have| more.bytes(room.sizes, pages) > have) {
                break;
            }
            load = more;
        }
        at = load.parts.end;
        let taken = if load.is_empty() { 0 } else { load.bytes(room.sizes, pages) };
        let lacks = taken.saturating_sub(have.unwrap_or(0)).max(room.lacks_beside(pages));
        if lacks > 0 && filled.over.is_none() {
            filled.over = Some((index, lacks));
        }
        filled.loads.push(load);
    }
    filled
}
