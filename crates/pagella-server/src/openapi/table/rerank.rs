//! What is said about ranking documents.

use crate::openapi::operation::{Operation, op};
use crate::rerank::FIELDS;

const GENERATE: &[u16] = &[404, 503, 504];

/// Every path of it.
pub const OPERATIONS: &[Operation] = &[
    op(
        ("POST", "/v1/rerank"),
        ("generation", "rerank"),
        "Documents by how well they fit",
        "Ranking",
    )
    .body("RerankRequest", FIELDS, &["query", "documents"])
    .also(GENERATE),
    op(
        ("POST", "/v1/reranking"),
        ("generation", "reranking"),
        "The same as /v1/rerank, as llama.cpp has it",
        "Ranking",
    )
    .body("RerankRequest", FIELDS, &["query", "documents"])
    .also(GENERATE),
    op(
        ("POST", "/rerank"),
        ("generation", "rerankShort"),
        "The same as /v1/rerank, as llama.cpp has it",
        "Ranking",
    )
    .body("RerankRequest", FIELDS, &["query", "documents"])
    .also(GENERATE),
    op(
        ("POST", "/reranking"),
        ("generation", "rerankingShort"),
        "The same as /v1/rerank, as llama.cpp has it",
        "Ranking",
    )
    .body("RerankRequest", FIELDS, &["query", "documents"])
    .also(GENERATE),
];
