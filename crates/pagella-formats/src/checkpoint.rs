//! All shards of a model directory as one map from tensor name to bytes.
//!
//! Owns the mappings. Invariant: every location lies inside its shard, because the header check
//! said so; a name belongs to exactly one file.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::dtype::Dtype;
use crate::error::{FormatError, Result};
use crate::mmap::Mapping;
use crate::rename::{self, Rename};
use crate::safetensors::header;
use crate::shard_index::ShardIndex;
use crate::tensor::TensorView;
use crate::unsupported::UnsupportedFormat;

/// The tensors of a model directory, or of one file, mapped into memory.
#[derive(Debug)]
pub struct Checkpoint {
    source: PathBuf,
    shards: Vec<Shard>,
    tensors: BTreeMap<String, Location>,
    scale_groups: Option<[usize; 2]>,
}

/// One mapped file.
#[derive(Debug)]
struct Shard {
    path: PathBuf,
    mapping: Mapping,
}

/// Where one tensor is.
#[derive(Debug)]
struct Location {
    shard_idx: usize,
    stored_name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Range<usize>,
}

/// A tensor name that a second location claims.
struct Clash {
    name: String,
    rival: Location,
}

impl Checkpoint {
    /// Maps every `*.safetensors` of `dir`, in the order of their names, and checks every header.
    ///
    /// `renames` are applied to each name in turn. A tensor in two files is an error unless an
    /// index file that agrees with the files present says which one is meant.
    pub fn open(dir: &Path, renames: &[Rename]) -> Result<Self> {
        Self::map_files(dir, shard_paths(dir)?, renames)
    }

    /// Maps a single file.
    pub fn open_file(path: &Path) -> Result<Self> {
        Self::map_files(path, vec![path.to_owned()], &[])
    }

    /// Maps these files, which belong together, under the names they have.
    pub(crate) fn open_files(dir: &Path, paths: Vec<PathBuf>) -> Result<Self> {
        Self::map_files(dir, paths, &[])
    }

    fn map_files(source: &Path, paths: Vec<PathBuf>, renames: &[Rename]) -> Result<Self> {
        let mut checkpoint = Self {
            source: source.to_owned(),
            shards: Vec::new(),
            tensors: BTreeMap::new(),
            scale_groups: None,
        };
        let mut clashes = Vec::new();
        for path in paths {
            checkpoint.add_shard(path, renames, &mut clashes)?;
        }
        checkpoint.settle(clashes)?;
        Ok(checkpoint)
    }

    fn add_shard(
        &mut self,
        path: PathBuf,
        renames: &[Rename],
        clashes: &mut Vec<Clash>,
    ) -> Result<()> {
        let mapping = Mapping::open(&path)
            .map_err(|source| FormatError::Io { path: path.clone(), source })?;
        let bytes = mapping.bytes();
        let shard_idx = self.shards.len();
        for entry in header::parse(bytes, bytes.len() as u64, &path)? {
            let location = Location {
                shard_idx,
                // The file is mapped, so its offsets fit the address space.
                bytes: entry.begin as usize..entry.end as usize,
                dtype: entry.dtype,
                shape: entry.shape,
                stored_name: entry.name.clone(),
            };
            match self.tensors.entry(rename::apply(renames, entry.name)) {
                Entry::Vacant(slot) => drop(slot.insert(location)),
                Entry::Occupied(slot) => {
                    clashes.push(Clash { name: slot.key().clone(), rival: location });
                }
            }
        }
        self.shards.push(Shard { path, mapping });
        Ok(())
    }

    /// Decides between files that hold the same tensor, or fails.
    fn settle(&mut self, clashes: Vec<Clash>) -> Result<()> {
        if clashes.is_empty() {
            return Ok(());
        }
        let held: HashSet<(Option<&str>, &str)> = self
            .tensors
            .values()
            .chain(clashes.iter().map(|clash| &clash.rival))
            .map(|at| (self.file_name(at), at.stored_name.as_str()))
            .collect();
        let index = ShardIndex::read(&self.source)
            .filter(|index| index.is_true(|file, tensor| held.contains(&(Some(file), tensor))))
            .unwrap_or_default();
        drop(held);
        let mut undecided = Vec::new();
        for Clash { name, rival } in clashes {
            let Some(current) = self.tensors.get(&name) else { continue };
            match (self.is_listed(&index, current), self.is_listed(&index, &rival)) {
                (true, false) => {}
                (false, true) => drop(self.tensors.insert(name, rival)),
                _ => undecided.push(Clash { name, rival }),
            }
        }
        // A third file may have settled what the first two could not.
        for Clash { name, rival } in undecided {
            let Some(current) = self.tensors.get(&name) else { continue };
            if self.is_listed(&index, &rival) || !self.is_listed(&index, current) {
                let (first, second) = (self.path(current), self.path(&rival));
                return Err(FormatError::DuplicateTensor { tensor: name, first, second });
            }
        }
        Ok(())
    }

    /// Whether `index` says that the tensor is to be taken from this location.
    fn is_listed(&self, index: &ShardIndex, at: &Location) -> bool {
        index.file_of(&at.stored_name).is_some_and(|file| self.file_name(at) == Some(file))
    }

    fn path(&self, at: &Location) -> PathBuf {
        self.shards.get(at.shard_idx).map(|shard| shard.path.clone()).unwrap_or_default()
    }

    fn file_name(&self, at: &Location) -> Option<&str> {
        self.shards.get(at.shard_idx)?.path.file_name()?.to_str()
    }

    /// Says how many rows and columns of FP8 weights share a scale, which shapes do not tell.
    pub fn with_scale_groups(mut self, groups: Option<[usize; 2]>) -> Self {
        self.scale_groups = groups.filter(|extents| !extents.contains(&0));
        self
    }

    pub(crate) fn scale_groups(&self) -> Option<[usize; 2]> {
        self.scale_groups
    }

    /// The directory or file that was opened.
    pub fn source(&self) -> &Path {
        &self.source
    }

    /// The files that were opened, in the order of their names.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.shards.iter().map(|shard| shard.path.as_path())
    }

    /// The tensor called `name`, after renaming.
    pub fn tensor(&self, name: &str) -> Option<TensorView<'_>> {
        let (name, location) = self.tensors.get_key_value(name)?;
        let shard = self.shards.get(location.shard_idx)?;
        Some(TensorView {
            name,
            dtype: location.dtype,
            shape: &location.shape,
            data: shard.mapping.bytes().get(location.bytes.clone())?,
            file: &shard.path,
        })
    }

    /// The tensor called `name`, or an error that names it.
    pub fn require(&self, name: &str) -> Result<TensorView<'_>> {
        self.tensor(name).ok_or_else(|| FormatError::MissingTensor {
            path: self.source.clone(),
            tensor: name.to_owned(),
        })
    }

    /// What the file calls the tensor called `name`.
    pub fn stored_name(&self, name: &str) -> Option<&str> {
        self.tensors.get(name).map(|location| location.stored_name.as_str())
    }

    /// All tensor names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Whether there is a tensor called `name`.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Bytes of all tensors on disk.
    pub fn total_bytes(&self) -> u64 {
        self.tensors.values().map(|location| location.bytes.len() as u64).sum()
    }

    /// Lets the system take back the memory of a tensor that was copied elsewhere.
    ///
    /// Reading it again works and costs page faults. Does nothing for views of other checkpoints
    /// or where the system has no such advice.
    pub fn release(&self, tensor: &TensorView<'_>) {
        if let Some(location) = self.tensors.get(tensor.name)
            && let Some(shard) = self.shards.get(location.shard_idx)
            && shard.path == tensor.file
        {
            shard.mapping.release(location.bytes.clone());
        }
    }
}

/// The `*.safetensors` files of `dir`, sorted; an error that says what is there instead if none.
pub(crate) fn shard_paths(dir: &Path) -> Result<Vec<PathBuf>> {
    let not_a_directory = || FormatError::NotADirectory { path: dir.to_owned() };
    let io_error = |source: io::Error| match source.kind() {
        io::ErrorKind::NotADirectory => not_a_directory(),
        _ => FormatError::Io { path: dir.to_owned(), source },
    };
    let (mut shards, mut others) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(dir).map_err(io_error)? {
        let path = entry.map_err(io_error)?.path();
        // Hidden files are leftovers of copying tools, never shards.
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        match path.extension().and_then(|extension| extension.to_str()) {
            _ if hidden => {}
            Some("safetensors") => shards.push(path),
            Some(_) => others.push(path),
            None => {}
        }
    }
    shards.sort();
    if shards.is_empty() { Err(no_shards(dir, others)) } else { Ok(shards) }
}

/// Why a directory without safetensors files cannot be loaded.
fn no_shards(dir: &Path, mut others: Vec<PathBuf>) -> FormatError {
    others.sort();
    let with_extension = |wanted: &[&str]| {
        others.iter().find(|path| {
            path.extension().and_then(|e| e.to_str()).is_some_and(|e| wanted.contains(&e))
        })
    };
    let (file, format) = if let Some(file) = with_extension(&["gguf"]) {
        (file, UnsupportedFormat::Gguf)
    } else if let Some(file) = with_extension(&["bin", "pt", "pth", "ckpt", "pkl"]) {
        (file, UnsupportedFormat::Pickle)
    } else {
        return FormatError::NoSafetensors { path: dir.to_owned() };
    };
    let place = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    FormatError::Unsupported { path: dir.to_owned(), place, format }
}

#[cfg(test)]
mod tests;
