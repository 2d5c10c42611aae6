//! Which models there are, how they are opened and which names stand for them.

use super::entries;
use crate::auth::Role;
use crate::config::entry::{Entry, Kind, checked, entry, inert, unbuilt};
use crate::whole_pages::whole_pages;

const M: &str = "model";
const D: &str = "draft_model";
const TOKENS: Kind = Kind::Int { min: 1, max: u32::MAX as i64 };

pub(super) const ROWS: &[Entry] = &[
    entry((M, "model_dir"), Kind::Text, "models", "Folder of models", |s, v| {
        s.model.model_dir = v.path();
    }),
    entry((M, "model_name"), Kind::Text, "", "Model that is opened at the start", |s, v| {
        s.model.model_name = v.maybe_text();
    }),
    entry(
        (M, "inline_model_loading"),
        Kind::Bool,
        "false",
        "Open a model that a request names",
        |s, v| s.model.inline_model_loading = v.bool(),
    )
    .live(),
    entry(
        (M, "inline_roles"),
        Kind::Names(&["api", "admin"]),
        "[\"admin\"]",
        "Whose requests may open a model by naming it",
        |s, v| {
            let role = |name: &String| if name == "api" { Role::Api } else { Role::Admin };
            s.model.inline_roles = v.texts().iter().map(role).collect();
        },
    )
    .live(),
    entry(
        (M, "use_dummy_models"),
        Kind::Bool,
        "false",
        "List further names that mean the model there is",
        |s, v| s.model.use_dummy_models = v.bool(),
    )
    .live(),
    entry((M, "dummy_model_names"), Kind::Texts, "[\"gpt-3.5-turbo\"]", "These names", |s, v| {
        s.model.dummy_model_names = v.texts()
    })
    .live(),
    checked(
        (M, "use_as_default"),
        Kind::Texts,
        "[]",
        "Keys of this section that also hold for models opened by request",
        |s, v| {
            let known = |name: &&String| entries().any(|row| row.section == M && row.key == *name);
            if let Some(name) = v.texts().iter().find(|name| !known(name)) {
                return Err(format!("keys of this section: there is no {name:?}"));
            }
            s.model.use_as_default = v.texts();
            Ok(())
        },
    )
    .live(),
    inert(M, "backend", "Program that runs the model; there is one here"),
    entry((M, "max_seq_len"), TOKENS, "", "Longest sequence, in tokens", |s, v| {
        s.model.max_seq_len = v.maybe_count();
    }),
    checked(
        (M, "cache_size"),
        TOKENS,
        "",
        "Tokens in the cache, for all sequences, in multiples of 256; what memory allows if open",
        |s, v| {
            let tokens = v.maybe_count().map(whole_pages).transpose();
            s.model.cache_size = tokens.map_err(|problem| problem.to_string())?;
            Ok(())
        },
    ),
    entry(
        (M, "cache_mode"),
        Kind::OneOf(&["FP32", "FP16", "Q8", "FP8", "F8", "Q6", "Q4"]),
        "FP16",
        "How keys and values are stored",
        |s, v| s.model.cache_mode = v.text(),
    ),
    unbuilt(M, "tensor_parallel", &["false"], "Split every layer over several devices"),
    unbuilt(M, "tensor_parallel_backend", &["native"], "What connects these devices"),
    unbuilt(M, "gpu_split_auto", &["true"], "Spread layers over devices by free memory"),
    unbuilt(M, "autosplit_reserve", &["[96]", "[]"], "Memory left free on each device, in MB"),
    unbuilt(M, "gpu_split", &["[]"], "Memory to use on each device, in GB"),
    unbuilt(M, "cpu_moe_offload_layers", &["0"], "Layers whose experts run on the CPU"),
    entry(
        (M, "rope_scale"),
        Kind::Float { min: 0.01, max: 1000.0 },
        "1.0",
        "Positions are divided by this",
        |s, v| s.model.rope_scale = v.float() as f32,
    ),
    entry(
        (M, "rope_alpha"),
        Kind::Float { min: 0.01, max: 1000.0 },
        "",
        "The rotary base is raised by this",
        |s, v| s.model.rope_alpha = Some(v.float() as f32).filter(|alpha| *alpha > 0.0),
    ),
    entry((M, "chunk_size"), TOKENS, "", "Most prompt tokens computed at once", |s, v| {
        s.model.chunk_size = v.maybe_count();
    }),
    unbuilt(M, "output_chunking", &["true"], "Compute logits of long prompts in parts"),
    entry((M, "max_batch_size"), TOKENS, "", "Most sequences computed at once", |s, v| {
        s.model.max_batch_size = v.maybe_count();
    }),
    entry((M, "prompt_template"), Kind::Text, "", "Template in place of the model's", |s, v| {
        s.model.prompt_template = v.maybe_text();
    }),
    entry((M, "template_dir"), Kind::Text, "templates", "Folder of templates", |s, v| {
        s.model.template_dir = v.path();
    }),
    unbuilt(M, "vision", &["false"], "Let the model see images"),
    entry(
        (M, "template_vars_default"),
        Kind::Table,
        "{}",
        "Variables of templates, unless a request says otherwise",
        |s, v| s.model.conversation.template_vars_default = v.table(),
    )
    .live(),
    entry(
        (M, "template_vars_force"),
        Kind::Table,
        "{}",
        "Variables of templates, whatever a request says",
        |s, v| s.model.conversation.template_vars_force = v.table(),
    )
    .live(),
    entry((M, "reasoning"), Kind::Toggle, "auto", "Tell reasoning from answers", |s, v| {
        s.model.conversation.reasoning.reasoning = v.toggle();
    }),
    entry((M, "reasoning_start_token"), Kind::Text, "<think>", "What begins it", |s, v| {
        s.model.conversation.reasoning.start_token = v.text();
    }),
    entry((M, "reasoning_end_token"), Kind::Text, "</think>", "What ends it", |s, v| {
        s.model.conversation.reasoning.end_token = v.text();
    }),
    entry((M, "start_in_reasoning"), Kind::Toggle, "auto", "Answers begin with it", |s, v| {
        s.model.conversation.reasoning.start_in_reasoning = v.toggle();
    }),
    entry(
        (M, "tool_calls_in_reasoning"),
        Kind::Bool,
        "true",
        "Tool calls within reasoning count",
        |s, v| s.model.conversation.tool_calls_in_reasoning = v.bool(),
    ),
    entry(
        (M, "reasoning_budget_tokens"),
        Kind::Int { min: 0, max: u32::MAX as i64 },
        "",
        "Most tokens of reasoning",
        |s, v| s.model.conversation.reasoning.budget_tokens = v.maybe_count(),
    ),
    entry(
        (M, "reasoning_budget_message"),
        Kind::Text,
        "",
        "What the model is made to say when they are used up",
        |s, v| s.model.conversation.reasoning.budget_message = v.maybe_text(),
    ),
    entry((M, "tool_format"), Kind::Text, "auto", "How answers call tools", |s, v| {
        s.model.conversation.tool_format = v.text();
    }),
    entry((M, "harmony"), Kind::Toggle, "auto", "Channels as gpt-oss has them", |s, v| {
        s.model.conversation.reasoning.harmony = v.toggle();
    }),
    unbuilt(M, "muse_glimmer", &["auto", "false"], "Messages with recipients"),
    entry(
        (M, "idle_unload"),
        Kind::Seconds,
        "0",
        "Idle seconds after which the model is given up; 0 is never",
        |s, v| s.model.idle_unload = v.seconds(),
    )
    .live(),
    entry(
        (M, "unknown"),
        Kind::OneOf(&["accept", "reject"]),
        "accept",
        "What happens to requests that name another model",
        |s, v| s.model.reject_unknown = v.text() == "reject",
    )
    .live(),
    checked((M, "aliases"), Kind::Table, "{}", "Further names of models", |s, v| {
        let one = |(name, model): (String, serde_json::Value)| match model {
            serde_json::Value::String(model) => Ok((name, model)),
            _ => Err(format!("a table of texts: {name:?} is none")),
        };
        s.model.aliases = v.table().into_iter().map(one).collect::<Result<_, _>>()?;
        Ok(())
    })
    .live(),
    entry(
        (M, "max_models"),
        Kind::Int { min: 1, max: 64 },
        "1",
        "Most models that answer at once",
        |s, v| s.model.max_models = v.count(),
    ),
    entry(
        (M, "memory_budget"),
        Kind::Float { min: 0.0, max: 1e6 },
        "0",
        "Most GiB that models may take together; 0 is what the devices have",
        |s, v| s.model.memory_budget = (v.float() * (1u64 << 30) as f64) as u64,
    ),
    entry(
        (M, "follow_symlinks"),
        Kind::Bool,
        "true",
        "Links in the folder of models may lead out of it",
        |s, v| s.model.follow_symlinks = v.bool(),
    ),
    unbuilt(D, "draft_mode", &["model", "disabled"], "How drafts are made"),
    inert(D, "draft_model_dir", "Folder of draft models"),
    unbuilt(D, "draft_model_name", &[""], "Draft model"),
    unbuilt(D, "draft_rope_scale", &["1.0"], "Positions are divided by this"),
    unbuilt(D, "draft_rope_alpha", &["", "1.0"], "The rotary base is raised by this"),
    unbuilt(D, "draft_cache_mode", &["FP16"], "How its keys and values are stored"),
    unbuilt(D, "draft_gpu_split", &["[]"], "Memory to use on each device, in GB"),
    unbuilt(D, "draft_num_tokens", &[""], "Tokens per draft"),
    unbuilt(D, "dynamic_draft", &["false"], "Longer drafts while they are accepted"),
    unbuilt(D, "ngram_match_min", &["2"], "Fewest tokens that repeat"),
];
