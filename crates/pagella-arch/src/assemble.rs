//! Family record + config → [`ModelSpec`].

use crate::config::Config;
use crate::error::{ArchError, excerpt};
use crate::experts::Experts;
use crate::family::FamilyInfo;
use crate::feature;
use crate::geometry::Geometry;
use crate::limits;
use crate::multiplier;
use crate::names::{self, in_layer};
use crate::record::{AttentionBias, Record};
use crate::rope::{self, RopeRequest, RopeTables};
use crate::spec::*;
use crate::tokens::{quant_facts, token_ids};
use crate::window::{LayerKind, layer_kinds};

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
    let ropes =
        rope::tables(&RopeRequest { config, record, sizes: &sizes, context, user: options.rope })?;
    let shared = Shared::read(family, config, &sizes)?;
    let layer = |(i, kind)| shared.layer(i, kind, record, &sizes, &ropes);
    let layers = kinds.into_iter().enumerate().map(layer).collect();
    let quant = quant_facts(config)?;
    let notes = notes(family, architecture, &quant, options, &sizes);
    Ok(ModelSpec {
        family: family.name,
        architecture: architecture.to_owned(),
        hidden: sizes.hidden,
        vocab: sizes.vocab,
        context,
        embed: EmbedSpec {
            name: names::EMBED.to_owned(),
            scale: multiplier::embed_scale(config, record, &sizes)?,
            positions: None,
        },
        layers,
        final_norm: shared.norm(names::FINAL_NORM.to_owned(), sizes.hidden),
        head: head(config, record, &sizes)?,
        ropes: ropes.tables,
        tokens: token_ids(config, generation)?,
        quant,
        renames: &[],
        requires_bos: record.requires_bos,
        notes,
    })
}

/// What all layers have in common beyond their sizes.
struct Shared {
    norm_eps: f32,
    norm_offset: f32,
    qk_norm: Option<NormKind>,
    qkv_bias: BiasRule,
    o_bias: BiasRule,
    mlp_bias: BiasRule,
    scale: f32,
    softcap: Option<f32>,
    branch_scale: f32,
    act: Activation,
    experts: Option<Experts>,
}

impl Shared {
    fn read(family: &FamilyInfo, config: &Config, sizes: &Geometry) -> Result<Self, ArchError> {
        let record = &family.record;
        let (qkv_bias, o_bias) = match record.attention_bias {
            AttentionBias::Qkv => (BiasRule::Required, BiasRule::Forbidden),
            AttentionBias::Config => {
                let both = bias(config, "attention_bias")?;
                (both, both)
            }
        };
        Ok(Self {
            norm_eps: config.required_float(&["rms_norm_eps"], limits::NORM_EPS)? as f32,
            norm_offset: record.norm_offset,
            qk_norm: feature::qk_norm(family, config)?,
            qkv_bias,
            o_bias,
            mlp_bias: bias(config, "mlp_bias")?,
            scale: multiplier::attention_scale(config, record, sizes)?,
            softcap: multiplier::softcap(
                config,
                "attn_logit_softcapping",
                record.defaults.attn_softcap,
            )?,
            branch_scale: multiplier::branch_scale(config, sizes)?,
            act: feature::activation(family, config)?,
            experts: record
                .experts
                .as_ref()
                .map(|experts| Experts::read(config, experts, sizes))
                .transpose()?,
        })
    }

    fn norm(&self, base: String, width: usize) -> NormSpec {
        names::rms_norm(base, width, self.norm_eps, self.norm_offset)
    }

    fn layer(
        &self,
        i: usize,
        kind: LayerKind,
        record: &Record,
        sizes: &Geometry,
        ropes: &RopeTables,
    ) -> LayerSpec {
        let norm = |name: &str| self.norm(in_layer(i, name), sizes.hidden);
        LayerSpec {
            order: BlockOrder::Sequential,
            attn_pre_norm: Some(norm(record.layer_norms.pre_attn)),
            attn: self.attention(i, kind, record, sizes, ropes),
            attn_post_norm: record.layer_norms.post_attn.map(norm),
            mlp_pre_norm: Some(norm(record.layer_norms.pre_mlp)),
            mlp: self.mlp(i, record, sizes),
            mlp_post_norm: record.layer_norms.post_mlp.map(norm),
            branch_scale: self.branch_scale,
        }
    }

    fn mlp(&self, i: usize, record: &Record, sizes: &Geometry) -> MlpSpec {
        let (bias, act) = (self.mlp_bias, self.act);
        let experts = self.experts.as_ref();
        if let Some(moe) = experts.and_then(|e| e.layer(i, sizes.hidden, bias, act)) {
            return MlpSpec::Moe(Box::new(moe));
        }
        let [gate, up] = names::gate_up(i, sizes, record, bias);
        let down_shape = (sizes.intermediate, sizes.hidden);
        let down = names::linear(in_layer(i, ".mlp.down_proj"), down_shape, bias);
        MlpSpec::Gated { gate, up, down, act }
    }

    fn attention(
        &self,
        i: usize,
        kind: LayerKind,
        record: &Record,
        sizes: &Geometry,
        ropes: &RopeTables,
    ) -> AttentionSpec {
        let [q, k, v] = names::qkv(i, sizes, record, self.qkv_bias);
        let o_shape = (sizes.q_width(), sizes.hidden);
        let head_norm =
            |kind, name: &str| NormSpec { kind, ..self.norm(in_layer(i, name), sizes.head_dim) };
        AttentionSpec {
            heads: sizes.heads,
            kv_heads: sizes.kv_heads,
            head_dim: sizes.head_dim,
            scale: self.scale,
            softcap: self.softcap,
            window: match kind {
                LayerKind::Full => None,
                LayerKind::Sliding(window) => Some(window),
            },
            qk_norm: self.qk_norm.map(|kind| QkNormSpec {
                q: head_norm(kind, ".self_attn.q_norm"),
                k: head_norm(kind, ".self_attn.k_norm"),
            }),
            rope: Some(ropes.index(kind)),
            clip_qkv: None,
            q,
            k,
            v,
            o: names::linear(in_layer(i, ".self_attn.o_proj"), o_shape, self.o_bias),
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
    let mut linear = names::linear(names::HEAD.to_owned(), shape, bias(config, "lm_head_bias")?);
    // A head of its own wins even when tied: quantised files store one.
    linear.bases.extend(tied.then(|| names::EMBED.to_owned()));
    Ok(HeadSpec {
        linear,
        scale: multiplier::logit_scale(config)?,
        softcap: multiplier::softcap(
            config,
            "final_logit_softcapping",
            record.defaults.final_softcap,
        )?,
        normalize_rows: config.flag(&["norm_head"])?.unwrap_or(false),
    })
}

fn bias(config: &Config, key: &str) -> Result<BiasRule, ArchError> {
    let stated = config.flag(&[key])?.unwrap_or(false);
    Ok(if stated { BiasRule::Required } else { BiasRule::Forbidden })
}

fn notes(
    family: &FamilyInfo,
    architecture: &str,
    quant: &QuantFacts,
    options: &SpecOptions,
    sizes: &Geometry,
) -> Vec<String> {
    let mut notes = Vec::new();
    if !family.architectures.contains(&architecture) {
        let name = excerpt(&architecture.into());
        notes.push(format!("unknown architecture {name} is loaded as if it were Llama"));
    }
    if let Some(context) = options.context.filter(|context| *context > sizes.context) {
        let own = sizes.context;
        notes.push(format!(
            "context {context} is longer than the {own} tokens of the model's config"
        ));
    }
    notes.extend((family.caution)(quant).map(str::to_owned));
    notes
}
