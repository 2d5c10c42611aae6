//! One token right after loading: damaged weights are found before anybody waits for an answer.

use pagella_backend::{Backend, KvFormat, LogitUse, StepPlan, StepRow};

use crate::error::ModelError;
use crate::forward::Tap;
use crate::model::Model;

impl<B: Backend> Model<B> {
    /// Runs one token and refuses a model whose logits are not finite.
    pub(crate) fn probe(&mut self) -> Result<(), ModelError> {
        let id = self.spec().tokens.bos.filter(|id| (*id as usize) < self.spec().vocab);
        let ids = [id.unwrap_or(0)];
        let row = StepRow::new(&ids, 0, &[0], LogitUse::Choice);
        let plan = StepPlan::new(&[row])?;
        let mut kv = self.new_kv(KvFormat::F16, 1)?;
        self.forward(&plan, &mut kv)?;
        let mut logits = Vec::new();
        self.read_logits(&mut logits)?;
        if is_finite(&logits) {
            return Ok(());
        }
        // Only a failing model pays for finding the place.
        let layers = (0..self.spec().layers.len()).map(Tap::Layer);
        let taps: Vec<Tap> = [Tap::Embedding].into_iter().chain(layers).collect();
        let states = self.forward_tapped(&plan, &mut kv, &taps)?;
        let broken = taps.iter().zip(&states).find(|(_, state)| !is_finite(state));
        let place = match broken {
            Some((Tap::Embedding, _)) => "in the embedding".to_owned(),
            Some((Tap::Layer(layer), _)) => format!("after layer {layer}"),
            _ => "in the final norm or the head".to_owned(),
        };
        Err(ModelError::NotFinite { place })
    }
}

fn is_finite(values: &[f32]) -> bool {
    values.iter().all(|value| value.is_finite())
}
