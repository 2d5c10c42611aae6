//! Which rotary tables a config asks for: `rope_theta`, `rope_scaling` or `rope_parameters`, per
//! layer kind where stated, and the user's override.

use super::{Frequencies, METHODS, Method, Rotation, linear, ntk, yarn};
use crate::config::Config;
use crate::error::{ArchError, excerpt};
use crate::geometry::Geometry;
use crate::limits;
use crate::record::{LocalRope, Record};
use crate::spec::{RopeOverride, RopeSpec, RopeStyle};
use crate::window::LayerKind;

/// Tables of a model, and which layers use which.
#[derive(Clone, Debug)]
pub(crate) struct RopeTables {
    /// One table, or two when sliding layers have their own; none where no layer rotates.
    pub tables: Vec<RopeSpec>,
    sliding: usize,
    /// Factor of scores beside that of sin and cos; latent attention takes it.
    pub score_factor: f64,
}

impl Default for RopeTables {
    /// No layer rotates.
    fn default() -> Self {
        Self { tables: Vec::new(), sliding: 0, score_factor: 1.0 }
    }
}

impl RopeTables {
    /// Index of the table for a layer.
    pub fn index(&self, kind: LayerKind) -> usize {
        match kind {
            LayerKind::Full => 0,
            LayerKind::Sliding(_) | LayerKind::Chunked(_) => self.sliding,
        }
    }
}

/// What every table is made from.
pub(crate) struct RopeRequest<'a> {
    pub config: &'a Config,
    pub record: &'a Record,
    pub sizes: &'a Geometry,
    /// Context that will be served, in tokens.
    pub context: usize,
    pub user: Option<RopeOverride>,
}

/// Resolves the rotary tables of a model.
pub(crate) fn tables(request: &RopeRequest<'_>) -> Result<RopeTables, ArchError> {
    let stated = scaling_object(request.config, request.record)?;
    let full = stated.object(&["full_attention"])?;
    let sliding = stated.object(&["sliding_attention"])?;
    let (full, sliding) = match (full, sliding) {
        (None, None) => return request.by_record(&stated),
        (Some(full), Some(sliding)) => (full, sliding),
        (None, _) => return Err(stated.missing(&["full_attention"])),
        (_, None) => return Err(stated.missing(&["sliding_attention"])),
    };
    let (full, score_factor) = request.table(&full)?;
    let (sliding, _) = request.table(&sliding)?;
    Ok(RopeTables { score_factor, ..RopeTables::of(full, sliding) })
}

impl RopeTables {
    fn of(full: RopeSpec, sliding: RopeSpec) -> Self {
        if full == sliding {
            Self { tables: vec![full], ..Self::default() }
        } else {
            Self { tables: vec![full, sliding], sliding: 1, ..Self::default() }
        }
    }
}

impl RopeRequest<'_> {
    /// The tables where one scaling object serves all layers: those with a window may have a table
    /// of their own by the family's rule, which no scaling concerns.
    fn by_record(&self, stated: &Config) -> Result<RopeTables, ArchError> {
        let (full, score_factor) = self.table(stated)?;
        let theta = match self.record.local_rope {
            LocalRope::Same => {
                return Ok(RopeTables { tables: vec![full], sliding: 0, score_factor });
            }
            LocalRope::Unscaled => self.theta(stated)?,
            LocalRope::Theta(default) => {
                self.config.float(&["rope_local_base_freq"], limits::ROPE_THETA)?.unwrap_or(default)
            }
        };
        let plain = RopeRequest { user: None, ..*self };
        let (sliding, _) = plain.table_of_base(&Config::empty(self.config.file()), theta)?;
        Ok(RopeTables { score_factor, ..RopeTables::of(full, sliding) })
    }

    /// The rotary base of a scaling object.
    fn theta(&self, params: &Config) -> Result<f64, ArchError> {
        let names = &["rope_theta", "attn_config.rope_theta"];
        Ok(match params.float(&["rope_theta"], limits::ROPE_THETA)? {
            Some(theta) => theta,
            None => self
                .config
                .float(names, limits::ROPE_THETA)?
                .unwrap_or(self.record.defaults.rope_theta),
        })
    }

    /// The table described by one scaling object, and the factor of scores.
    fn table(&self, params: &Config) -> Result<(RopeSpec, f64), ArchError> {
        check_override(self.user)?;
        self.table_of_base(params, self.theta(params)?)
    }

    fn table_of_base(&self, params: &Config, theta: f64) -> Result<(RopeSpec, f64), ArchError> {
        let dim = self.rotary_dim(params)?;
        let base = match self.user {
            Some(RopeOverride::NtkAlpha(alpha)) => ntk::base(params, theta, f64::from(alpha), dim)?,
            _ => theta,
        };
        let rotation = Rotation {
            params,
            dim,
            base,
            context: self.context,
            positions: self.sizes.positions,
            original: self.original_length(params)?,
        };
        let Frequencies { inv_freq, attention_factor, score_factor } =
            self.frequencies(&rotation)?;
        let spec = RopeSpec {
            style: self.style()?,
            rotary_dim: dim,
            inv_freq,
            attention_factor,
            position_offset: 0,
        };
        Ok((spec, score_factor))
    }

    /// The family's pairing, unless a model with latent attention states its own.
    fn style(&self) -> Result<RopeStyle, ArchError> {
        let interleaved = match self.record.latent {
            Some(_) => self.config.flag(&["rope_interleave"])?,
            None => None,
        };
        Ok(match interleaved {
            Some(true) => RopeStyle::GptJ,
            Some(false) => RopeStyle::Neox,
            None => self.record.rope_style,
        })
    }

    fn frequencies(&self, rotation: &Rotation<'_>) -> Result<Frequencies, ArchError> {
        let kind = kind(rotation.params, self.record)?;
        let run = |name: &str| method(rotation.params, name)?(rotation);
        match self.user {
            Some(RopeOverride::Linear(factor)) if kind == "linear" => {
                Ok(linear::divide(run("default")?, f64::from(factor)))
            }
            Some(RopeOverride::Linear(factor)) => Ok(linear::divide(run(kind)?, f64::from(factor))),
            Some(RopeOverride::Yarn(factor)) => {
                let original =
                    if kind == "yarn" { rotation.original } else { self.sizes.positions };
                let rotation = Rotation { original, ..*rotation };
                Ok(yarn::with_factor(&rotation, f64::from(factor), self.record.latent.is_some()))
            }
            Some(RopeOverride::NtkAlpha(_)) | None => run(kind),
        }
    }

    /// Rotated width: the first part of each head.
    fn rotary_dim(&self, params: &Config) -> Result<usize, ArchError> {
        let names = &["partial_rotary_factor"];
        let part = match params.float(names, limits::PARTIAL_ROTARY)? {
            Some(part) => part,
            None => self
                .config
                .float(names, limits::PARTIAL_ROTARY)?
                .unwrap_or(self.record.defaults.partial_rotary),
        };
        let head_dim = self.sizes.rope_head();
        // MiniMax states the width itself, and may state the share as well.
        if let Some(dim) = self.config.count(&["rotary_dim"], limits::HEAD_DIM)?
            && dim <= head_dim
            && dim.is_multiple_of(2)
        {
            return Ok(dim);
        }
        // Truncates like transformers; `part` is at most 1.
        let dim = (head_dim as f64 * part) as usize;
        if dim == 0 || !dim.is_multiple_of(2) {
            let problem = format!(
                "`partial_rotary_factor` {part} of `head_dim` {head_dim} rotates {dim} \
                 elements, which must be even and not 0"
            );
            return Err(self.config.inconsistent(problem));
        }
        Ok(dim)
    }

    /// Length before scaling. Phi 3 states it at the top level, where it wins; others inside.
    fn original_length(&self, params: &Config) -> Result<usize, ArchError> {
        let names = &["original_max_position_embeddings"];
        let outer = self.config.count(names, limits::CONTEXT)?;
        let inner = params.count(names, limits::CONTEXT)?;
        let default = self.record.defaults.original_context;
        Ok(outer.or(inner).or(default).unwrap_or(self.sizes.positions))
    }
}

/// `rope_scaling`, else `rope_parameters` of newer configs, else the family's.
pub(crate) fn scaling_object(config: &Config, record: &Record) -> Result<Config, ArchError> {
    for name in ["rope_scaling", "rope_parameters"] {
        if let Some(object) = config.object(&[name])?.filter(|object| !object.is_empty()) {
            return Ok(object);
        }
    }
    Config::parse(config.file(), record.defaults.rope_scaling.as_bytes())
}

/// The method's name. `type` and `rope_type` may both be there if they agree or one of them is
/// `default`.
fn kind<'a>(params: &'a Config, record: &Record) -> Result<&'a str, ArchError> {
    let kind = match (params.text(&["rope_type"])?, params.text(&["type"])?) {
        (None, None) if params.find(&["factor"]).is_some() => {
            return Err(params.missing(&["rope_type", "type"]));
        }
        (None, None) => "default",
        (Some(kind), None) | (None, Some(kind)) => kind,
        (Some("default"), Some(kind)) | (Some(kind), Some("default")) => kind,
        (Some(new), Some(old)) if new == old => new,
        (Some(new), Some(old)) => {
            let (new, old) = (excerpt(&new.into()), excerpt(&old.into()));
            return Err(params.inconsistent(format!("`rope_type` is {new} but `type` is {old}")));
        }
    };
    Ok(match kind {
        "yarn" if record.yarn_means_longrope => "longrope",
        kind => kind,
    })
}

fn method(params: &Config, kind: &str) -> Result<Method, ArchError> {
    let found = METHODS.iter().find(|(name, _)| *name == kind);
    found.map(|(_, method)| *method).ok_or_else(|| ArchError::UnknownRopeKind {
        file: params.file(),
        key: params.path("rope_type"),
        kind: excerpt(&kind.into()),
        known: METHODS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
    })
}

fn check_override(user: Option<RopeOverride>) -> Result<(), ArchError> {
    let (option, value, range) = match user {
        None => return Ok(()),
        Some(RopeOverride::Linear(factor)) => ("rope linear factor", factor, limits::ROPE_FACTOR),
        Some(RopeOverride::NtkAlpha(alpha)) => ("rope alpha", alpha, limits::NTK_ALPHA),
        Some(RopeOverride::Yarn(factor)) => ("rope yarn factor", factor, limits::ROPE_FACTOR),
    };
    if range.contains(&f64::from(value)) {
        return Ok(());
    }
    Err(ArchError::BadOption {
        option,
        value: value.to_string(),
        min: range.start().to_string(),
        max: range.end().to_string(),
    })
}
