//! What is said about llama.cpp's routes that generate text.

use crate::llamacpp::{FIELDS, INFILL};
use crate::openapi::operation::{Operation, op};

const STATUSES: &[u16] = &[404, 501, 503, 504];

/// Every operation of the family.
pub const OPERATIONS: &[Operation] = &[
    op(
        ("POST", "/completion"),
        ("llamacpp", "llamaCompletion"),
        "Continue prompts",
        "LlamaCompletion",
    )
    .body("LlamaRequest", FIELDS, &["prompt"])
    .events("LlamaPiece")
    .also(STATUSES),
    op(
        ("POST", "/completions"),
        ("llamacpp", "llamaCompletions"),
        "Continue prompts; the same as /completion",
        "LlamaCompletion",
    )
    .body("LlamaRequest", FIELDS, &["prompt"])
    .events("LlamaPiece")
    .also(STATUSES),
    op(
        ("POST", "/infill"),
        ("llamacpp", "llamaInfill"),
        "Fill a gap between two texts, with models that have tokens for it",
        "LlamaCompletion",
    )
    .body("InfillRequest", INFILL, &[])
    .events("LlamaPiece")
    .also(STATUSES),
];
