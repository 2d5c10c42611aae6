//! Which models there are, how they are opened and which names stand for them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::auth::Role;

/// Which models there are, how they are opened and which names stand for them. `None` leaves the
/// choice to the model, or to whoever opens it.
#[derive(Clone, Debug)]
pub struct ModelSettings {
    /// The folder of models.
    pub model_dir: PathBuf,
    /// The model that is opened at the start.
    pub model_name: Option<String>,
    /// Requests may name a model that is then opened.
    pub inline_model_loading: bool,
    /// Whose requests may.
    pub inline_roles: Vec<Role>,
    /// Further names are listed, all of which mean the model there is.
    pub use_dummy_models: bool,
    /// These names.
    pub dummy_model_names: Vec<String>,
    /// After how long a stream that waits for its model begins with signs of life.
    pub inline_patience: Duration,
    /// Keys of this section that also hold for models opened by request.
    pub use_as_default: Vec<String>,
    /// What these keys say, as fields of a load.
    pub load_defaults: Map<String, Value>,
    /// Longest sequence, in tokens.
    pub max_seq_len: Option<usize>,
    /// Tokens in the cache, for all sequences together.
    pub cache_size: Option<usize>,
    /// How keys and values are stored.
    pub cache_mode: String,
    /// Positions are divided by this.
    pub rope_scale: f32,
    /// The rotary base is raised by this.
    pub rope_alpha: Option<f32>,
    /// Most prompt tokens computed at once.
    pub chunk_size: Option<usize>,
    /// Most sequences computed at once.
    pub max_batch_size: Option<usize>,
    /// The template in place of the model's own.
    pub prompt_template: Option<String>,
    /// The folder of templates.
    pub template_dir: PathBuf,
    /// Conversations with models that were opened without saying otherwise.
    pub conversation: ConversationSettings,
    /// Idle time after which the model is given up; zero is never.
    pub idle_unload: Duration,
    /// Refuse names that are not the model's, instead of answering with the model there is.
    pub reject_unknown: bool,
    /// Further names of models.
    pub aliases: BTreeMap<String, String>,
    /// Most models that answer at once.
    pub max_models: usize,
    /// Most bytes they may take together; 0 is what the devices have.
    pub memory_budget: u64,
    /// Links in the folder of models may lead out of it.
    pub follow_symlinks: bool,
}

/// How conversations are rendered and their answers read.
#[derive(Clone, Debug, PartialEq)]
pub struct ConversationSettings {
    /// Variables of templates, unless a request says otherwise.
    pub template_vars_default: Map<String, Value>,
    /// Variables of templates, whatever a request says.
    pub template_vars_force: Map<String, Value>,
    /// How answers think aloud.
    pub reasoning: ReasoningSettings,
    /// How answers call tools; `auto` asks the template.
    pub tool_format: String,
    /// Tool calls within reasoning count.
    pub tool_calls_in_reasoning: bool,
}

/// How answers think aloud.
#[derive(Clone, Debug, PartialEq)]
pub struct ReasoningSettings {
    /// Reasoning is told apart from the answer.
    pub reasoning: Toggle,
    /// What begins it.
    pub start_token: String,
    /// What ends it.
    pub end_token: String,
    /// An answer begins with it.
    pub start_in_reasoning: Toggle,
    /// Most tokens of it.
    pub budget_tokens: Option<usize>,
    /// What the model is made to say when they are used up.
    pub budget_message: Option<String>,
    /// Channels as gpt-oss has them.
    pub harmony: Toggle,
}

/// Yes, no, or as the model's template says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Toggle {
    /// As the template says.
    #[default]
    Auto,
    /// Yes.
    On,
    /// No.
    Off,
}

impl Default for ModelSettings {
    fn default() -> Self {
        ModelSettings {
            model_dir: PathBuf::from("models"),
            model_name: None,
            inline_model_loading: false,
            inline_roles: vec![Role::Admin],
            use_dummy_models: false,
            dummy_model_names: vec!["gpt-3.5-turbo".to_owned()],
            inline_patience: Duration::from_secs(10),
            use_as_default: Vec::new(),
            load_defaults: Map::new(),
            max_seq_len: None,
            cache_size: None,
            cache_mode: "FP16".to_owned(),
            rope_scale: 1.0,
            rope_alpha: None,
            chunk_size: None,
            max_batch_size: None,
            prompt_template: None,
            template_dir: PathBuf::from("templates"),
            conversation: ConversationSettings::default(),
            idle_unload: Duration::ZERO,
            reject_unknown: false,
            aliases: BTreeMap::new(),
            max_models: 1,
            memory_budget: 0,
            follow_symlinks: true,
        }
    }
}

impl Default for ConversationSettings {
    fn default() -> Self {
        ConversationSettings {
            template_vars_default: Map::new(),
            template_vars_force: Map::new(),
            reasoning: ReasoningSettings::default(),
            tool_format: "auto".to_owned(),
            tool_calls_in_reasoning: true,
        }
    }
}

impl Default for ReasoningSettings {
    fn default() -> Self {
        ReasoningSettings {
            reasoning: Toggle::Auto,
            start_token: "<think>".to_owned(),
            end_token: "</think>".to_owned(),
            start_in_reasoning: Toggle::Auto,
            budget_tokens: None,
            budget_message: None,
            harmony: Toggle::Auto,
        }
    }
}
