//! YAML as TOML values, as far as configurations go: maps, lists, plain values. Anchors are copied a
//! limited number of times; tags, several documents and keys that are not text are refused.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle};
use toml::{Table, Value};

/// Most copies of anchored values.
const ALIASES_MAX: usize = 1000;
/// Most values, copies included: a few anchors within anchors are many.
const VALUES_MAX: usize = 100_000;
/// Levels of maps and lists.
const DEPTH_MAX: usize = 32;

/// A value; `None` is YAML's null, which TOML does not have.
#[derive(Clone, Debug, PartialEq)]
enum Node {
    Null,
    Plain(Value),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl Node {
    /// How many values it is made of.
    fn size(&self) -> usize {
        match self {
            Node::Null | Node::Plain(_) => 1,
            Node::List(items) => 1 + items.iter().map(Node::size).sum::<usize>(),
            Node::Map(items) => 1 + items.iter().map(|(_, node)| node.size()).sum::<usize>(),
        }
    }

    /// Nulls are left out.
    fn into_toml(self) -> Option<Value> {
        match self {
            Node::Null => None,
            Node::Plain(value) => Some(value),
            Node::List(items) => {
                Some(Value::Array(items.into_iter().filter_map(Node::into_toml).collect()))
            }
            Node::Map(items) => {
                let pairs = items.into_iter();
                let values = pairs.filter_map(|(key, node)| Some((key, node.into_toml()?)));
                Some(Value::Table(values.collect()))
            }
        }
    }
}

struct Builder {
    anchors: HashMap<usize, Node>,
    aliases: usize,
    values: usize,
}

/// A map or list that is not closed yet.
enum Open {
    List(usize, Vec<Node>),
    Map(usize, Vec<(String, Node)>, Option<String>),
}

/// Reads a document that is a map, or empty.
pub fn read(text: &str) -> Result<Table, String> {
    let mut builder = Builder { anchors: HashMap::new(), aliases: 0, values: 0 };
    match builder.document(text)?.and_then(Node::into_toml) {
        None => Ok(Table::new()),
        Some(Value::Table(table)) => Ok(table),
        Some(_) => Err("it is not a map of sections".to_owned()),
    }
}

impl Builder {
    fn document(&mut self, text: &str) -> Result<Option<Node>, String> {
        let mut open: Vec<Open> = Vec::new();
        let mut root = None;
        for event in Parser::new_from_str(text) {
            let (event, span) = event.map_err(|error| error.to_string())?;
            let line = span.start.line();
            let here = |problem: &str| format!("line {line}: {problem}");
            let node = match event {
                Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {
                    continue;
                }
                Event::DocumentStart(_) if root.is_some() => {
                    return Err(here("a second document begins: keep one"));
                }
                Event::DocumentStart(_) => continue,
                Event::Scalar(_, _, _, Some(_))
                | Event::SequenceStart(_, Some(_))
                | Event::MappingStart(_, Some(_)) => {
                    return Err(here("tags are not read: remove it"));
                }
                Event::SequenceStart(anchor, None) => {
                    open.push(Open::List(anchor, Vec::new()));
                    check_depth(&open, line)?;
                    continue;
                }
                Event::MappingStart(anchor, None) => {
                    open.push(Open::Map(anchor, Vec::new(), None));
                    check_depth(&open, line)?;
                    continue;
                }
                Event::Scalar(text, style, anchor, None) => {
                    let node = match style {
                        ScalarStyle::Plain => plain(&text),
                        _ => Node::Plain(Value::String(text.into_owned())),
                    };
                    self.keep(anchor, &node);
                    node
                }
                Event::Alias(anchor) => self.copy(anchor).map_err(|problem| here(&problem))?,
                Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                    Some(Open::List(anchor, items)) => self.closed(anchor, Node::List(items)),
                    Some(Open::Map(anchor, items, _)) => self.closed(anchor, Node::Map(items)),
                    None => return Err(here("something is closed that is not open")),
                },
            };
            self.values += 1;
            if self.values > VALUES_MAX {
                return Err(here("there are too many values"));
            }
            match open.last_mut() {
                None => root = Some(node),
                Some(Open::List(_, items)) => items.push(node),
                Some(Open::Map(_, items, key @ None)) => match node {
                    Node::Plain(Value::String(name)) => {
                        if items.iter().any(|(known, _)| *known == name) {
                            return Err(here(&format!("{name:?} stands twice")));
                        }
                        *key = Some(name);
                    }
                    Node::Plain(value) => *key = Some(value.to_string()),
                    _ => return Err(here("a key is not a text")),
                },
                Some(Open::Map(_, items, key)) => {
                    items.push((key.take().unwrap_or_default(), node))
                }
            }
        }
        Ok(root)
    }

    fn keep(&mut self, anchor: usize, node: &Node) {
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
    }

    fn closed(&mut self, anchor: usize, node: Node) -> Node {
        self.keep(anchor, &node);
        node
    }

    fn copy(&mut self, anchor: usize) -> Result<Node, String> {
        let known = self.anchors.get(&anchor).cloned();
        let node = known.ok_or("an anchor is used within itself")?;
        self.aliases += 1;
        self.values += node.size();
        if self.aliases > ALIASES_MAX || self.values > VALUES_MAX {
            return Err("anchors are used too often".to_owned());
        }
        Ok(node)
    }
}

fn check_depth(open: &[Open], line: usize) -> Result<(), String> {
    match open.len() > DEPTH_MAX {
        true => Err(format!("line {line}: more than {DEPTH_MAX} levels")),
        false => Ok(()),
    }
}

/// A value without quotes: null, truth, number or text, as Python's reader of TabbyAPI sees it.
fn plain(text: &str) -> Node {
    let value = match text {
        "" | "~" | "null" | "Null" | "NULL" => return Node::Null,
        "true" | "True" | "TRUE" => Value::Boolean(true),
        "false" | "False" | "FALSE" => Value::Boolean(false),
        _ => match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(whole), _) => Value::Integer(whole),
            (_, Ok(number)) if number.is_finite() => Value::Float(number),
            _ => Value::String(text.to_owned()),
        },
    };
    Node::Plain(value)
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
