//! Which route a path leads to.

use crate::Application;
use crate::route::Route;

/// What a path leads to.
pub enum Found<A: 'static> {
    /// A route, and the segment it leaves open.
    Route(&'static Route<A>, Option<String>),
    /// The path exists with these methods only.
    OtherMethods(String),
    /// Nothing.
    Nothing,
}

/// Looks for a path, without the base path, as it was sent. `HEAD` finds what `GET` finds.
pub fn find<A: Application>(method: &str, path: &str) -> Found<A> {
    let path = match path.strip_suffix('/') {
        Some(shorter) if !matches!(shorter, "" | "/") => shorter,
        _ => path,
    };
    let wanted = if method == "HEAD" { "GET" } else { method };
    let mut methods: Vec<&str> = Vec::new();
    for route in A::routes() {
        let Some(segment) = matches(route.path, path) else { continue };
        if route.method == wanted {
            return Found::Route(route, segment);
        }
        methods.push(route.method);
        if route.method == "GET" {
            methods.push("HEAD");
        }
    }
    methods.dedup();
    match methods.is_empty() {
        true => Found::Nothing,
        false => Found::OtherMethods(methods.join(", ")),
    }
}

/// Whether a path has the form of a pattern; the inner value is the open segment.
fn matches(pattern: &str, path: &str) -> Option<Option<String>> {
    let (mut expected, mut given) = (pattern.split('/'), path.split('/'));
    let mut open = None;
    loop {
        match (expected.next(), given.next()) {
            (None, None) => return Some(open),
            (Some(name), Some(segment)) => {
                // Decoded once and by segment, so an encoded slash never makes two of one.
                let segment = percent_decode(segment)?;
                if name.starts_with('{') && !segment.is_empty() {
                    open = Some(segment);
                } else if name != segment {
                    return None;
                }
            }
            _ => return None,
        }
    }
}

/// Text with `%XX` replaced; `None` if that is not UTF-8 or a digit is missing.
fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = rest.get(..2).filter(|two| two.iter().all(u8::is_ascii_hexdigit))?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

/// The value of a parameter in a query.
pub fn query_value(query: &str, name: &str) -> Option<String> {
    let mut pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let (_, value) = pairs.find(|(key, _)| *key == name)?;
    percent_decode(&value.replace('+', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_values_are_decoded() {
        assert_eq!(query_value("a=1&deep=x%20y+z", "deep").as_deref(), Some("x y z"));
        assert_eq!(query_value("stream", "stream").as_deref(), Some(""));
        assert_eq!(query_value("a=1", "b"), None);
    }
}
