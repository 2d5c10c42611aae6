//! The order of sampling steps by Kobold's numbers.
//!
//! The numbers name seven steps. KoboldCpp has more, which stand at fixed places around them: what
//! works on logits goes with the penalties, min-p follows top-p, exclusion of top choices comes last.

use serde_json::{Value, json};

use crate::fields::{out_of_range, wrong_type};
use crate::wire::error::ApiError;

const NAME: &str = "sampler_order";
/// The number of the penalties, which work on logits and so come first.
const PENALTIES: u64 = 6;

/// Our steps of each number.
const STEPS: [&[&str]; 7] = [
    &["top_k"],
    &["top_a"],
    &["top_p", "min_p"],
    &["tfs"],
    &["typical"],
    &["temperature", "post_temperature"],
    &["penalties"],
];

/// Numbers as names of steps; a list of names stays as it is.
pub fn named(order: &Value) -> Result<Value, ApiError> {
    let Value::Array(list) = order else { return Ok(order.clone()) };
    if !list.first().is_some_and(Value::is_number) {
        return Ok(order.clone());
    }
    let mut steps: Vec<&str> = Vec::new();
    for (place, number) in list.iter().enumerate() {
        let path = format!("{NAME}[{place}]");
        let number = number.as_u64().ok_or_else(|| wrong_type(&*path, "a number from 0 to 6"))?;
        let idx = usize::try_from(number).unwrap_or(usize::MAX);
        let ours = STEPS.get(idx).ok_or_else(|| out_of_range(&*path, "from 0 to 6"))?;
        if number == PENALTIES && place > 0 {
            return Err(out_of_range(NAME, "a list in which 6, the penalties, comes first"));
        }
        if ours.iter().any(|step| steps.contains(step)) {
            return Err(out_of_range(NAME, "a list with every number at most once"));
        }
        steps.extend(*ours);
    }
    let after_penalties = usize::from(steps.first() == Some(&"penalties"));
    steps.splice(after_penalties..after_penalties, ["bias", "dry", "top_n_sigma"]);
    if !steps.contains(&"min_p") {
        steps.push("min_p");
    }
    steps.extend(["mirostat", "xtc"]);
    Ok(json!(steps))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagella_engine::sample::{SamplerOrder, Step};

    #[test]
    fn numbers_become_an_order_that_can_be_applied() {
        for numbers in [json!([6, 0, 1, 3, 4, 2, 5]), json!([5, 2]), json!([6])] {
            let names = named(&numbers).unwrap();
            let names = names.as_array().unwrap().iter();
            let steps = names.map(|name| Step::from_name(name.as_str().unwrap()).unwrap());
            SamplerOrder::new(steps.collect()).validate().unwrap();
        }
        let usual = named(&json!([6, 0, 1, 3, 4, 2, 5])).unwrap();
        let expected = json!([
            "penalties",
            "bias",
            "dry",
            "top_n_sigma",
            "top_k",
            "top_a",
            "tfs",
            "typical",
            "top_p",
            "min_p",
            "temperature",
            "post_temperature",
            "mirostat",
            "xtc"
        ]);
        assert_eq!(usual, expected);
    }

    #[test]
    fn what_is_no_order_is_refused_and_names_stay() {
        for numbers in [json!([0, 6]), json!([7]), json!([0, 0]), json!([0, "x"]), json!([1.5])] {
            assert!(named(&numbers).is_err(), "{numbers}");
        }
        for same in [json!(["top_k"]), json!("exl2"), json!([])] {
            assert_eq!(named(&same).unwrap(), same);
        }
    }
}
