//! Which tokens of an answer are reasoning and which are content, by where their text lies.

use std::collections::VecDeque;

use pagella_engine::Record;

/// Tells the tokens of one choice apart.
pub struct TokenSplit {
    /// Tokens of which it is not known what they are: where their text ends, and what is told.
    waiting: VecDeque<(usize, Record)>,
    /// What is known of tokens is kept.
    tells: bool,
    /// Tokens of reasoning.
    pub reasoning: usize,
}

impl TokenSplit {
    pub fn new(tells: bool) -> Self {
        TokenSplit { waiting: VecDeque::new(), tells, reasoning: 0 }
    }

    /// The tokens of content that became certain with a record. Content begins at byte `from`, if
    /// that is known; with `all_reasoning` there is none yet. Of what follows, `to` bytes are
    /// certainly content, or all.
    pub fn push(
        &mut self,
        record: &Record,
        from: Option<usize>,
        all_reasoning: bool,
        to: Option<usize>,
    ) -> Record {
        for (idx, &end) in record.token_ends.iter().enumerate() {
            let told = if self.tells { one(record, idx) } else { Record::default() };
            self.waiting.push_back((end, told));
        }
        let mut content = Record::default();
        let to = from.and_then(|from| Some(from + to?)).unwrap_or(usize::MAX);
        while let Some((end, _)) = self.waiting.front() {
            let is_reasoning = all_reasoning || from.is_some_and(|from| *end <= from && from > 0);
            let is_content = !is_reasoning && from.is_some() && *end <= to;
            if !is_reasoning && !is_content && !record.is_last() {
                break;
            }
            let Some((_, told)) = self.waiting.pop_front() else { break };
            self.reasoning += usize::from(is_reasoning);
            if is_content {
                content.merge(told);
            }
        }
        content
    }
}

/// What a record says of one of its tokens.
fn one(record: &Record, idx: usize) -> Record {
    fn at<T: Clone>(list: &[T], idx: usize) -> Vec<T> {
        list.get(idx).cloned().into_iter().collect()
    }
    Record {
        token_ids: at(&record.token_ids, idx),
        token_probs: at(&record.token_probs, idx),
        top_k: at(&record.top_k, idx),
        logprobs: at(&record.logprobs, idx),
        ..Record::default()
    }
}
