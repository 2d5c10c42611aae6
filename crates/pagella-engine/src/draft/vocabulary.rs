//! `Vocabularies`: the ids of a draft model and those of the model it drafts for.
//!
//! Both must mean the same text by an id, or by different ids that can be translated one for one:
//! ids share positions and pages, so one id cannot stand for two.

use std::collections::HashMap;

use pagella_text::Tokenizer;

/// Why a draft model cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "the draft model's vocabulary does not fit: {missing} of its {vocab} tokens, such as {example:?} (id \
     {id}), are not in the model's; take a draft model with the same tokenizer"
)]
pub struct VocabularyError {
    /// Tokens of the draft model that the model does not have.
    pub missing: usize,
    /// Tokens of the draft model.
    pub vocab: usize,
    /// The first such token.
    pub example: String,
    /// Its id.
    pub id: u32,
}

/// Translates ids between two models.
#[derive(Clone, Debug)]
pub struct Vocabularies {
    /// Leading ids of the draft model that have a token.
    draft_tokens: usize,
    /// `None`: ids are the same.
    maps: Option<Maps>,
}

#[derive(Clone, Debug)]
struct Maps {
    /// By id of the model. Tokens that the draft model does not have become its first one: what it
    /// guesses after them is worse for it, and no less exact once checked.
    to_draft: Vec<u32>,
    /// By id of the draft model.
    to_model: Vec<u32>,
}

impl Vocabularies {
    /// Compares what ids stand for.
    pub fn new(draft: &Tokenizer, model: &Tokenizer) -> Result<Self, VocabularyError> {
        let draft_tokens = draft.vocab_size();
        let same = |id: u32| draft.piece(id).is_none() || token(draft, id) == token(model, id);
        if draft_tokens <= model.vocab_size() && (0..draft_tokens as u32).all(same) {
            return Ok(Vocabularies { draft_tokens, maps: None });
        }
        let mut ids = HashMap::new();
        for id in (0..model.vocab_size() as u32).rev() {
            ids.extend(token(model, id).map(|token| (token, id)));
        }
        let mut maps = Maps { to_draft: vec![0; model.vocab_size()], to_model: Vec::new() };
        let mut missing = None;
        // From the last, so that the first of several ids of one token is the one that counts.
        for id in (0..draft_tokens as u32).rev() {
            let known = token(draft, id).map(|token| ids.get(&token));
            match known {
                Some(Some(&of_model)) => maps.to_draft[of_model as usize] = id,
                Some(None) => missing = Some((missing.map_or(1, |(count, _)| count + 1), id)),
                // An id without a token stands for none of the model's.
                None => {}
            }
            maps.to_model.push(known.flatten().copied().unwrap_or(0));
        }
        maps.to_model.reverse();
        match missing {
            None => Ok(Vocabularies { draft_tokens, maps: Some(maps) }),
            Some((missing, id)) => {
                let example = draft.piece(id).unwrap_or_default().to_owned();
                Err(VocabularyError { missing, vocab: draft_tokens, example, id })
            }
        }
    }

    /// The same where the draft model has logits for the first `vocab` ids only.
    pub(crate) fn within(mut self, vocab: usize) -> Self {
        self.draft_tokens = self.draft_tokens.min(vocab);
        for id in self.maps.iter_mut().flat_map(|maps| &mut maps.to_draft) {
            if *id as usize >= self.draft_tokens {
                *id = 0;
            }
        }
        self
    }

    /// Whether ids have to be translated.
    pub fn translates(&self) -> bool {
        self.maps.is_some()
    }

    /// Leading entries of the draft model's logits that belong to tokens.
    pub(crate) fn draft_tokens(&self) -> usize {
        self.draft_tokens
    }

    /// An id of the model as the draft model's.
    pub(crate) fn to_draft(&self, id: u32) -> u32 {
        match &self.maps {
            // Padding of the model's vocabulary has no counterpart.
            None if id as usize >= self.draft_tokens => 0,
            None => id,
            Some(maps) => maps.to_draft.get(id as usize).copied().unwrap_or(0),
        }
    }

    /// An id of the draft model as the model's.
    pub(crate) fn to_model(&self, id: u32) -> u32 {
        match &self.maps {
            None => id,
            Some(maps) => maps.to_model.get(id as usize).copied().unwrap_or(0),
        }
    }
}

/// What an id stands for: its bytes, and for control tokens its name. `None` without a token.
fn token(tokenizer: &Tokenizer, id: u32) -> Option<(Vec<u8>, bool)> {
    let piece = tokenizer.piece(id)?;
    let special = tokenizer.is_special(id);
    let bytes = if special { piece.as_bytes() } else { tokenizer.token_bytes(id) };
    Some((bytes.to_vec(), special))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tokenizer with these words at ids counted up, and control tokens after them. An empty word is an
    /// id without a token.
    fn words(words: &[&str], special: &[&str]) -> Tokenizer {
        let named = words.iter().enumerate().filter(|(_, word)| !word.is_empty());
        let vocab: Vec<String> = named.map(|(id, word)| format!("{word:?}: {id}")).collect();
        let added = special.iter().enumerate().map(|(idx, name)| {
            format!(r#"{{"id": {}, "content": {name:?}, "special": true}}"#, words.len() + idx)
        });
        let json = format!(
            r#"{{"model": {{"type": "BPE", "vocab": {{{}}}, "merges": []}}, "added_tokens": [{}]}}"#,
            vocab.join(", "),
            added.collect::<Vec<_>>().join(", ")
        );
        Tokenizer::from_json_bytes(json.as_bytes()).unwrap()
    }

    #[test]
    fn equal_vocabularies_are_not_translated_and_padding_does_not_count() {
        let model = words(&["a", "b", "c"], &["<|end|>", "<|more|>"]);
        let same = Vocabularies::new(&model, &model).unwrap();
        assert!(!same.translates());
        assert_eq!((same.to_draft(1), same.to_model(4), same.draft_tokens()), (1, 4, 5));
        assert_eq!(same.to_draft(99), 0);
    }

    #[test]
    fn other_ids_for_the_same_texts_are_translated() {
        let model = words(&["a", "b", "c"], &["<|end|>"]);
        let draft = words(&["b", "a"], &["<|end|>"]);
        let both = Vocabularies::new(&draft, &model).unwrap();
        assert!(both.translates());
        assert_eq!([0, 1, 2].map(|id| both.to_model(id)), [1, 0, 3]);
        assert_eq!([0, 1, 2, 3].map(|id| both.to_draft(id)), [1, 0, 0, 2]);
    }

    #[test]
    fn an_id_without_a_token_takes_no_place_of_another() {
        let model = words(&["a", "b"], &["<|end|>"]);
        let draft = words(&["b", "a", "", ""], &["<|end|>"]);
        let both = Vocabularies::new(&draft, &model).unwrap();
        assert_eq!([0, 1, 2].map(|id| both.to_draft(id)), [1, 0, 4]);
        assert_eq!([0, 1, 2, 4].map(|id| both.to_model(id)), [1, 0, 0, 2]);
    }

    #[test]
    fn ids_that_the_draft_model_has_no_logits_for_are_not_fed_to_it() {
        let model = words(&["a", "b", "c"], &["<|end|>"]);
        let draft = words(&["c", "b", "a"], &["<|end|>"]);
        let both = Vocabularies::new(&draft, &model).unwrap().within(2);
        assert_eq!([0, 1, 2, 3].map(|id| both.to_draft(id)), [0, 1, 0, 0]);
        assert_eq!(both.draft_tokens(), 2);
        let same = Vocabularies::new(&model, &model).unwrap().within(2);
        assert_eq!([0, 1, 2, 3].map(|id| same.to_draft(id)), [0, 1, 0, 0]);
    }

    #[test]
    fn a_token_that_the_model_does_not_have_is_the_reason_to_refuse() {
        let model = words(&["a", "b"], &["<|end|>"]);
        // A control token is another thing than text that looks the same.
        let draft = words(&["b", "x", "<|end|>"], &[]);
        let error = Vocabularies::new(&draft, &model).unwrap_err();
        assert_eq!((error.missing, error.id), (2, 1));
        assert!(error.to_string().contains("\"x\" (id 1)"), "{error}");
    }
}
