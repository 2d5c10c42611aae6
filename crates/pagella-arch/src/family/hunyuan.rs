//! Hunyuan V1, dense: heads are normed after rotation; the base of rotation is stretched by alpha.

use super::FamilyInfo;
use crate::config::Config;
use crate::error::ArchError;
use crate::feature::unsupported;
use crate::record::{Defaults, QkNormRecord, Record};
use crate::spec::QkNormOrder;

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "hunyuan",
    architectures: &["HunYuanDenseV1ForCausalLM"],
    notes: "Hunyuan 0.5B to 7B, Hunyuan-MT: heads normed after rotation",
    record: RECORD,
    check,
    exl2_caution: None,
};

pub(super) const RECORD: Record = Record {
    qk_norm: Some(QkNormRecord {
        order: QkNormOrder::AfterRope,
        names: Some([".self_attn.query_layernorm", ".self_attn.key_layernorm"]),
        ..QkNormRecord::RMS
    }),
    defaults: Defaults { context: 2048, ..Defaults::LLAMA },
    ..Record::LLAMA
};

/// Neighbouring layers may share keys and values, which is not known here.
pub(super) fn check(config: &Config) -> Result<(), ArchError> {
    for key in ["use_cla", "use_mla"] {
        if config.flag(&[key])? == Some(true) {
            return Err(unsupported(config, FAMILY.name, format!("`{key}`: true")));
        }
    }
    Ok(())
}
