//! Names of models, templates, presets and folders: whether one can be looked for under a folder
//! without leaving it. The one function for all of them.

use std::path::{Path, PathBuf};

/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Names that Windows gives to devices, whatever follows a dot.
const DEVICES: [&str; 4] = ["con", "prn", "aux", "nul"];

/// Why a name cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is empty or too long.
    #[error("a name has 1 to 255 bytes")]
    Length,
    /// A part of it is not the name of a file everywhere.
    #[error("a name has no parts such as ., .. or nul, and no signs such as \\ : * ? \" < > |")]
    Part,
    /// There is nothing of that name.
    #[error("there is nothing of that name")]
    Missing,
    /// It leads out of its folder.
    #[error("that name leads out of its folder")]
    Outside,
}

/// Whether links may lead out of the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// Those that the operator put there.
    Followed,
    /// None.
    Refused,
}

/// Checks the form of a name: parts with slashes between them.
pub fn check(name: &str) -> Result<(), NameError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(NameError::Length);
    }
    if name.split('/').all(is_part) { Ok(()) } else { Err(NameError::Part) }
}

fn is_part(part: &str) -> bool {
    let stem = part.split('.').next().unwrap_or(part).trim_end().to_ascii_lowercase();
    let numbered = |prefix: &str| {
        stem.strip_prefix(prefix).is_some_and(|rest| {
            rest.len() == 1 && rest != "0" && rest.as_bytes()[0].is_ascii_digit()
        })
    };
    let device = DEVICES.contains(&stem.as_str()) || numbered("com") || numbered("lpt");
    !part.is_empty()
        && part != "."
        && part != ".."
        && !part.ends_with(['.', ' '])
        && !part.starts_with(' ')
        && !device
        && part.chars().all(is_plain)
}

/// Not a separator anywhere, not one that only looks like it, nothing invisible, and no mark that
/// belongs to the letter before it: the same letter may be written in two ways.
fn is_plain(sign: char) -> bool {
    !matches!(sign, '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|')
        && !sign.is_control()
        && !matches!(
            sign,
            '\u{2044}'
                | '\u{2215}'
                | '\u{2216}'
                | '\u{29f8}'
                | '\u{29f9}'
                | '\u{ff0f}'
                | '\u{ff3c}'
                | '\u{fe68}'
        )
        && !matches!(sign, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
        && !matches!(sign, '\u{300}'..='\u{36f}')
}

/// The file or folder of a name under `root`, if it is there and lies within.
pub fn within(root: &Path, name: &str, links: Links) -> Result<PathBuf, NameError> {
    check(name)?;
    let joined = root.join(name);
    let found = joined.canonicalize().map_err(|_| NameError::Missing)?;
    let root = root.canonicalize().map_err(|_| NameError::Missing)?;
    match links == Links::Followed || found.starts_with(&root) {
        true => Ok(joined),
        false => Err(NameError::Outside),
    }
}

/// Names of the files in a folder with one of these endings, without them, sorted. A folder that is
/// not there has none.
pub fn list(root: &Path, endings: &[&str]) -> Vec<String> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let name = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let stem = endings.iter().find_map(|ending| name.strip_suffix(ending))?.to_owned();
        (check(&stem).is_ok() && entry.path().is_file()).then_some(stem)
    };
    let mut names: Vec<String> = entries.filter_map(name).collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_escape() {
        for name in ["a", "org/model-4.0bpw", "Ünïcode", "x.y_z", "a b", "com", "console", "nul1"]
        {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        let long = "x".repeat(256);
        for name in [
            "",
            long.as_str(),
            ".",
            "..",
            "../a",
            "a/../b",
            "a/..",
            "/a",
            "a/",
            "a//b",
            "..\\a",
            "a\\b",
            "C:\\x",
            "C:x",
            "\\\\host\\share",
            "//host/share",
            "CON",
            "nul.txt",
            "Com1",
            "lpt9.x",
            "a.",
            "a ",
            " a",
            "a\0b",
            "a\nb",
            "a\u{2215}b",
            "a\u{ff0f}b",
            "e\u{301}",
            "a\u{202e}b",
            "sha256:abc/../x",
            "a*",
            "a?",
        ] {
            assert!(check(name).is_err(), "{name:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn links_lead_out_only_where_they_may() {
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
        for folder in [&root, &outside] {
            std::fs::create_dir(folder).unwrap();
        }
        std::fs::write(outside.join("secret"), "x").unwrap();
        std::fs::write(root.join("inside"), "x").unwrap();
        std::os::unix::fs::symlink(outside.join("secret"), root.join("link")).unwrap();
        std::os::unix::fs::symlink(&outside, root.join("folder")).unwrap();
        assert!(within(&root, "inside", Links::Refused).is_ok());
        for name in ["link", "folder/secret"] {
            assert_eq!(within(&root, name, Links::Refused), Err(NameError::Outside));
            assert!(within(&root, name, Links::Followed).is_ok());
        }
        assert_eq!(within(&root, "absent", Links::Followed), Err(NameError::Missing));
        assert_eq!(within(&root, "../outside/secret", Links::Followed), Err(NameError::Part));
    }
}
