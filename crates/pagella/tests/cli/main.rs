//! The command as a user runs it: the built binary, on the demo model.

mod bench;
mod chat;
mod golden;
mod hostile;
mod ppl;
mod pull;
mod report;
mod run;
mod support;
mod usage;
