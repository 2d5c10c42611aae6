//! Project automation; see `cargo xtask help`.

fn main() {}
