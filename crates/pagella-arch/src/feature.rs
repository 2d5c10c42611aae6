//! Structural features a config may ask a family for: granted, or refused by name.

use crate::config::Config;
use crate::error::{ArchError, excerpt};
use crate::experts;
use crate::family::FamilyInfo;
use crate::limits;
use crate::record::{BiasKey, QkNormRecord};
use crate::spec::{Activation, BiasRule};

impl BiasKey {
    /// What the config says about the bias.
    pub(crate) fn read(&self, config: &Config) -> Result<BiasRule, ArchError> {
        let stated = match self.key {
            Some(key) => config.flag(&[key])?,
            None => None,
        };
        Ok(match stated {
            Some(true) => BiasRule::Required,
            Some(false) => BiasRule::Forbidden,
            None => self.absent,
        })
    }
}

/// Activation of the MLP: stated, else the family's.
pub(crate) fn activation(family: &FamilyInfo, config: &Config) -> Result<Activation, ArchError> {
    let (key, default) = family.record.activation;
    let stated = config.text(&[key])?;
    if let Activation::ClampedSwiglu { limit } = default {
        // The key says what its gate would be without the clamp; no other clamp is known.
        if let Some(other) = stated.filter(|name| !["silu", "swish"].contains(name)) {
            let feature = format!("`{key}`: {}", excerpt(&other.into()));
            return Err(unsupported(config, family.name, feature));
        }
        let stated = config.float(&["swiglu_limit"], limits::CLIP)?;
        return Ok(Activation::ClampedSwiglu { limit: stated.map_or(limit, |x| x as f32) });
    }
    Ok(match stated {
        None => default,
        Some("silu" | "swish") => Activation::Silu,
        Some("gelu_pytorch_tanh" | "gelu_new") => Activation::GeluTanh,
        Some("gelu") => Activation::GeluErf,
        Some("quick_gelu") => Activation::QuickGelu,
        Some("relu2" | "relu_squared") => Activation::Relu2,
        Some(other) => {
            return Err(unsupported(
                config,
                family.name,
                format!("`{key}`: {}", excerpt(&other.into())),
            ));
        }
    })
}

/// Norm of queries and keys: the family's, if the config does not switch it off or on.
pub(crate) fn qk_norm(
    family: &FamilyInfo,
    config: &Config,
) -> Result<Option<QkNormRecord>, ArchError> {
    match (config.flag(&["use_qk_norm"])?, family.record.qk_norm) {
        (Some(false), _) => Ok(None),
        // Which norm would be meant is the family's to say.
        (Some(true), None) => {
            Err(unsupported(config, family.name, "`use_qk_norm`: true".to_owned()))
        }
        (stated, norm) => Ok(norm.filter(|norm| stated.unwrap_or(norm.default_on))),
    }
}

/// A config with experts in a dense family is of a model that only looks like one of it.
pub(crate) fn refuse_experts(family: &FamilyInfo, config: &Config) -> Result<(), ArchError> {
    if family.record.experts.is_some() {
        return Ok(());
    }
    match config.find(experts::NAMES) {
        Some((key, value))
            if value.as_u64().is_none_or(|n| !limits::DENSE_EXPERTS.contains(&n)) =>
        {
            Err(unsupported(config, family.name, format!("`{key}`: {}", excerpt(value))))
        }
        _ => Ok(()),
    }
}

/// The error for a feature, given as key and value, that the family does not have here.
pub(crate) fn unsupported(config: &Config, family: &'static str, feature: String) -> ArchError {
    ArchError::Unsupported { file: config.file(), family, feature }
}
