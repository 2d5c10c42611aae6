//! Calls with every argument in tags of its own.

use super::super::syntax::Piece::{Name, Space, Tags, Text};
use super::super::syntax::{Syntax, TagStyle};

/// Qwen3-Coder.
pub const QWEN3_CODER: Syntax = Syntax {
    name: "qwen3-coder",
    aliases: &["qwen3_coder"],
    signs: &[&["<function=", "<parameter="]],
    call: &[
        Text("<tool_call>"),
        Space("\n"),
        Text("<function="),
        Name,
        Text(">"),
        Space("\n"),
        Tags(&TagStyle {
            key_open: "<parameter=",
            key_close: ">",
            value_open: "",
            value_close: "</parameter>",
            end: "</function>",
            lines: true,
            between: "\n",
        }),
        Space("\n"),
        Text("</tool_call>"),
    ],
    gap: "\n",
    ..Syntax::PLAIN
};

/// GLM 4.5 and later.
pub const GLM: Syntax = Syntax {
    name: "glm-4.5",
    aliases: &["glm45", "glm-4.6"],
    signs: &[&["<arg_key>"]],
    call: &[
        Text("<tool_call>"),
        Space(""),
        Name,
        Space("\n"),
        Tags(&TagStyle {
            key_open: "<arg_key>",
            key_close: "</arg_key>",
            value_open: "<arg_value>",
            value_close: "</arg_value>",
            end: "</tool_call>",
            lines: false,
            between: "\n",
        }),
    ],
    gap: "\n",
    ..Syntax::PLAIN
};

/// MiniMax M2.
pub const MINIMAX_M2: Syntax = Syntax {
    name: "minimax-m2",
    aliases: &["minimax_m2"],
    signs: &[&["<minimax:tool_call>"]],
    open: &[Text("<minimax:tool_call>"), Space("\n")],
    call: &[
        Space(""),
        Text("<invoke name=\""),
        Name,
        Text("\">"),
        Space("\n"),
        Tags(&TagStyle {
            key_open: "<parameter name=\"",
            key_close: "\">",
            value_open: "",
            value_close: "</parameter>",
            end: "</invoke>",
            lines: false,
            between: "\n",
        }),
    ],
    gap: "\n",
    close: &[Space("\n"), Text("</minimax:tool_call>")],
    ..Syntax::PLAIN
};
