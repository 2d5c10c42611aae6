//! What is written down, and where.

use std::path::PathBuf;

/// What is written down, on standard error and in a file.
#[derive(Clone, Debug)]
pub struct Logging {
    /// The least that is written down.
    pub level: LogLevel,
    /// Lines of JSON instead of text.
    pub json: bool,
    /// A file beside standard error.
    pub file: Option<PathBuf>,
    /// One line per request.
    pub access: bool,
    /// How peers are named.
    pub peer: PeerName,
    /// Prompts, as text.
    pub log_prompt: bool,
    /// How each answer was sampled.
    pub log_generation_params: bool,
    /// Bodies and headers of requests, without keys.
    pub log_requests: bool,
    /// A folder for conversations and their rendered prompts, one file each.
    pub log_chat_completion_requests: Option<PathBuf>,
    /// Nothing on standard error; a file is written all the same.
    pub quiet: bool,
}

/// How important an event is; the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// For those who look for a defect.
    Debug,
    /// What an operator may want to know.
    Info,
    /// What an operator should look at.
    Warn,
    /// What does not work.
    Error,
}

/// How peers are named in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerName {
    /// By address.
    Full,
    /// By a hash that tells peers apart and is another after a restart.
    Hash,
    /// Not at all.
    None,
}

impl Default for Logging {
    fn default() -> Self {
        Logging {
            level: LogLevel::Info,
            json: false,
            file: None,
            access: true,
            peer: PeerName::Full,
            log_prompt: false,
            log_generation_params: false,
            log_requests: false,
            log_chat_completion_requests: None,
            quiet: false,
        }
    }
}
