//! The printable alphabet that byte-level tokenizers write their bytes in.
//! Printable Latin-1 characters stand for themselves, the other 68 bytes for U+0100 onwards, in
//! increasing order. The map is a bijection between the 256 bytes and 256 characters.

/// Bytes that stand for themselves.
const fn is_plain(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF)
}

/// Characters below this are looked up.
const CHARS: usize = 0x200;
/// The byte that each character stands for; -1 for others.
static BYTES: [i16; CHARS] = bytes();

const fn bytes() -> [i16; CHARS] {
    let mut bytes = [-1; CHARS];
    let (mut byte, mut others) = (0, 0);
    while byte < 256 {
        if is_plain(byte as u8) {
            bytes[byte] = byte as i16;
        } else {
            bytes[0x100 + others] = byte as i16;
            others += 1;
        }
        byte += 1;
    }
    bytes
}

/// The byte that a character of the alphabet stands for.
pub(crate) fn byte_of(c: char) -> Option<u8> {
    BYTES.get(c as usize).and_then(|byte| u8::try_from(*byte).ok())
}

/// The character that each byte is written as.
pub(crate) fn letters() -> [char; 256] {
    let mut letters = ['\0'; 256];
    for c in (0..0x200).filter_map(char::from_u32) {
        if let Some(byte) = byte_of(c) {
            letters[usize::from(byte)] = c;
        }
    }
    letters
}

/// The bytes a piece stands for, or `None` if a character is outside the alphabet.
pub(crate) fn bytes_of(piece: &str) -> Option<Vec<u8>> {
    piece.chars().map(byte_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_covers_every_byte_once() {
        let mut seen = [false; 256];
        for c in (0..0x200).filter_map(char::from_u32) {
            if let Some(byte) = byte_of(c) {
                assert!(!seen[byte as usize], "{c:?} repeats {byte}");
                seen[byte as usize] = true;
            }
        }
        assert!(seen.iter().all(|s| *s));
    }

    #[test]
    fn well_known_letters_map_to_their_bytes() {
        assert_eq!(bytes_of("Ġhi"), Some(b" hi".to_vec()));
        assert_eq!(bytes_of("Ċ"), Some(b"\n".to_vec()));
        assert_eq!(bytes_of("Ã©"), Some("é".as_bytes().to_vec()));
        assert_eq!(bytes_of("▁"), None);
    }
}
