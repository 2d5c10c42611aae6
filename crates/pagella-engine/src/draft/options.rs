//! `DraftOptions`: whether and how far ids are guessed before the model checks them.

/// How many ids are guessed before they are checked together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DraftDepth {
    /// None: every step writes one id of a job.
    #[default]
    Off,
    /// As many as pay, by how often guesses were right and by what steps have cost.
    Adaptive,
    /// So many wherever there are guesses.
    Fixed(usize),
}

/// Where guesses come from and how many are made. Text is the same whatever is chosen here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DraftOptions {
    /// How many ids are guessed.
    pub depth: DraftDepth,
    /// Most ids that are guessed at once, whatever a job or the depth says.
    pub guesses_max: usize,
    /// Look for the newest ids in the prompt, in what was written, and in recent jobs of the same
    /// namespace, and guess that they go on as they did there.
    pub lookup: bool,
    /// Ids of recent jobs that are remembered of one namespace, for a few namespaces.
    pub recent_ids_max: usize,
    /// A draft model stops guessing where its best id is less likely than this.
    pub probability_min: f32,
}

impl DraftOptions {
    /// Most ids that are guessed at once.
    pub const GUESSES_MAX: usize = 31;
}

impl Default for DraftOptions {
    fn default() -> Self {
        DraftOptions {
            depth: DraftDepth::Off,
            guesses_max: Self::GUESSES_MAX,
            lookup: true,
            recent_ids_max: 1 << 15,
            probability_min: 0.25,
        }
    }
}
