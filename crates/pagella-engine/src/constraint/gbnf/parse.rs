//! From the text of a grammar to its rules.

use std::collections::HashMap;

use super::{Expr, Rules};
use crate::constraint::ConstraintError;

/// Most repetitions that may be asked for by number.
const REPEAT_MAX: u32 = 10_000;

/// Parses a whole grammar. Brackets may be nested `nesting_max` deep.
pub(super) fn parse(text: &str, nesting_max: usize) -> Result<Rules, ConstraintError> {
    let mut parser = Parser {
        rest: text.chars().collect(),
        at: 0,
        line: 1,
        depth: 0,
        nesting_max,
        names: HashMap::new(),
        bodies: Vec::new(),
    };
    parser.rules()?;
    parser.finish()
}

struct Parser {
    rest: Vec<char>,
    at: usize,
    line: usize,
    depth: usize,
    nesting_max: usize,
    /// Index, and line of the first mention, by name.
    names: HashMap<String, (usize, usize)>,
    bodies: Vec<Option<Expr>>,
}

impl Parser {
    fn rules(&mut self) -> Result<(), ConstraintError> {
        self.space(true);
        while self.peek().is_some() {
            let name = self.name()?;
            let index = self.index_of(&name);
            self.space(false);
            for expected in "::=".chars() {
                if self.next() != Some(expected) {
                    return Err(self.error(format!("::= expected after {name:?}")));
                }
            }
            self.space(true);
            let body = self.choice(false)?;
            if self.bodies[index].replace(body).is_some() {
                return Err(self.error(format!("{name:?} is defined twice")));
            }
            match self.peek() {
                None | Some('\n' | '\r') => self.space(true),
                Some(other) => return Err(self.error(format!("{other:?} is not expected here"))),
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Rules, ConstraintError> {
        let Some((root, _)) = self.names.get("root").copied() else {
            return Err(self.error("there is no rule \"root\"".into()));
        };
        let missing = self.names.iter().filter(|(_, (index, _))| self.bodies[*index].is_none());
        if let Some((name, (_, line))) = missing.min_by_key(|(_, (_, line))| *line) {
            self.line = *line;
            return Err(self.error(format!("rule {name:?} is not defined")));
        }
        Ok(Rules { bodies: self.bodies.into_iter().flatten().collect(), root })
    }

    /// Alternatives up to a bracket, or to the end of the line if `nested` is false.
    fn choice(&mut self, nested: bool) -> Result<Expr, ConstraintError> {
        let mut options = vec![self.sequence(nested)?];
        while self.peek() == Some('|') {
            self.next();
            self.space(true);
            options.push(self.sequence(nested)?);
        }
        Ok(if options.len() == 1 { options.remove(0) } else { Expr::Choice(options) })
    }

    fn sequence(&mut self, nested: bool) -> Result<Expr, ConstraintError> {
        let mut items = Vec::new();
        while let Some(next) = self.peek() {
            let item = match next {
                '"' => self.literal()?,
                '[' => self.class()?,
                '(' => self.group()?,
                '.' => {
                    self.next();
                    Expr::Any
                }
                '<' | '!' => {
                    return Err(self.error("references to tokens are not supported".into()));
                }
                c if is_name(c) => {
                    let name = self.name()?;
                    Expr::Rule(self.index_of(&name))
                }
                '*' | '+' | '?' | '{' => {
                    return Err(self.error(format!("{next:?} has nothing to repeat")));
                }
                _ => break,
            };
            self.space(nested);
            items.push(self.repeated(item, nested)?);
        }
        Ok(if items.len() == 1 { items.remove(0) } else { Expr::Sequence(items) })
    }

    fn group(&mut self) -> Result<Expr, ConstraintError> {
        self.next();
        self.depth += 1;
        if self.depth > self.nesting_max {
            return Err(ConstraintError::TooLarge {
                what: "GBNF grammar",
                found: self.depth,
                limit: self.nesting_max,
                unit: "nested brackets",
            });
        }
        self.space(true);
        let inner = self.choice(true)?;
        if self.next() != Some(')') {
            return Err(self.error("a ) is missing".into()));
        }
        self.depth -= 1;
        Ok(inner)
    }

    /// `item` with the repetition signs that follow it.
    fn repeated(&mut self, mut item: Expr, nested: bool) -> Result<Expr, ConstraintError> {
        let mut signs = 0;
        while let Some(sign) = self.peek() {
            let (min, max) = match sign {
                '*' => (0, None),
                '+' => (1, None),
                '?' => (0, Some(1)),
                '{' => (0, None),
                _ => break,
            };
            self.next();
            let (min, max) = if sign == '{' { self.counts()? } else { (min, max) };
            signs += 1;
            if signs > self.nesting_max {
                return Err(self.error("too many repetition signs in a row".into()));
            }
            item = Expr::Repeat { of: Box::new(item), min, max };
            self.space(nested);
        }
        Ok(item)
    }

    /// The rest of `{m}`, `{m,}`, `{,n}` or `{m,n}`.
    fn counts(&mut self) -> Result<(u32, Option<u32>), ConstraintError> {
        self.space(false);
        let min = self.number()?;
        self.space(false);
        let (min, max) = match self.next() {
            Some('}') if min.is_some() => (min.unwrap_or(0), min),
            Some(',') => {
                self.space(false);
                let max = self.number()?;
                self.space(false);
                if self.next() != Some('}') {
                    return Err(self.error("a } is missing".into()));
                }
                (min.unwrap_or(0), max)
            }
            _ => return Err(self.error("a number is expected between { and }".into())),
        };
        if max.is_some_and(|max| max < min) {
            return Err(self.error("a repetition's upper count is below its lower one".into()));
        }
        Ok((min, max))
    }

    fn number(&mut self) -> Result<Option<u32>, ConstraintError> {
        let mut number = None;
        while let Some(digit) = self.peek().and_then(|c| c.to_digit(10)) {
            self.next();
            let value = number.unwrap_or(0) * 10 + digit;
            if value > REPEAT_MAX {
                let reason = format!("more than {REPEAT_MAX} repetitions are not supported");
                return Err(self.error(reason));
            }
            number = Some(value);
        }
        Ok(number)
    }

    fn literal(&mut self) -> Result<Expr, ConstraintError> {
        self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                Some('"') => return Ok(Expr::Literal(text)),
                Some('\\') => text.push(self.escape()?),
                Some('\n') | None => return Err(self.error("a \" is missing".into())),
                Some(other) => text.push(other),
            }
        }
    }

    fn class(&mut self) -> Result<Expr, ConstraintError> {
        self.next();
        let negated = self.peek() == Some('^');
        if negated {
            self.next();
        }
        let mut ranges = Vec::new();
        while self.peek() != Some(']') {
            let low = self.class_character()?;
            let is_range = self.peek() == Some('-') && self.rest.get(self.at + 1) != Some(&']');
            let high = if is_range {
                self.next();
                self.class_character()?
            } else {
                low
            };
            if low > high {
                return Err(self.error(format!("the range {low:?}-{high:?} is empty")));
            }
            ranges.push((low, high));
        }
        self.next();
        if ranges.is_empty() && !negated {
            return Err(self.error("a character class is empty".into()));
        }
        Ok(if ranges.is_empty() { Expr::Any } else { Expr::Class { negated, ranges } })
    }

    fn class_character(&mut self) -> Result<char, ConstraintError> {
        match self.next() {
            Some('\\') => self.escape(),
            Some('\n') | None => Err(self.error("a ] is missing".into())),
            Some(other) => Ok(other),
        }
    }

    /// What follows a backslash.
    fn escape(&mut self) -> Result<char, ConstraintError> {
        let digits = match self.next() {
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some(c @ ('\\' | '"' | '[' | ']' | '-' | '^')) => return Ok(c),
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            other => {
                let shown = other.map_or(String::new(), String::from);
                return Err(self.error(format!("the escape \\{shown} is not known")));
            }
        };
        let mut code = 0u32;
        for _ in 0..digits {
            match self.next().and_then(|c| c.to_digit(16)) {
                Some(digit) => code = (code << 4) | digit,
                None => return Err(self.error(format!("{digits} hex digits are expected"))),
            }
        }
        char::from_u32(code).ok_or_else(|| self.error(format!("U+{code:04X} is no character")))
    }

    fn name(&mut self) -> Result<String, ConstraintError> {
        let mut name = String::new();
        while let Some(c) = self.peek().filter(|c| is_name(*c)) {
            name.push(c);
            self.next();
        }
        if name.is_empty() {
            let found = self.peek().map_or("the end".into(), |c| format!("{c:?}"));
            return Err(self.error(format!("a rule's name is expected, not {found}")));
        }
        Ok(name)
    }

    fn index_of(&mut self, name: &str) -> usize {
        let known = self.names.get(name).map(|(index, _)| *index);
        known.unwrap_or_else(|| {
            self.bodies.push(None);
            self.names.insert(name.to_owned(), (self.bodies.len() - 1, self.line));
            self.bodies.len() - 1
        })
    }

    /// Skips blanks and comments, and line ends too if `lines`.
    fn space(&mut self, lines: bool) {
        while let Some(next) = self.peek() {
            match next {
                ' ' | '\t' => {}
                '\n' | '\r' if lines => {}
                '#' => {
                    while self.peek().is_some_and(|c| c != '\n' && c != '\r') {
                        self.next();
                    }
                    continue;
                }
                _ => break,
            }
            self.next();
        }
    }

    fn peek(&self) -> Option<char> {
        self.rest.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += 1;
        self.line += usize::from(next == '\n');
        Some(next)
    }

    fn error(&self, reason: String) -> ConstraintError {
        ConstraintError::InvalidGbnf { line: self.line, reason }
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}
