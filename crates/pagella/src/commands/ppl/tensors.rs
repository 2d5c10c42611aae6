//! Tensors of a file that a person named.

use std::path::Path;

use anyhow::{Context, Result};
use pagella_formats::{Checkpoint, TensorView};

/// Names that a message repeats at most.
const LISTED_MAX: usize = 20;

/// The tensor called `name`, or an error that says what the file has instead.
pub fn require<'a>(file: &'a Checkpoint, path: &Path, name: &str) -> Result<TensorView<'a>> {
    file.tensor(name).with_context(|| {
        let names: Vec<&str> = file.names().take(LISTED_MAX + 1).collect();
        let listed = match names.len() {
            0 => "nothing".to_owned(),
            n if n > LISTED_MAX => format!("{}, …", names[..LISTED_MAX].join(", ")),
            _ => names.join(", "),
        };
        format!("{}: there is no tensor {name}; the file has {listed}", path.display())
    })
}
