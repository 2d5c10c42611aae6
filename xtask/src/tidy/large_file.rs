//! No file above 16 MB: everyone who clones the repository would carry it for ever.

use super::{Finding, Tree};

const BYTES_MAX: u64 = 16_000_000;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let large = tree.files.iter().filter(|file| file.bytes > BYTES_MAX);
    large
        .map(|file| {
            let message = format!("{} bytes, the limit is {BYTES_MAX}", file.bytes);
            Finding::file(&file.path, message)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_after_the_last_allowed_one_is_found() {
        let mut tree = Tree::of(&[("fits.safetensors", ""), ("large.safetensors", "")]);
        tree.files[0].bytes = BYTES_MAX;
        tree.files[1].bytes = BYTES_MAX + 1;
        let found: Vec<_> = check(&tree).into_iter().map(|f| f.path).collect();
        assert_eq!(found, ["large.safetensors"]);
    }
}
