//! The adapters that a model has in memory.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use pagella_engine::Adapter;

use super::{AdapterLoad, Which};

/// An adapter that the operator gave to a model, wherever it lies.
#[derive(Clone, Debug, PartialEq)]
pub struct OperatorAdapter {
    /// What it is called.
    pub name: String,
    /// Its directory.
    pub dir: PathBuf,
    /// What it adds is multiplied by this.
    pub scaling: f32,
}

/// An adapter in memory.
#[derive(Clone, Debug)]
pub struct LoadedAdapter {
    /// As what it was loaded.
    pub load: AdapterLoad,
    /// How many were loaded before it, of the same model.
    pub number: usize,
    /// Its name and what tells its content apart, `name@hash`; the engine's name for it.
    pub label: String,
    /// When its files were made, in seconds since 1970.
    pub created: u64,
    /// What keeps it in memory.
    pub handle: Adapter,
}

impl LoadedAdapter {
    /// Whether this is the one.
    pub fn is(&self, which: &Which) -> bool {
        match which {
            Which::Name(name) => self.load.name == *name,
            Which::Number(number) => self.number == *number,
        }
    }
}

/// The adapters of a model, in the order in which they were loaded. Requests read a list that never
/// changes; whoever changes it puts another in its place, one at a time.
#[derive(Default)]
pub struct LoadedAdapters {
    list: RwLock<Arc<[LoadedAdapter]>>,
    /// How many were ever loaded. Held while they change.
    changing: Mutex<usize>,
}

impl LoadedAdapters {
    /// All of them, now.
    pub fn list(&self) -> Arc<[LoadedAdapter]> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The one of that name.
    pub fn named(&self, name: &str) -> Option<LoadedAdapter> {
        self.list().iter().find(|adapter| adapter.load.name == name).cloned()
    }

    /// What to load so that another model has the same.
    pub fn loads(&self) -> Vec<AdapterLoad> {
        self.list().iter().map(|adapter| adapter.load.clone()).collect()
    }

    /// Keeps others from changing the list.
    pub(super) fn lock(&self) -> MutexGuard<'_, usize> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts another list in place, of whoever has the lock.
    pub(super) fn put(&self, list: Vec<LoadedAdapter>, _held: &MutexGuard<'_, usize>) {
        *self.list.write().unwrap_or_else(PoisonError::into_inner) = list.into();
    }
}
