//! Names that production code declares, found in the text as rustfmt leaves it.

use super::function_length::after_test_item;

/// A name, and the line that declares it, counted from 1.
#[derive(Debug, PartialEq, Eq)]
pub struct Declaration<'a> {
    pub keyword: &'a str,
    pub name: &'a str,
    /// Whether more than its own module sees it.
    pub is_public: bool,
    pub line: usize,
}

/// Words before a keyword that do not decide what is declared.
const MODIFIERS: &[&str] = &["async", "default", "unsafe", "extern", "\"C\""];
const KEYWORDS: &[&str] =
    &["fn", "struct", "enum", "union", "trait", "type", "mod", "const", "static", "let"];

/// Every declaration by a keyword, outside `#[cfg(test)]` items.
pub fn declarations(text: &str) -> Vec<Declaration<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    let mut idx = 0;
    while idx < lines.len() {
        if lines[idx].trim() == "#[cfg(test)]" {
            idx = after_test_item(&lines, idx);
            continue;
        }
        found.extend(declaration(lines[idx], idx + 1));
        idx += 1;
    }
    found
}

fn declaration(line: &str, number: usize) -> Option<Declaration<'_>> {
    let mut rest = line.trim_start();
    let is_public = rest.starts_with("pub ") || rest.starts_with("pub(");
    if is_public {
        rest = rest.split_once(' ').map(|(_, after)| after)?;
        // The visibility `pub(in some::module)` has a space of its own.
        rest = rest.split_once(") ").filter(|_| line.contains("pub(in ")).map_or(rest, |(_, a)| a);
    }
    loop {
        let (word, after) = rest.split_once(' ')?;
        let is_modifier =
            MODIFIERS.contains(&word) || (word == "const" && after.starts_with("fn "));
        if !is_modifier {
            let keyword = KEYWORDS.contains(&word).then_some(word)?;
            let name = after.strip_prefix("mut ").unwrap_or(after);
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
            let name = Some(&name[..end]).filter(|name| !name.is_empty())?;
            return Some(Declaration { keyword, name, is_public, line: number });
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_declaration_is_found() {
        let text = "pub struct A;\npub(crate) enum B<T> {\n}\npub(in crate::x) type C = u8;\n\
                    struct D;\npub const fn e() {}\nlet mut f = 1;\npub async fn g() {}\n// struct H\n";
        let names: Vec<_> =
            declarations(text).iter().map(|d| (d.keyword, d.name, d.is_public)).collect();
        let expected = [
            ("struct", "A", true),
            ("enum", "B", true),
            ("type", "C", true),
            ("struct", "D", false),
            ("fn", "e", true),
            ("let", "f", false),
            ("fn", "g", true),
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn tests_declare_nothing() {
        let text = "#[cfg(test)]\nmod tests {\n    pub struct A;\n}\nstruct B;\n";
        let names: Vec<_> = declarations(text).iter().map(|d| (d.name, d.line)).collect();
        assert_eq!(names, [("B", 5)]);
    }
}
