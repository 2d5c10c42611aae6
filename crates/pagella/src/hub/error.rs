//! What can go wrong between the hub and the local cache.

use std::path::PathBuf;

/// Why a model could not be fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "a field that its name says all of needs no words")]
pub enum HubError {
    /// The server could not be reached or broke off.
    #[error(
        "cannot fetch {url}: {problem}: check the connection and run the same command again, it resumes"
    )]
    Connection {
        /// What was asked for.
        url: String,
        /// What happened.
        problem: String,
    },
    /// The server refused.
    #[error("{url} answered {status}: {}", hint(*status))]
    Status {
        /// What was asked for.
        url: String,
        /// HTTP status.
        status: u16,
    },
    /// An answer that is not what the hub gives.
    #[error("{url} gave an unexpected answer ({problem}): check --endpoint")]
    Answer {
        /// What was asked for.
        url: String,
        /// What was wrong with it.
        problem: String,
    },
    /// The repository holds nothing to run.
    #[error("{id} has no {missing}: it is not a model that Pagella can run{hint}")]
    NotAModel {
        /// The repository.
        id: String,
        /// What was looked for.
        missing: &'static str,
        /// A likely reason.
        hint: &'static str,
    },
    /// The downloaded bytes are not those the hub promised.
    #[error("{file} arrived damaged ({problem}): it was removed, run the same command again")]
    Damaged {
        file: String,
        /// How it was noticed.
        problem: String,
    },
    /// Another process is downloading the same file.
    #[error("{file} is being downloaded by another process: wait for it to finish")]
    Busy { file: String },
    /// The cache could not be written.
    #[error("cannot write {}: {source}: free some space or set HF_HOME to another place", path.display())]
    Cache {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The disk has too little room; nothing was fetched.
    #[error(
        "{} needs {needed} more bytes and has {free}: free some space or choose another place",
        dir.display()
    )]
    NoSpace {
        /// Where the files would go.
        dir: PathBuf,
        /// Bytes that are missing of them.
        needed: u64,
        /// Bytes that there is room for.
        free: u64,
    },
    /// Whoever watched did not want to go on.
    #[error("the download was stopped: what is there of it is kept")]
    Stopped,
    /// A host that must not be asked.
    #[error(
        "{host} is not among the hosts that may be asked, or not over HTTPS: see downloads.hosts"
    )]
    Host { host: String },
    /// No file has a name that was asked for.
    #[error("no file of {id} has a name that was asked for: check include and exclude")]
    NothingMatches {
        /// The repository.
        id: String,
    },
    /// Names of files that cannot stand beside each other, or not in any folder.
    #[error("{id} has files whose names collide: {name}")]
    Names {
        /// The repository.
        id: String,
        name: String,
    },
    /// No place for the cache is known.
    #[error("no home directory is known: set HF_HOME to the folder that should hold models")]
    NoHome,
}

fn hint(status: u16) -> &'static str {
    match status {
        401 | 403 => "the model is private or gated, accept its terms on the hub and set HF_TOKEN",
        404 => "no such model or revision, check the spelling",
        429 => "too many requests, wait a while",
        500.. => "the server has a problem, try again later",
        _ => "check the name and --endpoint",
    }
}
