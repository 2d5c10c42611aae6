//! `Acceptance`: how often guesses were right, by where they came from.

/// Where a guess came from. Guesses of a lookup are the likelier the more ids before them matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The constraint allows no other text.
    Forced,
    /// Found behind so many ids that were the newest ones.
    Lookup(usize),
    /// The same, in the text that came with the job.
    Prediction(usize),
    /// A draft model.
    Model,
    /// The ids of a rehearsed answer, some of them made wrong; for measuring.
    Rehearsed,
}

/// Classes that are counted apart: forced, five lengths of a match, model, rehearsed.
const CLASSES: usize = 8;

impl Source {
    fn class(self) -> usize {
        match self {
            Source::Forced => 0,
            Source::Lookup(matched) | Source::Prediction(matched) => match matched {
                0..=2 => 1,
                3..=4 => 2,
                5..=8 => 3,
                9..=16 => 4,
                _ => 5,
            },
            Source::Model => 6,
            Source::Rehearsed => 7,
        }
    }
}

/// What is assumed of each class before anything is known.
const ASSUMED: [f64; CLASSES] = [0.97, 0.3, 0.5, 0.7, 0.8, 0.9, 0.6, 0.7];
/// How many guesses the assumption, or what others saw, counts as.
const PRIOR_GUESSES: f64 = 4.0;
/// How much of what was seen counts on with every further guess: some thirty guesses.
const KEPT: f64 = 0.97;

/// Right and wrong guesses of one class, the newest ones most.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    right: f64,
    all: f64,
}

/// Rates of one job, or of all jobs together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acceptance {
    rates: [Rate; CLASSES],
}

impl Acceptance {
    /// A guess was right or not, all before it having been right.
    pub fn note(&mut self, source: Source, right: bool) {
        let rate = &mut self.rates[source.class()];
        rate.right = KEPT * rate.right + f64::from(u8::from(right));
        rate.all = KEPT * rate.all + 1.0;
    }

    /// How likely the next guess is right, where `others` tell what to think before enough was seen.
    pub fn likely(&self, source: Source, others: &Acceptance) -> f64 {
        let class = source.class();
        let assumed = others.rates[class].with(ASSUMED[class]);
        self.rates[class].with(assumed)
    }
}

impl Rate {
    fn with(&self, assumed: f64) -> f64 {
        (self.right + PRIOR_GUESSES * assumed) / (self.all + PRIOR_GUESSES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_learns_from_itself_and_first_from_others() {
        let (mut job, mut all) = (Acceptance::default(), Acceptance::default());
        let source = Source::Lookup(3);
        assert_eq!(job.likely(source, &all), 0.5);
        (0..200).for_each(|_| all.note(source, false));
        assert!(job.likely(source, &all) < 0.1);
        (0..200).for_each(|_| job.note(source, true));
        assert!(job.likely(source, &all) > 0.8);
        assert_eq!(job.likely(Source::Model, &all), 0.6, "other sources are not concerned");
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let (mut job, all) = (Acceptance::default(), Acceptance::default());
        (0..1000).for_each(|_| job.note(Source::Model, true));
        (0..90).for_each(|_| job.note(Source::Model, false));
        assert!(job.likely(Source::Model, &all) < 0.2);
    }
}
