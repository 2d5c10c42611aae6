//! Telling the caller how far loading is, and asking whether to go on.
//!
//! For n modules there are n + 1 calls: one before each module and one at the end, where done
//! equals total. Counts never decrease.

use std::ops::ControlFlow;

use pagella_arch::{BlockOrder, ModelSpec};

use crate::error::ModelError;

/// How far loading is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadProgress<'a> {
    /// Modules laid out so far.
    pub modules_done: usize,
    /// Modules of the model: embedding, two per layer (one in parallel layers), final norm, head.
    pub modules_total: usize,
    /// Bytes of those done, as stored.
    pub bytes_done: u64,
    /// Bytes of all modules, as stored.
    pub bytes_total: u64,
    /// The module about to be laid out, e.g. `layers.3.mlp`; empty at the end.
    pub name: &'a str,
}

/// Called between modules; `Break` cancels the load with [`ModelError::Cancelled`].
pub type ProgressFn<'p> = dyn FnMut(&LoadProgress<'_>) -> ControlFlow<()> + 'p;

/// One step of loading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Module {
    pub name: String,
    /// Bytes as stored.
    pub bytes: u64,
}

/// Bytes of a layer's two halves, as stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LayerBytes {
    pub attn: u64,
    pub mlp: u64,
}

/// The modules of a model in load order. `layers` has one entry per layer of the spec.
pub(crate) fn modules(
    spec: &ModelSpec,
    embed: u64,
    layers: &[LayerBytes],
    head: u64,
) -> Vec<Module> {
    let module = |name: String, bytes| Module { name, bytes };
    let mut modules = vec![module("embedding".to_owned(), embed)];
    for (i, (layer, bytes)) in spec.layers.iter().zip(layers).enumerate() {
        match layer.order {
            BlockOrder::Sequential => modules.extend([
                module(format!("layers.{i}.attention"), bytes.attn),
                module(format!("layers.{i}.mlp"), bytes.mlp),
            ]),
            BlockOrder::Parallel => {
                modules.push(module(format!("layers.{i}"), bytes.attn + bytes.mlp));
            }
        }
    }
    let norm_bytes = spec.final_norm.params() * 4;
    modules.push(module("final norm".to_owned(), norm_bytes));
    modules.push(module("head".to_owned(), head));
    modules
}

/// Where loading stands.
pub(crate) struct Progress<'a, 'p> {
    modules: Vec<Module>,
    modules_done: usize,
    bytes_done: u64,
    bytes_total: u64,
    callback: &'a mut ProgressFn<'p>,
}

impl<'a, 'p> Progress<'a, 'p> {
    pub(crate) fn new(modules: Vec<Module>, callback: &'a mut ProgressFn<'p>) -> Self {
        let bytes_total = modules.iter().map(|module| module.bytes).sum();
        Self { modules, modules_done: 0, bytes_done: 0, bytes_total, callback }
    }

    /// Announces the next module, runs `load` for it and counts it as done.
    pub(crate) fn module<T>(
        &mut self,
        load: impl FnOnce() -> Result<T, ModelError>,
    ) -> Result<T, ModelError> {
        self.report()?;
        let loaded = load()?;
        self.bytes_done += self.modules.get(self.modules_done).map_or(0, |module| module.bytes);
        self.modules_done += 1;
        Ok(loaded)
    }

    /// Reports where loading stands; at the end this is the last call.
    pub(crate) fn report(&mut self) -> Result<(), ModelError> {
        let name = self.modules.get(self.modules_done).map_or("", |module| &module.name);
        let flow = (self.callback)(&LoadProgress {
            modules_done: self.modules_done,
            modules_total: self.modules.len(),
            bytes_done: self.bytes_done,
            bytes_total: self.bytes_total,
            name,
        });
        match flow {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(ModelError::Cancelled),
        }
    }
}
