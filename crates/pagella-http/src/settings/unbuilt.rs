//! Keys for what is not built, of other programs or for later. A file that states them is accepted as
//! long as what it says changes nothing here.

use toml::Value;

use super::setting::Setting;
use super::value::toml_or_text;

/// Keys with the values that change nothing, as TOML. An empty text is always one.
const NEUTRAL: &[(&str, &str, &[&str])] = &[
    ("network", "fetch", &["false"]),
    ("network", "fetch_allow", &["[]"]),
    ("limits", "images", &["16"]),
    ("limits", "image_bytes", &["20971520"]),
    ("limits", "image_pixels", &["40000000"]),
    ("model", "cpu_moe_offload_layers", &["0"]),
    ("model", "output_chunking", &["true"]),
    ("model", "vision", &["false"]),
    ("model", "muse_glimmer", &["auto", "false"]),
    ("draft_model", "draft_gpu_split", &["[]"]),
    ("draft_model", "ngram_match_min", &["2"]),
    ("embeddings", "embedding_model_name", &[]),
    ("memory", "sysmem_kv_cache", &["0"]),
    ("developer", "realtime_process_priority", &["false"]),
];

/// Keys that change nothing here, whatever they say.
const INERT: &[(&str, &str)] = &[
    ("model", "backend"),
    // With one device there is nobody to talk to.
    ("model", "tensor_parallel_backend"),
    ("embeddings", "embedding_model_dir"),
    ("embeddings", "embeddings_device"),
    ("memory", "sysmem_recurrent_cache"),
    ("memory", "cuda_malloc_async"),
    ("developer", "unsafe_launch"),
    ("developer", "seqlog"),
    ("developer", "seqlog_dir"),
];

/// All of them.
pub(super) fn entries() -> impl Iterator<Item = Setting> {
    let inert = INERT.iter().map(|path| Setting::unbuilt(*path, |_| Ok(())));
    let neutral = NEUTRAL.iter().map(|(section, key, neutral)| {
        Setting::unbuilt((section, key), move |value| {
            match value.as_str() == Some("") || neutral.iter().any(|known| says(known, value)) {
                true => Ok(()),
                false => Err(format!("left out: {section}.{key} is not built")),
            }
        })
    });
    neutral.chain(inert)
}

/// Whether a value says what a text does, `1` and `1.0` alike.
fn says(text: &str, value: &Value) -> bool {
    let known = toml_or_text(text);
    let number = |value: &Value| value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
    known == *value || number(&known).is_some_and(|known| Some(known) == number(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_built_accepts_what_changes_nothing() {
        for (section, key, neutral) in NEUTRAL {
            let path = format!("{section}.{key}");
            let setting = crate::settings::find(&path).unwrap();
            let check = |text: &str| setting.check(&setting.parse(text).unwrap());
            neutral.iter().chain(&[""]).for_each(|text| assert_eq!(check(text), Ok(()), "{text}"));
            assert!(check("17.5").unwrap_err().contains(&path));
        }
    }
}
