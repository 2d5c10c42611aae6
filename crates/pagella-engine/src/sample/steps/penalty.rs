//! Repetition, frequency and presence penalties, on logits.
//!
//! The history is walked backwards, newest id first. Repetition and presence act once per id, with
//! the weight of its newest occurrence, frequency once per occurrence. With factor 1 and the other
//! two 0 the logits stay bitwise unchanged. Ids beyond the vocabulary are ignored.

use crate::sample::SampleOptions;

/// Whether the step does anything with these settings.
pub fn is_on(options: &SampleOptions) -> bool {
    let reaches = options.penalty_range != Some(0) || options.penalty_decay > 0;
    let acts = options.repetition_penalty != 1.0
        || options.frequency_penalty != 0.0
        || options.presence_penalty != 0.0;
    reaches && acts
}

/// Strengths and reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Penalties {
    /// Positive logits are divided by it, others multiplied; 1 is off.
    pub repetition: f32,
    /// Subtracted once for every occurrence; 0 is off.
    pub frequency: f32,
    /// Subtracted once for every id that occurred; 0 is off.
    pub presence: f32,
    /// How many of the newest ids count fully; `None` means all.
    pub range: Option<usize>,
    /// Over how many older ids the weight falls to nothing.
    pub decay: usize,
}

impl Penalties {
    /// Nothing is penalised.
    pub const OFF: Penalties =
        Penalties { repetition: 1.0, frequency: 0.0, presence: 0.0, range: None, decay: 0 };

    /// Whether any of them does something.
    pub fn active(&self) -> bool {
        self.repetition != 1.0 || self.frequency != 0.0 || self.presence != 0.0
    }

    /// How many of the newest ids count at all, in a history of this length.
    pub fn reach(&self, history_len: usize) -> usize {
        self.range.unwrap_or(history_len).saturating_add(self.decay)
    }

    /// The weight of an id so far from the end; the first id behind the range still counts fully.
    fn weight(&self, distance: usize, range: usize) -> f32 {
        if self.decay == 0 || distance <= range {
            return 1.0;
        }
        1.0 - (distance - range) as f32 / self.decay as f32
    }
}

/// Lowers the logits of ids in `history`. `seen` is scratch; its contents do not matter.
pub fn apply(penalties: &Penalties, history: &[u32], logits: &mut [f32], seen: &mut Vec<u64>) {
    if !penalties.active() {
        return;
    }
    seen.clear();
    seen.resize(logits.len().div_ceil(64), 0);
    let range = penalties.range.unwrap_or(history.len());
    let reach = penalties.reach(history.len());
    for (distance, &id) in history.iter().rev().take(reach).enumerate() {
        let Some(logit) = logits.get_mut(id as usize) else { continue };
        let weight = penalties.weight(distance, range);
        let word = &mut seen[id as usize / 64];
        let bit = 1 << (id % 64);
        if *word & bit == 0 {
            *word |= bit;
            let factor = 1.0 + (penalties.repetition - 1.0) * weight;
            *logit = if *logit > 0.0 { *logit / factor } else { *logit * factor };
            *logit -= penalties.presence * weight;
        }
        *logit -= penalties.frequency * weight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn penalised(penalties: Penalties, history: &[u32]) -> Vec<f32> {
        let mut logits = vec![2.0, -2.0, 1.0, 0.5];
        apply(&penalties, history, &mut logits, &mut Vec::new());
        logits
    }

    #[test]
    fn repetition_divides_positive_logits_and_multiplies_others_once() {
        let penalties = Penalties { repetition: 2.0, ..Penalties::OFF };
        assert_eq!(penalised(penalties, &[0, 1, 0, 0]), [1.0, -4.0, 1.0, 0.5]);
    }

    #[test]
    fn presence_counts_ids_and_frequency_occurrences() {
        let presence = Penalties { presence: 0.5, ..Penalties::OFF };
        assert_eq!(penalised(presence, &[2, 2, 3]), [2.0, -2.0, 0.5, 0.0]);
        let frequency = Penalties { frequency: 0.5, ..Penalties::OFF };
        assert_eq!(penalised(frequency, &[2, 2, 3]), [2.0, -2.0, 0.0, 0.0]);
    }

    #[test]
    fn range_counts_from_the_newest_id() {
        let penalties = Penalties { presence: 1.0, range: Some(2), ..Penalties::OFF };
        assert_eq!(penalised(penalties, &[0, 1, 2, 3]), [2.0, -2.0, 0.0, -0.5]);
        assert_eq!(
            penalised(Penalties { range: Some(0), ..penalties }, &[0]),
            [2.0, -2.0, 1.0, 0.5]
        );
    }

    #[test]
    fn the_newest_occurrence_sets_the_weight_of_repetition_and_presence() {
        let fading = Penalties { presence: 1.0, range: Some(0), decay: 4, ..Penalties::OFF };
        // Id 2 at distances 1 and 3; id 3 at distance 0 only.
        assert_eq!(penalised(fading, &[2, 9, 2, 3]), [2.0, -2.0, 0.25, -0.5]);
        let frequency = Penalties { presence: 0.0, frequency: 1.0, ..fading };
        assert_eq!(penalised(frequency, &[2, 9, 2, 3]), [2.0, -2.0, 0.0, -0.5]);
    }

    #[test]
    fn neutral_values_unknown_ids_and_empty_histories_change_nothing() {
        let unchanged = [2.0, -2.0, 1.0, 0.5];
        assert_eq!(penalised(Penalties::OFF, &[0, 1, 2]), unchanged);
        let strong =
            Penalties { repetition: 3.0, frequency: 1.0, presence: 1.0, range: None, decay: 0 };
        assert_eq!(penalised(strong, &[]), unchanged);
        assert_eq!(penalised(strong, &[4, 1000, u32::MAX]), unchanged);
    }
}
