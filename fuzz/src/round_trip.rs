//! What is done with every tokenizer that a file could make: text to ids and back, in two ways.

use pagella_text::{AddBos, Span, SpecialTokens, StreamStart, Tokenizer};

/// Bytes of every kind: spaces, controls, special tokens, combining and astral characters.
const TEXT: &str =
    "  Array.map() \u{e9}e\u{301}\t\r\n\n<|user|> </s> <0x0A> \u{2581}\u{1f600}\0 12345";

/// Encodes, and decodes both at once and id by id, which must agree. Text must never become a
/// special token, however the file defines its tokens; only the unknown token stands for text.
pub fn check(tokenizer: &Tokenizer) {
    for id in tokenizer.encode_text(TEXT).into_iter().flatten() {
        let inert = !tokenizer.is_special(id) || tokenizer.unk_id() == Some(id);
        assert!(inert, "plain text became special token {id}");
    }
    let spans = [Span::Special("<|user|>".into()), Span::Text(TEXT.into())];
    let encodings = [tokenizer.encode_text(TEXT), tokenizer.encode(&spans, AddBos::Auto)];
    for ids in encodings.into_iter().flatten() {
        assert!(ids.iter().all(|id| tokenizer.piece(*id).is_some()), "an id nobody declares");
        check_streaming(tokenizer, &ids);
        let _ = tokenizer.healing_point(&ids);
    }
    // Ids that a model could produce, in an order no encoder would.
    let ids: Vec<u32> = (0..64).chain([u32::MAX]).rev().collect();
    check_streaming(tokenizer, &ids);
    let _ = tokenizer.ids_that_begin(b"a");
    let _ = tokenizer.healing_ids(b" A");
}

fn check_streaming(tokenizer: &Tokenizer, ids: &[u32]) {
    for specials in [SpecialTokens::Show, SpecialTokens::Hide] {
        let mut stream = tokenizer.stream_decoder(specials, StreamStart::Standalone);
        let mut text: String = ids.iter().map(|id| stream.push(*id).to_owned()).collect();
        text.push_str(stream.finish());
        assert_eq!(text, tokenizer.decode(ids, specials), "streaming differs from decoding");
    }
}
