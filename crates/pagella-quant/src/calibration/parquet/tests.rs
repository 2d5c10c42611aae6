//! Files that pyarrow has written (`testdata/parquet/generate.py`), and damaged copies of them.

use std::path::PathBuf;

use super::*;

/// The texts of all files.
fn expected() -> Vec<String> {
    let ten = ["one", "two", "", "drei für zwei", "one", "one", &"x".repeat(300), "末"];
    let mut texts: Vec<String> = ten.repeat(3).into_iter().map(str::to_owned).collect();
    texts.push("last".to_owned());
    texts
}

fn path(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/parquet");
    root.join(name).with_extension("parquet")
}

fn read(path: &Path) -> Result<Vec<String>, QuantError> {
    let mut found = Vec::new();
    texts(path, &mut |text| {
        found.push(text.to_owned());
        // More than any of the files has.
        Ok(found.len() < 1000)
    })?;
    Ok(found)
}

#[test]
fn texts_are_read_in_every_form_that_programs_write_by_default() {
    for name in [
        "plain",
        "required",
        "snappy-dictionary",
        "gzip-version-2",
        "zstd-small-pages",
        "snappy-version-2-dictionary",
        "other-name",
    ] {
        assert_eq!(read(&path(name)).unwrap(), expected(), "{name}");
    }
}

#[test]
fn no_more_is_read_than_is_wanted() {
    let mut found = Vec::new();
    let done = texts(&path("zstd-small-pages"), &mut |text| {
        found.push(text.to_owned());
        Ok(found.len() < 11)
    });
    assert!(done.is_ok());
    assert_eq!(found, expected()[..11]);
}

#[test]
fn what_is_not_read_is_named_with_a_way_out() {
    for (name, wanted) in [
        ("brotli", "compressed with Brotli"),
        ("delta", "the encoding 7"),
        ("two-names", "no column `text` among `a`, `b`"),
        ("no-text", "no column `text` among `a`, `b."),
        ("generate.py", "not a Parquet file"),
    ] {
        let path = if name.ends_with(".py") { path("x").with_file_name(name) } else { path(name) };
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains(wanted), "{name}: {error}");
    }
}

#[test]
fn damaged_files_give_errors_or_other_texts_and_never_more() {
    let dir = tempfile::tempdir().unwrap();
    let damaged = dir.path().join("damaged.parquet");
    for name in ["plain", "snappy-version-2-dictionary", "gzip-version-2", "zstd-small-pages"] {
        let bytes = std::fs::read(path(name)).unwrap();
        let stride = if name == "zstd-small-pages" { 7 } else { 1 };
        for at in (0..bytes.len()).step_by(stride) {
            let mut copy = bytes.clone();
            copy[at] ^= [0xff, 0x01, 0x80][at % 3];
            std::fs::write(&damaged, &copy).unwrap();
            drop(read(&damaged));
        }
        for cut in (0..bytes.len()).step_by(5 * stride) {
            std::fs::write(&damaged, &bytes[..cut]).unwrap();
            assert!(read(&damaged).is_err(), "{name} of {cut} bytes");
        }
    }
}
