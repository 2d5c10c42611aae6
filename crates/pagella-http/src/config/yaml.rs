//! YAML as TOML values, as far as configurations go: maps, lists, plain values. Anchors are copied a
//! limited number of times; tags, several documents and keys that are not text are refused.

use std::collections::{HashMap, HashSet};

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput};
use toml::{Table, Value};

/// Most copies of anchored values.
const ALIASES_MAX: usize = 1000;
/// Most values, copies included: a few anchors within anchors are many.
const VALUES_MAX: usize = 100_000;
/// Levels of maps and lists.
const DEPTH_MAX: usize = 32;

/// A value; `None` is YAML's null, which TOML does not have.
type Node = Option<Value>;

/// Reads a document that is a map, or empty.
pub fn read(text: &str) -> Result<Table, String> {
    let mut reader = Reader {
        parser: Parser::new_from_str(text),
        anchors: HashMap::new(),
        aliases: 0,
        values: 0,
    };
    let mut root = None;
    while let Some((event, line)) = reader.next()? {
        match event {
            Event::DocumentStart(_) if root.is_some() => {
                return Err(format!("line {line}: a second document begins: keep one"));
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => {}
            event => root = Some(reader.node(event, line, 0)?),
        }
    }
    match root.flatten() {
        None => Ok(Table::new()),
        Some(Value::Table(table)) => Ok(table),
        Some(_) => Err("it is not a map of sections".to_owned()),
    }
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, Node>,
    aliases: usize,
    values: usize,
}

impl<'a> Reader<'a> {
    /// The next event and its line.
    fn next(&mut self) -> Result<Option<(Event<'a>, usize)>, String> {
        let event: Option<(Event<'a>, Span)> =
            self.parser.next().transpose().map_err(|error| error.to_string())?;
        Ok(event.map(|(event, span)| (event, span.start.line())))
    }

    /// The value that begins with an event, `depth` levels down.
    fn node(&mut self, event: Event<'a>, line: usize, depth: usize) -> Result<Node, String> {
        let here = |problem: &str| format!("line {line}: {problem}");
        let (anchor, node) = match event {
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => {
                return Err(here("tags are not read: remove it"));
            }
            Event::SequenceStart(..) | Event::MappingStart(..) if depth >= DEPTH_MAX => {
                return Err(here(&format!("more than {DEPTH_MAX} levels")));
            }
            Event::Scalar(text, ScalarStyle::Plain, anchor, None) => (anchor, plain(&text)),
            Event::Scalar(text, _, anchor, None) => {
                (anchor, Some(Value::String(text.into_owned())))
            }
            Event::Alias(anchor) => (0, self.copy(anchor).map_err(|problem| here(&problem))?),
            Event::SequenceStart(anchor, None) => (anchor, Some(self.list(depth)?)),
            Event::MappingStart(anchor, None) => (anchor, Some(self.map(depth)?)),
            _ => return Err(here("something is closed that is not open")),
        };
        self.values += 1;
        if self.values > VALUES_MAX {
            return Err(here("there are too many values"));
        }
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Value, String> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                None | Some((Event::SequenceEnd, _)) => return Ok(Value::Array(items)),
                Some((event, line)) => items.extend(self.node(event, line, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value, String> {
        let (mut table, mut seen) = (Table::new(), HashSet::new());
        loop {
            let (event, line) = match self.next()? {
                None | Some((Event::MappingEnd, _)) => return Ok(Value::Table(table)),
                Some(event) => event,
            };
            let key = match self.node(event, line, depth + 1)? {
                Some(Value::String(name)) => name,
                None | Some(Value::Array(_) | Value::Table(_)) => {
                    return Err(format!("line {line}: a key is not a text"));
                }
                Some(value) => value.to_string(),
            };
            if !seen.insert(key.clone()) {
                return Err(format!("line {line}: {key:?} stands twice"));
            }
            let Some((event, line)) = self.next()? else { return Ok(Value::Table(table)) };
            if let Some(value) = self.node(event, line, depth + 1)? {
                table.insert(key, value);
            }
        }
    }

    fn copy(&mut self, anchor: usize) -> Result<Node, String> {
        let known = self.anchors.get(&anchor).cloned();
        let node = known.ok_or("an anchor is used within itself")?;
        self.aliases += 1;
        self.values += node.as_ref().map_or(1, size);
        if self.aliases > ALIASES_MAX || self.values > VALUES_MAX {
            return Err("anchors are used too often".to_owned());
        }
        Ok(node)
    }
}

/// How many values one is made of.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(size).sum::<usize>(),
        Value::Table(table) => table.values().map(size).sum(),
        _ => 0,
    }
}

/// A value without quotes: null, truth, number or text, as Python's reader of TabbyAPI sees it.
fn plain(text: &str) -> Node {
    let value = match text {
        "" | "~" | "null" | "Null" | "NULL" => return None,
        "true" | "True" | "TRUE" => Value::Boolean(true),
        "false" | "False" | "FALSE" => Value::Boolean(false),
        _ => match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(whole), _) => Value::Integer(whole),
            (_, Ok(number)) if number.is_finite() => Value::Float(number),
            _ => Value::String(text.to_owned()),
        },
    };
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_lists_and_values_are_read() {
        let table = read("a:\n  b: 1\n  c: [x, 2.5, true]\n  d:\n  'e': '1'\n").unwrap();
        let expected: Table = toml::from_str("[a]\nb = 1\nc = ['x', 2.5, true]\ne = '1'").unwrap();
        assert_eq!(table, expected);
        assert_eq!(read("").unwrap(), Table::new());
        assert_eq!(read("# nothing\n").unwrap(), Table::new());
    }

    #[test]
    fn anchors_are_copied_a_limited_number_of_times() {
        let table = read("a: &x {b: 1}\nc: *x\n").unwrap();
        assert_eq!(table["a"], table["c"]);
        let mut laughs = "a: &a0 [1, 1, 1, 1, 1, 1, 1, 1]\n".to_owned();
        for i in 0..12 {
            let uses = vec![format!("*a{i}"); 8].join(", ");
            laughs.push_str(&format!("b{i}: &a{} [{uses}]\n", i + 1));
        }
        assert!(read(&laughs).unwrap_err().contains("too often"));
        let many = format!("a: &x 1\nb: [{}]\n", vec!["*x"; 1001].join(", "));
        assert!(read(&many).unwrap_err().contains("too often"));
    }

    #[test]
    fn what_is_not_a_configuration_is_refused() {
        for text in [
            "a: !!python/object:os.system x",
            "a: !x {}",
            "- 1",
            "a: 1\n---\nb: 2",
            "a: 1\na: 2",
            "{a: {b: [}",
            "a: *nobody",
            "? [1, 2]\n: 3",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        let deep = format!("a: {}1{}", "[".repeat(1000), "]".repeat(1000));
        assert!(read(&deep).is_err());
    }
}
