//! Request ids: the client's own if it is harmless, else a ULID. Object ids derive from them.

use std::time::{SystemTime, UNIX_EPOCH};

/// Longest id that is taken over.
const ID_BYTES_MAX: usize = 128;
/// Crockford's alphabet: no letter that looks like another.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// The client's id if it may appear in headers, logs and object ids; else a new one.
pub fn request_id(given: Option<&str>) -> String {
    let harmless = |id: &&str| {
        let fits = (1..=ID_BYTES_MAX).contains(&id.len());
        fits && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    given.filter(harmless).map_or_else(ulid, str::to_owned)
}

/// 48 bits of time in milliseconds, then 80 random bits, as 26 characters that sort by time.
pub fn ulid() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = since.as_millis() & ((1 << 48) - 1);
    let value = (time << 80) | (random_u128() >> 48);
    let digit = |i: u32| char::from(ALPHABET[((value >> (5 * i)) & 31) as usize]);
    (0..26).rev().map(digit).collect()
}

/// 128 random bits from the system.
pub fn random_u128() -> u128 {
    u128::from_le_bytes(random_bytes())
}

/// Random bytes from the system; without them no key and no id is safe, so there is no way on.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harmless_ids_are_kept_and_others_replaced() {
        assert_eq!(request_id(Some("a.B_c-9")), "a.B_c-9");
        let long = "x".repeat(129);
        for bad in ["", "a b", "a\nb", "ä", long.as_str()] {
            assert_eq!(request_id(Some(bad)).len(), 26, "{bad:?}");
        }
    }

    #[test]
    fn new_ids_differ_and_sort_by_time() {
        let (a, b) = (ulid(), ulid());
        assert_ne!(a, b);
        assert!(a[..10] <= b[..10]);
        assert!(a.bytes().all(|byte| ALPHABET.contains(&byte)));
    }
}
