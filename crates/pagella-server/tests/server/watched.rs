//! The model under a test's engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use pagella_arch::ModelSpec;
use pagella_backend::{BackendError, KvFormat, StepPlan};
use pagella_engine::{EngineError, Forward, LogitRows, RowAsk};
use pagella_model::AdapterPart;

use crate::gate::Gate;

/// Tokens of an answer or a prompt that are computed as fast as can be. Later ones take at least
/// [`PACE`] each, so that long answers still run when a test has done what it does meanwhile, on
/// whatever machine.
const HASTE: usize = 24;
const PACE: Duration = Duration::from_millis(10);

/// A model that is counted while it is in memory, takes its time over long answers, stops where a
/// test says so, and whose device can go.
pub struct Watched {
    inner: Box<dyn Forward>,
    alive: Arc<AtomicUsize>,
    device_gone: Arc<AtomicBool>,
    gate: Arc<Gate>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Watched {
    pub fn new(
        inner: Box<dyn Forward>,
        alive: Arc<AtomicUsize>,
        device_gone: Arc<AtomicBool>,
    ) -> Self {
        alive.fetch_add(1, Ordering::SeqCst);
        Watched { inner, alive, device_gone, gate: Arc::default() }
    }

    /// The same, with a gate before its steps.
    pub fn behind(mut self, gate: Arc<Gate>) -> Self {
        self.gate = gate;
        self
    }

    fn expect_device(&self) -> Result<(), EngineError> {
        if self.device_gone.swap(false, Ordering::SeqCst) {
            let message = "ordered by a test at 0x7f00".to_owned();
            let error = BackendError::Device { backend: "test", message };
            return Err(EngineError::Model(error.into()));
        }
        Ok(())
    }
}

impl Forward for Watched {
    fn spec(&self) -> &ModelSpec {
        self.inner.spec()
    }
    fn step_tokens_max(&self) -> usize {
        self.inner.step_tokens_max()
    }
    fn cache_tokens(&self) -> usize {
        self.inner.cache_tokens()
    }
    fn kv_format(&self) -> KvFormat {
        self.inner.kv_format()
    }
    fn launch(&mut self, plan: &StepPlan) -> Result<(), EngineError> {
        self.gate.pass(plan);
        self.expect_device()?;
        let writes_long = |r| plan.token_range(r).len() == 1 && plan.past(r) > HASTE;
        if (0..plan.rows()).any(writes_long) {
            std::thread::sleep(PACE);
        }
        self.inner.launch(plan)
    }
    fn hidden_states(&mut self, plan: &StepPlan, states: &mut Vec<f32>) -> Result<(), EngineError> {
        self.expect_device()?;
        self.inner.hidden_states(plan, states)
    }
    fn fill_adapter(&mut self, slot: u32, part: &AdapterPart) -> Result<(), EngineError> {
        self.gate.part()?;
        self.inner.fill_adapter(slot, part)
    }
    fn clear_adapter(&mut self, slot: u32) -> Result<(), EngineError> {
        self.inner.clear_adapter(slot)
    }
    fn on_layer(&mut self, beat: Arc<dyn Fn() + Send + Sync>) {
        self.inner.on_layer(beat);
    }
    fn read(&mut self, asks: &[RowAsk<'_>], rows: &mut LogitRows) -> Result<(), EngineError> {
        self.inner.read(asks, rows)
    }
    fn copy_pages(&mut self, moves: &[(u32, u32)]) -> Result<(), EngineError> {
        self.inner.copy_pages(moves)
    }
    fn copy_page_prefix(&mut self, from: u32, to: u32, tokens: usize) -> Result<(), EngineError> {
        self.inner.copy_page_prefix(from, to, tokens)
    }
    fn page_bytes(&self) -> usize {
        self.inner.page_bytes()
    }
    fn read_page(&mut self, page: u32, out: &mut Vec<u8>) -> Result<(), EngineError> {
        self.inner.read_page(page, out)
    }
    fn write_page(&mut self, page: u32, bytes: &[u8]) -> Result<(), EngineError> {
        self.inner.write_page(page, bytes)
    }
}
