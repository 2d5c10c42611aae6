//! Names that clients give of things in folders: models, templates, presets, adapters.
//!
//! One function says whether a name is harmless ([`check`]) and one finds what it stands for under a
//! folder ([`resolve`]). Nothing else joins a client's text to a path.

use std::path::{Path, PathBuf};

use unicode_normalization::is_nfc;

/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// Names that mean devices on Windows, with or without an extension.
const DEVICES: &[&str] = &[
    "aux", "clock$", "con", "conin$", "conout$", "nul", "prn", "com0", "com1", "com2", "com3",
    "com4", "com5", "com6", "com7", "com8", "com9", "lpt0", "lpt1", "lpt2", "lpt3", "lpt4", "lpt5",
    "lpt6", "lpt7", "lpt8", "lpt9",
];

/// Why a name is refused. Says nothing of what is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Empty or too long.
    #[error("a name has 1 to 255 bytes")]
    Length,
    /// A part that leads elsewhere or means a device.
    #[error(
        "a name is made of parts separated by /, none of them empty, . or .., none ending in a dot or a space, none the name of a device"
    )]
    Part,
    /// A character that has a meaning in paths, or none that can be seen.
    #[error("a name has none of \\ : * ? \" < > | and no control characters")]
    Character,
    /// Text that looks like another text.
    #[error("a name is in Unicode's normal form C")]
    Form,
}

/// Whether a name is harmless on every system: no way out of a folder, no device, one spelling.
pub fn check(name: &str) -> Result<(), NameError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(NameError::Length);
    }
    let is_bad = |c: char| c.is_control() || "\\:*?\"<>|".contains(c) || is_deceptive(c);
    if name.chars().any(is_bad) {
        return Err(NameError::Character);
    }
    if !is_nfc(name) {
        return Err(NameError::Form);
    }
    if name.split('/').all(is_good_part) { Ok(()) } else { Err(NameError::Part) }
}

/// Looks like a separator, or changes how the text around it looks.
fn is_deceptive(sign: char) -> bool {
    matches!(sign, '\u{2044}' | '\u{2215}' | '\u{2216}' | '\u{29f8}' | '\u{29f9}' | '\u{fe68}')
        || matches!(sign, '\u{ff0f}' | '\u{ff3c}' | '\u{feff}' | '\u{200b}'..='\u{200f}')
        || matches!(sign, '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}')
}

fn is_good_part(part: &str) -> bool {
    let stem = part.split('.').next().unwrap_or_default().trim_end().to_lowercase();
    // A trailing dot or space is dropped by Windows, so it would be another spelling.
    !part.is_empty() && !part.ends_with(['.', ' ']) && !DEVICES.contains(&stem.as_str())
}

/// Whether links may lead out of the folder in which they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// Those that the operator placed there may.
    Follow,
    /// None may.
    Refuse,
}

/// What a name stands for under a folder; `Ok(None)` if there is nothing, or something outside.
///
/// Where `links` says so, a link that is itself a part of the name may lead out of the folder, and
/// what lies behind it is reached by further parts. Whoever fills folders from elsewhere must not
/// write links into them.
pub fn resolve(root: &Path, name: &str, links: Links) -> Result<Option<PathBuf>, NameError> {
    check(name)?;
    let (Ok(root), Ok(found)) = (root.canonicalize(), root.join(name).canonicalize()) else {
        return Ok(None);
    };
    Ok((links == Links::Follow || found.starts_with(&root)).then_some(found))
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
        for name in ["demo", "org/name", "a.b-c_d", "Ärger", "x/.hidden", "com10", "conx", "a b"] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        let long = "x".repeat(256);
        for (name, error) in [
            ("", NameError::Length),
            (long.as_str(), NameError::Length),
            ("..", NameError::Part),
            ("a/../b", NameError::Part),
            ("./a", NameError::Part),
            ("/etc", NameError::Part),
            ("a//b", NameError::Part),
            ("a/", NameError::Part),
            ("a.", NameError::Part),
            ("a /b", NameError::Part),
            ("CON", NameError::Part),
            ("x/nul.txt", NameError::Part),
            ("Com1 .x", NameError::Part),
            ("..\\a", NameError::Character),
            ("C:x", NameError::Character),
            ("\\\\host\\share", NameError::Character),
            ("a\0b", NameError::Character),
            ("a\u{85}b", NameError::Character),
            ("a*", NameError::Character),
            ("a\u{2215}b", NameError::Character),
            ("a\u{ff0f}b", NameError::Character),
            ("a\u{202e}b", NameError::Character),
            ("sha256:ab/../x", NameError::Character),
            ("e\u{301}", NameError::Form),
        ] {
            assert_eq!(check(name), Err(error), "{name:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn links_lead_out_only_where_the_operator_placed_them() {
        use std::os::unix::fs::symlink;
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (root, outside) = (root.path(), outside.path());
        std::fs::create_dir_all(root.join("org/real")).unwrap();
        std::fs::create_dir_all(outside.join("inner")).unwrap();
        symlink(outside, root.join("placed")).unwrap();
        symlink("real", root.join("org/alias")).unwrap();
        let find = |name, links| resolve(root, name, links).unwrap();
        assert!(find("org/real", Links::Refuse).is_some());
        assert!(find("org/alias", Links::Refuse).is_some(), "it stays inside");
        assert!(find("placed", Links::Follow).is_some());
        assert!(find("placed/inner", Links::Follow).is_some());
        assert!(find("placed", Links::Refuse).is_none());
        assert!(find("absent", Links::Follow).is_none());
        assert_eq!(resolve(root, "../x", Links::Follow), Err(NameError::Part));
    }
}
