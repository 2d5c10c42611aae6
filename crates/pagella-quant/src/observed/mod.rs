//! `Observed`: a backend that shows what enters every linear and else does what another one does.
//!
//! The forward pass runs unchanged on it, so every family is observed by construction. Only experts
//! run here one by one, because a backend keeps what is inside a mixture to itself.
//!
//! What must always hold: numbers that come out are those of the inner backend, whether somebody
//! looks or not; rows are shown in the order of the step.

mod backend;
mod experts;
mod route;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pagella_backend::{Backend, BackendError};

pub use experts::ObservedExperts;

/// What enters some linears of a step.
pub struct Inputs<'a> {
    /// The linears that read it, by the numbers that [`Observed::name_next`] gave them.
    pub linears: &'a [usize],
    /// Elements of a row.
    pub width: usize,
    /// `[rows, width]`.
    pub rows: &'a [f32],
}

/// Whoever looks.
pub trait Observer: Send {
    /// Called whenever linears run, before they do.
    fn see(&mut self, inputs: &Inputs<'_>);
}

/// A backend under observation; clones share who looks.
#[derive(Clone)]
pub struct Observed<B> {
    inner: B,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    next: Mutex<Option<usize>>,
    observer: Mutex<Option<Box<dyn Observer>>>,
}

/// A linear of the inner backend with its number.
pub struct ObservedLinear<L> {
    inner: L,
    /// `None`: nobody is interested.
    number: Option<usize>,
    in_features: usize,
    out_features: usize,
}

/// A vector that stays, also here.
pub struct ObservedVector<V> {
    inner: V,
    values: Vec<f32>,
}

impl<B: Backend> Observed<B> {
    /// Looks at this backend.
    pub fn new(inner: B) -> Self {
        Self { inner, shared: Arc::default() }
    }

    /// Gives the next linear that is laid out this number.
    pub fn name_next(&self, number: Option<usize>) {
        *lock(&self.shared.next) = number;
    }

    /// Has somebody look, or nobody; gives back who has looked.
    pub fn observe(&self, observer: Option<Box<dyn Observer>>) -> Option<Box<dyn Observer>> {
        std::mem::replace(&mut *lock(&self.shared.observer), observer)
    }

    /// Shows rows to whoever looks.
    fn show(&self, inputs: &Inputs<'_>) {
        if let Some(observer) = &mut *lock(&self.shared.observer)
            && !inputs.linears.is_empty()
        {
            observer.see(inputs);
        }
    }

    fn is_observed(&self) -> bool {
        lock(&self.shared.observer).is_some()
    }

    /// Shows what linears read, if somebody looks.
    fn show_tensor(
        &self,
        linears: &[usize],
        width: usize,
        step: (&B::Step, usize),
        x: &B::Tensor,
        norm: Option<&B::Norm>,
    ) -> Result<(), BackendError> {
        if linears.is_empty() || !self.is_observed() {
            return Ok(());
        }
        let rows = self.normed(width, step, x, norm)?;
        self.show(&Inputs { linears, width, rows: &rows });
        Ok(())
    }

    /// `norm(x)` of all tokens of a step, `[t, width]`.
    fn normed(
        &self,
        width: usize,
        (step, tokens): (&B::Step, usize),
        x: &B::Tensor,
        norm: Option<&B::Norm>,
    ) -> Result<Vec<f32>, BackendError> {
        let mut rows = Vec::new();
        match norm {
            None => self.inner.read(x, tokens, &mut rows)?,
            Some(norm) => {
                let mut normed = self.inner.write(tokens, width, &vec![0.0; tokens * width])?;
                self.inner.norm_add(step, x, norm, 1.0, &mut normed)?;
                self.inner.read(&normed, tokens, &mut rows)?;
            }
        }
        Ok(rows)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
