//! How a model writes its answers: where reasoning stands in them.

use pagella_text::Tokenizer;

use crate::reasoning::{Tags, channels};

/// How a model writes its answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AnswerStyle {
    /// Everything is the answer.
    #[default]
    Plain,
    /// Reasoning stands between tags.
    Tagged(Tags),
    /// Reasoning, calls and the answer stand in channels.
    Channels,
}

/// How the text of one answer is told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marking {
    /// By tags.
    Tags {
        /// The tags.
        tags: Tags,
        /// The answer begins inside them.
        inside: bool,
    },
    /// By channels.
    Channels {
        /// How the prompt begins the answer.
        opening: String,
    },
}

impl AnswerStyle {
    /// As the source of a template and the tokens of the model show.
    pub fn of(source: &str, tokenizer: &Tokenizer) -> Self {
        match channels::are_spoken(source, tokenizer) {
            true => AnswerStyle::Channels,
            false => Tags::of(source, tokenizer).map_or(AnswerStyle::Plain, AnswerStyle::Tagged),
        }
    }

    /// The tags, where there are any.
    pub fn tags(&self) -> Option<&Tags> {
        match self {
            AnswerStyle::Tagged(tags) => Some(tags),
            AnswerStyle::Plain | AnswerStyle::Channels => None,
        }
    }

    /// What the end of a prompt holds that begins the answer.
    pub fn opening_mark(&self) -> Option<&str> {
        match self {
            AnswerStyle::Plain => None,
            AnswerStyle::Tagged(tags) => Some(&tags.start),
            AnswerStyle::Channels => Some(channels::START),
        }
    }

    /// Special tokens that must appear in the text, so that it can be told apart.
    pub fn shown_ids(&self, tokenizer: &Tokenizer) -> Vec<u32> {
        match self {
            AnswerStyle::Plain => Vec::new(),
            AnswerStyle::Tagged(tags) => tags.special_ids(tokenizer),
            AnswerStyle::Channels => channels::mark_ids(tokenizer),
        }
    }

    /// Whether an answer that the prompt begins with `opening` begins inside reasoning.
    pub fn begins_inside(&self, opening: &str) -> bool {
        self.tags().is_some_and(|tags| tags.are_open(opening))
    }

    /// How one answer is told apart: the prompt begins it with `opening`, perhaps `inside` reasoning.
    pub fn marking(&self, opening: String, inside: bool) -> Option<Marking> {
        match self {
            AnswerStyle::Plain => None,
            AnswerStyle::Tagged(tags) => Some(Marking::Tags { tags: tags.clone(), inside }),
            AnswerStyle::Channels => Some(Marking::Channels { opening }),
        }
    }
}
