//! What a user should know about a model: odd choices, and files that were calibrated with a forward
//! pass other than the model's own.

use crate::config::Config;
use crate::error::excerpt;
use crate::family::FamilyInfo;
use crate::geometry::Geometry;
use crate::record::WindowRule;
use crate::spec::{LayerSpec, QuantFacts, SpecOptions, TokenIds};

/// What may make a model write nonsense, or not end.
pub(crate) fn warnings(
    family: &FamilyInfo,
    architecture: &str,
    options: &SpecOptions,
    sizes: &Geometry,
    tokens: &TokenIds,
) -> Vec<String> {
    let mut warnings = Vec::new();
    if !family.architectures.contains(&architecture) {
        let name = excerpt(&architecture.into());
        warnings.push(format!("unknown architecture {name} is loaded as if it were Llama"));
    }
    let longer = options.context.filter(|context| *context > sizes.context);
    // Whoever scales positions knows that.
    if let (Some(context), None) = (longer, options.rope) {
        let own = sizes.context;
        warnings.push(format!(
            "context {context} is longer than the {own} tokens of the model's config: what is \
             beyond them may be nonsense"
        ));
    }
    let vocab = sizes.vocab;
    for id in tokens.eos.iter().filter(|id| **id as usize >= vocab) {
        warnings.push(format!(
            "`eos_token_id` {id} is outside the vocabulary of {vocab}: no text can end with it"
        ));
    }
    warnings
}

/// The notes of a spec.
pub(crate) fn notes(
    family: &FamilyInfo,
    quant: &QuantFacts,
    layers: &[LayerSpec],
    config: &Config,
) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some((key, layers)) = config.find(&["num_nextn_predict_layers"])
        && layers.as_u64().is_some_and(|layers| layers > 0)
    {
        notes.push(format!("layers that predict further tokens (`{key}`) are not used"));
    }
    // ExLlamaV2 has no latent attention: whoever calibrated such a file used something else.
    if quant.method.as_deref() == Some("exl2") && family.record.latent.is_none() {
        let wrong = family.exl2_caution.into_iter();
        let wrong = wrong.chain(ignored_window(family, layers)).chain(misplaced_ramp(config));
        notes.extend(wrong.map(|what| {
            format!(
                "EXL2 files of this model were calibrated by ExLlamaV2 {what}; this engine runs \
                 the model as it was trained, so output differs from ExLlamaV2"
            )
        }));
    }
    notes
}

/// ExLlamaV2 read the windows of these families and did not use them.
fn ignored_window(family: &FamilyInfo, layers: &[LayerSpec]) -> Option<&'static str> {
    let ignored = matches!(
        family.record.window,
        WindowRule::Every | WindowRule::FromLayer | WindowRule::EveryIfUsed
    );
    let windowed = layers.iter().any(|layer| layer.attn.window.is_some());
    (ignored && windowed).then_some("without the sliding window of its layers")
}

/// ExLlamaV2 placed the ramp of YaRN by the context in use.
fn misplaced_ramp(config: &Config) -> Option<&'static str> {
    let kind =
        config.find(&["rope_scaling.rope_type", "rope_scaling.type", "rope_parameters.rope_type"]);
    (kind?.1.as_str() == Some("yarn"))
        .then_some("with the YaRN ramp placed by its context instead of the original length")
}
