//! Sequences on disk: the pages of a prompt, saved and brought back.
//!
//! A file holds ids and the raw bytes of their pages. It is bound to the model, the cache format and
//! the salt it was made with; anything else is refused. Layout: magic, length of the header, header
//! as JSON, pages one after another, BLAKE2b-256 of everything before.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use blake2::{Blake2b, Digest, digest::consts::U32};
use pagella_backend::PAGE_TOKENS;
use serde::{Deserialize, Serialize};

use crate::EngineError;
use crate::generator::Generator;
use crate::pages::{Namespace, PageKey, Parent};

const MAGIC: &[u8; 8] = b"PAGELLA1";
/// Longest header that is read, in bytes.
const HEADER_BYTES_MAX: usize = 256 << 20;
type Checksum = Blake2b<U32>;

/// What a file says about itself.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    /// Identity of the weights.
    model: String,
    cache: String,
    page_bytes: usize,
    salt: Option<String>,
    /// Ids of all pages; the last page may be partial.
    ids: Vec<u32>,
}

/// What saving or restoring did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Tokens in the file.
    pub tokens: usize,
    /// Pages written to the file, or put into the cache; pages that were there already do not count.
    pub pages: usize,
}

impl Generator {
    /// Writes what the cache holds of `ids` to a file, beginning with their first page. `model`
    /// identifies the weights.
    pub fn save(
        &mut self,
        path: &Path,
        model: &str,
        salt: Option<&str>,
        ids: &[u32],
    ) -> Result<Stored, EngineError> {
        self.check_no_adapters(path)?;
        let pages = self.cached_pages(salt, ids);
        let tokens: usize = pages.iter().map(|(_, tokens)| tokens).sum();
        let header = Header {
            model: model.to_owned(),
            cache: self.forward.kv_format().name().to_owned(),
            page_bytes: self.forward.page_bytes(),
            salt: salt.map(str::to_owned),
            ids: ids[..tokens].to_vec(),
        };
        let mut write = || -> std::io::Result<()> {
            // A file that was begun and not finished must not be taken for a whole one.
            let partial = path.with_extension("part");
            let mut out = Summed::new(BufWriter::new(File::create(&partial)?));
            let json = serde_json::to_vec(&header)?;
            out.write_all(MAGIC)?;
            out.write_all(&(json.len() as u64).to_le_bytes())?;
            out.write_all(&json)?;
            let mut bytes = Vec::new();
            for (page, _) in &pages {
                self.forward.read_page(*page, &mut bytes).map_err(std::io::Error::other)?;
                out.write_all(&bytes)?;
            }
            let (mut inner, sum) = out.finish();
            inner.write_all(&sum)?;
            inner.into_inner().map_err(|error| error.into_error())?.sync_all()?;
            std::fs::rename(&partial, path)
        };
        write().map_err(|error| saved(path, format!("cannot be written: {error}")))?;
        Ok(Stored { tokens, pages: pages.len() })
    }

    /// Puts the pages of a file into the cache, where jobs find them. Returns the ids as well.
    pub fn restore(
        &mut self,
        path: &Path,
        model: &str,
        salt: Option<&str>,
    ) -> Result<(Stored, Vec<u32>), EngineError> {
        self.check_no_adapters(path)?;
        let file =
            File::open(path).map_err(|error| saved(path, format!("cannot be opened: {error}")))?;
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let mut input = BufReader::new(file);
        let (header, sum) = self.read_header(&mut input, path, length)?;
        self.check_header(&header, path, model, salt)?;
        // The checksum stands at the end, so everything is read before anything is believed.
        let n_pages = header.ids.len().div_ceil(PAGE_TOKENS);
        let pages = read_pages(&mut input, n_pages, header.page_bytes, sum, path)?;
        let mut parent = Parent::Root(namespace(salt));
        let mut restored = 0;
        for (ids, bytes) in header.ids.chunks(PAGE_TOKENS).zip(&pages) {
            if let Some(page) = self.table.restore(parent, ids) {
                if let Err(error) = self.forward.write_page(page, bytes) {
                    self.table.forget(page);
                    return Err(error);
                }
                restored += 1;
            }
            // Only the last page can be partial.
            if ids.len() == PAGE_TOKENS
                && let Some(key) = PageKey::below(parent, ids)
            {
                parent = Parent::Page(key);
            }
        }
        Ok((Stored { tokens: header.ids.len(), pages: restored }, header.ids))
    }

    /// Pages that were computed with adapters belong to one load of these, which a file does not outlive.
    fn check_no_adapters(&self, path: &Path) -> Result<(), EngineError> {
        if self.facts.default_adapters.get().iter().all(|(_, scale)| *scale == 0.0) {
            return Ok(());
        }
        let problem =
            "would hold what was computed without adapters, and jobs have some: leave them out";
        Err(saved(path, problem.to_owned()))
    }

    /// Pages that hold the beginning of `ids`, with the number of tokens each has of them.
    fn cached_pages(&self, salt: Option<&str>, ids: &[u32]) -> Vec<(u32, usize)> {
        let namespace = namespace(salt);
        let keys = PageKey::chain(namespace, ids);
        let mut pages = Vec::new();
        let mut parent = Parent::Root(namespace);
        for key in keys {
            match self.table.find(key) {
                Some(page) if self.table.is_sealed(page) => pages.push((page, PAGE_TOKENS)),
                _ => break,
            }
            parent = Parent::Page(key);
        }
        let rest = &ids[pages.len() * PAGE_TOKENS..];
        let rest = &rest[..rest.len().min(PAGE_TOKENS)];
        pages.extend(self.table.best_prefix(parent, rest, None));
        pages
    }

    fn read_header(
        &self,
        input: &mut impl Read,
        path: &Path,
        length: u64,
    ) -> Result<(Header, Checksum), EngineError> {
        let damaged =
            || saved(path, "is not a saved sequence, or it is damaged: save it again".to_owned());
        let mut sum = Checksum::new();
        let mut start = [0u8; 16];
        input.read_exact(&mut start).map_err(|_| damaged())?;
        sum.update(start);
        let (magic, size) = start.split_at(8);
        let size = u64::from_le_bytes(size.try_into().map_err(|_| damaged())?);
        if magic != MAGIC || size > length || size > HEADER_BYTES_MAX as u64 {
            return Err(damaged());
        }
        let mut json = vec![0; size as usize];
        input.read_exact(&mut json).map_err(|_| damaged())?;
        sum.update(&json);
        let header: Header = serde_json::from_slice(&json).map_err(|_| damaged())?;
        let pages = header.ids.len().div_ceil(PAGE_TOKENS) as u64;
        let body = pages.checked_mul(header.page_bytes as u64);
        if body.and_then(|body| body.checked_add(16 + size + 32)) != Some(length) {
            return Err(damaged());
        }
        Ok((header, sum))
    }

    fn check_header(
        &self,
        header: &Header,
        path: &Path,
        model: &str,
        salt: Option<&str>,
    ) -> Result<(), EngineError> {
        let format = self.forward.kv_format().name();
        let problem = if header.model != model {
            let problem = "was saved with other weights, arithmetic or rotary settings: open the \
                           model that it came from as it was then";
            Some(problem.to_owned())
        } else if header.cache != format || header.page_bytes != self.forward.page_bytes() {
            let theirs = &header.cache;
            Some(format!(
                "holds a {theirs} cache and this one is {format}: open the model with that"
            ))
        } else if header.salt.as_deref() != salt {
            Some("was saved under another cache salt: give the same one".to_owned())
        } else if header.ids.iter().any(|&id| id as usize >= self.facts.vocab) {
            Some("holds ids that the model does not have: save it again".to_owned())
        } else {
            None
        };
        problem.map_or(Ok(()), |problem| Err(saved(path, problem)))
    }
}

fn read_pages(
    input: &mut impl Read,
    n_pages: usize,
    page_bytes: usize,
    mut sum: Checksum,
    path: &Path,
) -> Result<Vec<Vec<u8>>, EngineError> {
    let unreadable = |error| saved(path, format!("cannot be read: {error}"));
    let mut pages = Vec::with_capacity(n_pages);
    for _ in 0..n_pages {
        let mut bytes = vec![0; page_bytes];
        input.read_exact(&mut bytes).map_err(unreadable)?;
        sum.update(&bytes);
        pages.push(bytes);
    }
    let mut expected = [0; 32];
    input.read_exact(&mut expected).map_err(unreadable)?;
    if sum.finalize().as_slice() != expected {
        return Err(saved(path, "is damaged: its checksum differs: save it again".to_owned()));
    }
    Ok(pages)
}

fn saved(path: &Path, problem: String) -> EngineError {
    EngineError::Saved { path: path.to_owned(), problem }
}

fn namespace(salt: Option<&str>) -> Namespace {
    salt.map_or(Namespace::EMPTY, |salt| Namespace::of(&[("salt", salt.as_bytes())]))
}

/// A writer that sums what goes through it.
struct Summed<W> {
    inner: W,
    sum: Checksum,
}

impl<W: Write> Summed<W> {
    fn new(inner: W) -> Self {
        Summed { inner, sum: Checksum::new() }
    }

    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.sum.update(bytes);
        self.inner.write_all(bytes)
    }

    fn finish(self) -> (W, [u8; 32]) {
        (self.inner, self.sum.finalize().into())
    }
}
