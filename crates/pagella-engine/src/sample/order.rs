//! The steps and their order.
//!
//! Steps on logits stand before steps on probabilities; between the two, masks are applied and the
//! softmax is taken. A step listed but switched off does nothing; a step switched on but not listed
//! is an error, so that no setting is ignored silently.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::OptionsError;

macro_rules! steps {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// A step of sampling.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Step {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Step {
            /// All steps in the default order.
            pub const ALL: &[Step] = &[$(Step::$name),+];

            /// The name in lists.
            pub fn name(self) -> &'static str {
                match self { $(Step::$name => $text),+ }
            }

            /// What an order without this step lacks.
            pub(super) fn missing(self) -> &'static str {
                match self {
                    $(Step::$name => concat!("a list with ", $text, ", whose setting is on")),+
                }
            }
        }
    };
}

steps! {
    /// Repetition, frequency and presence penalties, on logits.
    Penalties = "penalties",
    /// The bias of single ids, on logits.
    Bias = "bias",
    /// The penalty for extending a repetition, on logits.
    Dry = "dry",
    /// Temperature or smoothing.
    Temperature = "temperature",
    /// Ids within standard deviations of the most likely.
    TopNSigma = "top_n_sigma",
    /// The k most likely.
    TopK = "top_k",
    /// The most likely with a given mass.
    TopP = "top_p",
    /// Ids near the square of the highest probability.
    TopA = "top_a",
    /// Ids near the highest probability.
    MinP = "min_p",
    /// Tail-free.
    Tfs = "tfs",
    /// Ids of ordinary surprise.
    Typical = "typical",
    /// A lowest probability.
    EpsilonCutoff = "epsilon_cutoff",
    /// A lowest probability that follows the entropy.
    EtaCutoff = "eta_cutoff",
    /// The cut-off that adapts.
    Mirostat = "mirostat",
    /// The temperature when it is applied last, or follows the entropy.
    PostTemperature = "post_temperature",
    /// Exclusion of top choices.
    Xtc = "xtc",
}

impl Step {
    /// The step of that name.
    pub fn from_name(name: &str) -> Option<Step> {
        Step::ALL.iter().copied().find(|step| step.name() == name)
    }

    /// Whether the step changes logits rather than probabilities.
    pub fn is_on_logits(self) -> bool {
        matches!(self, Step::Penalties | Step::Bias | Step::Dry)
    }
}

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
        let refuse =
            |allowed| Err(OptionsError { name: "sampler_order", value: self.to_string(), allowed });
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

    #[test]
    fn names_lead_to_steps_and_back() {
        for step in Step::ALL {
            assert_eq!(Step::from_name(step.name()), Some(*step));
            assert!(step.missing().contains(step.name()));
        }
        assert_eq!(Step::from_name("softmax"), None);
    }
}
