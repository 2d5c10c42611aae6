//! Headers: what is accepted, each way to be hostile, and arbitrary damage.

use proptest::prelude::*;

use super::*;
use crate::dtype::OtherDtype;

/// A file with this JSON and `data_bytes` bytes of data.
fn file(json: &str, data_bytes: usize) -> Vec<u8> {
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(json.as_bytes());
    bytes.resize(bytes.len() + data_bytes, 0xab);
    bytes
}

fn parse_bytes(bytes: &[u8]) -> Result<Vec<HeaderEntry>> {
    parse(bytes, bytes.len() as u64, Path::new("m.safetensors"))
}

/// Fails unless the file is refused with `code`, naming the file and `text`.
fn check_refused(bytes: &[u8], code: &str, text: &str) {
    let error = parse_bytes(bytes).expect_err(text);
    assert_eq!(error.code(), code, "{error}");
    let message = error.to_string();
    assert!(message.contains("m.safetensors") && message.contains(text), "{message}");
}

/// One tensor entry.
fn entry(name: &str, dtype: &str, shape: &str, offsets: &str) -> String {
    format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#)
}

fn one(dtype: &str, shape: &str, offsets: &str) -> String {
    format!("{{{}}}", entry("t", dtype, shape, offsets))
}

#[test]
fn tensors_come_with_offsets_into_the_file() {
    let json = format!(
        r#"{{"__metadata__":{{"format":"pt"}},{},{},{},{} }}  "#,
        entry("b", "F16", "[2,3]", "[4,16]"),
        entry("a", "I32", "[]", "[0,4]"),
        entry("empty", "F32", "[0,7]", "[16,16]"),
        entry("ids", "I64", "[1]", "[16,24]"),
    );
    let bytes = file(&json, 24);
    let begin = 8 + json.len() as u64;
    let entries = parse_bytes(&bytes).unwrap();
    let found: Vec<_> = entries
        .iter()
        .map(|e| (e.name.as_str(), e.dtype, e.shape.as_slice(), e.begin - begin, e.end - begin))
        .collect();
    assert_eq!(
        found,
        [
            ("b", Dtype::F16, &[2, 3][..], 4, 16),
            ("a", Dtype::I32, &[], 0, 4),
            ("empty", Dtype::F32, &[0, 7], 16, 16),
            ("ids", Dtype::Other(OtherDtype::I64), &[1], 16, 24),
        ]
    );
    assert!(parse_bytes(&file("{}", 0)).unwrap().is_empty());
}

#[test]
fn a_type_of_the_future_is_harmless_until_it_is_read() {
    let entries = parse_bytes(&file(&one("F3_E1M1", "[5]", "[0,3]"), 3)).unwrap();
    assert_eq!(entries[0].dtype, Dtype::Other(OtherDtype::Unknown));
    let entries = parse_bytes(&file(&one("F4", "[6]", "[0,3]"), 3)).unwrap();
    assert_eq!(entries[0].dtype, Dtype::Other(OtherDtype::F4));
    check_refused(&file(&one("F4", "[5]", "[0,3]"), 3), "size_mismatch", "`t`");
}

#[test]
fn header_lengths_beyond_the_file_or_the_limit_are_refused() {
    check_refused(&[], "file_too_short", "0 bytes");
    check_refused(&[0; 7], "file_too_short", "7 bytes");
    check_refused(&[3, 0, 0, 0, 0, 0, 0, 0, b'{', b'}'], "header_beyond_file", "3 bytes");
    for length in [HEADER_BYTES_MAX + 1, 1 << 31, 1 << 32, (1 << 32) + 1, u64::MAX - 8, u64::MAX] {
        let mut bytes = file("{}", 100);
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        check_refused(&bytes, "header_too_long", &length.to_string());
    }
    let mut bytes = file("{}", 100);
    bytes[..8].copy_from_slice(&0u64.to_le_bytes());
    check_refused(&bytes, "header_json", "EOF");
}

#[test]
fn only_well_formed_json_of_the_right_types_is_a_header() {
    let deep = format!(r#"{{"t":{}"#, "[".repeat(100_000));
    for (json, text) in [
        ("[]", "object of tensors"),
        ("{", "EOF"),
        ("{} x", "trailing"),
        ("{}\0", "trailing"),
        (r#"{"t":1}"#, "`t`"),
        (r#"{"t":{"dtype":"F16","shape":[1]}}"#, "`t`: missing field `data_offsets`"),
        (
            r#"{"t":{"dtype":"F16","dtype":"F32","shape":[],"data_offsets":[0,0]}}"#,
            "`t`: duplicate",
        ),
        (&one("F16", "[-1]", "[0,2]"), "`t`"),
        (&one("F16", "[1.0]", "[0,2]"), "`t`"),
        (&one("F16", "[18446744073709551616]", "[0,2]"), "`t`"),
        (&one("F16", "\"1\"", "[0,2]"), "`t`"),
        (&one("F16", "[1]", "[0,2,3]"), "`t`"),
        (&one("F16", "[1]", "[0]"), "`t`"),
        (&one("F16", "[1]", "[-2,0]"), "`t`"),
        (&one("F16", "[1,1,1,1,1,1,1,1,1]", "[0,2]"), "at most 8 extents"),
        (&deep, "`t`"),
    ] {
        check_refused(&file(json, 2), "header_json", text);
    }
    let mut bytes = file(&one("F16", "[1]", "[0,2]"), 2);
    bytes[10] = 0xff;
    check_refused(&bytes, "header_json", "invalid unicode");
}

#[test]
fn metadata_is_skipped_however_deep_it_is() {
    let json = format!(r#"{{"__metadata__":{}{}}}"#, "[".repeat(200_000), "]".repeat(200_000));
    assert!(parse_bytes(&file(&json, 0)).unwrap().is_empty());
}

#[test]
fn repeated_names_are_refused() {
    let json =
        format!("{{{},{}}}", entry("t", "I8", "[1]", "[0,1]"), entry("t", "I8", "[1]", "[1,2]"));
    check_refused(&file(&json, 2), "repeated_tensor", "`t`");
    // The same name, once written with an escape.
    let json = format!(
        "{{{},{}}}",
        entry("t", "I8", "[1]", "[0,1]"),
        entry("\\u0074", "I8", "[1]", "[1,2]")
    );
    check_refused(&file(&json, 2), "repeated_tensor", "`t`");
}

#[test]
fn byte_ranges_must_lie_in_the_file_and_fit_the_shape() {
    for offsets in
        ["[0,9]", "[6,2]", "[9,9]", "[0,18446744073709551615]", "[18446744073709551614,0]"]
    {
        check_refused(&file(&one("I8", "[4]", offsets), 8), "offsets_out_of_range", "`t`");
    }
    for (dtype, shape) in [
        ("F16", "[3]"),
        ("F32", "[1]"),
        ("F16", "[]"),
        ("F16", "[0]"),
        // Products that wrap 64 bits, some back to 4 elements.
        ("F16", "[4294967296,4294967296,4]"),
        ("F16", "[9223372036854775812]"),
        ("F64", "[2305843009213693953]"),
        ("F16", "[18446744073709551615,18446744073709551615]"),
    ] {
        check_refused(&file(&one(dtype, shape, "[0,8]"), 8), "size_mismatch", "`t`");
    }
    // An extent of zero absorbs the others, as long as the product itself does not wrap.
    assert!(parse_bytes(&file(&one("F16", "[0,9223372036854775807]", "[0,0]"), 0)).is_ok());
}

#[test]
fn ranges_tile_the_data_without_gap_or_overlap() {
    let pair = |first: &str, second: &str| {
        format!("{{{},{}}}", entry("x", "I8", "[4]", first), entry("y", "I8", "[4]", second))
    };
    assert!(parse_bytes(&file(&pair("[4,8]", "[0,4]"), 8)).is_ok());
    check_refused(&file(&pair("[0,4]", "[2,6]"), 6), "overlap", "`x` and `y`");
    check_refused(&file(&pair("[0,4]", "[0,4]"), 4), "overlap", "`x` and `y`");
    check_refused(&file(&pair("[0,4]", "[5,9]"), 9), "unclaimed_bytes", "4..5");
    check_refused(&file(&pair("[1,5]", "[5,9]"), 9), "unclaimed_bytes", "0..1");
    check_refused(&file(&pair("[0,4]", "[4,8]"), 9), "unclaimed_bytes", "8..9");
    check_refused(&file("{}", 1), "unclaimed_bytes", "0..1");
}

#[test]
fn pickle_formats_refused() {
    for (magic, text) in [
        (&b"GGUF\x03\0\0\0\0\0\0\0"[..], "GGUF"),
        (b"PK\x03\x04\0\0\0\0\0\0", "pickle"),
        (b"\x80\x02}q\0(X\x05\0\0", "pickle"),
        (b"\x80\x04\x95\x10\0\0\0\0\0", "pickle"),
        (b"\x93NUMPY\x01\0v\0", "pickle"),
    ] {
        check_refused(magic, "unsupported_format", text);
    }
    // A header of 0x0280 bytes begins like a pickle and is none.
    let json = format!("{:width$}", one("F16", "[1]", "[0,2]"), width = 0x280);
    assert!(parse_bytes(&file(&json, 2)).is_ok());
}

/// A valid file of three tensors.
fn valid() -> Vec<u8> {
    let json = format!(
        r#"{{"__metadata__":{{"a":"b"}},{},{},{}}}"#,
        entry("model.norm.weight", "F16", "[16]", "[0,32]"),
        entry("w.q_weight", "I32", "[2,8]", "[32,96]"),
        entry("w.q_groups", "I16", "[2]", "[96,100]"),
    );
    file(&json, 100)
}

/// Whatever parses must keep the promises of this module.
fn check_promises(bytes: &[u8]) -> Result<(), TestCaseError> {
    let Ok(entries) = parse_bytes(bytes) else { return Ok(()) };
    for entry in entries {
        prop_assert!(entry.begin <= entry.end && entry.end <= bytes.len() as u64);
        if let Some(bits) = entry.dtype.bits() {
            prop_assert_eq!(tensor_bytes(&entry.shape, bits), Some(entry.end - entry.begin));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_parse_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check_promises(&bytes)?;
    }

    #[test]
    fn damaged_files_parse_or_are_refused(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = valid();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        check_promises(&bytes)?;
    }

    #[test]
    fn header_integers_all_extremes(
        which in 0usize..12,
        value in prop::sample::select(vec![
            "0", "1", "-1", "2147483648", "4294967297", "9223372036854775807", "9223372036854775808",
            "18446744073709551614", "18446744073709551615", "18446744073709551616", "1e30", "null",
        ]),
    ) {
        let bytes = valid();
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let json = std::str::from_utf8(&bytes[8..8 + length]).unwrap();
        let mut numbers = 0;
        let mut damaged = String::new();
        // Replace the `which`-th integer that follows a bracket or comma.
        let mut rest = json;
        while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
            let len = rest[at..].find(|c: char| !c.is_ascii_digit()).unwrap();
            let standalone = rest[..at].ends_with(['[', ',']);
            damaged += &rest[..at];
            damaged += if standalone && numbers == which { value } else { &rest[at..at + len] };
            numbers += usize::from(standalone);
            rest = &rest[at + len..];
        }
        damaged += rest;
        prop_assert_eq!(numbers, 10);
        check_promises(&file(&damaged, 100))?;
    }
}
