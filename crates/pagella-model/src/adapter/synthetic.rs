//! Adapters made in memory, for measuring: the values matter for nothing but being there.

use pagella_arch::{MlpSpec, ModelSpec};
use pagella_backend::{LowRank, TableDtype};

use super::bind::{AdapterPart, BoundAdapter, Change};
use super::place::{Part, Place};

impl BoundAdapter {
    /// An adapter of this rank for every linear of every layer, routers and routed experts aside.
    pub fn synthetic(spec: &ModelSpec, rank: usize, seed: u64) -> Self {
        let mut noise = Noise(seed);
        let mut parts = Vec::new();
        for (index, layer) in spec.layers.iter().enumerate() {
            let is_plain = matches!(layer.mlp, MlpSpec::Plain { .. });
            for (label, linear) in layer.linear_specs() {
                let Some(place) = Place::in_layer(index, &label, is_plain) else { continue };
                let Place::Layer { part, .. } = place else { continue };
                if part == Part::Router {
                    continue;
                }
                let (in_features, out_features) = (linear.in_features, linear.out_features);
                let pair = LowRank {
                    in_features,
                    out_features,
                    rank,
                    a: noise.values(rank * in_features),
                    b: noise.values(rank * out_features),
                    dtype: TableDtype::F16,
                    scale: 1.0,
                };
                parts.push(AdapterPart { change: Change::LowRank(place, pair) });
            }
        }
        BoundAdapter::of_parts(parts)
    }
}

/// Small numbers that binary16 holds exactly.
struct Noise(u64);

impl Noise {
    fn values(&mut self, len: usize) -> Vec<f32> {
        let mut next = || {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Seven bits, from -1/16 to 1/16.
            ((self.0 >> 57) as f32 - 64.0) / 1024.0
        };
        (0..len).map(|_| next()).collect()
    }
}
