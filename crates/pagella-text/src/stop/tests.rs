//! The matcher against a direct search, for every way of cutting the text.

use proptest::prelude::*;

use super::*;

/// Feeds the pieces; released text and the index of the match.
fn run(stops: &[&str], pieces: &[&str]) -> (String, Option<usize>) {
    let mut matcher = StopMatcher::new(stops).unwrap();
    let mut text = String::new();
    for piece in pieces {
        let step = matcher.push(piece);
        text.push_str(&step.text);
        if let Some(found) = step.matched {
            return (text, Some(found.index));
        }
    }
    text.push_str(&matcher.finish());
    (text, None)
}

/// The same by definition: the first end, then the first start, then list order.
fn search(stops: &[&str], text: &str) -> (String, Option<usize>) {
    for end in 0..=text.len() {
        let ended = stops
            .iter()
            .enumerate()
            .filter(|(_, s)| text.as_bytes()[..end].ends_with(s.as_bytes()));
        if let Some((i, s)) = ended.max_by_key(|(i, s)| (s.len(), usize::MAX - i)) {
            return (text[..end - s.len()].to_owned(), Some(i));
        }
    }
    (text.to_owned(), None)
}

/// Every way of cutting a short text, by bit mask.
fn all_cuts(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let borders: Vec<usize> = text.char_indices().map(|(i, _)| i).skip(1).collect();
    (0u32..1 << borders.len()).map(move |mask| {
        let mut pieces = Vec::new();
        let mut start = 0;
        for (bit, border) in borders.iter().enumerate() {
            if mask & (1 << bit) != 0 {
                pieces.push(&text[start..*border]);
                start = *border;
            }
        }
        pieces.push(&text[start..]);
        pieces
    })
}

#[test]
fn every_cut_of_every_short_text_gives_the_same_result() {
    let lists: [&[&str]; 6] =
        [&["ab"], &["aab"], &["abab", "ba"], &["aa", "aab", "b"], &["bb", "abb"], &[]];
    for len in 0..=7u32 {
        for code in 0..2u32.pow(len) {
            let text: String =
                (0..len).map(|i| if code & (1 << i) != 0 { 'a' } else { 'b' }).collect();
            for stops in lists {
                let expected = search(stops, &text);
                for pieces in all_cuts(&text) {
                    assert_eq!(run(stops, &pieces), expected, "{stops:?} {pieces:?}");
                }
            }
        }
    }
}

#[test]
fn text_is_held_only_while_it_may_be_a_stop_string() {
    let mut matcher = StopMatcher::new(&["\nUser:"]).unwrap();
    assert_eq!(matcher.push("bye\nUs").text, "bye");
    assert_eq!(matcher.held(), "\nUs");
    assert_eq!(matcher.push("a").text, "\nUsa");
    assert_eq!(matcher.push("\n").text, "");
    assert_eq!(matcher.finish(), "\n");
}

#[test]
fn a_full_match_wins_over_an_earlier_partial_one() {
    assert_eq!(run(&["abcd", "bc"], &["xabc"]), ("xa".into(), Some(1)));
    assert_eq!(run(&["c", "abc"], &["xabc"]), ("x".into(), Some(1)));
}

#[test]
fn text_after_the_match_is_reported() {
    let mut matcher = StopMatcher::new(&["é!"]).unwrap();
    let step = matcher.push("caféé!ok");
    assert_eq!(step.text, "café");
    assert_eq!(step.matched, Some(StopMatch { index: 0, rest: "ok".into() }));
    assert_eq!(matcher.push("more"), StopStep::default());
}

#[test]
fn bad_stop_strings_are_refused() {
    assert!(StopMatcher::new(&["a", ""]).is_err());
    assert!(StopMatcher::new(&[&"x".repeat(STOP_STRING_BYTES_MAX + 1)]).is_err());
    assert!(StopMatcher::new(&vec!["x"; STOP_STRINGS_MAX + 1]).is_err());
}

proptest! {
    #[test]
    fn any_cut_equals_the_direct_search(
        text in "[abé\n]{0,40}",
        stops in prop::collection::vec("[abé\n]{1,4}", 0..4),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
        let borders: Vec<usize> = (0..=text.len()).filter(|i| text.is_char_boundary(*i)).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|c| borders[c.index(borders.len())]).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&str> = cuts.windows(2).map(|w| &text[w[0]..w[1]]).collect();
        prop_assert_eq!(run(&stops, &pieces), search(&stops, &text));
    }
}
