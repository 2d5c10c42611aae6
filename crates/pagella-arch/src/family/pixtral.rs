//! The text side of Pixtral and Mistral Small 3.1 and later; images not yet.

use super::FamilyInfo;
use super::rename::LANGUAGE_MODEL;
use serde_json::Value;

use crate::config::Config;
use crate::error::{ArchError, excerpt};
use crate::feature::unsupported;
use crate::record::{Defaults, Record, WindowRule};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "pixtral",
    architectures: &["LlavaForConditionalGeneration", "Mistral3ForConditionalGeneration"],
    notes: "Pixtral 12B, Mistral Small 3.1 and 3.2, images not yet: the text model is Mistral",
    record: Record {
        window: WindowRule::Every,
        renames: LANGUAGE_MODEL,
        defaults: Defaults {
            context: 131_072,
            head_dim: Some(128),
            window: Some(4096),
            ..Defaults::LLAMA
        },
        ..Record::LLAMA
    },
    check,
    exl2_caution: None,
};

/// Llava is a name for many pairs of models; known is a Mistral with Pixtral's eyes.
fn check(config: &Config) -> Result<(), ArchError> {
    let vision = config.find(&["vision_config.model_type"]).map(|(_, value)| value);
    let text = config.in_text("model_type");
    let refuse = |key: &str, found: Option<&Value>| {
        let found = found.map_or("missing".to_owned(), excerpt);
        Err(unsupported(config, FAMILY.name, format!("`{key}`: {found}")))
    };
    match (vision.and_then(Value::as_str), text.and_then(Value::as_str)) {
        (Some("pixtral"), None | Some("mistral" | "llama")) => Ok(()),
        (Some("pixtral"), _) => refuse("text_config.model_type", text),
        _ => refuse("vision_config.model_type", vision),
    }
}
