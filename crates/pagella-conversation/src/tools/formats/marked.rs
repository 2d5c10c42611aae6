//! Calls whose name stands before their arguments, each behind marks of its own.

use super::super::syntax::Piece::{Gemma, Json, Name, Space, Text, Word};
use super::super::syntax::Syntax;

/// Mistral since 2025: name and arguments, without quotes around the name.
pub const MISTRAL_ARGS: Syntax = Syntax {
    name: "mistral-args",
    aliases: &["mistral-new"],
    signs: &[&["[TOOL_CALLS]", "[ARGS]"]],
    call: &[Text("[TOOL_CALLS]"), Name, Text("[ARGS]"), Space(""), Json],
    short_ids: true,
    ..Syntax::PLAIN
};

/// Mistral Small 3.2: an id between name and arguments.
pub const MISTRAL_CALL_ID: Syntax = Syntax {
    name: "mistral-call-id",
    signs: &[&["[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"]],
    call: &[
        Text("[TOOL_CALLS]"),
        Name,
        Text("[CALL_ID]"),
        Word("[a-zA-Z0-9]{9}"),
        Text("[ARGS]"),
        Space(""),
        Json,
    ],
    short_ids: true,
    ..Syntax::PLAIN
};

/// DeepSeek V3 and R1: arguments in a block of code.
pub const DEEPSEEK_V3: Syntax = Syntax {
    name: "deepseek-v3",
    aliases: &["deepseek", "deepseek-r1"],
    signs: &[&["<｜tool▁calls▁begin｜>", "```json"]],
    open: &[Text("<｜tool▁calls▁begin｜>")],
    call: &[
        Space(""),
        Text("<｜tool▁call▁begin｜>function<｜tool▁sep｜>"),
        Name,
        Space("\n"),
        Text("```json"),
        Space("\n"),
        Json,
        Space("\n"),
        Text("```"),
        Text("<｜tool▁call▁end｜>"),
    ],
    gap: "\n",
    close: &[Space(""), Text("<｜tool▁calls▁end｜>")],
    ..Syntax::PLAIN
};

/// DeepSeek V3.1 and V3.2: arguments as they are.
pub const DEEPSEEK_V31: Syntax = Syntax {
    name: "deepseek-v3.1",
    aliases: &["deepseek-v3.2"],
    signs: &[&["<｜tool▁calls▁begin｜>"]],
    open: &[Text("<｜tool▁calls▁begin｜>")],
    call: &[
        Space(""),
        Text("<｜tool▁call▁begin｜>"),
        Name,
        Text("<｜tool▁sep｜>"),
        Space(""),
        Json,
        Text("<｜tool▁call▁end｜>"),
    ],
    close: &[Space(""), Text("<｜tool▁calls▁end｜>")],
    ..Syntax::PLAIN
};

/// Functionary on Llama 3.1: arguments in a tag with the name.
pub const FUNCTIONARY_V31: Syntax = Syntax {
    name: "functionary-v3.1",
    aliases: &["functionary"],
    signs: &[&["<function="]],
    call: &[Text("<function="), Name, Text(">"), Space(""), Json, Text("</function>")],
    ..Syntax::PLAIN
};

/// Kimi K2: a name space before the name, the number of the call behind it. Its template wants calls
/// of earlier turns numbered the same way (`conversation/src/message.rs`).
pub const KIMI_K2: Syntax = Syntax {
    name: "kimi-k2",
    aliases: &["kimi_k2"],
    signs: &[&["<|tool_calls_section_begin|>"]],
    open: &[Text("<|tool_calls_section_begin|>")],
    call: &[
        Space(""),
        Text("<|tool_call_begin|>"),
        Space(""),
        Text("functions."),
        Name,
        Text(":"),
        Word("[0-9]{1,4}"),
        Space(""),
        Text("<|tool_call_argument_begin|>"),
        Space(""),
        Json,
        Space(""),
        Text("<|tool_call_end|>"),
    ],
    close: &[Space(""), Text("<|tool_calls_section_end|>")],
    ..Syntax::PLAIN
};

/// Gemma 4: arguments in a notation of its own.
pub const GEMMA_4: Syntax = Syntax {
    name: "gemma-4",
    aliases: &["gemma4"],
    signs: &[&["<|tool_call>"]],
    call: &[Text("<|tool_call>"), Space(""), Text("call:"), Name, Gemma, Text("<tool_call|>")],
    ..Syntax::PLAIN
};
