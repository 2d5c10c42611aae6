//! Which weights and which arithmetic made a cache.
//!
//! Saved sequences are keys and values of one model; under any other they are noise that looks like
//! text. So a file of them names what made it: configuration, names, sizes and headers of the weight
//! files, samples of their bytes, and the choices that change keys and values. Reading all weights
//! would take as long as loading them; the samples tell apart quantizations and fine-tunes of equal
//! shape, not a file in which someone changed a few bytes by hand.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use pagella_arch::ModelSpec;
use pagella_backend::KvFormat;
use sha2::{Digest, Sha256};

use crate::Error;

/// Places in every file at which bytes are read.
const SAMPLES: u64 = 64;
/// Bytes read at each place.
const SAMPLE_BYTES: usize = 4096;
/// Longest header and configuration that are read, in bytes.
const HEADER_BYTES_MAX: u64 = 128 << 20;

/// What identifies the maker of a cache; the files are read when it is asked for.
pub(crate) struct ModelIdentity {
    dir: PathBuf,
    choices: String,
}

impl ModelIdentity {
    /// Of the model in a directory, as it was loaded.
    pub fn new(dir: &Path, spec: &ModelSpec, arithmetic: &str) -> Self {
        let choices = format!("{arithmetic}, {:?}", spec.ropes);
        ModelIdentity { dir: dir.to_owned(), choices }
    }

    /// A short name of maker, cache format and version of the program.
    pub fn fingerprint(&self, cache: KvFormat) -> Result<String, Error> {
        let mut sum = Sha256::new();
        for part in [self.digest()?.as_str(), cache.name(), env!("CARGO_PKG_VERSION")] {
            sum.update((part.len() as u64).to_le_bytes());
            sum.update(part);
        }
        let hex: String = sum.finalize().iter().take(6).map(|b| format!("{b:02x}")).collect();
        Ok(format!("fp_{hex}"))
    }

    /// The digest, in hexadecimal.
    pub fn digest(&self) -> Result<String, Error> {
        let unreadable = |path: &Path, source| Error::ModelFile { path: path.to_owned(), source };
        let mut sum = Sha256::new();
        sum.update(self.choices.as_bytes());
        let config = self.dir.join("config.json");
        let file = File::open(&config).map_err(|error| unreadable(&config, error))?;
        add_start(&mut sum, file, HEADER_BYTES_MAX).map_err(|error| unreadable(&config, error))?;
        let shards = shards(&self.dir).map_err(|error| unreadable(&self.dir, error))?;
        for shard in shards {
            sum.update(shard.file_name().unwrap_or_default().as_encoded_bytes());
            add_shard(&mut sum, &shard).map_err(|error| unreadable(&shard, error))?;
        }
        Ok(sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// Weight files, in the order of their names.
fn shards(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path()));
    let mut paths = paths.collect::<io::Result<Vec<PathBuf>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "safetensors"));
    paths.sort();
    Ok(paths)
}

fn add_start(sum: &mut Sha256, file: File, bytes_max: u64) -> io::Result<()> {
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes)?;
    sum.update((bytes.len() as u64).to_le_bytes());
    sum.update(bytes);
    Ok(())
}

/// Size, header and samples of one file.
fn add_shard(sum: &mut Sha256, path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    sum.update(size.to_le_bytes());
    // The first eight bytes of the format are the length of its header.
    let mut length = [0; 8];
    file.read_exact(&mut length)?;
    let header = u64::from_le_bytes(length).min(HEADER_BYTES_MAX);
    add_start(sum, file.try_clone()?, header)?;
    let mut bytes = vec![0; SAMPLE_BYTES.min(size as usize)];
    let last = size - bytes.len() as u64;
    for sample in 0..SAMPLES {
        let at = (u128::from(last) * u128::from(sample) / u128::from(SAMPLES - 1)) as u64;
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut bytes)?;
        sum.update(&bytes);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(dir: &Path, choices: &str) -> String {
        ModelIdentity { dir: dir.to_owned(), choices: choices.to_owned() }.digest().unwrap()
    }

    /// A directory with a configuration and one weight file of 8 + 16 + 1 MB bytes.
    fn model() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.json"), "{}").unwrap();
        let mut bytes = 16u64.to_le_bytes().to_vec();
        bytes.resize(24 + (1 << 20), 7);
        std::fs::write(dir.path().join("a.safetensors"), bytes).unwrap();
        dir
    }

    #[test]
    fn every_part_counts_and_nothing_else() {
        let dir = model();
        let first = digest(dir.path(), "exact");
        assert_eq!(first.len(), 64);
        std::fs::write(dir.path().join("README.md"), "words").unwrap();
        assert_eq!(digest(dir.path(), "exact"), first);
        assert_ne!(digest(dir.path(), "wide"), first);
        let weights = dir.path().join("a.safetensors");
        let bytes = std::fs::read(&weights).unwrap();
        for changed in [
            bytes[..bytes.len() - 1].to_vec(),
            bytes.iter().map(|&b| if b == 7 { 8 } else { b }).collect(),
            [&bytes[..10], &[1], &bytes[11..]].concat(),
        ] {
            std::fs::write(&weights, changed).unwrap();
            assert_ne!(digest(dir.path(), "exact"), first);
        }
        std::fs::write(&weights, &bytes).unwrap();
        std::fs::write(dir.path().join("config.json"), "{ }").unwrap();
        assert_ne!(digest(dir.path(), "exact"), first);
    }

    #[test]
    fn missing_and_short_files_are_errors() {
        let dir = model();
        std::fs::write(dir.path().join("a.safetensors"), "abc").unwrap();
        let identity = ModelIdentity { dir: dir.path().to_owned(), choices: String::new() };
        assert!(identity.digest().unwrap_err().to_string().contains("a.safetensors"));
        std::fs::remove_file(dir.path().join("config.json")).unwrap();
        assert!(identity.digest().unwrap_err().to_string().contains("config.json"));
    }
}
