//! The `pagella` program; all of it is in [`pagella::command`], where other programs find it too.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    pagella::command::main(std::env::args_os())
}
