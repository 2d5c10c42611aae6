//! What is said about each route. A route without a row here fails a test.

mod kobold;
mod llamacpp;
mod ollama;
mod rerank;

use super::operation::{Operation, Query, op};
use crate::chat::{CONVERSATION, REASONING, TOOLS};
use crate::fields::Param;
use crate::generate::params::{GENERATION, INERT, SAMPLING, SHAPE};
use crate::messages;
use crate::model::{CONVERSATION as MODEL_CONVERSATION, FOREIGN, OPTIONS};
use crate::responses;
use crate::routes::{
    chat, completions, control, download, embeddings, load, sampling_override, stream, template,
    token, ui, unload,
};

/// Tables that several routes share: each is one schema, to which theirs refer.
pub const SHARED: &[(&str, &[Param])] = &[
    ("Conversation", CONVERSATION),
    ("Tools", TOOLS),
    ("Reasoning", REASONING),
    ("Generation", GENERATION),
    ("Sampling", SAMPLING),
    ("Shape", SHAPE),
    ("Inert", INERT),
    ("LoadOptions", OPTIONS),
    ("ForeignOptions", FOREIGN),
    ("ConversationOptions", MODEL_CONVERSATION),
];

/// Bodies that are not read, because the route refuses whatever they ask for.
const UNREAD: &[&[Param]] = &[];

/// Groups of routes, in reading order, and what they are for.
pub const TAGS: &[(&str, &str)] = &[
    ("generation", "Text from the model, in the forms that clients of others expect"),
    ("tokens", "Text to token ids and back"),
    ("models", "Which model answers, loading others, fetching them"),
    ("settings", "Templates, presets of sampling, adapters"),
    ("ollama", "The forms of Ollama"),
    ("llamacpp", "The forms of llama.cpp's server, beside those under tokens and models"),
    ("kobold", "The forms of KoboldAI and KoboldCpp, where the operator chose them"),
    ("operation", "What the server is doing"),
    ("page", "The built-in page"),
];

const STREAM: &[Query] = &[
    Query {
        name: "stream",
        about: "1: again and again, as events",
        schema: r#"{"type": "string", "enum": ["0", "1", "false", "true"]}"#,
        required: false,
    },
    Query {
        name: "interval",
        about: "Milliseconds between two events",
        schema: r#"{"type": "integer", "minimum": 250, "maximum": 10000, "default": 1000}"#,
        required: false,
    },
];
const SLOTS: &[Query] = &[Query {
    name: "fail_on_no_slot",
    about: "1: an error when no slot is free",
    schema: r#"{"type": "string", "enum": ["0", "1"]}"#,
    required: false,
}];
const DEEP: &[Query] = &[Query {
    name: "deep",
    about: "1: every model writes a token; needs an administrator's key",
    schema: r#"{"type": "string", "enum": ["0", "1"]}"#,
    required: false,
}];
const CONVERSATION_ID: Query = Query {
    name: "conv_id",
    about: "The header x-conversation-id of the request",
    schema: r#"{"type": "string", "minLength": 1, "maxLength": 128}"#,
    required: true,
};
const RESPONSE: &[Query] = &[
    Query {
        name: "stream",
        about: "Whether its events are told again",
        schema: r#"{"type": "string", "enum": ["0", "1", "false", "true"]}"#,
        required: false,
    },
    Query {
        name: "starting_after",
        about: "Only events after this one",
        schema: r#"{"type": "integer", "minimum": 0}"#,
        required: false,
    },
];
const ITEMS: &[Query] = &[
    Query {
        name: "order",
        about: "Newest first, or oldest",
        schema: r#"{"type": "string", "enum": ["asc", "desc"], "default": "desc"}"#,
        required: false,
    },
    Query {
        name: "limit",
        about: "Most items",
        schema: r#"{"type": "integer", "minimum": 1, "maximum": 100}"#,
        required: false,
    },
    Query {
        name: "after",
        about: "Only items after this one",
        schema: r#"{"type": "string"}"#,
        required: false,
    },
];
const RESUME: &[Query] = &[
    CONVERSATION_ID,
    Query {
        name: "from",
        about: "The byte to go on from",
        schema: r#"{"type": "integer", "minimum": 0, "default": 0}"#,
        required: false,
    },
];

/// Statuses of routes that run the model.
const MODEL: &[u16] = &[404, 503];
const GENERATE: &[u16] = &[404, 503, 504];

/// Every operation.
pub fn operations() -> impl Iterator<Item = &'static Operation> {
    let families = [ollama::OPERATIONS, llamacpp::OPERATIONS, kobold::OPERATIONS];
    [OPERATIONS, rerank::OPERATIONS].into_iter().chain(families).flatten()
}

const OPERATIONS: &[Operation] = &[
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
        ("POST", "/v1/responses"),
        ("generation", "createResponse"),
        "Answer items, as OpenAI's Responses have it",
        "Response",
    )
    .body("ResponseRequest", responses::FIELDS, &["input"])
    .events("ResponseEvent")
    .also(GENERATE),
    op(
        ("POST", "/v1/responses/input_tokens"),
        ("tokens", "countResponseTokens"),
        "Count the tokens of a response's prompt",
        "InputTokens",
    )
    .body("ResponseRequest", responses::FIELDS, &["input"])
    .also(MODEL),
    op(
        ("GET", "/v1/responses/{id}"),
        ("generation", "getResponse"),
        "A response that is kept",
        "Response",
    )
    .query(RESPONSE)
    .events("ResponseEvent")
    .also(&[409]),
    op(
        ("DELETE", "/v1/responses/{id}"),
        ("generation", "deleteResponse"),
        "Forget a response",
        "ResponseDeleted",
    ),
    op(
        ("POST", "/v1/responses/{id}/cancel"),
        ("generation", "cancelResponse"),
        "End a response that runs in the background",
        "Response",
    )
    .also(&[409]),
    op(
        ("GET", "/v1/responses/{id}/input_items"),
        ("generation", "listInputItems"),
        "What a response answered",
        "ItemList",
    )
    .query(ITEMS),
    op(
        ("POST", "/v1/messages"),
        ("generation", "createMessage"),
        "Answer a conversation, as Anthropic's Messages have it",
        "Message",
    )
    .body("MessageRequest", messages::FIELDS, &["messages", "max_tokens"])
    .events("MessageEvent")
    .also(GENERATE),
    op(
        ("POST", "/v1/messages/count_tokens"),
        ("tokens", "countMessageTokens"),
        "Count the tokens of a message's prompt",
        "CountedTokens",
    )
    .body("CountRequest", messages::FIELDS, &["messages"])
    .also(MODEL),
    op(
        ("POST", "/v1/embeddings"),
        ("generation", "createEmbeddings"),
        "Vectors of texts",
        "EmbeddingList",
    )
    .body("EmbeddingRequest", embeddings::FIELDS, &["input"])
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
        ("GET", "/v1/model/draft/list"),
        ("models", "listDraftModels"),
        "Models that draft for others",
        "ModelList",
    ),
    op(
        ("GET", "/v1/model/embedding/list"),
        ("models", "listEmbeddingModels"),
        "Models for embeddings",
        "ModelList",
    ),
    op(
        ("GET", "/v1/model/embedding"),
        ("models", "getEmbeddingModel"),
        "The model for embeddings",
        "ModelCard",
    )
    .also(MODEL),
    op(
        ("POST", "/v1/model/load"),
        ("models", "loadModel"),
        "Load a model and tell how far it is; with dry_run, say what it would take",
        "LoadStep",
    )
    .body("LoadRequest", load::FIELDS, &["model_name"])
    .events("LoadStep")
    .also(&[404, 409, 501, 503]),
    op(("POST", "/v1/model/unload"), ("models", "unloadModel"), "Unload a model", "Status")
        .body("UnloadRequest", unload::FIELDS, &[])
        .optional()
        .also(&[404, 409, 503]),
    op(
        ("POST", "/v1/model/embedding/load"),
        ("models", "loadEmbeddingModel"),
        "Load a model for embeddings; not supported",
        "Status",
    )
    .body("EmbeddingModelRequest", UNREAD, &[])
    .optional()
    .also(&[501]),
    op(
        ("POST", "/v1/model/embedding/unload"),
        ("models", "unloadEmbeddingModel"),
        "Unload a model for embeddings; not supported",
        "Status",
    )
    .body("EmbeddingModelRequest", UNREAD, &[])
    .optional()
    .also(&[501]),
    op(
        ("POST", "/v1/download"),
        ("models", "downloadModel"),
        "Fetch a model from a hub",
        "Download",
    )
    .body("DownloadRequest", download::DOWNLOAD, &["repo_id"])
    .events("DownloadProgress")
    .also(&[404, 409, 501, 503, 504]),
    op(
        ("GET", "/v1/download/{id}"),
        ("models", "getDownload"),
        "How far a download is",
        "DownloadProgress",
    ),
    op(("DELETE", "/v1/download/{id}"), ("models", "stopDownload"), "Stop it", "Cancelled"),
    op(("GET", "/v1/templates"), ("settings", "listTemplates"), "Templates", "NameList"),
    op(("GET", "/v1/template/list"), ("settings", "listTemplatesTabby"), "Templates", "NameList"),
    op(
        ("POST", "/v1/template/switch"),
        ("settings", "switchTemplate"),
        "Use another template; it is tried out first",
        "TemplateSwitched",
    )
    .body("TemplateSwitchRequest", template::SWITCH, &["prompt_template_name"])
    .also(MODEL),
    op(
        ("POST", "/v1/template/unload"),
        ("settings", "unloadTemplate"),
        "Use no template: conversations are refused",
        "Status",
    )
    .also(MODEL),
    op(
        ("GET", "/v1/sampling/parameters"),
        ("settings", "listParameters"),
        "The generation parameters, with ranges, neutral values and help, for panels and forms",
        "Parameters",
    ),
    op(
        ("GET", "/v1/sampling/overrides"),
        ("settings", "listOverrides"),
        "The preset that holds, and for administrators those that could",
        "Overrides",
    ),
    op(
        ("GET", "/v1/sampling/override/list"),
        ("settings", "listOverridesTabby"),
        "The same as /v1/sampling/overrides",
        "Overrides",
    ),
    op(
        ("POST", "/v1/sampling/override/switch"),
        ("settings", "switchOverride"),
        "Put a preset above or below what requests say",
        "Overrides",
    )
    .body("OverrideRequest", sampling_override::SWITCH, &[])
    .also(&[404]),
    op(
        ("POST", "/v1/sampling/override/unload"),
        ("settings", "unloadOverride"),
        "Put nothing above or below what requests say",
        "Status",
    ),
    op(("GET", "/v1/loras"), ("settings", "listAdapters"), "Adapters", "AdapterList"),
    op(("GET", "/v1/lora/list"), ("settings", "listAdaptersTabby"), "Adapters", "AdapterList"),
    op(("GET", "/v1/lora"), ("settings", "getAdapters"), "Adapters in use", "AdapterList"),
    op(
        ("POST", "/v1/lora/load"),
        ("settings", "loadAdapters"),
        "Load adapters; not supported yet",
        "AdapterChange",
    )
    .body("AdapterRequest", UNREAD, &[])
    .optional()
    .also(&[501, 503]),
    op(
        ("POST", "/v1/lora/unload"),
        ("settings", "unloadAdapters"),
        "Unload adapters",
        "AdapterChange",
    )
    .body("AdapterRequest", UNREAD, &[])
    .optional()
    .also(&[503]),
    op(
        ("POST", "/v1/chat/completions/control"),
        ("generation", "controlChatCompletion"),
        "Steer an answer that is being written",
        "Controlled",
    )
    .body("ControlRequest", control::FIELDS, &["id", "action"])
    .also(&[404]),
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
    op(
        ("GET", "/v1/cache/pages"),
        ("operation", "getPages"),
        "What every page of the cache is used for",
        "PageMap",
    )
    .query(STREAM)
    .events("PageMapEvent")
    .also(MODEL),
    op(
        ("POST", "/v1/cache/clear"),
        ("operation", "clearCache"),
        "Forget the pages that nobody uses",
        "Cleared",
    )
    .also(MODEL),
    op(
        ("GET", "/slots"),
        ("operation", "getSlots"),
        "What is computed at once, as llama.cpp has it, where the operator chose it",
        "SlotList",
    )
    .query(SLOTS)
    .also(&[501, 503]),
    op(("GET", "/v1/events"), ("operation", "getEvents"), "What happens, as it happens", "")
        .kinds(&[])
        .events("Event"),
    op(
        ("GET", "/v1/stream"),
        ("generation", "resumeStream"),
        "Go on reading a stream whose connection was lost",
        "",
    )
    .kinds(&[])
    .events("ChatCompletionChunk")
    .query(RESUME)
    .also(&[404, 409]),
    op(
        ("DELETE", "/v1/stream"),
        ("generation", "stopStream"),
        "End a stream with what was written so far",
        "Stopped",
    )
    .query(&[CONVERSATION_ID]),
    op(
        ("POST", "/v1/streams/lookup"),
        ("generation", "lookUpStreams"),
        "How far streams are",
        "StreamList",
    )
    .body("LookupRequest", stream::LOOKUP, &["conversation_ids"]),
    op(("GET", "/health"), ("operation", "getHealth"), "Whether requests can be answered", "Health")
        .query(DEEP)
        .also(&[401, 429, 503]),
    op(("GET", "/v1/health"), ("operation", "getHealthV1"), "The same as /health", "Health")
        .query(DEEP)
        .also(&[401, 429, 503]),
    op(("GET", "/health/live"), ("operation", "getLive"), "Whether the process answers", "Live"),
    op(("GET", "/health/ready"), ("operation", "getReady"), "The same as /health", "Health")
        .query(DEEP)
        .also(&[401, 429, 503]),
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
    op(("GET", "/"), ("page", "getPage"), "The built-in page", "")
        .kinds(&["text/html"])
        .also(&[501]),
    op(
        ("GET", "/ws"),
        ("generation", "openSocket"),
        "A WebSocket with ExLlamaV2's actions echo, estimate_token, lefttrim_token, infer and stop, \
         where the operator chose it; the key stands in a header or in the first message",
        "",
    )
    .upgrades()
    .also(&[426, 501, 503]),
    op(("GET", "/ui/{name}"), ("page", "getPageFile"), "A file of the page", "")
        .kinds(&["text/javascript", "text/css"]),
    op(
        ("GET", "/v1/ui/store"),
        ("page", "listDocuments"),
        "What the page keeps on the server for the key, where the operator chose it",
        "DocumentList",
    )
    .also(&[501]),
    op(
        ("GET", "/v1/ui/store/{id}"),
        ("page", "getDocument"),
        "A document; its ETag is its version",
        "StoredDocument",
    )
    .also(&[400, 501]),
    op(
        ("PUT", "/v1/ui/store/{id}"),
        ("page", "putDocument"),
        "Keep a document: a new one, or with the header If-Match another text of that version",
        "DocumentVersion",
    )
    .body("StoredDocument", UNREAD, &[])
    .also(&[409, 501]),
    op(
        ("DELETE", "/v1/ui/store/{id}"),
        ("page", "deleteDocument"),
        "Forget a document; with the header If-Match only that version",
        "DocumentDeleted",
    )
    .also(&[400, 409, 501]),
    op(
        ("POST", "/ui/exchange"),
        ("page", "exchangeCode"),
        "A key for the code that the server's terminal shows, once, from the same machine",
        "ExchangedKey",
    )
    .body("ExchangeRequest", ui::EXCHANGE, &["code"])
    .also(&[401, 429, 501]),
];
