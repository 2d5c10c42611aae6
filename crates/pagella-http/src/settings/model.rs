//! Which models there are, how they are opened and which names stand for them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Map;
use toml::Value;

use super::declare::section;
use super::device_numbers::DeviceNumbers;
use super::entries;
use super::value::{Choice, Notation, SettingValue, number_within};
use crate::auth::Role;
use crate::whole_pages::whole_pages;

/// Most tokens that a setting can speak of.
const TOKENS_MAX: i64 = u32::MAX as i64;
/// Names of cache formats.
pub(super) const CACHE_MODES: &[&str] = &["FP32", "FP16", "Q8", "FP8", "F8", "Q6", "Q4"];

section! {
    /// Which models there are, how they are opened and which names stand for them. `None` leaves the
    /// choice to the model, or to whoever opens it.
    ModelSettings at model {
        /// Folder of models
        model_dir: PathBuf = "models".into(), variable("MODEL_DIR"), common;
        /// Model that is opened at the start
        model_name: Option<String> = None;
        /// Open a model that a request names
        inline_model_loading: bool = false, live;
        /// Whose requests may open a model by naming it
        inline_roles: Vec<Role> = vec![Role::Admin], live;
        /// List further names that mean the model there is
        use_dummy_models: bool = false, live;
        /// These names
        dummy_model_names: Vec<String> = vec!["gpt-3.5-turbo".into()], live;
        /// Keys of this section and of draft_model that also hold for models opened by request
        use_as_default: Vec<String> = vec![], check(|keys| known_keys(keys)), live;
        /// Longest sequence, in tokens
        max_seq_len: Option<usize> = None, within(1..=TOKENS_MAX);
        /// Tokens in the cache, for all sequences, in multiples of 256; what memory allows if open
        cache_size: Option<usize> = None, within(1..=TOKENS_MAX), check(whole);
        /// How keys and values are stored
        cache_mode: String = "FP16".into(), one_of(CACHE_MODES);
        /// Positions are divided by this
        rope_scale: f32 = 1.0, within(0.01..=1000.0);
        /// The rotary base is raised by this
        rope_alpha: Option<f32> = None, within(0.01..=1000.0);
        /// Most prompt tokens computed at once
        chunk_size: Option<usize> = None, within(1..=TOKENS_MAX);
        /// Most sequences computed at once
        max_batch_size: Option<usize> = None, within(1..=TOKENS_MAX);
        /// Most GB that a model may take of each device, cache included, such as [20, 24]; what is free there if open
        gpu_split: DeviceNumbers = DeviceNumbers::default();
        /// Cut models by what is free on each device, unless gpu_split is stated
        gpu_split_auto: bool = true;
        /// MB of each device that stay free; 96 alone says nothing
        autosplit_reserve: DeviceNumbers = DeviceNumbers::default();
        /// Every layer shared by all devices: with one device the model runs there, several are refused
        tensor_parallel: bool = false;
        /// Template in place of the model's
        prompt_template: Option<String> = None;
        /// Folder of templates
        template_dir: PathBuf = "templates".into();
        /// Idle seconds after which the model is given up; 0 is never
        idle_unload: Duration = Duration::ZERO, live;
        /// What happens to requests that name another model
        reject_unknown: bool = false,
            key("unknown"), words(&[("accept", false), ("reject", true)]), live;
        /// Further names of models
        aliases: BTreeMap<String, String> = BTreeMap::new(), live;
        /// Most models that answer at once
        max_models: usize = 1, within(1..=64), common;
        /// Most GiB that models may take together; 0 is what the devices have
        // Held in bytes.
        memory_budget: u64 = 0, by(bytes_of_gib);
        /// Links in the folder of models may lead out of it
        follow_symlinks: bool = true;
    }
    groups {
        /// Conversations with models that were opened without saying otherwise.
        conversation: ConversationSettings;
    }
    no keys {
        /// After how long a stream that waits for its model begins with signs of life.
        inline_patience: Duration = Duration::from_secs(10);
        /// What the keys of `use_as_default` say, as fields of a load.
        load_defaults: Map<String, serde_json::Value> = Map::new();
    }
}

section! {
    /// How conversations are rendered and their answers read.
    ConversationSettings at model.conversation {
        /// Variables of templates, unless a request says otherwise
        template_vars_default: Map<String, serde_json::Value> = Map::new(), live;
        /// Variables of templates, whatever a request says
        template_vars_force: Map<String, serde_json::Value> = Map::new(), live;
        /// How answers call tools
        // `auto` asks the template.
        tool_format: String = "auto".into();
        /// Tool calls within reasoning count
        tool_calls_in_reasoning: bool = true;
    }
    groups {
        /// How answers think aloud.
        reasoning: ReasoningSettings;
    }
}

section! {
    /// How answers think aloud.
    ReasoningSettings at model.conversation.reasoning {
        /// Tell reasoning from answers
        reasoning: Toggle = Toggle::Auto;
        /// What begins it
        start_token: String = "<think>".into(), key("reasoning_start_token");
        /// What ends it
        end_token: String = "</think>".into(), key("reasoning_end_token");
        /// Answers begin with it
        start_in_reasoning: Toggle = Toggle::Auto;
        /// Most tokens of reasoning
        budget_tokens: Option<usize> = None, within(0..=TOKENS_MAX), key("reasoning_budget_tokens");
        /// What the model is made to say when they are used up
        budget_message: Option<String> = None, key("reasoning_budget_message");
        /// Channels as gpt-oss has them
        harmony: Toggle = Toggle::Auto;
    }
}

/// Yes, no, or as the model's template says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Toggle {
    /// As the template says.
    #[default]
    Auto,
    /// Yes.
    On,
    /// No.
    Off,
}

impl Serialize for Toggle {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.write().serialize(to)
    }
}

impl<'de> Deserialize<'de> for Toggle {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        Toggle::read(&value).map_err(|expected| {
            de::Error::invalid_type(de::Unexpected::Other("value"), &expected.as_str())
        })
    }
}

impl JsonSchema for Toggle {
    fn schema_name() -> Cow<'static, str> {
        "Toggle".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "boolean" }, { "type": "string", "enum": ["auto"] }] })
    }
}

impl SettingValue for Toggle {
    const NOTATION: Notation = Notation::Toml;

    fn read(value: &Value) -> Result<Self, String> {
        match (value.as_bool(), value.as_str()) {
            (Some(true), _) => Ok(Toggle::On),
            (Some(false), _) => Ok(Toggle::Off),
            (_, Some("auto")) => Ok(Toggle::Auto),
            _ => Err("true, false or \"auto\"".to_owned()),
        }
    }

    fn write(&self) -> Value {
        match self {
            Toggle::Auto => Value::String("auto".to_owned()),
            Toggle::On => Value::Boolean(true),
            Toggle::Off => Value::Boolean(false),
        }
    }
}

impl Choice for Role {
    const WORDS: &[(&str, Self)] = &[("api", Role::Api), ("admin", Role::Admin)];
}

fn whole(tokens: &Option<usize>) -> Result<(), String> {
    let pages = tokens.map(whole_pages).transpose();
    pages.map(drop).map_err(|problem| problem.to_string())
}

fn known_keys(keys: &[String]) -> Result<(), String> {
    let holds = |section: &str| ["model", "draft_model"].contains(&section);
    let known = |key: &&String| entries().any(|own| holds(own.section) && own.key == **key);
    match keys.iter().find(|key| !known(key)) {
        Some(key) => Err(format!("keys of this section or of draft_model: there is no {key:?}")),
        None => Ok(()),
    }
}

fn bytes_of_gib(value: &Value) -> Result<u64, String> {
    number_within(value, &(0.0..=1e6)).map(|gib| (gib * (1u64 << 30) as f64) as u64)
}
