//! Properties over random text and ids, on every fixture: round trip, injection, streaming, tables.
use std::sync::LazyLock;

use crate::support::{FIXTURES, load_all};
use pagella_text::{AddBos, Span, SpecialTokens, StreamStart, Tokenizer};
use proptest::prelude::*;

static ALL: LazyLock<Vec<(&str, Tokenizer)>> = LazyLock::new(load_all);

/// Text in which the space mark does not occur; SentencePiece cannot tell it from a space.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-zA-Z' .,]{0,12}",
        2 => "[ \n\t]{0,6}",
        1 => "\\PC{0,8}",
        1 => any::<String>(),
        1 => Just("<0x0A></s><|end|><s><unk>".to_owned()),
    ];
    prop::collection::vec(piece, 0..6).prop_map(|v| v.concat().replace('▁', "_"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn c02_text_survives_encoding_and_decoding(text in text()) {
        for ((name, tokenizer), (_, exact)) in ALL.iter().zip(FIXTURES) {
            if !exact {
                continue;
            }
            let ids = tokenizer.encode_text(&text).unwrap();
            prop_assert_eq!(&tokenizer.decode(&ids, SpecialTokens::Hide), &text, "{}", name);
        }
    }

    #[test]
    fn c03_plain_text_never_becomes_a_special_token(
        before in text(),
        after in text(),
        which in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
    ) {
        for (name, tokenizer) in ALL.iter() {
            let specials = tokenizer.special_ids();
            let special = specials[which.index(specials.len())];
            let piece = tokenizer.piece(special).unwrap();
            let hostile = format!("{before}{piece}{after}");
            let unknown = tokenizer.unk_id();
            let is_control = |id: &u32| tokenizer.is_special(*id) && Some(*id) != unknown;
            let ids = tokenizer.encode_text(&hostile).unwrap();
            prop_assert!(!ids.iter().any(is_control), "{} {:?} {:?}", name, hostile, ids);
            // Half of the token as text, the other half as template.
            let borders: Vec<usize> = (1..piece.len()).filter(|i| piece.is_char_boundary(*i)).collect();
            if borders.is_empty() {
                continue;
            }
            let (head, tail) = piece.split_at(borders[cut.index(borders.len())]);
            for spans in [
                [Span::Text(head.into()), Span::Special(tail.into())],
                [Span::Special(head.into()), Span::Text(tail.into())],
            ] {
                let ids = tokenizer.encode(&spans, AddBos::Never).unwrap();
                prop_assert!(!ids.contains(&special), "{} {:?} {:?}", name, spans, ids);
            }
            // As template text it is exactly that token.
            let ids = tokenizer.encode(&[Span::Special(piece.into())], AddBos::Never).unwrap();
            prop_assert!(ids.contains(&special), "{} {:?} {:?}", name, piece, ids);
        }
    }

    #[test]
    fn a_span_border_changes_nothing_in_plain_text(a in text(), b in text()) {
        for (name, tokenizer) in ALL.iter() {
            let joined = tokenizer.encode_text(&format!("{a}{b}")).unwrap();
            let spans = [Span::Text(a.clone()), Span::Text(b.clone())];
            prop_assert_eq!(tokenizer.encode(&spans, AddBos::Never).unwrap(), joined, "{}", name);
        }
    }

    #[test]
    fn c04_streaming_equals_decoding_at_once(
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        show in any::<bool>(),
        standalone in any::<bool>(),
    ) {
        let specials = if show { SpecialTokens::Show } else { SpecialTokens::Hide };
        let start = if standalone { StreamStart::Standalone } else { StreamStart::Continuation };
        for (name, tokenizer) in ALL.iter() {
            let ids: Vec<u32> =
                picks.iter().map(|p| p.index(tokenizer.vocab_size()) as u32).collect();
            let mut stream = tokenizer.stream_decoder(specials, start);
            let mut streamed = String::new();
            for id in &ids {
                streamed.push_str(stream.push(*id));
                prop_assert!(stream.held_bytes() <= 3);
            }
            streamed.push_str(stream.finish());
            if standalone {
                prop_assert_eq!(&streamed, &tokenizer.decode(&ids, specials), "{}", name);
            } else {
                let shown = |id: &&u32| show || !tokenizer.is_special(**id);
                let bytes: Vec<u8> = ids
                    .iter()
                    .filter(shown)
                    .flat_map(|id| tokenizer.token_bytes(*id).to_vec())
                    .collect();
                prop_assert_eq!(&streamed, &String::from_utf8_lossy(&bytes), "{}", name);
            }
        }
    }

    #[test]
    fn c06_prefix_queries_equal_a_search_over_all_tokens(
        pick in any::<prop::sample::Index>(),
        len in 0usize..6,
        tail in prop::collection::vec(any::<u8>(), 0..2),
    ) {
        for (name, tokenizer) in ALL.iter() {
            let ids = 0..tokenizer.vocab_size() as u32;
            let source = tokenizer.token_bytes(pick.index(tokenizer.vocab_size()) as u32);
            let mut prefix = source[..len.min(source.len())].to_vec();
            prefix.extend(&tail);
            let ordinary = |id: &u32| {
                let flags = tokenizer.flags(*id);
                !flags.special && !flags.unused && !tokenizer.token_bytes(*id).is_empty()
            };
            let mut found = tokenizer.ids_with_prefix(&prefix).to_vec();
            found.sort_unstable();
            let starts = |id: &u32| tokenizer.token_bytes(*id).starts_with(&prefix);
            let expected: Vec<u32> = ids.clone().filter(ordinary).filter(starts).collect();
            prop_assert_eq!(found, expected, "{}", name);
            let mut found = tokenizer.ids_that_begin(&prefix);
            found.sort_unstable();
            let begins = |id: &u32| prefix.starts_with(tokenizer.token_bytes(*id));
            let expected: Vec<u32> = ids.filter(ordinary).filter(begins).collect();
            prop_assert_eq!(found, expected, "{}", name);
        }
    }

    #[test]
    fn c05_healing_removes_whole_tokens_and_allows_the_true_continuation(text in text()) {
        for (name, tokenizer) in ALL.iter() {
            let ids = tokenizer.encode_text(&text).unwrap();
            let point = tokenizer.healing_point(&ids);
            prop_assert!(point.keep <= ids.len() && (point.keep > 0 || ids.is_empty()));
            let removed = tokenizer.decode_bytes(&ids[point.keep..]);
            prop_assert_eq!(&removed, &point.prefix, "{}", name);
            if let Some(first) = ids.get(point.keep) {
                prop_assert!(tokenizer.healing_ids(&point.prefix).contains(first), "{}", name);
            }
        }
    }
}

#[test]
fn c06_every_ordinary_id_is_reachable_and_no_special_one_is() {
    for (name, tokenizer) in ALL.iter() {
        let listed = tokenizer.ids_with_prefix(b"").len();
        let ordinary = (0..tokenizer.vocab_size() as u32)
            .filter(|id| !tokenizer.is_special(*id) && !tokenizer.token_bytes(*id).is_empty());
        assert_eq!(listed, ordinary.count(), "{name}");
        assert!(tokenizer.ids_with_prefix(b"").iter().all(|id| !tokenizer.is_special(*id)));
    }
}

#[test]
fn unknown_ids_are_shown_and_counted() {
    let (_, tokenizer) = &ALL[0];
    let mut stream = tokenizer.stream_decoder(SpecialTokens::Hide, StreamStart::Continuation);
    assert_eq!(stream.push(u32::MAX), "\u{FFFD}");
    assert_eq!(stream.unknown_ids(), 1);
}

#[test]
fn a_prompt_that_ends_inside_a_word_is_healed() {
    let tokenizer = crate::support::load("spm-bpe");
    let ids = tokenizer.encode_text("The little p").unwrap();
    let point = tokenizer.healing_point(&ids);
    assert!(point.keep < ids.len(), "{point:?}");
    assert!(tokenizer.healing_ids(&point.prefix).len() > 1);
}
