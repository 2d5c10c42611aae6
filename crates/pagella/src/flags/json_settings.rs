//! Sampling settings from JSON, on top of others: the names of `SampleOptions` and those of other
//! programs.

use pagella::SampleOptions;
use serde_json::{Map, Value};

/// `base` with the given settings in place of its own. A null leaves a setting alone.
pub fn with_json_settings(
    base: &SampleOptions,
    given: &Map<String, Value>,
) -> Result<SampleOptions, String> {
    let mut options = base.clone();
    for (name, value) in given.iter().filter(|(_, value)| !value.is_null()) {
        options.set(name, value.clone())?;
    }
    options.validate().map_err(|error| error.to_string())?;
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with(base: &SampleOptions, given: Value) -> Result<SampleOptions, String> {
        with_json_settings(base, given.as_object().unwrap())
    }

    #[test]
    fn settings_replace_their_own_under_every_name() {
        let mut base = SampleOptions { typical: 0.5, top_k: 7, ..SampleOptions::default() };
        base.logit_bias.insert(5, f32::NEG_INFINITY);
        assert_eq!(with(&base, json!({})).unwrap(), base);
        assert_eq!(with(&base, json!({"typical": null})).unwrap(), base);
        for name in ["typical", "typical_p"] {
            let changed = with(&base, json!({ name: 0.25 })).unwrap();
            assert_eq!(changed, SampleOptions { typical: 0.25, ..base.clone() });
        }
        let changed = with(&base, json!({"token_repetition_range": -1, "top_k": -1})).unwrap();
        assert_eq!(changed, SampleOptions { top_k: 0, ..base.clone() });
    }

    #[test]
    fn what_is_unknown_or_out_of_range_is_refused_by_name() {
        let base = SampleOptions::default();
        for (given, part) in [
            (json!({"temprature": 1}), "temprature"),
            (json!({"temperature": "hot"}), "number"),
            (json!({"top_p": 2}), "top_p"),
            (json!({"typical": 0.1, "typical_p": 0.2}), ""),
        ] {
            let said = with(&base, given.clone());
            match part {
                // Both are read; the last one counts.
                "" => assert_eq!(said.unwrap().typical, 0.2),
                part => assert!(said.clone().unwrap_err().contains(part), "{given}: {said:?}"),
            }
        }
    }
}
