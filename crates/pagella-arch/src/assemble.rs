//! Family record + config → [`ModelSpec`].

use crate::config::Config;
use crate::error::ArchError;
use crate::experts::Experts;
use crate::family::FamilyInfo;
use crate::feature;
use crate::geometry::Geometry;
use crate::limits;
use crate::multiplier;
use crate::names::{self, in_layer};
use crate::notes;
use crate::record::{BiasKey, GrowthRule, QkNormRecord, Record};
use crate::rope::{self, RopeRequest, RopeTables};
use crate::spec::*;
use crate::tokens::{quant_facts, token_ids};
use crate::window::{LayerKind, layer_kinds, rotating_layers};

/// The spec of a model of `family`.
pub(crate) fn assemble(
    family: &'static FamilyInfo,
    architecture: &str,
    config: &Config,
    generation: Option<&Config>,
    options: &SpecOptions,
) -> Result<ModelSpec, ArchError> {
    let record = &family.record;
    feature::refuse_experts(family, config)?;
    (family.check)(config)?;
    let sizes = Geometry::read(config, record)?;
    let context = context(options, &sizes)?;
    let kinds = layer_kinds(config, record, sizes.layers)?;
    let rotates = rotating_layers(config, record, &kinds)?;
    let request = RopeRequest { config, record, sizes: &sizes, context, user: options.rope };
    let ropes = match rotates.contains(&true) {
        true => rope::tables(&request)?,
        false => RopeTables::default(),
    };
    let shared = Shared::read(family, config, &sizes, ropes.score_factor)?;
    let layer = |(i, (kind, rotates)): (usize, (LayerKind, bool))| {
        shared.layer(i, kind, rotates.then(|| ropes.index(kind)))
    };
    let layers: Vec<LayerSpec> = kinds.into_iter().zip(rotates).enumerate().map(layer).collect();
    let quant = quant_facts(config)?;
    let tokens = token_ids(config, generation)?;
    let notes = notes::notes(family, &quant, &layers, config);
    let warnings = notes::warnings(family, architecture, options, &sizes, &tokens);
    Ok(ModelSpec {
        family: family.name,
        architecture: architecture.to_owned(),
        hidden: sizes.hidden,
        vocab: sizes.vocab,
        context,
        embed: EmbedSpec {
            name: names::EMBED.to_owned(),
            scale: multiplier::embed_scale(config, record, &sizes)?,
            positions: record.positions.map(str::to_owned),
        },
        layers,
        final_norm: shared.norm(vec![names::FINAL_NORM.to_owned()], sizes.hidden),
        head: head(config, record, &sizes)?,
        ropes: ropes.tables,
        tokens,
        quant,
        renames: record.renames,
        requires_bos: record.requires_bos,
        notes,
        warnings,
    })
}

/// What all layers have in common.
struct Shared<'a> {
    record: &'a Record,
    sizes: &'a Geometry,
    norm_eps: f32,
    qk_norm: Option<QkNormRecord>,
    qkv_bias: BiasRule,
    o_bias: BiasRule,
    mlp_bias: BiasRule,
    /// Inner width of a dense MLP.
    mlp_inner: usize,
    scale: f32,
    softcap: Option<f32>,
    clip_qkv: Option<f32>,
    query_growth: Option<QueryGrowth>,
    branch_scale: f32,
    act: Activation,
    experts: Option<Experts>,
}

impl<'a> Shared<'a> {
    fn read(
        family: &'a FamilyInfo,
        config: &Config,
        sizes: &'a Geometry,
        score_factor: f64,
    ) -> Result<Self, ArchError> {
        let record = &family.record;
        let norm_eps = config.float(record.norm_eps, limits::NORM_EPS)?;
        let norm_eps = norm_eps.or(record.defaults.norm_eps);
        let clip_qkv = match record.clip_qkv {
            Some(key) => config.float(&[key], limits::CLIP)?,
            None => None,
        };
        let mlp_inner = match record.mlp.inner_key {
            Some(key) => config.count(&[key], limits::INTERMEDIATE)?,
            None => None,
        };
        Ok(Self {
            record,
            sizes,
            norm_eps: norm_eps.ok_or_else(|| config.missing(record.norm_eps))? as f32,
            qk_norm: feature::qk_norm(family, config)?,
            qkv_bias: record.qkv_bias.read(config)?,
            o_bias: record.o_bias.read(config)?,
            mlp_bias: record.mlp.bias.read(config)?,
            mlp_inner: mlp_inner.unwrap_or(sizes.intermediate),
            scale: multiplier::attention_scale(config, record, sizes, score_factor)?,
            softcap: multiplier::softcap(
                config,
                "attn_logit_softcapping",
                record.defaults.attn_softcap,
            )?,
            clip_qkv: clip_qkv.map(|clip| clip as f32),
            query_growth: multiplier::query_growth(config, record)?,
            branch_scale: multiplier::branch_scale(config, sizes)?,
            act: feature::activation(family, config)?,
            experts: record
                .experts
                .as_ref()
                .map(|experts| Experts::read(config, experts, sizes))
                .transpose()?,
        })
    }

    fn norm(&self, bases: Vec<String>, width: usize) -> NormSpec {
        let (kind, offset) = (self.record.norm_kind, self.record.norm_offset);
        NormSpec { bases, kind, eps: self.norm_eps, offset, width }
    }

    /// Layer `i`; `rope` is its rotary table.
    fn layer(&self, i: usize, kind: LayerKind, rope: Option<usize>) -> LayerSpec {
        let norm = |names: &[&str]| {
            self.norm(names.iter().map(|name| in_layer(i, name)).collect(), self.sizes.hidden)
        };
        let norms = &self.record.layer_norms;
        LayerSpec {
            order: self.record.order,
            attn_pre_norm: norms.pre_attn.map(norm),
            attn: self.attention(i, kind, rope),
            attn_post_norm: norms.post_attn.map(norm),
            mlp_pre_norm: norms.pre_mlp.map(norm),
            mlp: self.mlp(i),
            mlp_post_norm: norms.post_mlp.map(norm),
            branch_scale: self.branch_scale,
        }
    }

    fn mlp(&self, i: usize) -> MlpSpec {
        let (hidden, inner) = (self.sizes.hidden, self.mlp_inner);
        let (bias, act) = (self.mlp_bias, self.act);
        let experts = self.experts.as_ref();
        if let Some(moe) = experts.and_then(|e| e.layer(i, hidden, act)) {
            return MlpSpec::Moe(Box::new(moe));
        }
        let (record, transposed) = (&self.record.mlp, self.record.transposed);
        let linear = |name: &str, shape| LinearSpec {
            transposed,
            ..names::linear(in_layer(i, name), shape, bias)
        };
        let down = linear(record.down, (inner, hidden));
        let Some(gate) = record.gate else {
            return MlpSpec::Plain { up: linear(record.up, (hidden, inner)), down, act };
        };
        let names = [gate, record.up];
        let [gate, up] = names::gate_up(i, names, record.fused_gate_up, (hidden, inner), bias);
        MlpSpec::Gated { gate, up, down, act }
    }

    fn attention(&self, i: usize, kind: LayerKind, rope: Option<usize>) -> AttentionSpec {
        let (record, sizes) = (self.record, self.sizes);
        let shape = (sizes.hidden, sizes.heads);
        let [q, k, v] = match sizes.latent {
            Some(latent) => latent.projections(i, shape, self.qkv_bias),
            None => names::qkv(i, sizes, record, self.qkv_bias),
        };
        let [.., o_name] = record.attention;
        let o_in = sizes.latent.map_or(sizes.q_width(), |latent| sizes.heads * latent.value_dim);
        let o = names::linear(in_layer(i, o_name), (o_in, sizes.hidden), self.o_bias);
        AttentionSpec {
            heads: sizes.heads,
            kv_heads: sizes.kv_heads,
            head_dim: sizes.head_dim,
            scale: self.scale,
            softcap: self.softcap,
            window: match kind {
                LayerKind::Sliding(window) => Some(window),
                LayerKind::Full | LayerKind::Chunked(_) => None,
            },
            chunk: match kind {
                LayerKind::Chunked(chunk) => Some(chunk),
                LayerKind::Full | LayerKind::Sliding(_) => None,
            },
            qk_norm: self
                .qk_norm
                .filter(|norm| rope.is_some() || !norm.only_rotated)
                .map(|norm| self.qk_norm_spec(i, &norm)),
            query_growth: self
                .query_growth
                .filter(|_| rope.is_none() || record.query_growth == GrowthRule::Scaled),
            sinks: record.sinks.map(|name| in_layer(i, name)),
            rope,
            clip_qkv: self.clip_qkv,
            latent: sizes.latent.map(|latent| latent.spec(i, sizes.hidden, self.qkv_bias)),
            q,
            k,
            v,
            o: LinearSpec { transposed: record.transposed, ..o },
        }
    }

    fn qk_norm_spec(&self, i: usize, norm: &QkNormRecord) -> QkNormSpec {
        let sizes = self.sizes;
        let [q_width, k_width] = match norm.span {
            QkNormSpan::Head => [sizes.head_dim; 2],
            QkNormSpan::Token => [sizes.q_width(), sizes.kv_width()],
        };
        let spec = |name: Option<&str>, width| NormSpec {
            kind: norm.kind,
            ..self.norm(name.map(|name| in_layer(i, name)).into_iter().collect(), width)
        };
        let [q_name, k_name] = norm.names.map_or([None; 2], |names| names.map(Some));
        QkNormSpec {
            q: spec(q_name, q_width),
            k: spec(k_name, k_width),
            span: norm.span,
            order: norm.order,
        }
    }
}

fn context(options: &SpecOptions, sizes: &Geometry) -> Result<usize, ArchError> {
    let context = options.context.unwrap_or(sizes.context);
    if limits::CONTEXT.contains(&(context as u64)) {
        return Ok(context);
    }
    Err(ArchError::BadOption {
        option: "context",
        value: context.to_string(),
        min: limits::CONTEXT.start().to_string(),
        max: limits::CONTEXT.end().to_string(),
    })
}

fn head(config: &Config, record: &Record, sizes: &Geometry) -> Result<HeadSpec, ArchError> {
    let tied = config.flag(&["tie_word_embeddings"])?.unwrap_or(record.defaults.tied);
    let shape = (sizes.hidden, sizes.vocab);
    let bias = BiasKey::config("lm_head_bias").read(config)?;
    let mut linear = names::linear(names::HEAD.to_owned(), shape, bias);
    // A head of its own wins even when tied: quantised files store one.
    linear.bases.extend(tied.then(|| names::EMBED.to_owned()));
    Ok(HeadSpec {
        linear,
        scale: multiplier::logit_scale(config, record, sizes)?,
        softcap: multiplier::softcap(
            config,
            "final_logit_softcapping",
            record.defaults.final_softcap,
        )?,
        normalize_rows: config.flag(&["norm_head"])?.unwrap_or(false),
    })
}
