//! Recorded steps: a step of few tokens is captured once per shape and then replayed as one launch.
//!
//! The first step of a shape runs as it is, which loads every kernel and makes all scratch memory;
//! the second is captured. A graph names buffers, so it is bound to one cache and to one generation
//! of the scratch memory.

use std::collections::HashMap;
use std::sync::Arc;

use cudarc::driver::{CudaGraph, CudaStream, sys};
use pagella_backend::BackendError;

use crate::error::device_error;
use crate::step::Shape;

/// What a recording is good for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) shape: Shape,
    /// Which cache.
    pub(crate) kv: u64,
    /// Which state of the backend's shared buffers.
    pub(crate) generation: u64,
    /// Largest rank of an adapter's pair that there is room for; 0 where rows have no adapters.
    pub(crate) rank: usize,
}

/// Shapes whose steps are kept; those that ran longest ago make room for others.
const KEPT: usize = 256;

/// Steps of one model that can be replayed.
#[derive(Default)]
pub struct Recordings {
    graphs: HashMap<Key, Recording>,
    /// Counts uses.
    clock: u64,
}

struct Recording {
    /// Absent while the shape has run once only.
    graph: Option<CudaGraph>,
    /// When it was used last.
    used: u64,
}

// SAFETY: the driver wants calls on one graph to be serialised, not to come from one thread; a
// graph is reached only through `&mut Recordings`.
unsafe impl Send for Recordings {}

/// A capture in progress; dropping it throws the captured work away.
pub(crate) struct Capture {
    stream: Arc<CudaStream>,
    open: bool,
}

impl Recordings {
    /// The graph of that key, if it has been captured.
    pub(crate) fn graph(&mut self, key: &Key) -> Option<&CudaGraph> {
        self.clock += 1;
        let recording = self.graphs.get_mut(key)?;
        recording.used = self.clock;
        recording.graph.as_ref()
    }

    /// Whether a step of that key has run before.
    pub(crate) fn seen(&self, key: &Key) -> bool {
        self.graphs.contains_key(key)
    }

    /// Notes that a step of that key has run, and forgets what can never be used again.
    pub(crate) fn note(&mut self, key: Key) {
        self.graphs.retain(|known, _| known.generation == key.generation);
        self.insert(key, None);
    }

    /// Keeps a graph.
    pub(crate) fn keep(&mut self, key: Key, graph: CudaGraph) {
        self.insert(key, Some(graph));
    }

    /// Forgets the steps that [`Shape::row_adapters`] says have adapters.
    pub(crate) fn forget_adapted(&mut self) {
        self.graphs.retain(|key, _| key.shape.row_adapters() == 0);
    }

    fn insert(&mut self, key: Key, graph: Option<CudaGraph>) {
        self.clock += 1;
        if self.graphs.len() >= KEPT && !self.graphs.contains_key(&key) {
            let oldest = self.graphs.iter().min_by_key(|(_, recording)| recording.used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.graphs.remove(&oldest);
            }
        }
        self.graphs.insert(key, Recording { graph, used: self.clock });
    }
}

impl Capture {
    /// Starts capturing what is enqueued on the stream.
    pub(crate) fn begin(stream: &Arc<CudaStream>) -> Result<Self, BackendError> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        stream.begin_capture(mode).map_err(device_error)?;
        Ok(Capture { stream: stream.clone(), open: true })
    }

    /// Ends it and makes the work launchable.
    pub(crate) fn end(mut self) -> Result<Option<CudaGraph>, BackendError> {
        self.open = false;
        let flags = sys::CUgraphInstantiate_flags(0);
        self.stream.end_capture(flags).map_err(device_error)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if self.open {
            // The work is thrown away; whoever drops a capture already reports why.
            let flags = sys::CUgraphInstantiate_flags(0);
            let _ = self.stream.end_capture(flags);
        }
    }
}
