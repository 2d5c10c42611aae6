//! The rows of what is no family of its own.

use super::{
    chat, completions, control, docs, download, events, health, list, load, lora, metrics, model,
    pages, parameters, permission, requests, sampling_override, service_info, slots, stats, stream,
    template, token, ui, ui_store, unload,
};
use crate::route::{Access, BodyRule, GENERATE, MODEL, Query, Route, delete, get, post, put, to};
use crate::settings::ApiServer;

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
const RESUME: &[Query] = &[
    CONVERSATION_ID,
    Query {
        name: "from",
        about: "The byte to go on from",
        schema: r#"{"type": "integer", "minimum": 0, "default": 0}"#,
        required: false,
    },
];

/// Every route of them.
pub const ROUTES: &[Route] = &[
    post("/v1/chat/completions", Access::Api, to!(chat::create))
        .doc("generation", "createChatCompletion", "Answer a conversation")
        .json("ChatCompletion")
        .of(ApiServer::OpenAi)
        .body::<chat::ChatBody>(BodyRule::Generation, "ChatRequest")
        .events("ChatCompletionChunk")
        .also(GENERATE),
    post("/v1/chat/completions/input_tokens", Access::Api, to!(chat::input_tokens))
        .doc("tokens", "countChatTokens", "Count the tokens of a conversation's prompt")
        .json("InputTokens")
        .of(ApiServer::OpenAi)
        .body::<chat::ChatBody>(BodyRule::Generation, "ChatRequest")
        .also(MODEL),
    post("/v1/completions", Access::Api, to!(completions::create))
        .doc("generation", "createCompletion", "Continue prompts")
        .json("Completion")
        .of(ApiServer::OpenAi)
        .body::<completions::CompletionsBody>(BodyRule::Generation, "CompletionRequest")
        .events("Completion")
        .also(GENERATE),
    post("/v1/token/encode", Access::Api, to!(token::encode))
        .doc("tokens", "encodeTokens", "The token ids of a text or a conversation")
        .json("EncodedTokens")
        .tabby()
        .body::<token::EncodeBody>(BodyRule::Generation, "EncodeRequest")
        .also(MODEL),
    post("/v1/token/decode", Access::Api, to!(token::decode))
        .doc("tokens", "decodeTokens", "The text of token ids")
        .json("Text")
        .tabby()
        .body::<token::DecodeBody>(BodyRule::Generation, "DecodeRequest")
        .also(MODEL),
    post("/tokenize", Access::Api, to!(token::tokenize))
        .doc("tokens", "tokenize", "The token ids of a text, as llama.cpp has it")
        .json("Tokenized")
        .body::<token::TokenizeBody>(BodyRule::Generation, "TokenizeRequest")
        .also(MODEL),
    post("/detokenize", Access::Api, to!(token::detokenize))
        .doc("tokens", "detokenize", "The text of token ids, as llama.cpp has it")
        .json("Content")
        .body::<token::DecodeBody>(BodyRule::Generation, "DetokenizeRequest")
        .also(MODEL),
    post("/apply-template", Access::Api, to!(token::apply_template))
        .doc("tokens", "applyTemplate", "The prompt of a conversation as text, as llama.cpp has it")
        .json("Prompt")
        .body::<token::TemplateBody>(BodyRule::Generation, "TemplateRequest")
        .also(MODEL),
    get("/v1/models", Access::Api, to!(list::models))
        .doc(
            "models",
            "listModels",
            "Models that the key sees; in Anthropic's form with the header anthropic-version",
        )
        .json("ModelList"),
    get("/v1/model/list", Access::Api, to!(list::models))
        .doc("models", "listModelsTabby", "Models that the key sees")
        .json("ModelList")
        .tabby(),
    get("/v1/models/{id}", Access::Api, to!(list::card))
        .doc("models", "getModel", "The card of a model")
        .json("ModelCard"),
    get("/v1/model", Access::Api, to!(model::show))
        .doc("models", "getCurrentModel", "The model that answers, in detail")
        .json("ModelCard")
        .tabby()
        .also(MODEL),
    get("/props", Access::Api, to!(model::props))
        .doc("models", "getProps", "The model that answers, as llama.cpp has it")
        .json("Props")
        .also(MODEL),
    get("/v1/model/draft/list", Access::Api, to!(list::drafts))
        .doc("models", "listDraftModels", "Models that draft for others")
        .json("ModelList")
        .tabby(),
    get("/v1/model/embedding/list", Access::Api, to!(list::embedding_models))
        .doc("models", "listEmbeddingModels", "Models for embeddings")
        .json("ModelList")
        .tabby(),
    get("/v1/model/embedding", Access::Api, to!(model::embedding))
        .doc("models", "getEmbeddingModel", "The model for embeddings")
        .json("ModelCard")
        .tabby()
        .also(MODEL),
    post("/v1/model/load", Access::Admin, to!(load::load))
        .doc(
            "models",
            "loadModel",
            "Load a model and tell how far it is; with dry_run, say what it would take",
        )
        .json("LoadStep")
        .tabby()
        .body::<load::LoadBody>(BodyRule::Small, "LoadRequest")
        .events("LoadStep")
        .also(&[404, 409, 501, 503]),
    post("/v1/model/unload", Access::Admin, to!(unload::unload))
        .doc("models", "unloadModel", "Unload a model")
        .json("Status")
        .tabby()
        .body::<(unload::UnloadFields,)>(BodyRule::Small, "UnloadRequest")
        .optional()
        .also(&[404, 409, 503]),
    post("/v1/model/embedding/load", Access::Admin, to!(model::change_embedding))
        .doc("models", "loadEmbeddingModel", "Load a model for embeddings; not supported")
        .json("Status")
        .tabby()
        .body::<()>(BodyRule::Small, "EmbeddingModelRequest")
        .optional()
        .also(&[501]),
    post("/v1/model/embedding/unload", Access::Admin, to!(model::change_embedding))
        .doc("models", "unloadEmbeddingModel", "Unload a model for embeddings; not supported")
        .json("Status")
        .tabby()
        .body::<()>(BodyRule::Small, "EmbeddingModelRequest")
        .optional()
        .also(&[501]),
    post("/v1/download", Access::Admin, to!(download::create))
        .doc("models", "downloadModel", "Fetch a model from a hub")
        .json("Download")
        .tabby()
        .body::<download::DownloadBody>(BodyRule::Small, "DownloadRequest")
        .events("DownloadProgress")
        .also(&[404, 409, 501, 503, 504]),
    get("/v1/download/{id}", Access::Admin, to!(download::show))
        .doc("models", "getDownload", "How far a download is")
        .json("DownloadProgress")
        .tabby(),
    delete("/v1/download/{id}", Access::Admin, to!(download::stop))
        .doc("models", "stopDownload", "Stop it")
        .json("Cancelled")
        .tabby(),
    get("/v1/templates", Access::Api, to!(template::list))
        .doc("settings", "listTemplates", "Templates")
        .json("NameList")
        .tabby(),
    get("/v1/template/list", Access::Api, to!(template::list))
        .doc("settings", "listTemplatesTabby", "Templates")
        .json("NameList")
        .tabby(),
    post("/v1/template/switch", Access::Admin, to!(template::switch))
        .doc("settings", "switchTemplate", "Use another template; it is tried out first")
        .json("TemplateSwitched")
        .tabby()
        .body::<(template::TemplateFields,)>(BodyRule::Small, "TemplateSwitchRequest")
        .also(MODEL),
    post("/v1/template/unload", Access::Admin, to!(template::unload))
        .doc("settings", "unloadTemplate", "Use no template: conversations are refused")
        .json("Status")
        .tabby()
        .also(MODEL),
    get("/v1/sampling/parameters", Access::Public, to!(parameters::list))
        .doc(
            "settings",
            "listParameters",
            "The generation parameters, with ranges, neutral values and help, for panels and forms",
        )
        .json("Parameters")
        .tabby(),
    get("/v1/sampling/overrides", Access::Api, to!(sampling_override::list))
        .doc(
            "settings",
            "listOverrides",
            "The preset that holds, and for administrators those that could",
        )
        .json("Overrides")
        .tabby(),
    get("/v1/sampling/override/list", Access::Api, to!(sampling_override::list))
        .doc("settings", "listOverridesTabby", "The same as /v1/sampling/overrides")
        .json("Overrides")
        .tabby(),
    post("/v1/sampling/override/switch", Access::Admin, to!(sampling_override::switch))
        .doc("settings", "switchOverride", "Put a preset above or below what requests say")
        .json("Overrides")
        .tabby()
        .body::<(sampling_override::OverrideFields,)>(BodyRule::Small, "OverrideRequest")
        .also(&[404]),
    post("/v1/sampling/override/unload", Access::Admin, to!(sampling_override::unload))
        .doc("settings", "unloadOverride", "Put nothing above or below what requests say")
        .json("Status")
        .tabby(),
    get("/v1/loras", Access::Api, to!(lora::list))
        .doc("settings", "listAdapters", "Adapters")
        .json("AdapterList")
        .tabby(),
    get("/v1/lora/list", Access::Api, to!(lora::list))
        .doc("settings", "listAdaptersTabby", "Adapters")
        .json("AdapterList")
        .tabby(),
    get("/v1/lora", Access::Api, to!(lora::loaded))
        .doc("settings", "getAdapters", "Adapters in use")
        .json("AdapterList")
        .tabby(),
    post("/v1/lora/load", Access::Admin, to!(lora::load))
        .doc("settings", "loadAdapters", "Load adapters, as the default set or beside it")
        .json("AdapterChange")
        .tabby()
        .body::<(lora::AdapterLoadFields,)>(BodyRule::Small, "AdapterLoadRequest")
        .also(MODEL),
    post("/v1/lora/unload", Access::Admin, to!(lora::unload))
        .doc("settings", "unloadAdapters", "Unload adapters")
        .json("AdapterChange")
        .tabby()
        .body::<(lora::AdapterUnloadFields,)>(BodyRule::Small, "AdapterUnloadRequest")
        .optional()
        .also(MODEL),
    post("/v1/load_lora_adapter", Access::Admin, to!(lora::load_one))
        .doc("settings", "loadAdapterVllm", "Load an adapter, in vLLM's form")
        .kinds(&["text/plain"])
        .body::<(lora::VllmAdapter,)>(BodyRule::Small, "VllmAdapterRequest")
        .also(MODEL),
    post("/v1/unload_lora_adapter", Access::Admin, to!(lora::unload_one))
        .doc("settings", "unloadAdapterVllm", "Unload an adapter, in vLLM's form")
        .kinds(&["text/plain"])
        .body::<(lora::VllmAdapterName,)>(BodyRule::Small, "VllmAdapterNameRequest")
        .also(MODEL),
    post("/v1/chat/completions/control", Access::Api, to!(control::act))
        .doc("generation", "controlChatCompletion", "Steer an answer that is being written")
        .json("Controlled")
        .of(ApiServer::OpenAi)
        .body::<(control::ControlFields,)>(BodyRule::Small, "ControlRequest")
        .also(&[404]),
    get("/v1/auth/permission", Access::Api, to!(permission::show))
        .doc("operation", "getPermission", "What the key may do")
        .json("Permission")
        .tabby(),
    get("/v1/requests", Access::Api, to!(requests::list))
        .doc(
            "operation",
            "listRequests",
            "Requests that live: the key's own, all for administrators",
        )
        .json("RequestList"),
    post("/v1/requests/{id}/cancel", Access::Api, to!(requests::cancel))
        .doc("operation", "cancelRequest", "End a request with what was written so far")
        .json("Cancelled"),
    get("/v1/stats", Access::Api, to!(stats::show))
        .doc("operation", "getStats", "Counts and speeds")
        .json("Stats")
        .query(STREAM)
        .events("Stats"),
    get("/v1/cache/pages", Access::Admin, to!(pages::show))
        .doc("operation", "getPages", "What every page of the cache is used for")
        .json("PageMap")
        .query(STREAM)
        .events("PageMapEvent")
        .also(MODEL),
    post("/v1/cache/clear", Access::Admin, to!(pages::clear))
        .doc("operation", "clearCache", "Forget the pages that nobody uses")
        .json("Cleared")
        .also(MODEL),
    get("/slots", Access::Admin, to!(slots::show))
        .doc(
            "operation",
            "getSlots",
            "What is computed at once, as llama.cpp has it, where the operator chose it",
        )
        .json("SlotList")
        .query(SLOTS)
        .also(&[501, 503]),
    get("/v1/events", Access::Admin, to!(events::show))
        .doc("operation", "getEvents", "What happens, as it happens")
        .kinds(&[])
        .events("Event"),
    get("/v1/stream", Access::Api, to!(stream::read))
        .doc("generation", "resumeStream", "Go on reading a stream whose connection was lost")
        .kinds(&[])
        .events("ChatCompletionChunk")
        .query(RESUME)
        .also(&[404, 409]),
    delete("/v1/stream", Access::Api, to!(stream::stop))
        .doc("generation", "stopStream", "End a stream with what was written so far")
        .json("Stopped")
        .query(&[CONVERSATION_ID]),
    post("/v1/streams/lookup", Access::Api, to!(stream::lookup))
        .doc("generation", "lookUpStreams", "How far streams are")
        .json("StreamList")
        .body::<(stream::LookupFields,)>(BodyRule::Small, "LookupRequest"),
    get("/health", Access::Public, to!(health::health))
        .doc("operation", "getHealth", "Whether requests can be answered")
        .json("Health")
        .query(DEEP)
        .also(&[401, 429, 503]),
    get("/v1/health", Access::Public, to!(health::health))
        .doc("operation", "getHealthV1", "The same as /health")
        .json("Health")
        .query(DEEP)
        .also(&[401, 429, 503]),
    get("/health/live", Access::Public, to!(health::live))
        .doc("operation", "getLive", "Whether the process answers")
        .json("Live"),
    get("/health/ready", Access::Public, to!(health::health))
        .doc("operation", "getReady", "The same as /health")
        .json("Health")
        .query(DEEP)
        .also(&[401, 429, 503]),
    get("/metrics", Access::Metrics, to!(metrics::show))
        .doc("operation", "getMetrics", "Every series, for Prometheus")
        .kinds(&["text/plain"]),
    get("/.well-known/serviceinfo", Access::Public, to!(service_info::show))
        .doc("operation", "getServiceInfo", "What this server is, and where its interfaces are")
        .json("ServiceInfo"),
    get("/openapi.json", Access::Docs, to!(docs::document))
        .doc("operation", "getOpenApi", "This document")
        .json("Document"),
    get("/docs", Access::Docs, to!(docs::page))
        .doc("operation", "getDocs", "This document, for people")
        .kinds(&["text/html"]),
    get("/", Access::Public, to!(ui::index))
        .doc("page", "getPage", "The built-in page")
        .kinds(&["text/html"])
        .also(&[501]),
    get("/ui/{name}", Access::Public, to!(ui::asset))
        .doc("page", "getPageFile", "A file of the page")
        .kinds(&["text/javascript", "text/css"]),
    get("/v1/ui/store", Access::Api, to!(ui_store::list))
        .doc(
            "page",
            "listDocuments",
            "What the page keeps on the server for the key, where the operator chose it",
        )
        .json("DocumentList")
        .also(&[501]),
    get("/v1/ui/store/{id}", Access::Api, to!(ui_store::read))
        .doc("page", "getDocument", "A document; its ETag is its version")
        .json("StoredDocument")
        .also(&[400, 501]),
    put("/v1/ui/store/{id}", Access::Api, to!(ui_store::write))
        .doc(
            "page",
            "putDocument",
            "Keep a document: a new one, or with the header If-Match another text of that version",
        )
        .json("DocumentVersion")
        .body::<()>(BodyRule::Generation, "StoredDocument")
        .also(&[409, 501]),
    delete("/v1/ui/store/{id}", Access::Api, to!(ui_store::delete))
        .doc(
            "page",
            "deleteDocument",
            "Forget a document; with the header If-Match only that version",
        )
        .json("DocumentDeleted")
        .also(&[400, 409, 501]),
    post("/ui/exchange", Access::Public, to!(ui::exchange))
        .doc(
            "page",
            "exchangeCode",
            "A key for the code that the server's terminal shows, once, from the same machine",
        )
        .json("ExchangedKey")
        .body::<(ui::ExchangeFields,)>(BodyRule::Small, "ExchangeRequest")
        .also(&[401, 429, 501]),
];
