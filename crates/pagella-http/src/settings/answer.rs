//! How requests become answers, where that is the operator's choice.

use std::path::PathBuf;
use std::time::Duration;

use super::declare::{choice, section};

section! {
    /// Conversations.
    Chat at chat {
        /// Continue a conversation that ends with the assistant's words
        prefill_assistant: bool = false, live;
        /// Requests may bring a template
        allow_request_template: bool = false, live;
        /// What the field of reasoning is called
        reasoning_field: ReasoningField = ReasoningField::ReasoningContent, live;
    }
}

section! {
    /// Tools.
    Tools at tools {
        /// A schema that cannot be enforced whole is refused for strict tools, or always
        enforce_always: bool = false, key("enforce"), words(&[("strict", false), ("always", true)]);
    }
}

section! {
    /// Schemas and grammars.
    ConstraintSettings at constraints {
        /// Ignore what a schema says and is not understood, where the request allows it
        lenient: bool = false;
    }
}

section! {
    /// Answers that are kept for later requests.
    Responses at responses {
        /// Answers that are kept
        max_entries: usize = 1000, at_least(1);
        /// Bytes of them in all
        max_bytes: usize = 256 << 20, at_least(1);
        /// How long one is kept
        ttl: Duration = Duration::from_secs(30 * 86_400);
        /// What happens to tools that only the original service has
        hosted_tools: HostedTools = HostedTools::Drop;
    }
}

section! {
    /// How tokens are chosen where a request does not say.
    Sampling at sampling {
        /// Preset of sampling that holds from the start
        override_preset: Option<String> = None;
        /// What the model recommends counts
        use_generation_config: bool = true;
        /// Folder of presets
        preset_dir: PathBuf = "sampler_overrides".into();
    }
}

section! {
    /// Vectors of texts.
    Embeddings at embeddings {
        /// How vectors are made where neither request nor model says; auto refuses
        pooling: Option<UsualPooling> = None, words(POOLING), live;
    }
}

section! {
    /// Ranking of texts.
    Rerank at rerank {
        /// How documents are ranked: the model judges, or the angle between vectors counts
        method: RerankMethod = RerankMethod::Model, live;
        /// What a model looks for when it ranks, where neither request nor model says
        instruction: Option<String> = None, live;
    }
}

section! {
    /// For those who work on clients.
    Developer at developer {
        /// Answer streams as one body
        disable_request_streaming: bool = false, live;
        /// Rewrites of system messages that keep prefixes the same
        prompt_normalizers: Vec<String> = vec!["claude-billing".into()],
            some_of(&["claude-billing"]), live;
        /// Counts come with the last choice of a stream
        usage_in_last_choice: bool = false, live;
        /// max_tokens 0 fills the context, as in TabbyAPI
        zero_max_tokens_fills: bool = false, live;
    }
}

choice! {
    /// What the field of reasoning is called.
    ReasoningField {
        /// `reasoning_content`.
        ReasoningContent = "reasoning_content",
        /// `reasoning`.
        Reasoning = "reasoning",
        /// Both.
        Both = "both",
    }
}

choice! {
    /// What happens to tools that only the original service has.
    HostedTools {
        /// They are left out.
        Drop = "drop",
        /// The request is refused.
        Reject = "reject",
    }
}

choice! {
    /// How documents are compared with a query.
    RerankMethod {
        /// The model judges, as its files say.
        Model = "model",
        /// By the angle between vectors.
        Embeddings = "embeddings",
    }
}

choice! {
    /// How the vectors of tokens become that of a text.
    UsualPooling {
        /// Their mean.
        Mean = "mean",
        /// The first one.
        First = "cls",
        /// The last one.
        Last = "last",
    }
}

const POOLING: &[(&str, Option<UsualPooling>)] = &[
    ("auto", None),
    ("mean", Some(UsualPooling::Mean)),
    ("cls", Some(UsualPooling::First)),
    ("last", Some(UsualPooling::Last)),
];
