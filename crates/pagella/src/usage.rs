//! Options that are fine one by one and contradict each other: exit code 2, like any wrong usage.

use std::fmt;

/// What is wrong with the command line, and what to do.
#[derive(Debug)]
pub struct Usage(String);

impl Usage {
    /// Wrong usage, as an error to return.
    pub fn error(message: impl Into<String>) -> anyhow::Error {
        Usage(message.into()).into()
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}
