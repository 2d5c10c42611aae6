//! Calls as JSON objects behind a mark.

use super::super::syntax::Piece::{Object, Space, Text};
use super::super::syntax::{Piece, Syntax};

const OBJECT: Piece = Object { name: "name", arguments: "arguments", lead: "" };

/// Hermes, Qwen 2.5 and Qwen 3: every object in tags.
pub const HERMES: Syntax = Syntax {
    name: "hermes",
    aliases: &["qwen", "qwen2.5", "qwen3"],
    signs: &[&["<tool_call>"]],
    call: &[Text("<tool_call>"), Space("\n"), OBJECT, Space("\n"), Text("</tool_call>")],
    gap: "\n",
    ..Syntax::PLAIN
};

/// Mistral until 2024: a list behind a mark.
pub const MISTRAL: Syntax = Syntax {
    name: "mistral",
    aliases: &["mistral-old"],
    signs: &[&["[TOOL_CALLS]"]],
    open: &[Text("[TOOL_CALLS]"), Space(" "), Text("[")],
    call: &[Space(""), OBJECT],
    separator: Some(","),
    gap: " ",
    close: &[Space(""), Text("]")],
    short_ids: true,
    ..Syntax::PLAIN
};

/// Granite 3: a list behind a mark.
pub const GRANITE: Syntax = Syntax {
    name: "granite",
    aliases: &["granite-3"],
    signs: &[&["<|tool_call|>"]],
    open: &[Text("<|tool_call|>"), Space(""), Text("[")],
    call: &[Space(""), OBJECT],
    separator: Some(","),
    gap: " ",
    close: &[Space(""), Text("]")],
    ..Syntax::PLAIN
};

/// Phi-4 mini: a list in tags.
pub const PHI_4: Syntax = Syntax {
    name: "phi-4",
    aliases: &["phi4_mini_json"],
    signs: &[&["<|tool|>", "<|/tool|>"], &["<|/tool_call|>"]],
    open: &[Text("<|tool_call|>"), Space(""), Text("[")],
    call: &[Space(""), OBJECT],
    separator: Some(","),
    gap: " ",
    close: &[Space(""), Text("]"), Space(""), Text("<|/tool_call|>")],
    ..Syntax::PLAIN
};

/// Command R7B and Command A: a list of actions with numbers.
pub const COMMAND_R: Syntax = Syntax {
    name: "command-r",
    aliases: &["command-r7b", "cohere"],
    signs: &[&["<|START_ACTION|>"]],
    open: &[Text("<|START_ACTION|>"), Space(""), Text("[")],
    call: &[
        Space("\n    "),
        Object {
            name: "tool_name",
            arguments: "parameters",
            lead: r#""tool_call_id": "[0-9]{1,3}", "#,
        },
    ],
    separator: Some(","),
    close: &[Space("\n"), Text("]"), Space(""), Text("<|END_ACTION|>")],
    ..Syntax::PLAIN
};
