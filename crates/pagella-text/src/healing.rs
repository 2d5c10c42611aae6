//! Token healing: how many trailing ids of a prompt to take back, so that the model can choose a
//! token that runs across the prompt's end.

use crate::tokenizer::Tokenizer;

/// Most ids taken back; a prompt end rarely spans more than two tokens.
const HEALED_IDS_MAX: usize = 4;

/// Where a prompt is cut for healing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealingPoint {
    /// How many leading ids to keep.
    pub keep: usize,
    /// The bytes of the ids taken back; the generated text must begin with them.
    pub prefix: Vec<u8>,
}

impl Tokenizer {
    /// Backs up while the last id's bytes are a strict prefix of another token. Special tokens and
    /// the first id are never taken back.
    pub fn healing_point(&self, ids: &[u32]) -> HealingPoint {
        let mut keep = ids.len();
        let mut prefix = Vec::new();
        while keep > 1 && ids.len() - keep < HEALED_IDS_MAX {
            let id = ids[keep - 1];
            let bytes = self.token_bytes(id);
            if self.is_special(id) || bytes.is_empty() {
                break;
            }
            let mut candidate = bytes.to_vec();
            candidate.extend_from_slice(&prefix);
            let longer = |id: &u32| self.token_bytes(*id).len() > candidate.len();
            if !self.ids_with_prefix(&candidate).iter().any(longer) {
                break;
            }
            prefix = candidate;
            keep -= 1;
        }
        HealingPoint { keep, prefix }
    }

    /// Ids that may come first after healing: those that begin with the removed bytes, and those
    /// that the removed bytes begin with. Sorted.
    pub fn healing_ids(&self, prefix: &[u8]) -> Vec<u32> {
        let mut ids = self.ids_with_prefix(prefix).to_vec();
        ids.extend(self.ids_that_begin(prefix));
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}
