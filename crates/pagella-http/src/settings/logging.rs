//! What is written down, and where.

use std::path::PathBuf;

use super::declare::{choice, section};

section! {
    /// What is written down, on standard error and in a file.
    Logging at logging {
        /// The least that is written down
        level: LogLevel = LogLevel::Info, live;
        /// Form of the lines
        json: bool = false, key("format"), words(&[("text", false), ("json", true)]);
        /// A log file beside standard error
        file: Option<PathBuf> = None;
        /// Write prompts down
        log_prompt: bool = false, live;
        /// Write down how each answer was sampled
        log_generation_params: bool = false, live;
        /// Write down headers and bodies of requests, without keys
        log_requests: bool = false, live;
        /// A folder for conversations and their rendered prompts, one file each
        log_chat_completion_requests: Option<PathBuf> = None, live;
        /// One line per request
        access: bool = true, live;
        /// How clients are named in the log
        peer: PeerName = PeerName::Full, live;
    }
    no keys {
        /// Nothing on standard error; a file is written all the same.
        quiet: bool = false;
    }
}

choice! {
    /// How important an event is; the least first.
    #[derive(PartialOrd, Ord)]
    LogLevel {
        /// For those who look for a defect.
        Debug = "debug",
        /// What an operator may want to know.
        Info = "info",
        /// What an operator should look at.
        Warn = "warn",
        /// What does not work.
        Error = "error",
    }
}

choice! {
    /// How peers are named in the log.
    PeerName {
        /// By address.
        Full = "full",
        /// By a hash that tells peers apart and is another after a restart.
        Hash = "hash",
        /// Not at all.
        None = "none",
    }
}
