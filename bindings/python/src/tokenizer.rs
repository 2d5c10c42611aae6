//! `Tokenizer`: texts to ids and back.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use pagella::{AddBos, Tokenizer as Texts};
use pagella_engine::sample::VocabSets;
use pagella_text::{Span, SpecialTokens};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::array::Array;
use crate::{error, ids};

/// A model's tokenizer.
#[pyclass(frozen, module = "pagella")]
pub struct Tokenizer {
    texts: Texts,
    sets: OnceLock<Arc<VocabSets>>,
}

impl Tokenizer {
    /// Of an open model.
    pub fn of(texts: &Texts) -> Self {
        Tokenizer { texts: texts.clone(), sets: OnceLock::new() }
    }

    /// What sampling needs to know of the vocabulary.
    pub fn sets(&self) -> Arc<VocabSets> {
        self.sets.get_or_init(|| Arc::new(VocabSets::from_tokenizer(&self.texts))).clone()
    }
}

#[pymethods]
impl Tokenizer {
    /// Reads the tokenizer of a model's directory.
    #[staticmethod]
    fn from_dir(py: Python<'_>, dir: PathBuf) -> PyResult<Self> {
        let texts = py.detach(|| Texts::from_dir(&dir));
        Ok(Tokenizer::of(&texts.map_err(|e| error::model(py, &e.to_string()))?))
    }

    /// Ids of a text. Special tokens in it count where `special` says so; `add_bos` puts the begin
    /// token in front, or leaves that to the model where it is `None`.
    #[pyo3(signature = (text, special=true, add_bos=None))]
    fn encode(
        &self,
        py: Python<'_>,
        text: String,
        special: bool,
        add_bos: Option<bool>,
    ) -> PyResult<Array> {
        let span = if special { Span::Special(text) } else { Span::Text(text) };
        let add = match add_bos {
            None => AddBos::Auto,
            Some(true) => AddBos::Always,
            Some(false) => AddBos::Never,
        };
        let ids = py.detach(|| self.texts.encode(&[span], add));
        let ids = ids.map_err(|problem| error::request(py, &problem.to_string()))?;
        Ok(Array::of_ids(&ids))
    }

    /// The text of ids.
    #[pyo3(signature = (ids, special=false))]
    fn decode(&self, py: Python<'_>, ids: &Bound<'_, PyAny>, special: bool) -> PyResult<String> {
        let ids = ids::ids(ids)?;
        let specials = if special { SpecialTokens::Show } else { SpecialTokens::Hide };
        Ok(py.detach(|| self.texts.decode(&ids, specials)))
    }

    /// One more than the highest id.
    #[getter]
    fn vocab_size(&self) -> usize {
        self.texts.vocab_size()
    }

    /// The begin token.
    #[getter]
    fn bos_id(&self) -> Option<u32> {
        self.texts.bos_id()
    }

    /// Whether prompts of this model begin with it.
    #[getter]
    fn wants_bos(&self) -> bool {
        self.texts.wants_bos()
    }

    /// All tokens that end an answer, the most important first.
    #[getter]
    fn eos_ids(&self) -> Vec<u32> {
        self.texts.eos_ids().to_vec()
    }

    /// What to pad with.
    #[getter]
    fn pad_id(&self) -> u32 {
        self.texts.pad_id().id
    }

    /// The token for text that cannot be written otherwise.
    #[getter]
    fn unk_id(&self) -> Option<u32> {
        self.texts.unk_id()
    }

    /// All special ids.
    #[getter]
    fn special_ids(&self) -> Vec<u32> {
        self.texts.special_ids()
    }

    /// The id of a token, written as in the vocabulary.
    fn id_of(&self, piece: &str) -> Option<u32> {
        self.texts.id_of(piece)
    }

    /// A token as the vocabulary writes it.
    fn piece(&self, id: u32) -> Option<&str> {
        self.texts.piece(id)
    }

    /// The bytes that an id stands for.
    fn token_bytes<'py>(&self, py: Python<'py>, id: u32) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.texts.token_bytes(id))
    }

    /// Ordinary ids whose bytes begin with these.
    fn ids_with_prefix(&self, prefix: &[u8]) -> Vec<u32> {
        self.texts.ids_with_prefix(prefix).to_vec()
    }
}
