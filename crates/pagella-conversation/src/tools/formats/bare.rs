//! Calls without a mark: an answer is a call if it begins like one, of a tool that there is.

use super::super::syntax::Piece::{Name, Object, Python, Space, Text};
use super::super::syntax::Syntax;

/// Llama 3: an object, several of them with semicolons between.
pub const LLAMA_3: Syntax = Syntax {
    name: "llama-3",
    aliases: &["llama3_json", "llama3"],
    signs: &[
        &["<|python_tag|>", "\"parameters\""],
        &["respond with a JSON for a function call", "\"parameters\""],
    ],
    call: &[Space(""), Object { name: "name", arguments: "parameters", lead: "" }],
    separator: Some(";"),
    gap: " ",
    bare: true,
    ..Syntax::PLAIN
};

/// Llama 4 and others: a list of calls as in Python.
pub const PYTHONIC: Syntax = Syntax {
    name: "pythonic",
    aliases: &["llama4_pythonic"],
    signs: &[&["[func_name1("], &["[func1("]],
    open: &[Text("[")],
    call: &[Space(""), Name, Text("("), Python],
    separator: Some(","),
    gap: " ",
    close: &[Space(""), Text("]")],
    bare: true,
    ..Syntax::PLAIN
};

/// For templates that know nothing of tools: one object that lists all calls. What it looks like is
/// said in the prompt (`super::super::prompt`).
pub const GENERIC: Syntax = Syntax {
    name: "generic",
    aliases: &["json"],
    open: &[
        Text("{"),
        Space(""),
        Text("\"tool_calls\""),
        Space(""),
        Text(":"),
        Space(" "),
        Text("["),
    ],
    call: &[Space(""), Object { name: "name", arguments: "arguments", lead: "" }],
    separator: Some(","),
    gap: " ",
    close: &[Space(""), Text("]"), Space(""), Text("}")],
    bare: true,
    ..Syntax::PLAIN
};
