//! `Placement`: a cut of the model over devices, and the longest cache that goes with it.

use std::ops::Range;

use pagella_backend::PAGE_TOKENS;

use super::fill::{Filled, fill};
use super::sizes::PartSizes;

/// A device with what a plan may use of it.
#[derive(Clone, Debug)]
pub struct Room<'a> {
    /// Its name, for people.
    pub name: String,
    /// Memory that is free there, or that may be used.
    pub free_bytes: u64,
    /// What stays free of it.
    pub reserve_bytes: u64,
    /// What else goes there.
    pub beside: Beside,
    /// What parts of the model take there.
    pub sizes: &'a PartSizes,
}

/// What lies on a device beside the parts of the model, such as a whole draft model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// Weights.
    pub weights_bytes: u64,
    /// Activations.
    pub scratch_bytes: u64,
    /// Of its own cache, which is as long as that of the model.
    pub page_bytes: u64,
}

/// How long a cache may be, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagesWanted {
    /// At least.
    pub least: u64,
    /// At most, if there is room.
    pub most: u64,
}

/// What goes to the last device of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tail {
    /// What the others have no room for, so that the cache is as long as it can be.
    #[default]
    Rest,
    /// So many of the last layers, and with them the head.
    Layers(usize),
    /// As few layers as make the rest fit with the least cache.
    Fewest,
}

/// A cut that fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Every device of the list, in its order.
    pub parts: Vec<PlacedPart>,
    /// Tokens of the cache.
    pub cache_tokens: usize,
}

/// What goes to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedPart {
    /// The device.
    pub name: String,
    /// Layers; may be none.
    pub layers: Range<usize>,
    /// The embedding is there.
    pub embeds: bool,
    /// The head is there.
    pub has_head: bool,
    /// A draft model is there.
    pub drafts: bool,
    /// Weights, those of a draft model included.
    pub weights_bytes: u64,
    /// Keys and values.
    pub cache_bytes: u64,
    /// Activations, and what steps need besides.
    pub scratch_bytes: u64,
    /// Memory of the device that could be used.
    pub free_bytes: u64,
    /// What stays free of it in any case.
    pub reserve_bytes: u64,
}

/// No cut fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// The device on which the rest does not fit.
    pub device: String,
    /// With so much more memory there it would.
    pub missing_bytes: u64,
    /// It and those before it, as far as they may take anything.
    pub devices: Vec<String>,
    /// Tokens of the least cache.
    pub cache_tokens: usize,
    /// The longest cache that would fit; 0 if none does.
    pub fitting_tokens: usize,
}

impl Room<'_> {
    /// What parts of the model may take; `None` if what lies beside them is too much already.
    pub(super) fn usable_bytes(&self, pages: u64) -> Option<u64> {
        self.own_bytes().checked_sub(self.beside.bytes(pages))
    }

    /// How much is missing for what lies beside the model.
    pub(super) fn lacks_beside(&self, pages: u64) -> u64 {
        self.beside.bytes(pages).saturating_sub(self.own_bytes())
    }

    fn own_bytes(&self) -> u64 {
        self.free_bytes.saturating_sub(self.reserve_bytes)
    }
}

impl Beside {
    fn bytes(&self, pages: u64) -> u64 {
        let Beside { weights_bytes, scratch_bytes, page_bytes } = *self;
        weights_bytes.saturating_add(scratch_bytes).saturating_add(page_bytes.saturating_mul(pages))
    }
}

impl PlacedPart {
    /// Whether a part of the model is there.
    pub fn is_used(&self) -> bool {
        self.has_head || !self.layers.is_empty()
    }

    /// Everything that goes there.
    pub fn bytes(&self) -> u64 {
        self.weights_bytes.saturating_add(self.cache_bytes).saturating_add(self.scratch_bytes)
    }

    /// What stays free, the reserve included.
    pub fn left_bytes(&self) -> u64 {
        self.free_bytes.saturating_sub(self.bytes())
    }

    /// What is there, in words: `embedding, layers 0–11` or `layer 12, head`.
    pub fn words(&self) -> String {
        let layers = match (self.layers.len(), self.layers.start) {
            (0, _) => None,
            (1, first) => Some(format!("layer {first}")),
            (_, first) => Some(format!("layers {first}–{}", self.layers.end - 1)),
        };
        let words = [
            self.embeds.then(|| "embedding".to_owned()),
            layers,
            self.has_head.then(|| "head".to_owned()),
            self.drafts.then(|| "draft model".to_owned()),
        ];
        let words: Vec<String> = words.into_iter().flatten().collect();
        if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
    }
}

/// Cuts a model over `rooms`, in their order; all know sizes of the same model.
pub fn place(rooms: &[Room<'_>], pages: PagesWanted, tail: Tail) -> Result<Placement, NoRoom> {
    let layers = rooms.first().map_or(0, |room| room.sizes.layers.len());
    // The part with which the last device begins if it takes so many layers.
    let boundary_of = |n: usize| if n == 0 { layers + 1 } else { layers.saturating_sub(n) };
    let boundary = match tail {
        Tail::Rest => None,
        Tail::Layers(n) => Some(boundary_of(n)),
        Tail::Fewest => {
            let holds = |n: &usize| {
                let over = fill(rooms, pages.least, Some(boundary_of(*n))).over;
                over.is_none_or(|(device, _)| device + 1 == rooms.len())
            };
            Some(boundary_of((0..=layers).find(holds).unwrap_or(layers)))
        }
    };
    let at = |pages| fill(rooms, pages, boundary);
    let fits = |pages| at(pages).over.is_none();
    if let Some(over) = at(pages.least).over {
        // What is missing is not asked of devices at the end that were to take nothing.
        let able = match (boundary, rooms.iter().rposition(|room| room.own_bytes() > 0)) {
            (None, Some(last)) => &rooms[..=last],
            _ => rooms,
        };
        let (device, missing_bytes) = fill(able, pages.least, boundary).over.unwrap_or(over);
        let could = able.iter().take(device + 1).filter(|room| room.own_bytes() > 0);
        let fitting = if fits(1) { largest(1, pages.least, fits) } else { 0 };
        return Err(NoRoom {
            device: rooms.get(device).map(|room| room.name.clone()).unwrap_or_default(),
            missing_bytes,
            devices: could.map(|room| room.name.clone()).collect(),
            cache_tokens: tokens_of(pages.least),
            fitting_tokens: tokens_of(fitting),
        });
    }
    let pages = largest(pages.least, pages.most.max(pages.least), fits);
    Ok(placement(rooms, &at(pages), pages, layers))
}

/// The largest number from `low`, which fits, to `high` that fits.
fn largest(mut low: u64, mut high: u64, fits: impl Fn(u64) -> bool) -> u64 {
    if fits(high) {
        return high;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        *(if fits(middle) { &mut low } else { &mut high }) = middle;
    }
    low
}

fn tokens_of(pages: u64) -> usize {
    usize::try_from(pages).unwrap_or(usize::MAX).saturating_mul(PAGE_TOKENS)
}

fn placement(rooms: &[Room<'_>], filled: &Filled, pages: u64, layers: usize) -> Placement {
    let part = |(room, load): (&Room<'_>, &super::fill::Load)| {
        let Beside { weights_bytes, scratch_bytes, page_bytes } = room.beside;
        PlacedPart {
            name: room.name.clone(),
            layers: load.parts.start.min(layers)..load.parts.end.min(layers),
            embeds: load.parts.start == 0 && !load.is_empty(),
            has_head: load.parts.contains(&layers),
            drafts: room.beside != Beside::default(),
            weights_bytes: load.weights_bytes.saturating_add(weights_bytes),
            cache_bytes: load.cache_bytes(pages).saturating_add(page_bytes.saturating_mul(pages)),
            scratch_bytes: load.scratch_bytes(room.sizes, pages).saturating_add(scratch_bytes),
            free_bytes: room.free_bytes,
            reserve_bytes: room.reserve_bytes,
        }
    };
    let parts = rooms.iter().zip(&filled.loads).map(part).collect();
    Placement { parts, cache_tokens: tokens_of(pages) }
}
