//! The known name nearest to a misspelt one.

/// Longest name that is compared: what is longer is no slip of the pen.
const NAME_CHARS_MAX: usize = 64;

/// The nearest of `known` within a third of the name's length.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name: Vec<char> = name.chars().take(NAME_CHARS_MAX + 1).collect();
    if name.len() > NAME_CHARS_MAX {
        return None;
    }
    let best = known.map(|other| (distance(&name, other), other)).min();
    best.filter(|(edits, _)| *edits <= name.len().div_ceil(3)).map(|(_, other)| other)
}

/// How many letters must be added, removed or replaced.
fn distance(a: &[char], b: &str) -> usize {
    let mut row: Vec<usize> = (0..=a.len()).collect();
    for (i, right) in b.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, left) in a.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (diagonal + usize::from(*left != right)).min(above + 1).min(row[j] + 1);
            diagonal = above;
        }
    }
    row[a.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_other_words_are_not() {
        let known = ["max_tokens", "min_tokens", "stop"];
        let find = |name| nearest(name, known.into_iter());
        assert_eq!(find("max_token"), Some("max_tokens"));
        assert_eq!(find("stopp"), Some("stop"));
        assert_eq!(find("frequency"), None);
        assert_eq!(find(&"x".repeat(1000)), None);
    }
}
