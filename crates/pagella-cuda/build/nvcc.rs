//! Finding a CUDA compiler. Part of the build script, and of `xtask`, which tests it.
//!
//! The order: `PAGELLA_NVCC`, `CUDA_HOME`, `CUDA_PATH`, PATH, the project's own folder. A compiler
//! that was named must be usable; one that was only found is passed over with a reason when not.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names a compiler; [`NONE`] asks for a build without kernels.
pub const NVCC_ENV: &str = "PAGELLA_NVCC";

/// The value of [`NVCC_ENV`] that refuses every compiler.
pub const NONE: &str = "none";

/// Every variable but PATH that the choice depends on.
pub const ENVIRONMENT: &[&str] = &[NVCC_ENV, "CUDA_HOME", "CUDA_PATH"];

/// The oldest compiler that knows every chip we compile for (12.0 needs it).
pub const VERSION_MIN: (u32, u32) = (12, 8);

/// Where `cargo xtask cuda-toolchain` installs, below the root of the checkout.
pub const TOOLCHAIN_DIR: &str = "target/cuda-toolchain";

/// The compiler inside an installation of the PyPI packages.
pub const IN_TOOLCHAIN: &str = "nvidia/cu13/bin/nvcc";

/// A compiler that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nvcc {
    pub path: PathBuf,
    pub version: (u32, u32),
    /// Everything `nvcc --version` printed: which build it is.
    pub identity: String,
}

/// What the search led to.
#[derive(Debug, PartialEq, Eq)]
pub enum Choice {
    Found {
        nvcc: Nvcc,
        passed_over: Vec<String>,
    },
    /// `PAGELLA_NVCC=none`.
    Refused,
    Missing {
        passed_over: Vec<String>,
    },
}

/// Searches for a crate in `crate_dir`, two levels below the root of the checkout.
pub fn choose(crate_dir: &Path) -> Result<Choice, String> {
    let named = env::var_os(NVCC_ENV).filter(|value| !value.is_empty());
    let root = crate_dir.ancestors().nth(2).unwrap_or(crate_dir);
    decide(named, &candidates(root), &look)
}

/// Places to look at when none was named, best first.
fn candidates(root: &Path) -> Vec<PathBuf> {
    let program = format!("nvcc{}", env::consts::EXE_SUFFIX);
    let homes = ENVIRONMENT[1..].iter().filter_map(env::var_os).filter(|home| !home.is_empty());
    let mut places: Vec<PathBuf> =
        homes.map(|home| Path::new(&home).join("bin").join(&program)).collect();
    let path = env::var_os("PATH").unwrap_or_default();
    places.extend(env::split_paths(&path).map(|dir| dir.join(&program)));
    places.push(root.join(TOOLCHAIN_DIR).join(IN_TOOLCHAIN));
    places
}

/// Takes what was named or the first candidate that is there, runs and is new enough.
fn decide(
    named: Option<OsString>,
    candidates: &[PathBuf],
    look: &dyn Fn(&Path) -> Result<Nvcc, String>,
) -> Result<Choice, String> {
    if let Some(named) = named {
        if named == NONE {
            return Ok(Choice::Refused);
        }
        let nvcc = look(Path::new(&named)).map_err(|reason| format!("{NVCC_ENV}: {reason}"))?;
        return Ok(Choice::Found { nvcc, passed_over: Vec::new() });
    }
    let mut passed_over = Vec::new();
    for place in candidates.iter().filter(|place| place.is_file()) {
        match look(place) {
            Ok(nvcc) => return Ok(Choice::Found { nvcc, passed_over }),
            Err(reason) => passed_over.push(reason),
        }
    }
    Ok(Choice::Missing { passed_over })
}

/// Asks a compiler who it is, and whether it can work: it needs a C++ compiler beside it.
pub fn look(path: &Path) -> Result<Nvcc, String> {
    let shown = path.display();
    let output = Command::new(path).arg("--version").output();
    let output = output.map_err(|err| format!("cannot start {shown}: {err}"))?;
    let identity = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let version =
        parse_version(&identity).ok_or_else(|| format!("{shown} does not tell its version"))?;
    if version < VERSION_MIN {
        let ((major, minor), (need_major, need_minor)) = (version, VERSION_MIN);
        return Err(format!(
            "{shown} is CUDA {major}.{minor}; the kernels need {need_major}.{need_minor} or later"
        ));
    }
    if cfg!(unix) && Command::new("g++").arg("--version").output().is_err() {
        return Err(format!("{shown} needs g++, which is not on PATH: install a C++ compiler"));
    }
    Ok(Nvcc { path: path.to_owned(), version, identity })
}

/// `… release 13.0, V13.0.88 …`
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let release = text.split_once("release ")?.1.split([',', ' ', '\n']).next()?;
    let (major, minor) = release.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stands for `look`: what the file says about itself.
    fn read(path: &Path) -> Result<Nvcc, String> {
        let identity = std::fs::read_to_string(path).map_err(|err| err.to_string())?;
        let version = parse_version(&identity).ok_or("no version")?;
        Ok(Nvcc { path: path.to_owned(), version, identity })
    }

    fn folder(test: &str) -> PathBuf {
        let folder = env::temp_dir().join(format!("pagella-nvcc-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn the_first_usable_candidate_is_taken_and_others_are_explained() {
        let folder = folder("first");
        let [gone, old, good, later] = ["gone", "old", "good", "later"].map(|n| folder.join(n));
        std::fs::write(&old, "who knows").unwrap();
        std::fs::write(&good, "release 13.0, V13.0.88").unwrap();
        std::fs::write(&later, "release 13.1, V13.1.0").unwrap();
        let found = decide(None, &[gone.clone(), old.clone(), good.clone(), later], &read);
        let Ok(Choice::Found { nvcc, passed_over }) = found else { panic!("{found:?}") };
        assert_eq!((nvcc.path, nvcc.version), (good, (13, 0)));
        assert_eq!(passed_over, ["no version"]);
        let missing = decide(None, &[gone, old], &read);
        assert_eq!(missing, Ok(Choice::Missing { passed_over: vec!["no version".into()] }));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_named_compiler_must_work_and_none_is_a_name() {
        let nowhere = PathBuf::from("no/such/nvcc");
        let refused = decide(Some(NONE.into()), std::slice::from_ref(&nowhere), &read);
        assert_eq!(refused, Ok(Choice::Refused));
        let named = decide(Some(nowhere.into()), &[], &read);
        assert!(named.unwrap_err().starts_with(NVCC_ENV));
    }

    #[test]
    fn the_version_is_read_from_what_nvcc_prints() {
        let text = "nvcc: NVIDIA (R) Cuda compiler driver\n\
                    Cuda compilation tools, release 12.8, V12.8.61\nBuild cuda_12.8";
        assert_eq!(parse_version(text), Some((12, 8)));
        assert_eq!(parse_version("gcc (Debian) 12.2.0"), None);
    }
}
