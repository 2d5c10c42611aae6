//! How fast a model comes to where it runs.
//!
//! Weights are read, brought to the device and laid out there; the time of that is measured from the
//! first module to the end of the last, the trial token included. What comes before, opening the
//! device and checking headers, and the cache after it belong to the whole time only.

use std::time::Instant;

use pagella_model::LoadProgress;

use crate::output;

/// A load under way.
pub struct LoadClock {
    started: Instant,
    first_module: Option<Instant>,
    end: Option<Instant>,
    bytes: u64,
}

/// How long a load took.
pub struct LoadSpeed {
    /// Until the model was ready.
    pub seconds: f64,
    /// Of these, for the weights.
    pub weights_seconds: f64,
    /// Weights and embedding as stored.
    pub weights_bytes: u64,
}

impl LoadClock {
    pub fn start() -> Self {
        LoadClock { started: Instant::now(), first_module: None, end: None, bytes: 0 }
    }

    /// Notes where loading stands.
    pub fn update(&mut self, progress: &LoadProgress<'_>) {
        let now = Instant::now();
        self.first_module.get_or_insert(now);
        self.bytes = progress.bytes_total;
        if progress.modules_done == progress.modules_total {
            self.end = Some(now);
        }
    }

    /// The model is ready.
    pub fn stop(self) -> LoadSpeed {
        let span = self.first_module.zip(self.end).map(|(first, end)| end - first);
        LoadSpeed {
            seconds: self.started.elapsed().as_secs_f64(),
            weights_seconds: span.map_or(0.0, |span| span.as_secs_f64()),
            weights_bytes: self.bytes,
        }
    }
}

impl LoadSpeed {
    /// Bytes per second.
    pub fn rate(&self) -> f64 {
        self.weights_bytes as f64 / self.weights_seconds.max(1e-9)
    }

    pub fn text(&self) -> String {
        let (bytes, rate) = (output::bytes(self.weights_bytes), self.rate() / 1e9);
        let LoadSpeed { seconds, weights_seconds, .. } = self;
        format!("{seconds:.1} s: {bytes} of weights in {weights_seconds:.2} s, {rate:.2} GB/s")
    }
}
