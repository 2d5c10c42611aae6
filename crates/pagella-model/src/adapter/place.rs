//! Linears by number: which layer, which part of it.

use pagella_arch::{LayerSpec, LinearSpec, MlpSpec, ModelSpec};

/// A linear of a layer outside its routed experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// Compresses queries of latent attention.
    QueryDown,
    Query,
    /// Keys, or the entries of latent attention.
    Key,
    Value,
    Output,
    /// Of a dense MLP or a shared expert; the only input projection of a plain MLP.
    Gate,
    Up,
    Down,
    /// Says how much a shared expert counts.
    SharedWeight,
    Router,
}

impl Part {
    /// How many there are.
    pub(crate) const COUNT: usize = 10;

    /// The part that a label of [`pagella_arch::LayerSpec::linear_specs`] means. A plain MLP has no
    /// gate, and what it activates is called up.
    fn of_label(label: &str, is_plain_mlp: bool) -> Option<Self> {
        Some(match label {
            "attn.q_down" => Self::QueryDown,
            "attn.q" => Self::Query,
            "attn.k" | "attn.entry" => Self::Key,
            "attn.v" => Self::Value,
            "attn.o" => Self::Output,
            "mlp.up" if is_plain_mlp => Self::Gate,
            "mlp.gate" | "mlp.shared.gate" => Self::Gate,
            "mlp.up" | "mlp.shared.up" => Self::Up,
            "mlp.down" | "mlp.shared.down" => Self::Down,
            "mlp.shared.weight" => Self::SharedWeight,
            "mlp.router" => Self::Router,
            _ => return None,
        })
    }
}

impl Part {
    /// The linear of a layer that this is.
    fn linear(self, layer: &LayerSpec) -> Option<&LinearSpec> {
        let attn = &layer.attn;
        let shared = match &layer.mlp {
            MlpSpec::Moe(moe) => moe.shared.as_ref(),
            _ => None,
        };
        match (self, &layer.mlp) {
            (Self::QueryDown, _) => Some(&attn.latent.as_ref()?.query_down.as_ref()?.linear),
            (Self::Query, _) => Some(&attn.q),
            (Self::Key, _) => Some(&attn.k),
            (Self::Value, _) => Some(&attn.v).filter(|_| attn.latent.is_none()),
            (Self::Output, _) => Some(&attn.o),
            (Self::Gate, MlpSpec::Gated { gate, .. }) => Some(gate),
            (Self::Gate, MlpSpec::Plain { up, .. }) => Some(up),
            (Self::Up, MlpSpec::Gated { up, .. }) => Some(up),
            (Self::Up, MlpSpec::Plain { .. }) => None,
            (Self::Down, MlpSpec::Gated { down, .. } | MlpSpec::Plain { down, .. }) => Some(down),
            (Self::Gate, MlpSpec::Moe(_)) => shared.map(|shared| &shared.gate),
            (Self::Up, MlpSpec::Moe(_)) => shared.map(|shared| &shared.up),
            (Self::Down, MlpSpec::Moe(_)) => shared.map(|shared| &shared.down),
            (Self::SharedWeight, _) => shared?.weight.as_ref(),
            (Self::Router, MlpSpec::Moe(moe)) => Some(&moe.router),
            (Self::Router, _) => None,
        }
    }
}

/// Where a linear is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Layer {
        layer: usize,
        part: Part,
    },
    Expert {
        layer: usize,
        expert: usize,
        /// 0 is the gate, 1 up, 2 down.
        part: usize,
    },
    Head,
}

impl Place {
    /// The place of a linear of a layer with this label; `None` for one that no adapter can change.
    pub(crate) fn in_layer(layer: usize, label: &str, is_plain_mlp: bool) -> Option<Self> {
        let Some(expert) = label.strip_prefix("mlp.experts.") else {
            return Part::of_label(label, is_plain_mlp).map(|part| Self::Layer { layer, part });
        };
        let (expert, part) = expert.split_once('.')?;
        let part = ["gate", "up", "down"].iter().position(|name| *name == part)?;
        Some(Self::Expert { layer, expert: expert.parse().ok()?, part })
    }

    /// The linear of a model at this place, if it has one.
    pub(crate) fn linear(self, spec: &ModelSpec) -> Option<&LinearSpec> {
        match self {
            Self::Head => Some(&spec.head.linear),
            Self::Layer { layer, part } => part.linear(spec.layers.get(layer)?),
            Self::Expert { layer, expert, part } => match &spec.layers.get(layer)?.mlp {
                MlpSpec::Moe(moe) => moe.experts.get(expert)?.get(part),
                _ => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_become_places() {
        let place = |label| Place::in_layer(3, label, false);
        let part = |part| Some(Place::Layer { layer: 3, part });
        assert_eq!(place("attn.entry"), part(Part::Key));
        assert_eq!(place("mlp.shared.down"), part(Part::Down));
        assert_eq!(place("mlp.up"), part(Part::Up));
        assert_eq!(Place::in_layer(3, "mlp.up", true), part(Part::Gate));
        assert_eq!(
            place("mlp.experts.12.up"),
            Some(Place::Expert { layer: 3, expert: 12, part: 1 })
        );
        assert_eq!(place("attn.unfold"), None);
        assert_eq!(place("mlp.experts.x.up"), None);
    }

    #[test]
    fn labels_and_places_mean_the_same_linears_in_every_family() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/families");
        let dirs = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
        let mut n_linears = 0;
        for dir in dirs.filter(|dir| dir.join("config.json").exists()) {
            let spec =
                pagella_arch::load_spec(&dir, &pagella_arch::SpecOptions::default()).unwrap();
            for (index, layer) in spec.layers.iter().enumerate() {
                let is_plain = matches!(layer.mlp, MlpSpec::Plain { .. });
                for (label, linear) in layer.linear_specs() {
                    let Some(place) = Place::in_layer(index, &label, is_plain) else {
                        assert_eq!(label, "attn.unfold");
                        continue;
                    };
                    let found = place.linear(&spec).unwrap();
                    assert!(std::ptr::eq(found, linear), "{label} in {}", dir.display());
                    n_linears += 1;
                }
            }
        }
        assert!(n_linears > 2000, "{n_linears}");
    }
}
