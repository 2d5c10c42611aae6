//! The bias of single ids, on logits. Masked ids stay masked, whatever the bias.

use std::collections::BTreeMap;

use crate::sample::SampleOptions;

/// Whether the step does anything with these settings.
pub fn is_on(options: &SampleOptions) -> bool {
    !options.logit_bias.is_empty()
}

/// Adds every bias to its logit; −∞ denies, +∞ decides. Ids beyond the row are ignored.
pub fn apply(bias: &BTreeMap<u32, f32>, logits: &mut [f32]) {
    for (&id, &bias) in bias {
        let Some(logit) = logits.get_mut(id as usize) else { continue };
        if *logit == f32::NEG_INFINITY || bias == f32::NEG_INFINITY {
            *logit = f32::NEG_INFINITY;
        } else {
            *logit += bias;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infinite_biases_never_make_nan() {
        let inf = f32::INFINITY;
        let bias = BTreeMap::from([(0, 1.5), (1, -inf), (2, inf), (3, inf), (4, -inf), (900, 1.0)]);
        let mut logits = [1.0, 2.0, 3.0, -inf, inf, 6.0];
        apply(&bias, &mut logits);
        assert_eq!(logits, [2.5, -inf, inf, -inf, -inf, 6.0]);
    }
}
