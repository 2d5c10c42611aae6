//! The tokenizer of one model: where it is loaded, and what can be asked of it.
//! Immutable after loading, cheap to clone and shared between threads.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use crate::control::{self, ConfigFiles, ControlIds, PadToken};
use crate::error::TextError;
use crate::file::{self, SENTENCEPIECE_BYTES_MAX, TOKENIZER_JSON_BYTES_MAX};
use crate::pipeline::Pipeline;
use crate::source::{AddedToken, Parts, check_id, sentencepiece, tokenizer_json};
use crate::template::{ChatTemplate, TemplateTokens};
use crate::vocab::{TokenFlags, Vocab};

/// Vocabularies that are recognised in order to say what to do about them.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("tekken.json", "Tekken"),
    ("tokenizer.tiktoken", "tiktoken"),
    ("qwen.tiktoken", "tiktoken"),
    ("tiktoken.model", "tiktoken"),
];

/// A tokenizer; see the [crate page](crate) for what it guarantees.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<Inner>,
}

struct Inner {
    file: String,
    vocab: Vocab,
    pipeline: Pipeline,
    control: ControlIds,
    strips_first_space: bool,
    template_tokens: TemplateTokens,
}

impl Tokenizer {
    /// Loads the tokenizer of a model directory: `tokenizer.json`, else `tokenizer.model`, with the
    /// configuration files beside it.
    pub fn from_dir(dir: &Path) -> Result<Self, TextError> {
        let mut parts = read_parts(dir)?;
        let files = ConfigFiles {
            model: file::read_config(dir, "config.json")?,
            generation: file::read_config(dir, "generation_config.json")?,
            tokenizer: file::read_config(dir, "tokenizer_config.json")?,
            special_map: file::read_config(dir, "special_tokens_map.json")?,
        };
        let added_file = file::read_config(dir, "added_tokens.json")?;
        merge_added(&mut parts, &files, &added_file)?;
        let mut tokenizer = Self::build(parts, &files)?;
        // A template that does not load is reported when it is used; here it only gives a hint.
        if let Ok(template) = ChatTemplate::from_dir(dir) {
            tokenizer.learn_end_of_turn(&template);
        }
        Ok(tokenizer)
    }

    /// Loads a `tokenizer.json` on its own.
    pub fn from_json_bytes(data: &[u8]) -> Result<Self, TextError> {
        file::check_size("tokenizer.json", data.len() as u64, TOKENIZER_JSON_BYTES_MAX)?;
        Self::build(tokenizer_json::parse("tokenizer.json", data)?, &ConfigFiles::default())
    }

    /// Loads a SentencePiece `tokenizer.model` on its own.
    pub fn from_sentencepiece_bytes(data: &[u8]) -> Result<Self, TextError> {
        file::check_size("tokenizer.model", data.len() as u64, SENTENCEPIECE_BYTES_MAX)?;
        Self::build(sentencepiece::parse("tokenizer.model", data)?, &ConfigFiles::default())
    }

    fn build(mut parts: Parts, files: &ConfigFiles) -> Result<Self, TextError> {
        mark_named_specials(&mut parts, files);
        let parts = Arc::new(parts);
        // Both take long for a large vocabulary and neither needs the other.
        let (vocab, pipeline) = std::thread::scope(|scope| {
            let vocab = scope.spawn(|| Vocab::new(&parts));
            let pipeline = Pipeline::new(Arc::clone(&parts));
            (vocab.join(), pipeline)
        });
        let panicked = || TextError::field(&parts.file, "the vocabulary", "cannot be indexed");
        let vocab = vocab.map_err(|_| panicked())??;
        let pipeline = pipeline?;
        if vocab.size() == 0 {
            return Err(TextError::field(
                &parts.file,
                "the vocabulary",
                "is empty: download it again",
            ));
        }
        let control = control::resolve(&parts, &vocab, files)?;
        let text = |id: Option<u32>| id.and_then(|id| vocab.piece(id)).map(str::to_owned);
        let template_tokens = TemplateTokens {
            bos: text(control.bos),
            eos: text(control.eos.iter().copied().find(|id| vocab.piece(*id).is_some())),
            pad: text(control.pad),
            unk: text(control.unk),
            specials: parts.added.iter().filter(|t| t.special).map(|t| t.content.clone()).collect(),
            normalizes_specials: parts.added.iter().any(|t| t.special && t.normalized),
        };
        Ok(Self {
            inner: Arc::new(Inner {
                file: parts.file.clone(),
                vocab,
                pipeline,
                control,
                strips_first_space: parts.bytes.strip_first_space,
                template_tokens,
            }),
        })
    }

    /// Adds the token the template puts after an assistant message to the end tokens.
    fn learn_end_of_turn(&mut self, template: &ChatTemplate) {
        let Some(after) = template.text_after_assistant(&self.inner.template_tokens) else {
            return;
        };
        let Ok(ids) = self.encode_special(after.trim_start()) else { return };
        if let (Some(first), Some(inner)) = (ids.first(), Arc::get_mut(&mut self.inner))
            && inner.vocab.flags(*first).special
            && Some(*first) != inner.control.bos
        {
            inner.control.add_eos(*first);
        }
    }

    /// Fails if a token has an id the model has no row for.
    pub fn check_vocab(&self, model_vocab: usize) -> Result<(), TextError> {
        let first = (model_vocab..self.vocab_size()).find_map(|id| {
            let id = u32::try_from(id).ok()?;
            Some((id, self.piece(id)?))
        });
        match first {
            None => Ok(()),
            Some((id, piece)) => Err(TextError::IdOutsideModel {
                file: self.inner.file.clone(),
                piece: piece.into(),
                id,
                vocab: model_vocab,
            }),
        }
    }

    /// One more than the highest id.
    pub fn vocab_size(&self) -> usize {
        self.inner.vocab.size()
    }

    /// The bytes an id stands for; empty for ids without a token.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.inner.vocab.bytes_of(id)
    }

    /// The token as the vocabulary writes it.
    pub fn piece(&self, id: u32) -> Option<&str> {
        self.inner.vocab.piece(id)
    }

    /// The id of a token, written exactly as in the vocabulary.
    pub fn id_of(&self, piece: &str) -> Option<u32> {
        self.inner.vocab.id_of(piece)
    }

    /// What kind of token an id is.
    pub fn flags(&self, id: u32) -> TokenFlags {
        self.inner.vocab.flags(id)
    }

    /// Whether the id is a control token that plain text can never become.
    pub fn is_special(&self, id: u32) -> bool {
        self.inner.vocab.flags(id).special
    }

    /// All special ids, in increasing order.
    pub fn special_ids(&self) -> Vec<u32> {
        (0..self.vocab_size() as u32).filter(|id| self.is_special(*id)).collect()
    }

    /// The begin-of-sequence token, if the model has one.
    pub fn bos_id(&self) -> Option<u32> {
        self.inner.control.bos
    }

    /// Whether prompts of this model begin with that token.
    pub fn wants_bos(&self) -> bool {
        self.inner.control.wants_bos
    }

    /// All tokens that end a reply, the most important first.
    pub fn eos_ids(&self) -> &[u32] {
        &self.inner.control.eos
    }

    /// The padding token, with a fallback that says why.
    pub fn pad_id(&self) -> PadToken {
        self.inner.control.pad_token()
    }

    /// The token for text that cannot be written otherwise.
    pub fn unk_id(&self) -> Option<u32> {
        self.inner.control.unk
    }

    /// Ordinary ids whose bytes begin with `prefix`, in the order of their bytes.
    pub fn ids_with_prefix(&self, prefix: &[u8]) -> &[u32] {
        self.inner.vocab.ids_with_prefix(prefix)
    }

    /// Ordinary ids whose bytes are a prefix of `bytes`, shortest first.
    pub fn ids_that_begin(&self, bytes: &[u8]) -> Vec<u32> {
        self.inner.vocab.ids_that_begin(bytes)
    }

    /// The token texts that chat templates of this model refer to.
    pub fn template_tokens(&self) -> &TemplateTokens {
        &self.inner.template_tokens
    }

    pub(crate) fn pipeline(&self) -> &Pipeline {
        &self.inner.pipeline
    }

    pub(crate) fn strips_first_space(&self) -> bool {
        self.inner.strips_first_space
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("file", &self.inner.file)
            .field("vocab_size", &self.vocab_size())
            .field("control", &self.inner.control)
            .finish_non_exhaustive()
    }
}

fn read_parts(dir: &Path) -> Result<Parts, TextError> {
    let json = "tokenizer.json";
    if let Some(data) = file::read_optional(dir, json, TOKENIZER_JSON_BYTES_MAX)? {
        return tokenizer_json::parse(json, &data);
    }
    let model = "tokenizer.model";
    if let Some(data) = file::read_optional(dir, model, SENTENCEPIECE_BYTES_MAX)? {
        return sentencepiece::parse(model, &data);
    }
    for (name, kind) in UNSUPPORTED {
        if dir.join(name).exists() {
            return Err(TextError::UnsupportedFile { file: (*name).into(), kind });
        }
    }
    Err(TextError::NoTokenizer { dir: dir.into() })
}

/// Adds the tokens that the other files know. A flag in `tokenizer.json` is only ever raised by
/// `added_tokens_decoder`; `added_tokens.json` has no flags, so its tokens are special unless
/// another file lists them.
fn merge_added(parts: &mut Parts, files: &ConfigFiles, added: &Value) -> Result<(), TextError> {
    let config = "tokenizer_config.json";
    let mut index: HashMap<String, usize> =
        parts.added.iter().enumerate().map(|(i, t)| (t.content.clone(), i)).collect();
    let mut merge = |file: &str, token: AddedToken, raise: bool| match index.get(&token.content) {
        Some(i) if parts.added[*i].id != token.id => Err(TextError::DuplicateId {
            file: file.into(),
            first: format!("{} (id {})", token.content, parts.added[*i].id),
            second: token.content,
            id: token.id,
        }),
        Some(i) => {
            parts.added[*i].special |= raise && token.special;
            Ok(())
        }
        None => {
            index.insert(token.content.clone(), parts.added.len());
            parts.added.push(token);
            Ok(())
        }
    };
    let decoder = files.tokenizer.get("added_tokens_decoder").and_then(Value::as_object);
    for (id, entry) in decoder.into_iter().flatten() {
        merge(config, decoder_entry(config, id, entry)?, true)?;
    }
    for (content, id) in added.as_object().into_iter().flatten() {
        let file = "added_tokens.json";
        let id = id.as_u64().ok_or_else(|| TextError::field(file, content, "has no token id"))?;
        if content.is_empty() {
            return Err(TextError::field(file, format!("id {id}"), "has an empty token"));
        }
        merge(file, AddedToken::exact(check_id(file, content, id)?, content, true), false)?;
    }
    Ok(())
}

fn decoder_entry(file: &str, id: &str, entry: &Value) -> Result<AddedToken, TextError> {
    let field = format!("added_tokens_decoder[{id:?}]");
    let number: u64 = id.parse().map_err(|_| TextError::field(file, &field, "is not an id"))?;
    let content = entry.get("content").and_then(Value::as_str).filter(|c| !c.is_empty());
    let content = content.ok_or_else(|| TextError::field(file, &field, "has no content"))?;
    let flag = |name| entry.get(name).and_then(Value::as_bool).unwrap_or(false);
    Ok(AddedToken {
        id: check_id(file, content, number)?,
        content: content.into(),
        special: flag("special"),
        single_word: flag("single_word"),
        lstrip: flag("lstrip"),
        rstrip: flag("rstrip"),
        normalized: flag("normalized"),
    })
}

/// Tokens that the configuration names as begin, end, padding or unknown are special even if the
/// vocabulary lists them as ordinary. One-character tokens are left alone: text needs them.
fn mark_named_specials(parts: &mut Parts, files: &ConfigFiles) {
    let mut names: Vec<&str> = Vec::new();
    for config in [&files.tokenizer, &files.special_map] {
        for key in ["bos_token", "eos_token", "pad_token", "unk_token"] {
            names.extend(config.get(key).and_then(control::token_text));
        }
    }
    for name in names.into_iter().filter(|n| n.chars().count() > 1) {
        if let Some(token) = parts.added.iter_mut().find(|t| t.content == name) {
            token.special = true;
            continue;
        }
        let found = parts.model.pieces().into_iter().find(|(piece, _)| *piece == name);
        if let Some((_, id)) = found {
            parts.added.push(AddedToken::exact(id, name, true));
        }
    }
}
