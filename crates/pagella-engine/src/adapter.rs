//! Adapters over time: which are resident, under which names, and who still needs them.
//!
//! An [`Adapter`] is a handle. Whoever holds one, a job above all, keeps the adapter in its slot,
//! also after it was unloaded: that takes its name away, and the slot is emptied between two steps
//! when the last handle is gone; the engine's thread is told then, so that it need not be busy. So a
//! load that ends half-way, for whatever reason, leaves nothing. Every load has a number of its own,
//! which never comes back: pages of the cache are told apart by it.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use pagella_backend::{ADAPTER_SLOTS_MAX, AdapterUse, ROW_ADAPTERS_MAX};
use pagella_model::{AdapterPart, BoundAdapter};

use crate::{EngineError, Generator};

/// Largest magnitude of the scale of an adapter in a job.
const SCALE_MAX: f32 = 1024.0;

/// Bytes of parts that are put into place between two steps.
const BATCH_BYTES: u64 = 2 << 20;

/// A resident adapter of one engine; clones are the same one. It stays until the last is dropped.
#[derive(Clone)]
pub struct Adapter(Arc<Resident>);

struct Resident {
    name: String,
    slot: u32,
    /// Of the load.
    serial: u64,
    bytes: u64,
    replaces_weights: bool,
    engine: EngineId,
    gone: Gone,
}

impl Drop for Resident {
    fn drop(&mut self) {
        if let Some(told) = self.gone.0.get() {
            told();
        }
    }
}

/// Whom to tell that nobody holds some adapter any more; nobody unless set.
#[derive(Clone, Default)]
struct Gone(Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>);

/// What tells engines apart.
#[derive(Clone, Default)]
pub(crate) struct EngineId(Arc<u8>);

impl PartialEq for EngineId {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Adapter {
    /// The name it was loaded under.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Bytes of its values.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }
}

impl PartialEq for Adapter {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Adapter({:?})", self.0.name)
    }
}

/// Adapters of jobs that say nothing about them.
#[derive(Default)]
pub(crate) struct DefaultAdapters(Mutex<Vec<(Adapter, f32)>>);

impl DefaultAdapters {
    pub fn get(&self) -> Vec<(Adapter, f32)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set(&self, adapters: Vec<(Adapter, f32)>, engine: &EngineId) -> Result<(), EngineError> {
        checked(&adapters, engine)?;
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *held, adapters);
        drop(held);
        // Dropping the last handle of an adapter tells others.
        drop(before);
        Ok(())
    }

    /// Leaves an adapter out from now on.
    fn remove(&self, adapter: &Adapter) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|(other, _)| other != adapter);
    }
}

/// The adapters of a job as its rows have them, with what tells pages apart: the number of each load
/// and its scale. An adapter with scale 0 is left out.
pub(crate) fn checked(
    adapters: &[(Adapter, f32)],
    engine: &EngineId,
) -> Result<(Vec<AdapterUse>, Vec<[u8; 12]>), EngineError> {
    let wrong = |name: &str, problem| EngineError::BadAdapter { name: name.to_owned(), problem };
    let used: Vec<&(Adapter, f32)> = adapters.iter().filter(|(_, scale)| *scale != 0.0).collect();
    for (index, (adapter, scale)) in used.iter().enumerate() {
        let problem = if index >= ROW_ADAPTERS_MAX {
            "is one more than a job can have: leave some out"
        } else if scale.is_nan() || scale.abs() > SCALE_MAX {
            "has a scale that is not a number up to 1024: correct it"
        } else if used[..index].iter().any(|(other, _)| other == adapter) {
            "is named twice: add the scales up"
        } else if adapter.0.engine != *engine {
            "belongs to another model: load it for this one"
        } else {
            continue;
        };
        return Err(wrong(adapter.name(), problem));
    }
    let mut replacing = used.iter().filter(|(adapter, _)| adapter.0.replaces_weights).skip(1);
    if let Some((adapter, _)) = replacing.next() {
        let problem = "brings an embedding or head, and so does another one: use one of them";
        return Err(wrong(adapter.name(), problem));
    }
    let key = |(adapter, scale): &&(Adapter, f32)| {
        let mut key = [0; 12];
        key[..8].copy_from_slice(&adapter.0.serial.to_le_bytes());
        key[8..].copy_from_slice(&scale.to_le_bytes());
        key
    };
    let keys = used.iter().map(key).collect();
    let of =
        |(adapter, scale): &&(Adapter, f32)| AdapterUse { slot: adapter.0.slot, scale: *scale };
    Ok((used.iter().map(of).collect(), keys))
}

/// The slots of a model.
pub(crate) struct Adapters {
    /// By number; a slot is free when nobody holds its adapter and it was emptied.
    slots: Vec<Option<Slot>>,
    /// What new jobs can ask for.
    named: BTreeMap<String, Adapter>,
    bytes_max: u64,
    serial: u64,
    gone: Gone,
    /// Why a slot could not be emptied, until someone looks.
    error: Option<EngineError>,
}

/// A slot in use.
struct Slot {
    adapter: Weak<Resident>,
    bytes: u64,
}

impl Adapters {
    pub fn new(bytes_max: u64) -> Self {
        let (slots, named, gone) = (Vec::new(), BTreeMap::new(), Gone::default());
        Adapters { slots, named, bytes_max, serial: 0, gone, error: None }
    }

    /// Why a slot could not be emptied, if that is so and nobody has looked.
    pub fn take_error(&mut self) -> Option<EngineError> {
        self.error.take()
    }

    /// Has `told` called, on any thread, when the last handle of an adapter was dropped. The first one
    /// stays.
    pub fn on_gone(&self, told: impl Fn() + Send + Sync + 'static) {
        // Whoever set another one before goes on being told.
        drop(self.gone.0.set(Box::new(told)));
    }

    fn bytes(&self) -> u64 {
        self.slots.iter().flatten().map(|slot| slot.bytes).sum()
    }

    /// Slots whose adapter nobody holds any more.
    fn abandoned(&self) -> Vec<u32> {
        let gone = |slot: &Option<Slot>| {
            slot.as_ref().is_some_and(|slot| slot.adapter.strong_count() == 0)
        };
        (0u32..).zip(&self.slots).filter(|(_, slot)| gone(slot)).map(|(at, _)| at).collect()
    }

    /// Refuses a name that is taken, and more bytes than there is room for.
    fn check_room(&self, name: &str, bytes: u64) -> Result<(), EngineError> {
        if self.named.contains_key(name) {
            let problem = "is loaded already: unload it first, or choose another name";
            return Err(EngineError::BadAdapter { name: name.to_owned(), problem });
        }
        let held = self.bytes();
        if held.saturating_add(bytes) > self.bytes_max {
            let (name, bytes_max) = (name.to_owned(), self.bytes_max);
            return Err(EngineError::AdapterMemory { name, bytes, held, bytes_max });
        }
        Ok(())
    }

    /// Takes a slot.
    fn begin(
        &mut self,
        name: &str,
        bound: &BoundAdapter,
        engine: EngineId,
    ) -> Result<Adapter, EngineError> {
        let refused = |problem| EngineError::BadAdapter { name: name.to_owned(), problem };
        let bytes = bound.bytes();
        self.check_room(name, bytes)?;
        let free = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if free >= ADAPTER_SLOTS_MAX {
            return Err(refused("finds all slots taken: unload another one first"));
        }
        if free == self.slots.len() {
            self.slots.push(None);
        }
        self.serial += 1;
        let resident = Arc::new(Resident {
            name: name.to_owned(),
            slot: free as u32,
            serial: self.serial,
            bytes,
            replaces_weights: bound.replaces_weights(),
            engine,
            gone: self.gone.clone(),
        });
        self.slots[free] = Some(Slot { adapter: Arc::downgrade(&resident), bytes });
        Ok(Adapter(resident))
    }
}

impl Generator {
    /// Puts an adapter into memory, under a name that no other has.
    pub fn load_adapter(
        &mut self,
        name: &str,
        bound: &BoundAdapter,
    ) -> Result<Adapter, EngineError> {
        let adapter = self.begin_adapter(name, bound)?;
        let filled = self.fill_adapter(&adapter, bound.parts());
        self.finish_adapter(adapter, filled)
    }

    /// Refuses an adapter of at least so many bytes that could not be loaded now.
    pub(crate) fn check_adapter_room(&mut self, name: &str, bytes: u64) -> Result<(), EngineError> {
        self.sweep_adapters()?;
        self.adapters.check_room(name, bytes)
    }

    /// Takes a slot for an adapter.
    pub(crate) fn begin_adapter(
        &mut self,
        name: &str,
        bound: &BoundAdapter,
    ) -> Result<Adapter, EngineError> {
        self.sweep_adapters()?;
        self.adapters.begin(name, bound, self.facts.engine.clone())
    }

    /// Puts some parts of an adapter into its slot.
    pub(crate) fn fill_adapter(
        &mut self,
        adapter: &Adapter,
        parts: &[AdapterPart],
    ) -> Result<(), EngineError> {
        parts.iter().try_for_each(|part| self.forward.fill_adapter(adapter.0.slot, part))
    }

    /// Gives an adapter its name, if all of it is there.
    pub(crate) fn finish_adapter(
        &mut self,
        adapter: Adapter,
        filled: Result<(), EngineError>,
    ) -> Result<Adapter, EngineError> {
        let taken = self.adapters.named.contains_key(adapter.name());
        let outcome = match filled {
            // Two loads of one name may have begun side by side.
            Ok(()) if taken => Err(EngineError::BadAdapter {
                name: adapter.name().to_owned(),
                problem: "was loaded meanwhile: unload it first, or choose another name",
            }),
            other => other,
        };
        if let Err(error) = outcome {
            drop(adapter);
            self.sweep_adapters()?;
            return Err(error);
        }
        self.adapters.named.insert(adapter.name().to_owned(), adapter.clone());
        Ok(adapter)
    }

    /// Takes an adapter's name away, and its place among those of jobs that say nothing about theirs.
    /// Jobs that use it keep it. `false` if there is none of that name.
    pub fn unload_adapter(&mut self, name: &str) -> Result<bool, EngineError> {
        let found = self.adapters.named.remove(name);
        if let Some(adapter) = &found {
            self.facts.default_adapters.remove(adapter);
        }
        let is_found = found.is_some();
        drop(found);
        self.sweep_adapters()?;
        Ok(is_found)
    }

    /// The adapter of that name.
    pub fn adapter(&self, name: &str) -> Option<Adapter> {
        self.adapters.named.get(name).cloned()
    }

    /// All adapters that have a name, in its order.
    pub fn adapters(&self) -> impl Iterator<Item = &Adapter> {
        self.adapters.named.values()
    }

    /// Gives these adapters to jobs that say nothing about theirs, and to texts that become vectors. They
    /// stay resident until they are unloaded or others are given.
    pub fn set_default_adapters(
        &mut self,
        adapters: Vec<(Adapter, f32)>,
    ) -> Result<(), EngineError> {
        self.facts.default_adapters.set(adapters, &self.facts.engine)
    }

    /// Bytes of resident adapters, also of those that only jobs still use.
    pub fn adapter_bytes(&self) -> u64 {
        self.adapters.bytes()
    }

    /// Empties the slots of adapters that nobody holds any more. No job depends on them: what cannot be
    /// emptied now is kept in mind, and tried again in the next step.
    pub(crate) fn tidy_adapters(&mut self) {
        if let Err(error) = self.sweep_adapters() {
            self.adapters.error = Some(error);
        }
    }

    /// Empties the slots of adapters that nobody holds any more.
    pub(crate) fn sweep_adapters(&mut self) -> Result<(), EngineError> {
        for slot in self.adapters.abandoned() {
            self.forward.clear_adapter(slot)?;
            self.adapters.slots[slot as usize] = None;
        }
        Ok(())
    }
}

/// Ranges of parts that are put into place between two steps: a few bytes each, so that no step waits
/// long.
pub(crate) fn batches(parts: &[AdapterPart]) -> Vec<Range<usize>> {
    let mut batches: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0;
    for (index, part) in parts.iter().enumerate() {
        match batches.last_mut() {
            Some(last) if bytes + part.bytes() <= BATCH_BYTES => last.end = index + 1,
            _ => {
                batches.push(index..index + 1);
                bytes = 0;
            }
        }
        bytes += part.bytes();
    }
    batches
}
