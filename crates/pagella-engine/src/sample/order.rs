//! The order of the steps.
//!
//! Steps on logits stand before steps on probabilities; between the two, masks are applied and the
//! softmax is taken. A step listed but switched off does nothing; a step switched on but not listed
//! is an error, so that no setting is ignored silently.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::OptionsError;
use super::steps::Step;

/// The steps as they are applied. In JSON a list of names, or `"exl2"` for the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SamplerOrder {
    steps: Vec<Step>,
}

impl SamplerOrder {
    /// The order of ExLlamaV2 with our additions in their places.
    pub fn exl2() -> Self {
        SamplerOrder { steps: Step::ALL.to_vec() }
    }

    /// These steps; [`SamplerOrder::validate`] says whether they make an order.
    pub fn new(steps: Vec<Step>) -> Self {
        SamplerOrder { steps }
    }

    /// Every step, the listed ones in their order: what works on logits comes first, what is listed
    /// twice counts once, and what is not listed follows what it usually follows.
    pub fn completed(listed: &[Step]) -> Self {
        let mut steps: Vec<Step> = Vec::new();
        for step in listed {
            if !steps.contains(step) {
                steps.push(*step);
            }
        }
        steps.sort_by_key(|step| !step.is_on_logits());
        for (idx, step) in Step::ALL.iter().enumerate() {
            if !steps.contains(step) {
                let before = idx.checked_sub(1).map(|before| Step::ALL[before]);
                let place = steps.iter().position(|other| Some(*other) == before);
                steps.insert(place.map_or(0, |place| place + 1), *step);
            }
        }
        steps.sort_by_key(|step| !step.is_on_logits());
        SamplerOrder { steps }
    }

    /// The steps, first to last.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Whether a step is listed.
    pub fn contains(&self, step: Step) -> bool {
        self.steps.contains(&step)
    }

    /// Checks that no step is listed twice and none on logits after one on probabilities.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let refuse = |allowed: &'static str| {
            Err(OptionsError {
                name: "sampler_order",
                value: self.to_string(),
                allowed: allowed.into(),
            })
        };
        if self.steps.iter().enumerate().any(|(i, step)| self.steps[..i].contains(step)) {
            return refuse("every step at most once");
        }
        if !self.steps.is_sorted_by_key(|step| !step.is_on_logits()) {
            return refuse("penalties, bias and dry before all others");
        }
        Ok(())
    }
}

impl Default for SamplerOrder {
    fn default() -> Self {
        SamplerOrder::exl2()
    }
}

impl fmt::Display for SamplerOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == SamplerOrder::exl2() {
            return f.write_str("exl2");
        }
        let names: Vec<&str> = self.steps.iter().map(|step| step.name()).collect();
        f.write_str(&names.join(", "))
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Name(String),
    Steps(Vec<String>),
}

impl<'de> Deserialize<'de> for SamplerOrder {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let names = match Written::deserialize(from)? {
            Written::Name(name) if name == "exl2" => return Ok(SamplerOrder::exl2()),
            Written::Name(name) => {
                let message = format!("{name:?} is no order: write \"exl2\" or a list of steps");
                return Err(de::Error::custom(message));
            }
            Written::Steps(names) => names,
        };
        let step = |name: String| {
            Step::from_name(&name).ok_or_else(|| {
                let known: Vec<&str> = Step::ALL.iter().map(|step| step.name()).collect();
                let known = known.join(", ");
                de::Error::custom(format!("{name:?} is no step: choose among {known}"))
            })
        };
        Ok(SamplerOrder { steps: names.into_iter().map(step).collect::<Result<_, _>>()? })
    }
}

impl Serialize for SamplerOrder {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if *self == SamplerOrder::exl2() {
            return to.serialize_str("exl2");
        }
        to.collect_seq(self.steps.iter().map(|step| step.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_completed_with_what_it_does_not_list() {
        assert_eq!(SamplerOrder::completed(&[]), SamplerOrder::exl2());
        assert_eq!(SamplerOrder::completed(Step::ALL), SamplerOrder::exl2());
        let listed = [Step::MinP, Step::TopK, Step::MinP, Step::Temperature, Step::Dry];
        let order = SamplerOrder::completed(&listed);
        assert_eq!(order.validate(), Ok(()));
        assert_eq!(order.steps().len(), Step::ALL.len());
        let at = |step: Step| order.steps().iter().position(|other| *other == step).unwrap();
        assert!(at(Step::MinP) < at(Step::TopK) && at(Step::TopK) < at(Step::Temperature));
        assert_eq!(at(Step::TopP), at(Step::TopK) + 1);
    }

    #[test]
    fn orders_that_cannot_be_applied_are_errors() {
        assert_eq!(SamplerOrder::exl2().validate(), Ok(()));
        let twice = SamplerOrder::new(vec![Step::TopK, Step::TopP, Step::TopK]);
        assert_eq!(twice.validate().unwrap_err().value, "top_k, top_p, top_k");
        let late = SamplerOrder::new(vec![Step::Temperature, Step::Dry]);
        assert_eq!(
            late.validate().unwrap_err().allowed,
            "penalties, bias and dry before all others"
        );
    }
}
