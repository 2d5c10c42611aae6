//! The `pagella` command.

fn main() {}
