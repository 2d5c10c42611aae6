//! What is said about each route. A route without a row here fails a test.

use super::operation::{Operation, Query, op};
use crate::chat::CONVERSATION;
use crate::fields::Param;
use crate::generate::params::{GENERATION, INERT, SAMPLING, SHAPE};
use crate::routes::{chat, completions, token, ui};

/// Tables that several routes share: each is one schema, to which theirs refer.
pub const SHARED: &[(&str, &[Param])] = &[
    ("Conversation", CONVERSATION),
    ("Generation", GENERATION),
    ("Sampling", SAMPLING),
    ("Shape", SHAPE),
    ("Inert", INERT),
];

/// Groups of routes, in reading order, and what they are for.
pub const TAGS: &[(&str, &str)] = &[
    ("generation", "Text from the model, in the forms that clients of others expect"),
    ("tokens", "Text to token ids and back"),
    ("models", "Which model answers"),
    ("operation", "What the server is doing"),
    ("page", "The built-in page"),
];

const STREAM: &[Query] = &[
    Query {
        name: "stream",
        about: "1: again and again, as events",
        schema: r#"{"type": "string", "enum": ["0", "1", "false", "true"]}"#,
    },
    Query {
        name: "interval",
        about: "Milliseconds between two events",
        schema: r#"{"type": "integer", "minimum": 250, "maximum": 10000, "default": 1000}"#,
    },
];

/// Statuses of routes that run the model.
const MODEL: &[u16] = &[404, 503];
const GENERATE: &[u16] = &[404, 503, 504];

/// Every operation.
pub const OPERATIONS: &[Operation] = &[
    op(
        ("POST", "/v1/chat/completions"),
        ("generation", "createChatCompletion"),
        "Answer a conversation",
        "ChatCompletion",
    )
    .body("ChatRequest", chat::FIELDS, &["messages"])
    .events("ChatCompletionChunk")
    .also(GENERATE),
    op(
        ("POST", "/v1/chat/completions/input_tokens"),
        ("tokens", "countChatTokens"),
        "Count the tokens of a conversation's prompt",
        "InputTokens",
    )
    .body("ChatRequest", chat::FIELDS, &["messages"])
    .also(MODEL),
    op(
        ("POST", "/v1/completions"),
        ("generation", "createCompletion"),
        "Continue prompts",
        "Completion",
    )
    .body("CompletionRequest", completions::FIELDS, &["prompt"])
    .events("Completion")
    .also(GENERATE),
    op(
        ("POST", "/v1/token/encode"),
        ("tokens", "encodeTokens"),
        "The token ids of a text or a conversation",
        "EncodedTokens",
    )
    .body("EncodeRequest", token::ENCODE, &["text"])
    .also(MODEL),
    op(("POST", "/v1/token/decode"), ("tokens", "decodeTokens"), "The text of token ids", "Text")
        .body("DecodeRequest", token::DECODE, &["tokens"])
        .also(MODEL),
    op(
        ("POST", "/tokenize"),
        ("tokens", "tokenize"),
        "The token ids of a text, as llama.cpp has it",
        "Tokenized",
    )
    .body("TokenizeRequest", token::TOKENIZE, &["content"])
    .also(MODEL),
    op(
        ("POST", "/detokenize"),
        ("tokens", "detokenize"),
        "The text of token ids, as llama.cpp has it",
        "Content",
    )
    .body("DetokenizeRequest", token::DETOKENIZE, &["tokens"])
    .also(MODEL),
    op(
        ("POST", "/apply-template"),
        ("tokens", "applyTemplate"),
        "The prompt of a conversation as text, as llama.cpp has it",
        "Prompt",
    )
    .body("TemplateRequest", token::TEMPLATE, &["messages"])
    .also(MODEL),
    op(
        ("GET", "/v1/models"),
        ("models", "listModels"),
        "Models that the key sees; in Anthropic's form with the header anthropic-version",
        "ModelList",
    ),
    op(
        ("GET", "/v1/model/list"),
        ("models", "listModelsTabby"),
        "Models that the key sees",
        "ModelList",
    ),
    op(("GET", "/v1/models/{id}"), ("models", "getModel"), "The card of a model", "ModelCard"),
    op(
        ("GET", "/v1/model"),
        ("models", "getCurrentModel"),
        "The model that answers, in detail",
        "ModelCard",
    )
    .also(MODEL),
    op(
        ("GET", "/props"),
        ("models", "getProps"),
        "The model that answers, as llama.cpp has it",
        "Props",
    )
    .also(MODEL),
    op(
        ("GET", "/v1/auth/permission"),
        ("operation", "getPermission"),
        "What the key may do",
        "Permission",
    ),
    op(
        ("GET", "/v1/requests"),
        ("operation", "listRequests"),
        "Requests that live: the key's own, all for administrators",
        "RequestList",
    ),
    op(
        ("POST", "/v1/requests/{id}/cancel"),
        ("operation", "cancelRequest"),
        "End a request with what was written so far",
        "Cancelled",
    ),
    op(("GET", "/v1/stats"), ("operation", "getStats"), "Counts and speeds", "Stats")
        .query(STREAM)
        .events("Stats"),
    op(("GET", "/health"), ("operation", "getHealth"), "Whether something is wrong", "Health")
        .also(&[503]),
    op(("GET", "/v1/health"), ("operation", "getHealthV1"), "The same as /health", "Health")
        .also(&[503]),
    op(("GET", "/health/live"), ("operation", "getLive"), "Whether the process answers", "Live"),
    op(
        ("GET", "/health/ready"),
        ("operation", "getReady"),
        "Whether requests can be answered",
        "Health",
    )
    .also(&[503]),
    op(("GET", "/metrics"), ("operation", "getMetrics"), "Every series, for Prometheus", "")
        .kinds(&["text/plain"]),
    op(
        ("GET", "/.well-known/serviceinfo"),
        ("operation", "getServiceInfo"),
        "What this server is, and where its interfaces are",
        "ServiceInfo",
    ),
    op(("GET", "/openapi.json"), ("operation", "getOpenApi"), "This document", "Document"),
    op(("GET", "/docs"), ("operation", "getDocs"), "This document, for people", "")
        .kinds(&["text/html"]),
    op(("GET", "/"), ("page", "getPage"), "The built-in page", "").kinds(&["text/html"]),
    op(("GET", "/ui/{name}"), ("page", "getPageFile"), "A file of the page", "")
        .kinds(&["text/javascript", "text/css"]),
    op(
        ("POST", "/ui/exchange"),
        ("page", "exchangeCode"),
        "A key for the code that the server's terminal shows, once, from the same machine",
        "ExchangedKey",
    )
    .body("ExchangeRequest", ui::EXCHANGE, &["code"])
    .also(&[401, 429]),
];
