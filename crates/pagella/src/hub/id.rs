//! `org/name[@revision]`, checked: every part is safe to be used in a path and in an address.

use std::fmt;
use std::str::FromStr;

/// Longest part of an id, in bytes.
const PART_BYTES_MAX: usize = 96;

/// The name of a model on the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubId {
    organisation: String,
    name: String,
    revision: Option<String>,
}

impl HubId {
    /// `org/name`.
    pub fn repository(&self) -> String {
        format!("{}/{}", self.organisation, self.name)
    }

    /// Branch, tag or commit; `main` unless stated.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or("main")
    }

    /// The folder of the repository in the cache.
    pub(crate) fn folder(&self) -> String {
        format!("models--{}--{}", self.organisation, self.name)
    }
}

impl fmt::Display for HubId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.repository())?;
        self.revision.as_ref().map_or(Ok(()), |revision| write!(f, "@{revision}"))
    }
}

/// The text is not `org/name` or `org/name@revision`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a hub id has the form org/name or org/name@revision")]
pub struct NotAHubId;

impl FromStr for HubId {
    type Err = NotAHubId;

    fn from_str(text: &str) -> Result<Self, NotAHubId> {
        let (repository, revision) = match text.split_once('@') {
            Some((repository, revision)) => (repository, Some(revision)),
            None => (text, None),
        };
        let (organisation, name) = repository.split_once('/').ok_or(NotAHubId)?;
        let revision_ok = revision.is_none_or(|r| r.split('/').all(is_part));
        if !is_part(organisation) || !is_part(name) || !revision_ok {
            return Err(NotAHubId);
        }
        Ok(HubId {
            organisation: organisation.to_owned(),
            name: name.to_owned(),
            revision: revision.map(str::to_owned),
        })
    }
}

/// Letters, digits, `-`, `_` and `.`, not starting with a dot or a dash.
pub(super) fn is_part(part: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !part.is_empty()
        && part.len() <= PART_BYTES_MAX
        && !part.starts_with(['.', '-'])
        && part.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_taken_apart() {
        let id: HubId = "turboderp/Llama-3.2-1B-exl2@4.0bpw".parse().unwrap();
        assert_eq!(id.repository(), "turboderp/Llama-3.2-1B-exl2");
        assert_eq!(
            (id.revision(), id.folder().as_str()),
            ("4.0bpw", "models--turboderp--Llama-3.2-1B-exl2")
        );
        assert_eq!(id.to_string(), "turboderp/Llama-3.2-1B-exl2@4.0bpw");
        assert_eq!("a/b".parse::<HubId>().unwrap().revision(), "main");
    }

    #[test]
    fn anything_that_could_leave_the_cache_is_refused() {
        for text in [
            "",
            "a",
            "/a",
            "a/",
            "a/b/c",
            "../b",
            "a/..",
            "a/b@..",
            "a/b@x/../y",
            "a/b@",
            "a b/c",
            "-a/b",
            "a/b@-x",
            "a/b\0",
            "é/b",
            "./models/demo",
            "C:\\x/y",
        ] {
            assert!(text.parse::<HubId>().is_err(), "{text:?}");
        }
    }
}
