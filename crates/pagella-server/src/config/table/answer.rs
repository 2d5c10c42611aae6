//! How requests become answers.

use pagella_engine::Pooling;

use crate::config::entry::{Entry, Kind, entry, inert, unbuilt};
use crate::settings::{HostedTools, ReasoningField, RerankMethod};

const SOME: Kind = Kind::Int { min: 1, max: i64::MAX };

pub(super) const ROWS: &[Entry] = &[
    entry(
        ("chat", "prefill_assistant"),
        Kind::Bool,
        "false",
        "Continue a conversation that ends with the assistant's words",
        |s, v| s.chat.prefill_assistant = v.bool(),
    )
    .live(),
    entry(
        ("chat", "allow_request_template"),
        Kind::Bool,
        "false",
        "Requests may bring a template",
        |s, v| s.chat.allow_request_template = v.bool(),
    )
    .live(),
    entry(
        ("chat", "reasoning_field"),
        Kind::OneOf(&["reasoning_content", "reasoning", "both"]),
        "reasoning_content",
        "What the field of reasoning is called",
        |s, v| {
            s.chat.reasoning_field = match v.text().as_str() {
                "reasoning" => ReasoningField::Reasoning,
                "both" => ReasoningField::Both,
                _ => ReasoningField::ReasoningContent,
            };
        },
    )
    .live(),
    entry(
        ("tools", "enforce"),
        Kind::OneOf(&["strict", "always"]),
        "strict",
        "A schema that cannot be enforced whole is refused for strict tools, or always",
        |s, v| s.tools.enforce_always = v.text() == "always",
    ),
    entry(
        ("constraints", "lenient"),
        Kind::Bool,
        "false",
        "Ignore what a schema says and is not understood, where the request allows it",
        |s, v| s.constraints.lenient = v.bool(),
    ),
    entry(("responses", "max_entries"), SOME, "1000", "Answers that are kept", |s, v| {
        s.responses.max_entries = v.count();
    }),
    entry(("responses", "max_bytes"), SOME, "268435456", "Bytes of them in all", |s, v| {
        s.responses.max_bytes = v.count();
    }),
    entry(("responses", "ttl"), Kind::Seconds, "2592000", "How long one is kept", |s, v| {
        s.responses.ttl = v.seconds();
    }),
    entry(
        ("responses", "hosted_tools"),
        Kind::OneOf(&["drop", "reject"]),
        "drop",
        "What happens to tools that only the original service has",
        |s, v| {
            s.responses.hosted_tools = match v.text().as_str() {
                "reject" => HostedTools::Reject,
                _ => HostedTools::Drop,
            };
        },
    ),
    entry(
        ("sampling", "override_preset"),
        Kind::Text,
        "",
        "Preset of sampling that holds from the start",
        |s, v| s.sampling.override_preset = v.maybe_text(),
    ),
    entry(
        ("sampling", "use_generation_config"),
        Kind::Bool,
        "true",
        "What the model recommends counts",
        |s, v| s.sampling.use_generation_config = v.bool(),
    ),
    entry(
        ("sampling", "preset_dir"),
        Kind::Text,
        "sampler_overrides",
        "Folder of presets",
        |s, v| s.sampling.preset_dir = v.path(),
    ),
    inert("lora", "lora_dir", "Folder of adapters"),
    unbuilt("lora", "loras", &["[]", ""], "Adapters that are loaded at the start"),
    inert("embeddings", "embedding_model_dir", "Folder of embedding models"),
    inert("embeddings", "embeddings_device", "Where the embedding model runs"),
    unbuilt("embeddings", "embedding_model_name", &[""], "Embedding model"),
    entry(
        ("embeddings", "pooling"),
        Kind::OneOf(&["auto", "mean", "cls", "last"]),
        "auto",
        "How vectors are made where neither request nor model says; auto refuses",
        |s, v| s.embeddings.pooling = Pooling::from_name(&v.text()),
    )
    .live(),
    entry(
        ("rerank", "method"),
        Kind::OneOf(&["model", "embeddings"]),
        "model",
        "How documents are ranked: the model judges, or the angle between vectors counts",
        |s, v| {
            s.rerank.method = match v.text().as_str() {
                "embeddings" => RerankMethod::Embeddings,
                _ => RerankMethod::Model,
            };
        },
    )
    .live(),
    entry(
        ("rerank", "instruction"),
        Kind::Text,
        "",
        "What a model looks for when it ranks, where neither request nor model says",
        |s, v| s.rerank.instruction = Some(v.text()).filter(|text| !text.is_empty()),
    )
    .live(),
    unbuilt("memory", "sysmem_kv_cache", &["0"], "Pages kept in host memory, in MB"),
    inert("memory", "sysmem_recurrent_cache", "Recurrent states kept in host memory, in MB"),
    inert("memory", "cuda_malloc_async", "How device memory is taken"),
    entry(
        ("developer", "disable_request_streaming"),
        Kind::Bool,
        "false",
        "Answer streams as one body",
        |s, v| s.developer.disable_request_streaming = v.bool(),
    )
    .live(),
    unbuilt("developer", "realtime_process_priority", &["false"], "Run before other programs"),
    entry(
        ("developer", "prompt_normalizers"),
        Kind::Names(&["claude-billing"]),
        "[\"claude-billing\"]",
        "Rewrites of system messages that keep prefixes the same",
        |s, v| s.developer.prompt_normalizers = v.texts(),
    )
    .live(),
    entry(
        ("developer", "usage_in_last_choice"),
        Kind::Bool,
        "false",
        "Counts come with the last choice of a stream",
        |s, v| s.developer.usage_in_last_choice = v.bool(),
    )
    .live(),
    entry(
        ("developer", "zero_max_tokens_fills"),
        Kind::Bool,
        "false",
        "max_tokens 0 fills the context, as in TabbyAPI",
        |s, v| s.developer.zero_max_tokens_fills = v.bool(),
    )
    .live(),
    inert("developer", "unsafe_launch", "Start although checks fail"),
    inert("developer", "seqlog", "Log of sequences"),
    inert("developer", "seqlog_dir", "Folder of that log"),
];
