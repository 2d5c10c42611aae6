//! What stands between a model and text: tokenizer, template, recommended settings. What is wrong with
//! them is a finding here, not an error.

use std::path::Path;

use pagella::{Message, Tokenizer};
use pagella_text::{ChatTemplate, RenderOptions, TextError};

use crate::machine::memory_bytes;

/// Whether text can be used with a model.
pub struct TextFacts {
    /// Size of the vocabulary, or what is wrong.
    pub tokenizer: String,
    /// Whether there is a chat template that works.
    pub template: bool,
    /// What is wrong with the one there is.
    pub template_problem: Option<String>,
    /// What is wrong with `generation_config.json`.
    pub generation_problem: Option<String>,
    /// Memory of this process with tokenizer and template loaded: what a run has before the model.
    pub memory_bytes: Option<u64>,
}

impl TextFacts {
    /// Reads the files beside the weights.
    pub fn of(dir: &Path) -> Self {
        let tokenizer = Tokenizer::from_dir(dir);
        let template = ChatTemplate::from_dir(dir);
        let memory_bytes = memory_bytes();
        let template_problem = match &template {
            Ok(template) => trial(template, tokenizer.as_ref().ok()).err(),
            Err(TextError::NoTemplate { .. }) => None,
            Err(error) => Some(error.to_string()),
        };
        TextFacts {
            tokenizer: match &tokenizer {
                Ok(tokenizer) => format!("{} tokens", tokenizer.vocab_size()),
                Err(error) => error.to_string(),
            },
            template: template.is_ok() && template_problem.is_none(),
            template_problem,
            generation_problem: pagella::recommended_sampling(dir).err().map(|e| e.to_string()),
            memory_bytes,
        }
    }

    /// In words, for people.
    pub fn template_words(&self) -> String {
        match (&self.template_problem, self.template) {
            (Some(problem), _) => format!("broken: {problem}"),
            (None, true) => "yes".to_owned(),
            (None, false) => "no".to_owned(),
        }
    }
}

/// Renders the shortest conversation there is.
fn trial(template: &ChatTemplate, tokenizer: Option<&Tokenizer>) -> Result<(), String> {
    let tokens = tokenizer.map(|tokenizer| tokenizer.template_tokens().clone());
    let options = RenderOptions {
        tokens: tokens.unwrap_or_default(),
        add_generation_prompt: true,
        ..RenderOptions::default()
    };
    let rendered = template.render(&[Message::new("user", "Hello")], &options);
    rendered.map(drop).map_err(|error| error.to_string())
}
