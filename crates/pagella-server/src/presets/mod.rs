//! Presets: values of parameters that an operator puts below or above what requests say.
//!
//! Whether a value is there decides, not whether it is true: a forced zero is a zero.

mod file;
mod preset;

use std::sync::{Arc, PoisonError, RwLock};

pub use file::{list, load};
pub use preset::Preset;

use crate::generate::parameters::Parameters;

/// The preset that holds now.
#[derive(Default)]
pub struct Presets {
    selected: RwLock<Option<Arc<Selected>>>,
}

/// A preset and its name; one that came with a request has none.
pub struct Selected {
    /// Its name.
    pub name: Option<String>,
    /// Its values.
    pub preset: Preset,
}

impl Presets {
    /// What holds now.
    pub fn selected(&self) -> Option<Arc<Selected>> {
        self.selected.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets another one hold, or none.
    pub fn select(&self, selected: Option<Selected>) {
        *self.selected.write().unwrap_or_else(PoisonError::into_inner) = selected.map(Arc::new);
    }

    /// The parameters of a request with the preset below and above them.
    pub fn apply(&self, parameters: &Parameters) -> Parameters {
        let mut parameters = parameters.clone();
        if let Some(selected) = self.selected() {
            selected.preset.apply(&mut parameters);
        }
        parameters
    }
}
