//! The matcher against a direct search with the `regex` crate, for texts, rules and cuts.

use proptest::prelude::*;
use regex::Regex;

use super::*;

/// A case-insensitive regex rule.
fn regex(pattern: &str) -> BanRule {
    let pattern = BanPattern::Regex(pattern.into());
    BanRule { pattern, case_sensitive: false, whole_word: false }
}

fn whole_word(rule: BanRule) -> BanRule {
    BanRule { whole_word: true, ..rule }
}

fn case_sensitive(rule: BanRule) -> BanRule {
    BanRule { case_sensitive: true, ..rule }
}

fn found(rule: usize, start: usize, end: usize) -> Option<BanMatch> {
    Some(BanMatch { rule, start, end })
}

/// Feeds the pieces; the match, and the pending bytes after every piece without one.
fn run<S: AsRef<str>>(rules: &[BanRule], pieces: &[S]) -> (Option<BanMatch>, Vec<usize>) {
    let mut matcher = BanMatcher::new(rules).unwrap();
    let mut pending = Vec::new();
    for piece in pieces {
        // A snapshot must be as good as the original.
        let step = matcher.clone().push(piece.as_ref());
        assert_eq!(matcher.push(piece.as_ref()), step);
        if step.matched.is_some() {
            return (step.matched, pending);
        }
        pending.push(step.pending_bytes);
    }
    (matcher.finish(), pending)
}

fn run_whole(rules: &[BanRule], text: &str) -> Option<BanMatch> {
    run(rules, &[text]).0
}

/// The rule as an expression for a whole slice.
fn as_regex(rule: &BanRule) -> Regex {
    let pattern = match &rule.pattern {
        BanPattern::Text(text) => regex::escape(text),
        BanPattern::Regex(regex) => regex.clone(),
    };
    let flag = if rule.case_sensitive { "" } else { "(?i)" };
    Regex::new(&format!(r"\A{flag}(?:{pattern})\z")).unwrap()
}

/// The same by definition: every slice of every prefix is tried.
fn search(rules: &[BanRule], text: &str) -> Option<BanMatch> {
    let regexes: Vec<Regex> = rules.iter().map(as_regex).collect();
    let word = Regex::new(r"\w").unwrap();
    let is_word = |c: Option<char>| c.is_some_and(|c| word.is_match(&c.to_string()));
    let borders: Vec<usize> = (0..=text.len()).filter(|i| text.is_char_boundary(*i)).collect();
    // Index one past the last border stands for the end of text.
    for now in 0..=borders.len() {
        let mut all = Vec::new();
        for (rule, r) in rules.iter().enumerate() {
            let end_idx = if r.whole_word { now.checked_sub(1) } else { Some(now) };
            let Some(&end) = end_idx.and_then(|i| borders.get(i)) else { continue };
            for &start in borders.iter().take_while(|s| **s < end) {
                let apart = !is_word(text[..start].chars().next_back())
                    && !is_word(text[end..].chars().next());
                if regexes[rule].is_match(&text[start..end]) && (apart || !r.whole_word) {
                    all.push(BanMatch { rule, start, end });
                }
            }
        }
        if let Some(m) = all.into_iter().min_by_key(|m| (m.start, Reverse(m.end), m.rule)) {
            return Some(m);
        }
    }
    None
}

#[test]
fn folding_keeps_offsets_of_the_original_text() {
    // The Kelvin sign has three bytes and folds to one; the long s has two.
    assert_eq!(run_whole(&[BanRule::text("kiss")], "a \u{212a}iſS!"), found(0, 2, 9));
    assert_eq!(run_whole(&[regex("kis+")], "a \u{212a}iſS!"), found(0, 2, 8));
    assert_eq!(run_whole(&[BanRule::text("ΣΑΣ")], "σας"), found(0, 0, 6));
    assert_eq!(
        run_whole(&[case_sensitive(BanRule::text("Kiss"))], "kiss KISS Kiss"),
        found(0, 10, 14)
    );
    assert_eq!(run_whole(&[case_sensitive(regex("K.ss"))], "kiss KISS Kiss"), found(0, 10, 14));
    assert_eq!(run_whole(&[BanRule::text("strasse")], "straße"), None);
}

#[test]
fn the_first_decided_match_wins_then_its_start_then_its_length() {
    let texts = |list: &[&str]| list.iter().map(|t| BanRule::text(*t)).collect::<Vec<_>>();
    assert_eq!(run_whole(&texts(&["abcd", "bc"]), "xabcd"), found(1, 2, 4));
    assert_eq!(run_whole(&texts(&["c", "abc"]), "xabc"), found(1, 1, 4));
    assert_eq!(run_whole(&texts(&["AB", "ab"]), "ab"), found(0, 0, 2));
    let rules = [whole_word(BanRule::text("ass")), BanRule::text("s "), BanRule::text("ass ")];
    assert_eq!(run_whole(&rules, "ass "), found(2, 0, 4));
    assert_eq!(run_whole(&rules[..2], "ass "), found(0, 0, 3));
}

#[test]
fn whole_words_stand_apart() {
    let rules = [whole_word(BanRule::text("ass"))];
    for (text, expected) in [
        ("class", None),
        ("assume", None),
        ("ass_", None),
        ("assé", None),
        ("passass", None),
        ("ass", found(0, 0, 3)),
        ("an ASS!", found(0, 3, 6)),
        ("éass ass", found(0, 6, 9)),
    ] {
        assert_eq!(run_whole(&rules, text), expected, "{text}");
    }
    assert_eq!(run_whole(&[whole_word(regex("[a-z]+ing"))], "string1 king"), found(0, 8, 12));
}

#[test]
fn pending_bytes_cover_what_may_become_a_match() {
    let pending = |rules: &[BanRule], text| run(rules, &[text]).1[0];
    assert_eq!(pending(&[BanRule::text("secret")], "the sec"), 3);
    assert_eq!(pending(&[BanRule::text("secret")], "the secx"), 0);
    assert_eq!(pending(&[BanRule::text("aab")], "xaaaa"), 2);
    assert_eq!(pending(&[regex("é[0-9]+x")], "éé12"), 4);
    assert_eq!(pending(&[regex("a|abc")], "b"), 0);
    // Inside a word no whole word can begin; at its end it waits for the next character.
    let rules = [whole_word(BanRule::text("ass"))];
    assert_eq!(pending(&rules, "clas"), 0);
    assert_eq!(pending(&rules, "class"), 0);
    assert_eq!(pending(&rules, "an ass"), 3);
    assert_eq!(pending(&rules, "an assu"), 0);
    let rules = [whole_word(regex("as+"))];
    assert_eq!(pending(&rules, "clas"), 0);
    assert_eq!(pending(&rules, "an ass"), 3);
    assert_eq!(pending(&rules, "an assu"), 0);
}

#[test]
fn nothing_is_read_after_a_match_or_the_end() {
    let mut matcher = BanMatcher::new(&[BanRule::text("no")]).unwrap();
    assert_eq!(matcher.push("no way, no").matched, found(0, 0, 2));
    assert_eq!(matcher.push("no"), BanStep::default());
    assert_eq!(matcher.finish(), None);
    let mut matcher = BanMatcher::new(&[whole_word(BanRule::text("no"))]).unwrap();
    assert_eq!(matcher.push("no").pending_bytes, 2);
    assert_eq!(matcher.finish(), found(0, 0, 2));
    assert_eq!(matcher.push("no "), BanStep::default());
    assert_eq!(matcher.finish(), None);
}

#[test]
fn bad_rules_are_refused() {
    let text = |t: &str| BanRule::text(t);
    let long = "x".repeat(PATTERN_BYTES_MAX + 1);
    let empties = [text(""), regex(""), regex("a*"), regex("a|")];
    let wrong = [text(&long), regex("("), regex("(?-u:\\xff)"), regex("[^\\s\\S]")];
    let looks = [regex("^a"), regex("a$"), regex(r"\bno\b"), regex(r"(?m:^)a")];
    let large = [regex("(a|b)*a(a|b){40}c"), regex(r"\w{1000}"), regex("a{4000}{4000}")];
    for rule in empties.into_iter().chain(wrong).chain(looks).chain(large) {
        let rules = [text("fine"), rule];
        let error = BanMatcher::new(&rules).unwrap_err().to_string();
        assert!(error.starts_with("banned strings: number 1 "), "{rules:?}: {error}");
    }
    assert!(BanMatcher::new(&vec![text("x"); RULES_MAX + 1]).is_err());
    assert!(BanMatcher::new(&vec![regex("x{90}"); RULES_MAX]).is_err(), "states add up");
    assert!(BanMatcher::new(&[regex(&"(".repeat(2000))]).is_err());
    let nested = format!("{}a{}", "(".repeat(2000), ")".repeat(2000));
    assert!(BanMatcher::new(&[regex(&nested)]).is_err());
}

#[test]
fn a_clone_stays_small_when_every_place_is_a_beginning() {
    let rules = [BanRule::text("a".repeat(PATTERN_BYTES_MAX)), regex("a{300}b")];
    let mut matcher = BanMatcher::new(&rules).unwrap();
    assert_eq!(matcher.push(&"a".repeat(1000)).pending_bytes, 1000);
    assert!(matcher.states[1].threads.len() <= 301);
    assert_eq!(matcher.push("x").pending_bytes, 0);
    assert!(matcher.states[1].threads.is_empty() && matcher.recent.0.len() == 1);
}

/// Rules over a small alphabet in which folding changes byte lengths.
fn any_rule() -> impl Strategy<Value = BanRule> {
    let text = "[aAkK\u{212a}é _]{1,4}".prop_map(BanPattern::Text);
    let parts = ["a", "[ak]", "é", "k+", "(?:a|ak|é)", "_? ", ".", "[^a]", "(?:ka)*a", "\\w"];
    let regex = prop::collection::vec(prop::sample::select(parts.to_vec()), 1..4)
        .prop_map(|parts| BanPattern::Regex(parts.concat()));
    (prop_oneof![text, regex], any::<bool>(), any::<bool>()).prop_map(
        |(pattern, case_sensitive, whole_word)| BanRule { pattern, case_sensitive, whole_word },
    )
}

fn cut<'t>(text: &'t str, cuts: &[prop::sample::Index]) -> Vec<&'t str> {
    let borders: Vec<usize> = (0..=text.len()).filter(|i| text.is_char_boundary(*i)).collect();
    let mut cuts: Vec<usize> = cuts.iter().map(|c| borders[c.index(borders.len())]).collect();
    cuts.extend([0, text.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|w| &text[w[0]..w[1]]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_cut_equals_the_direct_search(
        text in "[aAkK\u{212a}éÉ _.]{0,24}",
        rules in prop::collection::vec(any_rule(), 0..4),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let expected = search(&rules, &text);
        prop_assert_eq!(run_whole(&rules, &text), expected);
        let (matched, pending) = run(&rules, &cut(&text, &cuts));
        prop_assert_eq!(matched, expected);
        // A match never starts before what was pending when its first byte had been read.
        let mut read = 0;
        for (piece, pending) in cut(&text, &cuts).iter().zip(&pending) {
            read += piece.len();
            if let Some(m) = expected.filter(|m| m.start < read) {
                prop_assert!(read - pending <= m.start, "{pending} of {read} pending, {m:?}");
            }
        }
    }

    #[test]
    fn pending_bytes_are_exactly_the_longest_beginning_of_a_banned_string(
        text in "[aAkK\u{212a}é_]{0,12}",
        bans in prop::collection::vec("[ak_é]{2,5}", 1..4),
    ) {
        let rules: Vec<BanRule> = bans.iter().map(BanRule::text).collect();
        if let (None, pending) = run(&rules, &[&text]) {
            let begins = |tail: &str| bans.iter().any(|ban| {
                let n = tail.chars().count();
                let head: String = ban.chars().take(n).collect();
                ban.chars().count() > n && as_regex(&BanRule::text(head)).is_match(tail)
            });
            let starts = text.char_indices().map(|(i, _)| i);
            let longest = starts.map(|i| &text[i..]).find(|tail| begins(tail));
            prop_assert_eq!(pending[0], longest.map_or(0, str::len));
        }
    }
}
