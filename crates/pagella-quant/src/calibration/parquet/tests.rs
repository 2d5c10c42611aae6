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
        ("delta", "the encoding 7 (DELTA_BYTE_ARRAY); plain texts and dictionaries are read"),
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

/// A file of nothing but a footer: `list` of so many `elements` in the field `number`.
fn footer_only(number: u8, count: u32, elements: &[u8]) -> Vec<u8> {
    let mut footer = vec![number << 4 | 9, 0xfc];
    footer.extend((0..5).map(|at| (count >> (7 * at)) as u8 & 127 | if at < 4 { 128 } else { 0 }));
    footer.extend(elements);
    footer.push(0);
    let mut file = b"PAR1".to_vec();
    file.extend(&footer);
    file.extend((footer.len() as u32).to_le_bytes());
    file.extend(b"PAR1");
    file
}

fn fault_of(bytes: Vec<u8>) -> String {
    footer::read(&mut std::io::Cursor::new(bytes)).unwrap_err()
}

#[test]
fn a_footer_of_empty_runs_or_of_endless_names_takes_no_more_than_it_has() {
    let empty_runs = footer_only(4, 2_000_000, &vec![0; 2_000_000]);
    assert!(fault_of(empty_runs).contains("more than 1048576"));
    // Groups in groups, each with one child and a name of 4000 bytes.
    let mut group = vec![0x48, 0xa0, 0x1f];
    group.extend([b'n'; 4000]);
    group.extend([0x15, 2, 0]);
    assert!(fault_of(footer_only(2, 3, &group.repeat(3))).contains("more than 4096 bytes"));
}

/// What a chunk of one page, `[bytes, stored bytes, bytes of levels]` in version 2, is refused for.
fn refused(codec: i64, [bytes, stored_bytes, level_bytes]: [u8; 3], stored: &[u8]) -> String {
    let mut page = vec![0x15, 6, 0x15, 2 * bytes, 0x15, 2 * stored_bytes];
    page.extend([0x5c, 0x15, 2, 0x35, 0, 0x15, 2 * level_bytes, 0x15, 0, 0x11, 0, 0]);
    page.extend(stored);
    let column = footer::column_of_texts();
    let chunk = footer::Chunk { start: 0, codec, values: 1 };
    let each: &mut Each<'_, QuantError> = &mut |_| Ok(true);
    match Pages::new(page.as_slice(), &column, chunk).run(each) {
        Err(Stop::Fault(fault)) => fault,
        _ => panic!("it was read"),
    }
}

#[test]
fn pages_with_less_than_nothing_behind_their_levels_are_refused() {
    for codec in [0, 1, 2, 6] {
        assert_eq!(refused(codec, [3, 8, 5], &[0; 8]), "a page is damaged");
    }
}
