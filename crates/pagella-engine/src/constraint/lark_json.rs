//! A Lark grammar of a text, rewritten as a grammar of that text inside a JSON string.
//!
//! Rules stay as they are. Literals and regular expressions, the only places that speak of
//! characters, are written anew, character by character: quotes, backslashes and control characters
//! as their escapes. Terminals become rules, because the grammar engine never goes back inside of one:
//! having read a backslash as more of a line, it could not take it for the line's end any more.

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind};

use super::ConstraintError;
use super::error::short_reason;

/// Terminals of Lark's library that text is made of.
const COMMON: &[(&str, &str)] = &[
    ("DIGIT", "[0-9]"),
    ("HEXDIGIT", "[0-9A-Fa-f]"),
    ("INT", "[0-9]+"),
    ("SIGNED_INT", "[+-]?[0-9]+"),
    ("DECIMAL", r"[0-9]+\.[0-9]*|\.[0-9]+"),
    ("FLOAT", r"(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+"),
    (
        "SIGNED_FLOAT",
        r"[+-]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)",
    ),
    ("NUMBER", r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"),
    ("SIGNED_NUMBER", r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"),
    ("ESCAPED_STRING", r#""(?:[^"\\\n]|\\.)*""#),
    ("LCASE_LETTER", "[a-z]"),
    ("UCASE_LETTER", "[A-Z]"),
    ("LETTER", "[A-Za-z]"),
    ("WORD", "[A-Za-z]+"),
    ("CNAME", "[_A-Za-z][_A-Za-z0-9]*"),
    ("WS_INLINE", r"[ \t]+"),
    ("WS", r"[ \t\f\r\n]+"),
    ("CR", r"\r"),
    ("LF", r"\n"),
    ("NEWLINE", r"(?:\r?\n)+"),
];

fn invalid(reason: impl Into<String>) -> ConstraintError {
    ConstraintError::InvalidLark { reason: reason.into() }
}

/// Rewrites a grammar, which is known to be one.
pub(super) fn quoted(lark: &str) -> Result<String, ConstraintError> {
    let mut scan = Scan { rest: lark, out: String::with_capacity(2 * lark.len()) };
    while let Some(c) = scan.rest.chars().next() {
        match c {
            '#' => scan.copy_line(),
            '/' if scan.rest.starts_with("//") => scan.copy_line(),
            '"' => scan.string()?,
            '/' => scan.regex()?,
            '%' if scan.rest.starts_with("%import") => scan.import()?,
            '~' if !is_count(&scan.rest[1..]) => return Err(unknown("~")),
            '%' | '<' | '@' | '&' => return Err(unknown(&c.to_string())),
            c if c.is_alphabetic() || c == '_' => {
                let part = |c: char| !(c.is_alphanumeric() || "_-".contains(c));
                let end = scan.rest.find(part).unwrap_or(scan.rest.len());
                let name = rule_name(scan.take(end));
                scan.out.push_str(&name);
            }
            c => scan.copy(c.len_utf8()),
        }
    }
    Ok(scan.out)
}

fn unknown(what: &str) -> ConstraintError {
    invalid(format!("{what} is not supported in the grammar of a tool's input: write it out"))
}

/// The name of a rule; those of terminals have capitals, which rules cannot have.
fn rule_name(name: &str) -> String {
    match name.trim_start_matches('_').starts_with(|c: char| c.is_uppercase()) {
        true => format!("terminal_{}", name.to_lowercase()),
        false => name.to_owned(),
    }
}

/// Whether a number follows: how often something is repeated.
fn is_count(text: &str) -> bool {
    text.trim_start().starts_with(|c: char| c.is_ascii_digit())
}

struct Scan<'a> {
    rest: &'a str,
    out: String,
}

impl<'a> Scan<'a> {
    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    fn copy(&mut self, bytes: usize) {
        let taken = self.take(bytes);
        self.out.push_str(taken);
    }

    fn copy_line(&mut self) {
        self.copy(self.rest.find('\n').unwrap_or(self.rest.len()));
    }

    /// What stands between two of the same signs, the first of which comes next.
    fn between(&mut self, sign: char) -> Result<&'a str, ConstraintError> {
        let mut escaped = false;
        for (at, c) in self.rest.char_indices().skip(1) {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                c if c == sign => return Ok(&self.take(at + 1)[1..at]),
                _ => {}
            }
        }
        Err(invalid(format!("a {sign} is not closed")))
    }

    fn flags(&mut self) -> &'a str {
        let end = self.rest.find(|c: char| !"imslux".contains(c)).unwrap_or(self.rest.len());
        self.take(end)
    }

    fn literal(&mut self) -> Result<String, ConstraintError> {
        let inner = self.between('"')?.replace("\\x", "\\u00");
        let text = serde_json::from_str(&format!("\"{inner}\""));
        text.map_err(|error| invalid(format!("a text cannot be read: {error}")))
    }

    fn string(&mut self) -> Result<(), ConstraintError> {
        let text = self.literal()?;
        if let Some(rest) = self.rest.strip_prefix("..") {
            self.rest = rest;
            let last = self.literal()?;
            let class =
                format!("[{}-{}]", regex_syntax::escape(&text), regex_syntax::escape(&last));
            return self.terminal(&class);
        }
        if self.rest.starts_with('i') {
            self.take(1);
            return self.terminal(&format!("(?i){}", regex_syntax::escape(&text)));
        }
        self.out.push_str(&literal(&text));
        Ok(())
    }

    fn regex(&mut self) -> Result<(), ConstraintError> {
        let pattern = self.between('/')?.replace("\\/", "/");
        match self.flags() {
            "" => self.terminal(&pattern),
            flags => self.terminal(&format!("(?{flags}){pattern}")),
        }
    }

    /// Writes what a regular expression matches, inside of a JSON string.
    fn terminal(&mut self, pattern: &str) -> Result<(), ConstraintError> {
        let parsed = regex_syntax::Parser::new().parse(pattern);
        let parsed = parsed.map_err(|error| invalid(short_reason(&error.to_string())))?;
        self.out.push_str(&inside_string(&parsed)?);
        Ok(())
    }

    /// `%import common.NAME`, with `-> OTHER` behind it or not, and `%import common (A, B)`.
    fn import(&mut self) -> Result<(), ConstraintError> {
        let line = self.take(self.rest.find('\n').unwrap_or(self.rest.len()));
        let line = line.split("//").next().unwrap_or_default().trim();
        let what = line.trim_start_matches("%import").trim();
        let names = match what.split_once('(') {
            Some((_, list)) => list.trim_end_matches(')').split(',').map(str::trim).collect(),
            None => vec![what.strip_prefix("common.").unwrap_or(what)],
        };
        for name in names {
            let (name, alias) = name.split_once("->").unwrap_or((name, name));
            let (name, alias) = (name.trim(), alias.trim());
            let known = COMMON.iter().find(|(known, _)| *known == name);
            let Some((_, pattern)) = known else { return Err(unknown(line)) };
            self.out.push_str(&format!("\n{}: ", rule_name(alias)));
            self.terminal(pattern)?;
            self.out.push('\n');
        }
        Ok(())
    }
}

/// A character as JSON writes it in a string.
fn escape(c: char) -> String {
    let text = serde_json::Value::from(c.to_string()).to_string();
    text[1..text.len() - 1].to_owned()
}

/// A text, each character by itself.
fn literal(text: &str) -> String {
    let one = |c: char| serde_json::Value::from(escape(c)).to_string();
    match text.is_empty() {
        true => "\"\"".to_owned(),
        false => format!("({})", text.chars().map(one).collect::<Vec<_>>().join(" ")),
    }
}

/// What matches the same texts inside of a JSON string, as the right side of a rule.
fn inside_string(hir: &Hir) -> Result<String, ConstraintError> {
    let all = |list: &[Hir]| list.iter().map(inside_string).collect::<Result<Vec<_>, _>>();
    Ok(match hir.kind() {
        HirKind::Empty => literal(""),
        HirKind::Literal(bytes) => {
            let text = std::str::from_utf8(&bytes.0).map_err(|_| unknown("half a character"))?;
            literal(text)
        }
        HirKind::Class(Class::Unicode(class)) => inside_class(class),
        HirKind::Class(Class::Bytes(class)) => {
            let class = class.to_unicode_class().ok_or_else(|| unknown("half a character"))?;
            inside_class(&class)
        }
        HirKind::Look(_) => return Err(unknown("a place such as ^, $ or \\b")),
        HirKind::Repetition(repetition) => {
            let sub = inside_string(&repetition.sub)?;
            match (repetition.min, repetition.max) {
                (0, None) => format!("({sub})*"),
                (1, None) => format!("({sub})+"),
                (0, Some(1)) => format!("({sub})?"),
                (min, None) => format!("({sub}){{{min},}}"),
                (min, Some(max)) => format!("({sub}){{{min},{max}}}"),
            }
        }
        HirKind::Capture(capture) => inside_string(&capture.sub)?,
        HirKind::Concat(list) => format!("({})", all(list)?.join(" ")),
        HirKind::Alternation(list) => format!("({})", all(list)?.join(" | ")),
    })
}

/// Characters that stand for themselves, or the escape of another.
fn inside_class(class: &ClassUnicode) -> String {
    let range = |first, last| ClassUnicodeRange::new(first, last);
    let mut special =
        ClassUnicode::new([range('\0', '\u{1f}'), range('"', '"'), range('\\', '\\')]);
    special.intersect(class);
    let mut own = class.clone();
    own.difference(&special);
    let escapes = special.ranges().iter().flat_map(|range| range.start()..=range.end());
    let mut ways: Vec<String> = escapes.map(|c| literal(&c.to_string())).collect();
    if !own.ranges().is_empty() {
        let own = Hir::class(Class::Unicode(own)).to_string();
        ways.push(format!("/{}/", llguidance::regex_to_lark(&own, "")));
    }
    format!("({})", ways.join(" | "))
}
