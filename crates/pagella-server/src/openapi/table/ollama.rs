//! What is said about Ollama's routes.

use super::UNREAD;
use crate::ollama::{CHAT, EMBED, EMBEDDINGS, GENERATE, PULL, SHOW};
use crate::openapi::operation::{Operation, op};

const OFF: &[u16] = &[501];
const MODEL: &[u16] = &[404, 501, 503];
const GENERATED: &[u16] = &[404, 501, 503, 504];

/// Every operation of the family.
pub const OPERATIONS: &[Operation] = &[
    op(("POST", "/api/chat"), ("ollama", "ollamaChat"), "Answer a conversation", "OllamaChat")
        .body("OllamaChatRequest", CHAT, &[])
        .lines("OllamaChat")
        .also(GENERATED),
    op(
        ("POST", "/api/generate"),
        ("ollama", "ollamaGenerate"),
        "Answer or continue a prompt",
        "OllamaGenerated",
    )
    .body("OllamaGenerateRequest", GENERATE, &[])
    .lines("OllamaGenerated")
    .also(GENERATED),
    op(
        ("POST", "/api/embed"),
        ("ollama", "ollamaEmbed"),
        "Vectors of texts, of length one",
        "OllamaVectors",
    )
    .body("OllamaEmbedRequest", EMBED, &["input"])
    .also(GENERATED),
    op(
        ("POST", "/api/embeddings"),
        ("ollama", "ollamaEmbeddings"),
        "The vector of one text; the older form",
        "OllamaVector",
    )
    .body("OllamaEmbeddingsRequest", EMBEDDINGS, &[])
    .also(GENERATED),
    op(("GET", "/api/tags"), ("ollama", "ollamaTags"), "Models that the key sees", "OllamaModels")
        .also(OFF),
    op(("GET", "/api/ps"), ("ollama", "ollamaPs"), "Models that answer now", "OllamaModels")
        .also(OFF),
    op(
        ("GET", "/api/version"),
        ("ollama", "ollamaVersion"),
        "The version of Ollama's interface",
        "OllamaVersion",
    )
    .also(OFF),
    op(("POST", "/api/show"), ("ollama", "ollamaShow"), "A model in detail", "OllamaModel")
        .body("OllamaShowRequest", SHOW, &["model"])
        .also(MODEL),
    op(
        ("POST", "/api/pull"),
        ("ollama", "ollamaPull"),
        "Whether a model is here; others are not fetched",
        "OllamaStatus",
    )
    .body("OllamaPullRequest", PULL, &["model"])
    .also(OFF),
    op(("POST", "/api/push"), ("ollama", "ollamaPush"), "Not supported", "OllamaStatus")
        .body("OllamaChangeRequest", UNREAD, &[])
        .optional()
        .also(OFF),
    op(("POST", "/api/create"), ("ollama", "ollamaCreate"), "Not supported", "OllamaStatus")
        .body("OllamaChangeRequest", UNREAD, &[])
        .optional()
        .also(OFF),
    op(("POST", "/api/copy"), ("ollama", "ollamaCopy"), "Not supported", "OllamaStatus")
        .body("OllamaChangeRequest", UNREAD, &[])
        .optional()
        .also(OFF),
    op(("DELETE", "/api/delete"), ("ollama", "ollamaDelete"), "Not supported", "OllamaStatus")
        .body("OllamaChangeRequest", UNREAD, &[])
        .optional()
        .also(OFF),
];
