//! Word by word gives the ids that all words at once give.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::LazyLock;

use proptest::prelude::*;

use crate::budget::EncodeBudget;
use crate::{AddBos, Span, TextError, Tokenizer};

/// Tokenizers that encode word by word.
static ALL: LazyLock<Vec<Tokenizer>> = LazyLock::new(|| {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dirs = [
        "models/demo",
        "testdata/tokenizer/byte-level",
        "testdata/tokenizer/byte-level-nfc",
        "testdata/tokenizer/llama-legacy",
        "testdata/tokenizer/llama-first",
        "testdata/tokenizer/spm-bpe",
    ];
    dirs.map(|dir| Tokenizer::from_dir(&root.join(dir)).unwrap()).to_vec()
});

/// The same text by both ways.
fn both(tokenizer: &Tokenizer, text: &str, inert: &[Range<usize>]) -> (Vec<u32>, Vec<u32>) {
    let pipeline = tokenizer.pipeline();
    assert!(pipeline.is_direct());
    let by_word = pipeline.encode(text, inert, &EncodeBudget::default()).unwrap();
    (by_word, pipeline.encode_plainly(text, inert).unwrap())
}

fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-zA-Z' .,]{0,12}",
        3 => "[ \n\t\r\u{a0}\u{3000}]{0,8}",
        2 => "[0-9 ]{0,12}",
        2 => "(don't|I'LL|'s|\u{2019}s| '|''){0,4}",
        2 => "[e\u{301}\u{e9}\u{1100}\u{1161}\u{11a8}\u{212a} ]{0,8}",
        1 => "\\PC{0,8}",
        1 => any::<String>(),
        1 => Just("<|endoftext|><|im_start|><|end|> <s></s>".to_owned()),
        2 => "(\u{2581}| |a|</s>|<0x0A>|page|<.norm.>){0,8}",
        1 => "[ab ]{0,2}".prop_map(|s| s.repeat(900)),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|v| v.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn words_one_by_one_become_the_ids_of_all_at_once(text in text(), cut in any::<prop::sample::Index>()) {
        for tokenizer in ALL.iter() {
            let (by_word, plainly) = both(tokenizer, &text, &[]);
            prop_assert_eq!(by_word, plainly);
            let borders: Vec<usize> = (0..=text.len()).filter(|i| text.is_char_boundary(*i)).collect();
            let inert = 0..borders[cut.index(borders.len())];
            let (by_word, plainly) = both(tokenizer, &text, std::slice::from_ref(&inert));
            prop_assert_eq!(by_word, plainly);
        }
    }

    #[test]
    fn a_text_never_has_fewer_ids_than_its_length_says(text in text()) {
        for tokenizer in ALL.iter() {
            let ids = tokenizer.encode_special(&text).unwrap();
            let budget = EncodeBudget::default().within(ids.len());
            let spans = [Span::Special(text.clone())];
            prop_assert_eq!(tokenizer.encode_within(&spans, AddBos::Never, &budget).unwrap(), ids);
        }
    }
}

#[test]
fn runs_of_one_class_become_the_same_ids_however_long() {
    for class in
        [" ", "a", "1", "\n", "\u{5b57}", "\u{1f469}\u{200d}", "1 ", "\t", ".", "e\u{301}", " a"]
    {
        for bytes in [100, 2047, 2048, 2049, 5000] {
            let text = format!("x{}y", class.repeat(bytes / class.len()));
            for tokenizer in ALL.iter() {
                let (by_word, plainly) = both(tokenizer, &text, &[]);
                assert!(by_word == plainly, "{bytes} bytes of {class:?}");
            }
        }
    }
}

/// What a refusal says it has counted when it stopped.
fn counted(tokenizer: &Tokenizer, text: &str, limit: usize) -> usize {
    let budget = EncodeBudget::default().within(limit);
    let spans = [Span::Text(text.to_owned())];
    match tokenizer.encode_within(&spans, AddBos::Never, &budget) {
        Err(TextError::TooManyTokens { at_least, limit: told }) if told == limit => at_least,
        other => panic!("{other:?}"),
    }
}

#[test]
fn encoding_stops_where_the_limit_is_passed() {
    let text = "The method returns 17 things. ".repeat(30_000);
    for tokenizer in ALL.iter() {
        let all = tokenizer.encode_text(&text).unwrap().len();
        // More than the length alone tells, and far from the end.
        let limit = all / 2;
        let counted = counted(tokenizer, &text, limit);
        assert!(limit < counted && counted < limit + 64, "{counted} of {all}");
    }
}

#[test]
fn what_cannot_fit_is_refused_before_anything_is_encoded() {
    let text = " ".repeat(1 << 20);
    let tokenizer = &ALL[0];
    let longest = 128;
    assert_eq!(counted(tokenizer, &text, 2048), text.len() / longest);
    let fits = EncodeBudget::default().within(text.len() / longest);
    let ids = tokenizer.encode_within(&[Span::Text(text)], AddBos::Never, &fits).unwrap();
    assert_eq!(ids.len(), (1 << 20) / longest);
}

#[test]
fn encoding_ends_when_nobody_waits_for_it() {
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let budget = EncodeBudget::until(stop);
    for text in ["a b ".repeat(1000), " ".repeat(100_000)] {
        let encoded = ALL[0].encode_within(&[Span::Text(text)], AddBos::Never, &budget);
        assert!(matches!(encoded, Err(TextError::Stopped)), "{encoded:?}");
    }
}
