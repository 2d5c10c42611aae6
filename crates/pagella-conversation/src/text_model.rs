//! A model that reads and writes text: all that the library, the command and the server need of it.

use std::sync::Arc;

use pagella_engine::constraint::ConstraintCache;
use pagella_engine::{
    DraftModel, EngineError, Forward, Generator, GeneratorOptions, SampleOptions, Worker,
};
use pagella_text::{ChatTemplate, Tokenizer};

/// A model that reads and writes text. Clones are cheap and share its thread, which ends with the last
/// of them.
#[derive(Clone)]
pub struct TextModel {
    /// The thread that computes.
    pub worker: Worker,
    /// Text to ids and back.
    pub tokenizer: Tokenizer,
    /// Messages to text, if the model can talk.
    pub template: Option<ChatTemplate>,
    /// Sampling where nothing else is asked for: what the model recommends, or neutral.
    pub sampling: SampleOptions,
    /// Entries of a row of logits.
    pub vocab: usize,
    /// What its outputs are held to.
    pub constraints: Arc<ConstraintCache>,
}

impl TextModel {
    /// Starts the thread of a model without a template and with neutral sampling, with a model that
    /// guesses for it, if there is one.
    pub fn start(
        forward: Box<dyn Forward>,
        tokenizer: Tokenizer,
        options: GeneratorOptions,
        draft: Option<DraftModel>,
    ) -> Result<Self, EngineError> {
        let vocab = forward.spec().vocab;
        let mut generator = Generator::new(forward, tokenizer.clone(), options)?;
        if let Some(draft) = draft {
            generator.set_draft_model(draft)?;
        }
        let worker = Worker::spawn(generator)?;
        let constraints = Arc::new(ConstraintCache::new(tokenizer.clone(), vocab));
        let (template, sampling) = (None, SampleOptions::default());
        Ok(TextModel { worker, tokenizer, template, sampling, vocab, constraints })
    }
}
