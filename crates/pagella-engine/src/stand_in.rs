//! A model for tests of scheduling and text: logits are a checksum of the ids the cache holds.
//!
//! It stores ids where a real cache stores keys and values, page by page, so a wrong position, a
//! stale page or a forgotten chunk changes the logits. It serves these tests only; everything about
//! the quality of text is tested on the demo model.

use std::sync::{Arc, Mutex};

use pagella_arch::{ModelSpec, SpecOptions, spec_from_json};
use pagella_backend::{PAGE_TOKENS, StepPlan};
use pagella_text::Tokenizer;

use crate::{EngineError, Forward};

/// Size of the stand-in's vocabulary.
pub const VOCAB: usize = 64;

/// A tokenizer for it: ids 0–51 are the letters a–z and A–Z, 52 is a space, 53–55 are the three
/// bytes of `€`, 56 is `END`, 57 a control token. Ids above have no token.
pub fn tokenizer() -> Tokenizer {
    let letters = ('a'..='z').chain('A'..='Z').map(String::from);
    // The byte-level alphabet writes a space as Ġ and the bytes E2 82 AC as below.
    let rest = ["Ġ", "â", "Ĥ", "¬", "END", "<|end|>"].map(String::from);
    let vocab: Vec<String> =
        letters.chain(rest).enumerate().map(|(id, piece)| format!("{piece:?}: {id}")).collect();
    let json = format!(
        r#"{{"model": {{"type": "BPE", "vocab": {{{}}}, "merges": []}},
            "pre_tokenizer": {{"type": "ByteLevel", "add_prefix_space": false,
                "trim_offsets": true, "use_regex": false}},
            "decoder": {{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}},
            "added_tokens": [{{"id": 57, "content": "<|end|>", "special": true}}]}}"#,
        vocab.join(", ")
    );
    Tokenizer::from_json_bytes(json.as_bytes()).unwrap()
}

/// The stand-in; clones share their record of steps.
#[derive(Clone)]
pub struct StandIn {
    spec: ModelSpec,
    step_tokens_max: usize,
    pages: Vec<[u32; PAGE_TOKENS]>,
    record: Arc<Mutex<Record>>,
}

#[derive(Default)]
struct Record {
    /// `(past, new tokens, logits)` of every step.
    steps: Vec<(usize, usize, usize)>,
    fail_at: Option<usize>,
    /// Ids that win, by the position of the token they follow, instead of the checksum.
    script: Vec<(usize, u32)>,
}

impl StandIn {
    /// A stand-in with this context, in tokens.
    pub fn new(context: usize, step_tokens_max: usize) -> Self {
        let config = format!(
            r#"{{"architectures": ["LlamaForCausalLM"], "vocab_size": {VOCAB}, "hidden_size": 64,
                "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 64,
                "rms_norm_eps": 1e-5, "max_position_embeddings": {context}}}"#
        );
        let spec = spec_from_json(config.as_bytes(), None, &SpecOptions::default()).unwrap();
        let pages = vec![[u32::MAX; PAGE_TOKENS]; context.div_ceil(PAGE_TOKENS)];
        StandIn { spec, step_tokens_max, pages, record: Arc::default() }
    }

    /// Makes `ids` win from the token at `position` on, whatever the checksum says.
    pub fn script(&self, position: usize, ids: &[u32]) {
        let mut record = self.record.lock().unwrap();
        record.script = (position..).zip(ids.iter().copied()).collect();
    }

    /// Every step so far: `(past, new tokens, logits)`.
    pub fn steps(&self) -> Vec<(usize, usize, usize)> {
        self.record.lock().unwrap().steps.clone()
    }

    /// Makes the step with this index fail, once.
    pub fn fail_at_step(&self, step: usize) {
        self.record.lock().unwrap().fail_at = Some(step);
    }

    /// A hash of all ids up to `position`, spread over the vocabulary.
    fn logits_at(&self, plan: &StepPlan, position: usize) -> Vec<f32> {
        let script = &self.record.lock().unwrap().script;
        if let Some(&(_, id)) = script.iter().find(|(p, _)| *p == position) {
            return (0..VOCAB).map(|i| f32::from(u8::from(i == id as usize))).collect();
        }
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for at in 0..=position {
            let page = plan.pages(0)[at / PAGE_TOKENS] as usize;
            hash = (hash ^ u64::from(self.pages[page][at % PAGE_TOKENS]))
                .wrapping_mul(0x100_0000_01b3);
        }
        (0..VOCAB as u64)
            .map(|i| ((hash >> (i % 56)) & 0xff) as f32 / 64.0 + i as f32 * 1e-3)
            .collect()
    }
}

impl Forward for StandIn {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn step_tokens_max(&self) -> usize {
        self.step_tokens_max
    }

    fn cache_tokens(&self) -> usize {
        self.pages.len() * PAGE_TOKENS
    }

    fn forward(&mut self, plan: &StepPlan, logits: &mut Vec<f32>) -> Result<(), EngineError> {
        assert!(plan.tokens() <= self.step_tokens_max);
        let mut record = self.record.lock().unwrap();
        if record.fail_at == Some(record.steps.len()) {
            record.fail_at = None;
            return Err(EngineError::LogitsShape { expected: 1, found: 0 });
        }
        record.steps.push((plan.past(0), plan.tokens(), plan.logit_tokens().len()));
        drop(record);
        for (offset, &id) in plan.ids().iter().enumerate() {
            let at = plan.past(0) + offset;
            self.pages[plan.pages(0)[at / PAGE_TOKENS] as usize][at % PAGE_TOKENS] = id;
        }
        logits.clear();
        for &token in plan.logit_tokens() {
            logits.extend(self.logits_at(plan, plan.past(0) + token as usize));
        }
        Ok(())
    }
}
