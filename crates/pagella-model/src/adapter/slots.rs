//! What a stage keeps for adapters: slots beside every linear that one of them changes.

use pagella_backend::{Adapted, AdapterSlots, Backend, BackendError, ExpertSlots, LowRank};

use super::Part;
use super::bind::{AdapterPart, Change};
use super::place::Place;
use crate::error::ModelError;
use crate::stage::Stage;

/// Everything that adapters change in a stage.
pub(crate) struct StageSlots<B: Backend> {
    /// One per layer of the stage.
    layers: Vec<LayerSlots<B>>,
    head: Option<B::Slots>,
    /// Embeddings in the place of the model's own, by slot.
    tables: Vec<(u32, B::Table, u64)>,
}

/// What adapters add to the linears of a layer.
pub(crate) struct LayerSlots<B: Backend> {
    parts: [Option<B::Slots>; Part::COUNT],
    /// Gate, up and down of every routed expert; empty while none is changed.
    experts: Vec<[Option<B::Slots>; 3]>,
}

impl<B: Backend> Default for LayerSlots<B> {
    fn default() -> Self {
        Self { parts: std::array::from_fn(|_| None), experts: Vec::new() }
    }
}

impl<B: Backend> StageSlots<B> {
    /// For so many layers, with nothing in it.
    pub(crate) fn new(layers: usize) -> Self {
        let layers = (0..layers).map(|_| LayerSlots::default()).collect();
        Self { layers, head: None, tables: Vec::new() }
    }

    /// The slots of a layer of the stage.
    pub(crate) fn layer(&self, index: usize) -> Option<&LayerSlots<B>> {
        self.layers.get(index)
    }

    /// The slots of the head, if an adapter ever changed it.
    pub(crate) fn head(&self) -> Option<&B::Slots> {
        self.head.as_ref()
    }

    /// Embeddings of adapters that bring one.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (u32, &B::Table)> {
        self.tables.iter().map(|(slot, table, _)| (*slot, table))
    }

    /// Bytes of everything.
    pub(crate) fn bytes(&self) -> u64 {
        let slots = self.all().map(|slots| slots.bytes() as u64).sum::<u64>();
        slots + self.tables.iter().map(|(.., bytes)| bytes).sum::<u64>()
    }

    fn all(&self) -> impl Iterator<Item = &B::Slots> {
        let layers = self
            .layers
            .iter()
            .flat_map(|layer| layer.parts.iter().chain(layer.experts.iter().flatten()).flatten());
        layers.chain(&self.head)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut B::Slots> {
        let layers = self.layers.iter_mut().flat_map(|layer| {
            layer.parts.iter_mut().chain(layer.experts.iter_mut().flatten()).flatten()
        });
        layers.chain(&mut self.head)
    }

    /// Where the slots of a linear are or go to; `layer` counts from the stage's first.
    fn entry(&mut self, place: Place, first_layer: usize) -> Option<&mut Option<B::Slots>> {
        let index = |layer: usize| layer.checked_sub(first_layer);
        match place {
            Place::Head => Some(&mut self.head),
            Place::Layer { layer, part } => {
                self.layers.get_mut(index(layer)?)?.parts.get_mut(part as usize)
            }
            Place::Expert { layer, expert, part } => {
                let experts = &mut self.layers.get_mut(index(layer)?)?.experts;
                if experts.len() <= expert {
                    experts.resize_with(expert + 1, || [None, None, None]);
                }
                experts.get_mut(expert)?.get_mut(part)
            }
        }
    }
}

impl<B: Backend> LayerSlots<B> {
    /// What is added inside the experts of the layer; `None`: nothing.
    pub(crate) fn experts(&self) -> Option<ExpertSlots<'_, B>> {
        let router = self.parts[Part::Router as usize].as_ref();
        let experts = &self.experts[..];
        (router.is_some() || !experts.is_empty()).then_some(ExpertSlots { router, experts })
    }

    /// The outputs that adapters change, of these parts.
    pub(crate) fn adapted<'a, const N: usize>(
        &'a self,
        outputs: [(Part, Option<&'a mut B::Tensor>); N],
    ) -> Vec<Adapted<'a, B>> {
        let adapted = |(part, out): (Part, Option<&'a mut B::Tensor>)| {
            Some(Adapted { slots: self.parts[part as usize].as_ref()?, out: out? })
        };
        outputs.into_iter().filter_map(adapted).collect()
    }
}

impl<B: Backend> Stage<B> {
    /// Puts a part of an adapter into a slot, if it belongs to this stage. The first stage embeds,
    /// the last has the head.
    pub(crate) fn fill_adapter(
        &mut self,
        slot: u32,
        part: &AdapterPart,
        is_first: bool,
        is_last: bool,
    ) -> Result<(), ModelError> {
        self.expect_supported(part)?;
        match &part.change {
            Change::LowRank(place, pair) => {
                let range = self.range();
                let is_own = match *place {
                    Place::Head => is_last,
                    Place::Layer { layer, .. } | Place::Expert { layer, .. } => {
                        range.contains(&layer)
                    }
                };
                if is_own {
                    self.slots(*place, pair)?.fill(slot, pair)?;
                }
            }
            Change::Head(linear) if is_last => {
                let linear = self.backend.linear(&linear.view())?;
                self.slots_of(Place::Head, part.shape())?.replace(slot, linear)?;
            }
            Change::Embedding(source) if is_first => {
                let table = self.backend.table(source.clone())?;
                self.recordings = B::Recordings::default();
                self.adapters.tables.retain(|(other, ..)| *other != slot);
                self.adapters.tables.push((slot, table, part.bytes()));
            }
            Change::Head(_) | Change::Embedding(_) => {}
        }
        Ok(())
    }

    /// Refuses what the backend would refuse in the middle of a step.
    fn expect_supported(&self, part: &AdapterPart) -> Result<(), BackendError> {
        let what = match &part.change {
            Change::LowRank(Place::Expert { .. }, _)
            | Change::LowRank(Place::Layer { part: Part::Router, .. }, _)
                if !B::Slots::IN_EXPERTS =>
            {
                "adapters inside experts"
            }
            Change::Embedding(_) if !B::Slots::REPLACES_TABLES => {
                "adapters with an embedding of their own"
            }
            _ => return Ok(()),
        };
        let hint = "merge the adapter into the model, or use another backend, e.g. --device cpu";
        Err(BackendError::unsupported(self.backend.name(), what, hint))
    }

    /// Empties a slot.
    pub(crate) fn clear_adapter(&mut self, slot: u32) -> Result<(), ModelError> {
        let before = self.adapters.tables.len();
        self.adapters.tables.retain(|(other, ..)| *other != slot);
        if self.adapters.tables.len() != before {
            self.recordings = B::Recordings::default();
        }
        let backend = &self.backend;
        let cleared = self.adapters.all_mut().map(|slots| slots.clear(backend, slot));
        // All of them, whatever happens to one.
        let failures: Vec<BackendError> = cleared.filter_map(Result::err).collect();
        failures.into_iter().next().map_or(Ok(()), |error| Err(error.into()))
    }

    fn slots(&mut self, place: Place, pair: &LowRank) -> Result<Filling<'_, B>, ModelError> {
        self.slots_of(place, (pair.in_features, pair.out_features))
    }

    /// The slots of a linear, made if there are none. Recorded steps with adapters know nothing of new ones.
    fn slots_of(
        &mut self,
        place: Place,
        (in_features, out_features): (usize, usize),
    ) -> Result<Filling<'_, B>, ModelError> {
        let first_layer = self.range().start;
        let Self { backend, adapters, recordings, .. } = self;
        let size = BackendError::Size { what: "linears of the stage", expected: 1, found: 0 };
        let entry = adapters.entry(place, first_layer).ok_or(size)?;
        let slots = match entry {
            Some(slots) => slots,
            None => {
                B::forget_adapted(recordings);
                entry.insert(B::Slots::new(backend, in_features, out_features)?)
            }
        };
        Ok(Filling { backend, slots })
    }
}

/// Slots with the backend that they belong to.
struct Filling<'a, B: Backend> {
    backend: &'a B,
    slots: &'a mut B::Slots,
}

impl<B: Backend> Filling<'_, B> {
    fn fill(self, slot: u32, pair: &LowRank) -> Result<(), BackendError> {
        self.slots.fill(self.backend, slot, pair)
    }

    fn replace(self, slot: u32, linear: B::Linear) -> Result<(), BackendError> {
        self.slots.replace(self.backend, slot, linear)
    }
}
