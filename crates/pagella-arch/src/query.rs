//! Questions about a [`ModelSpec`] that loaders, reports and memory planning share.

use crate::spec::{
    AttentionSpec, BiasRule, LayerSpec, LinearSpec, MlpSpec, ModelSpec, MoeSpec, NormSpec,
    QkNormSpan, QkNormSpec, SharedExpertSpec,
};

impl ModelSpec {
    /// Every linear with its label, in order of execution: `layers.3.attn.q`, …, `head`.
    pub fn linear_specs(&self) -> impl Iterator<Item = (String, &LinearSpec)> {
        let in_layers = self.layers.iter().enumerate().flat_map(|(i, layer)| {
            let label = move |(part, linear)| (format!("layers.{i}.{part}"), linear);
            layer.linear_specs().into_iter().map(label)
        });
        in_layers.chain([("head".to_owned(), &self.head.linear)])
    }

    /// Every norm with its label, in order of execution: `layers.3.attn_pre_norm`, …, `final_norm`.
    pub fn norm_specs(&self) -> impl Iterator<Item = (String, &NormSpec)> {
        let in_layers = self.layers.iter().enumerate().flat_map(|(i, layer)| {
            let label = move |(part, norm)| (format!("layers.{i}.{part}"), norm);
            layer.norm_specs().into_iter().map(label)
        });
        in_layers.chain([("final_norm".to_owned(), &self.final_norm)])
    }

    /// Every vector that is neither a norm nor a bias, with its label and length.
    pub fn vector_specs(&self) -> impl Iterator<Item = (String, &str, usize)> {
        self.layers.iter().enumerate().flat_map(|(i, layer)| {
            let sinks = layer.attn.sinks.as_deref();
            let sinks = sinks.map(|base| ("attn.sinks", base, layer.attn.heads));
            let bias = match &layer.mlp {
                MlpSpec::Moe(moe) => {
                    let base = moe.selection_bias.as_deref();
                    base.map(|base| ("mlp.selection_bias", base, moe.experts.len()))
                }
                _ => None,
            };
            let label = move |(part, base, len)| (format!("layers.{i}.{part}"), base, len);
            sinks.into_iter().chain(bias).map(label)
        })
    }

    /// Keys and values of one token over all layers, in elements.
    pub fn kv_elements_per_token(&self) -> usize {
        let of_layer = |layer: &LayerSpec| {
            // A latent entry is key and value at once.
            let parts = if layer.attn.latent.is_some() { 1 } else { 2 };
            parts * layer.attn.kv_heads * layer.attn.head_dim
        };
        self.layers.iter().map(of_layer).sum()
    }

    /// Whether the head may use the embedding's weights.
    pub fn is_tied(&self) -> bool {
        self.head.linear.bases.contains(&self.embed.name)
    }

    /// Parameters of the model, in elements. A tied head counts as part of the embedding; biases
    /// count where the spec requires them, those of layer norms do not.
    pub fn params(&self) -> u64 {
        let linears: u64 = self
            .linear_specs()
            .filter(|(label, _)| !(label == "head" && self.is_tied()))
            .map(|(_, linear)| linear.params())
            .sum();
        let norms: u64 = self.norm_specs().map(|(_, norm)| norm.params()).sum();
        let vectors: u64 = self.vector_specs().map(|(.., len)| len as u64).sum();
        let position_rows = if self.embed.positions.is_some() { self.context } else { 0 };
        let embed = (self.vocab as u64 + position_rows as u64) * self.hidden as u64;
        linears + norms + vectors + embed
    }
}

impl LayerSpec {
    /// Linears of the layer, labelled `attn.q` or `mlp.experts.5.up`, in order of execution.
    pub fn linear_specs(&self) -> Vec<(String, &LinearSpec)> {
        let attn = &self.attn;
        let query_down = attn.latent.as_ref().and_then(|latent| latent.query_down.as_ref());
        let query_down = query_down.map(|down| ("attn.q_down".to_owned(), &down.linear));
        let [k, v] = match attn.latent {
            Some(_) => ["attn.entry", "attn.unfold"],
            None => ["attn.k", "attn.v"],
        };
        let mut parts: Vec<(String, &LinearSpec)> = query_down.into_iter().collect();
        parts.extend([
            ("attn.q".to_owned(), &attn.q),
            (k.to_owned(), &attn.k),
            (v.to_owned(), &attn.v),
            ("attn.o".to_owned(), &attn.o),
        ]);
        match &self.mlp {
            MlpSpec::Gated { gate, up, down, .. } => parts.extend([
                ("mlp.gate".to_owned(), gate),
                ("mlp.up".to_owned(), up),
                ("mlp.down".to_owned(), down),
            ]),
            MlpSpec::Plain { up, down, .. } => {
                parts.extend([("mlp.up".to_owned(), up), ("mlp.down".to_owned(), down)]);
            }
            MlpSpec::Moe(moe) => {
                parts.push(("mlp.router".to_owned(), &moe.router));
                if let Some(shared) = &moe.shared {
                    let SharedExpertSpec { gate, up, down, weight } = shared;
                    parts.extend(weight.iter().map(|w| ("mlp.shared.weight".to_owned(), w)));
                    parts.extend([
                        ("mlp.shared.gate".to_owned(), gate),
                        ("mlp.shared.up".to_owned(), up),
                        ("mlp.shared.down".to_owned(), down),
                    ]);
                }
                for (e, [gate, up, down]) in moe.experts.iter().enumerate() {
                    parts.extend([
                        (format!("mlp.experts.{e}.gate"), gate),
                        (format!("mlp.experts.{e}.up"), up),
                        (format!("mlp.experts.{e}.down"), down),
                    ]);
                }
            }
        }
        parts
    }

    /// Norms of the layer, labelled by their role, in order of execution.
    pub fn norm_specs(&self) -> Vec<(&'static str, &NormSpec)> {
        let qk = self.attn.qk_norm.as_ref();
        let latent = self.attn.latent.as_ref();
        let query_down = latent.and_then(|latent| latent.query_down.as_ref());
        let all = [
            ("attn_pre_norm", self.attn_pre_norm.as_ref()),
            ("attn.q_down_norm", query_down.map(|down| &down.norm)),
            ("attn.latent_norm", latent.map(|latent| &latent.norm)),
            ("attn.q_norm", qk.map(|qk| &qk.q)),
            ("attn.k_norm", qk.map(|qk| &qk.k)),
            ("attn_post_norm", self.attn_post_norm.as_ref()),
            ("mlp_pre_norm", self.mlp_pre_norm.as_ref()),
            ("mlp_post_norm", self.mlp_post_norm.as_ref()),
        ];
        all.into_iter().filter_map(|(label, norm)| Some((label, norm?))).collect()
    }
}

impl QkNormSpec {
    /// Heads of queries and of keys that may have weights of their own: 1 where a norm spans all.
    pub fn heads(&self, attn: &AttentionSpec) -> [usize; 2] {
        match self.span {
            QkNormSpan::Head => [attn.heads, attn.kv_heads],
            QkNormSpan::Token => [1, 1],
        }
    }
}

impl MoeSpec {
    /// Inner width of an expert; all have the same.
    pub fn inner(&self) -> usize {
        self.experts.first().map_or(0, |[gate, ..]| gate.out_features)
    }
}

impl LinearSpec {
    /// Weights, and biases if they are required, in elements.
    pub fn params(&self) -> u64 {
        let bias = if self.bias == BiasRule::Required { self.out_features } else { 0 };
        self.in_features as u64 * self.out_features as u64 + bias as u64
    }
}

impl NormSpec {
    /// Weights, in elements.
    pub fn params(&self) -> u64 {
        if self.bases.is_empty() { 0 } else { self.width as u64 }
    }
}
