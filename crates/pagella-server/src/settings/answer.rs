//! How requests become answers, where that is the operator's choice.

use std::path::PathBuf;
use std::time::Duration;

use pagella_engine::Pooling;

/// Conversations.
#[derive(Clone, Debug, Default)]
pub struct Chat {
    /// A conversation that ends with the assistant's words is continued.
    pub prefill_assistant: bool,
    /// Requests may bring a template.
    pub allow_request_template: bool,
    /// What the field of reasoning is called.
    pub reasoning_field: ReasoningField,
}

/// What the field of reasoning is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReasoningField {
    /// `reasoning_content`.
    #[default]
    ReasoningContent,
    /// `reasoning`.
    Reasoning,
    /// Both.
    Both,
}

/// Tools.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    /// Every tool is taken as `strict`: a schema that cannot be enforced whole is refused.
    pub enforce_always: bool,
}

/// Schemas and grammars.
#[derive(Clone, Debug, Default)]
pub struct ConstraintSettings {
    /// What a schema says and is not understood may be ignored, where the request allows it.
    pub lenient: bool,
}

/// Answers that are kept for later requests.
#[derive(Clone, Debug)]
pub struct Responses {
    /// Most of them.
    pub max_entries: usize,
    /// Most bytes of them in all.
    pub max_bytes: usize,
    /// How long one is kept.
    pub ttl: Duration,
    /// What happens to tools that only the original service has.
    pub hosted_tools: HostedTools,
}

/// What happens to tools that only the original service has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostedTools {
    /// They are left out.
    #[default]
    Drop,
    /// The request is refused.
    Reject,
}

impl Default for Responses {
    fn default() -> Self {
        Responses {
            max_entries: 1000,
            max_bytes: 256 << 20,
            ttl: Duration::from_secs(30 * 86_400),
            hosted_tools: HostedTools::Drop,
        }
    }
}

/// How tokens are chosen where a request does not say.
#[derive(Clone, Debug)]
pub struct Sampling {
    /// The preset that holds from the start.
    pub override_preset: Option<String>,
    /// What the model recommends counts.
    pub use_generation_config: bool,
    /// The folder of presets.
    pub preset_dir: PathBuf,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            override_preset: None,
            use_generation_config: true,
            preset_dir: PathBuf::from("sampler_overrides"),
        }
    }
}

/// Vectors of texts.
#[derive(Clone, Debug, Default)]
pub struct Embeddings {
    /// How hidden states become a vector where neither the request nor the model's files say.
    pub pooling: Option<Pooling>,
}

/// Ranking of texts.
#[derive(Clone, Debug, Default)]
pub struct Rerank {
    /// How documents are compared with a query.
    pub method: RerankMethod,
    /// What models look for where neither the request nor their files say.
    pub instruction: Option<String>,
}

/// How documents are compared with a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RerankMethod {
    /// The model judges, as its files say.
    #[default]
    Model,
    /// By the angle between vectors.
    Embeddings,
}

/// For those who work on clients.
#[derive(Clone, Debug)]
pub struct Developer {
    /// Streams are answered as one body.
    pub disable_request_streaming: bool,
    /// Rewrites of system messages that keep prefixes the same.
    pub prompt_normalizers: Vec<String>,
    /// Counts come with the last choice, as in TabbyAPI.
    pub usage_in_last_choice: bool,
    /// `max_tokens` of 0 fills the context, as in TabbyAPI, instead of asking for no token.
    pub zero_max_tokens_fills: bool,
}

impl Default for Developer {
    fn default() -> Self {
        Developer {
            disable_request_streaming: false,
            prompt_normalizers: vec!["claude-billing".to_owned()],
            usage_in_last_choice: false,
            zero_max_tokens_fills: false,
        }
    }
}
