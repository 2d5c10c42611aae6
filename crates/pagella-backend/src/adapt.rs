//! Adapters: what rows of a step add to a linear's output, and the trait that does it.
//!
//! Every linear that some adapter changes has [`AdapterSlots`] beside it: for each adapter of the
//! model, by its slot, a low-rank pair or nothing. A step names slots and scales row by row
//! ([`StepPlan::adapters`](crate::StepPlan::adapters)), so rows with different adapters, and rows
//! with none, share it. A step without adapters never gets here.

use crate::{Backend, BackendError, TableDtype};

/// A low-rank pair for one linear, with exact values: it adds `scale · B (A x)`.
#[derive(Clone, Debug, PartialEq)]
pub struct LowRank {
    /// Inputs of the linear.
    pub in_features: usize,
    /// Outputs of the linear.
    pub out_features: usize,
    /// Outputs of A and inputs of B; at least 1.
    pub rank: usize,
    /// `[rank, in]`.
    pub a: Vec<f32>,
    /// `[out, rank]`.
    pub b: Vec<f32>,
    /// The narrowest type that is known to hold every value.
    pub dtype: TableDtype,
    /// Multiplies the product.
    pub scale: f32,
}

impl LowRank {
    /// Bytes of the values in their type.
    pub fn bytes(&self) -> usize {
        (self.a.len() + self.b.len()) * self.dtype.bytes()
    }

    /// Refuses values of another number than the sizes say.
    pub fn expect(&self, in_features: usize, out_features: usize) -> Result<(), BackendError> {
        let Self { rank, a, b, .. } = self;
        for (what, expected, found) in [
            ("inputs of a low-rank pair", in_features, self.in_features),
            ("outputs of a low-rank pair", out_features, self.out_features),
            ("rank of a low-rank pair", (*rank).max(1), *rank),
            ("first half of a low-rank pair", rank * in_features, a.len()),
            ("second half of a low-rank pair", rank * out_features, b.len()),
        ] {
            if expected != found {
                return Err(BackendError::Size { what, expected, found });
            }
        }
        Ok(())
    }
}

/// One output of [`AdapterSlots::adapt`].
pub struct Adapted<'a, B: Backend + ?Sized> {
    /// What adapters add to the linear.
    pub slots: &'a B::Slots,
    /// Has `[t, out_features]` and receives the sums.
    pub out: &'a mut B::Tensor,
}

/// What adapters add to the router and the experts of a layer; `None`: nothing.
pub struct ExpertSlots<'a, B: Backend + ?Sized> {
    /// To the router.
    pub router: Option<&'a B::Slots>,
    /// To gate, up and down of every expert.
    pub experts: &'a [[Option<B::Slots>; 3]],
}

/// What adapters add to one linear, by slot, in the layout of a backend.
///
/// Same row, same bits: what is added to a row depends on its input, on its adapters with their
/// scales and on their order, and on nothing else of the step.
pub trait AdapterSlots<B: Backend<Slots = Self> + ?Sized>: Sized + Send + Sync {
    /// Whether the backend runs rows with adapters.
    const SUPPORTED: bool;
    /// Whether it has [`AdapterSlots::mix_experts`].
    const IN_EXPERTS: bool;
    /// Whether it has [`AdapterSlots::embed`].
    const REPLACES_TABLES: bool;

    /// Slots of a linear of this shape, all empty.
    fn new(backend: &B, in_features: usize, out_features: usize) -> Result<Self, BackendError>;

    /// Puts a pair into a slot, in the place of what is there. Work that was enqueued before has
    /// what was there.
    fn fill(&mut self, backend: &B, slot: u32, pair: &LowRank) -> Result<(), BackendError>;

    /// Has a linear take the place of the model's own for rows with this slot; of a row's slots the
    /// last such one counts. Only [`AdapterSlots::logits`] asks for it.
    fn replace(&mut self, backend: &B, slot: u32, linear: B::Linear) -> Result<(), BackendError>;

    /// Empties a slot.
    fn clear(&mut self, backend: &B, slot: u32) -> Result<(), BackendError>;

    /// Bytes of device memory that the slots hold.
    fn bytes(&self) -> usize;

    /// For every token of a row with adapters `(slot_j, s_j)`:
    /// `out += scale · Σ_j s_j · scale_j · B_j (A_j · norm(x))`, over those that have a pair for the
    /// linear, in the order of the row. Other tokens keep their bits. `x`: `[t, in_features]`, which all outputs
    /// share.
    fn adapt(
        backend: &B,
        step: &B::Step,
        x: &B::Tensor,
        norm: Option<&B::Norm>,
        adapted: &mut [Adapted<'_, B>],
        scale: f32,
    ) -> Result<(), BackendError>;

    /// [`Backend::logits`] where rows have adapters: what they add counts before scale and
    /// soft-cap.
    #[allow(clippy::too_many_arguments)]
    fn logits(
        &self,
        backend: &B,
        step: &B::Step,
        x: &B::Tensor,
        norm: &B::Norm,
        head: &B::Linear,
        scale: f32,
        softcap: Option<f32>,
        out: &mut B::Tensor,
    ) -> Result<(), BackendError>;

    /// [`Backend::embed`] for the rows that have `slot` among their adapters; the others keep
    /// what they have.
    #[allow(clippy::too_many_arguments)]
    fn embed(
        backend: &B,
        step: &B::Step,
        slot: u32,
        table: &B::Table,
        scale: f32,
        positions: Option<&B::Table>,
        out: &mut B::Tensor,
    ) -> Result<(), BackendError>;

    /// [`Backend::mix_experts`] where rows have adapters: what they add to the router's logits
    /// counts for the choice, and what they add inside an expert for the rows that take it.
    fn mix_experts(
        backend: &B,
        step: &B::Step,
        norm: Option<&B::Norm>,
        router: &B::Linear,
        experts: &B::Experts,
        adapted: &ExpertSlots<'_, B>,
        residual: &mut B::Tensor,
    ) -> Result<(), BackendError>;
}

/// The slots of a backend without adapters: there are none.
#[derive(Clone, Copy, Debug)]
pub enum NoSlots {}

fn unsupported<T, B: Backend + ?Sized>(backend: &B) -> Result<T, BackendError> {
    Err(BackendError::unsupported(
        backend.name(),
        "adapters",
        "leave them out, merge them into the model, or use another backend, e.g. --device cpu",
    ))
}

impl<B: Backend<Slots = NoSlots> + ?Sized> AdapterSlots<B> for NoSlots {
    const SUPPORTED: bool = false;
    const IN_EXPERTS: bool = false;
    const REPLACES_TABLES: bool = false;

    fn new(backend: &B, _: usize, _: usize) -> Result<Self, BackendError> {
        unsupported(backend)
    }

    fn fill(&mut self, _: &B, _: u32, _: &LowRank) -> Result<(), BackendError> {
        match *self {}
    }

    fn replace(&mut self, _: &B, _: u32, _: B::Linear) -> Result<(), BackendError> {
        match *self {}
    }

    fn clear(&mut self, _: &B, _: u32) -> Result<(), BackendError> {
        match *self {}
    }

    fn bytes(&self) -> usize {
        match *self {}
    }

    fn adapt(
        backend: &B,
        _: &B::Step,
        _: &B::Tensor,
        _: Option<&B::Norm>,
        _: &mut [Adapted<'_, B>],
        _: f32,
    ) -> Result<(), BackendError> {
        unsupported(backend)
    }

    fn logits(
        &self,
        _: &B,
        _: &B::Step,
        _: &B::Tensor,
        _: &B::Norm,
        _: &B::Linear,
        _: f32,
        _: Option<f32>,
        _: &mut B::Tensor,
    ) -> Result<(), BackendError> {
        match *self {}
    }

    fn embed(
        backend: &B,
        _: &B::Step,
        _: u32,
        _: &B::Table,
        _: f32,
        _: Option<&B::Table>,
        _: &mut B::Tensor,
    ) -> Result<(), BackendError> {
        unsupported(backend)
    }

    fn mix_experts(
        backend: &B,
        _: &B::Step,
        _: Option<&B::Norm>,
        _: &B::Linear,
        _: &B::Experts,
        _: &ExpertSlots<'_, B>,
        _: &mut B::Tensor,
    ) -> Result<(), BackendError> {
        unsupported(backend)
    }
}
