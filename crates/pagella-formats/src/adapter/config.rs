//! `adapter_config.json`: ranks, scales, and everything that is refused because it would change the
//! output.
//!
//! A field that is off (null, false, empty) means nothing, whatever its name. A field that is not
//! known and on is refused, except for numbers, which only say how much of something that another
//! field turns on.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::pattern::Pattern;
use super::{RANK_MAX, SCALE_MAX};
use crate::error::{FormatError, Result};

const NAME: &str = "adapter_config.json";

/// Largest configuration that is read.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Most entries of a list or table.
const ENTRIES_MAX: usize = 4096;

/// Fields that change nothing about the forward pass, or that the tensors say themselves.
const INERT: &[&str] = &[
    "auto_mapping",
    "base_model_name_or_path",
    "peft_type",
    "peft_version",
    "task_type",
    "inference_mode",
    "revision",
    "r",
    "lora_alpha",
    "lora_dropout",
    "use_rslora",
    "rank_pattern",
    "alpha_pattern",
    "target_modules",
    "exclude_modules",
    "modules_to_save",
    "layers_to_transform",
    "layers_pattern",
    "init_lora_weights",
    "bias",
    "lora_bias",
    // The halves of a linear that is stored `[in, out]` are stored like any other's.
    "fan_in_fan_out",
    "loftq_config",
    "eva_config",
    "corda_config",
    "lora_ga_config",
    "megatron_config",
    "megatron_core",
    "runtime_config",
    "qalora_group_size",
    "ensure_weight_tying",
];

/// Fields that change the forward pass into something else, with what to do instead.
const REFUSED: &[(&str, &str)] = &[
    ("use_dora", "DoRA is not supported: merge the adapter into the model"),
    ("use_qalora", "QALoRA is not supported: merge the adapter into the model"),
    ("layer_replication", "replicated layers are not supported: merge the adapter into the model"),
    (
        "target_parameters",
        "pairs for bare parameters are not supported: merge the adapter into the model",
    ),
    (
        "trainable_token_indices",
        "trained tokens are not supported: merge the adapter into the model",
    ),
    (
        "alora_invocation_tokens",
        "activated adapters are not supported: merge the adapter into the model",
    ),
    ("arrow_config", "routed adapters are not supported: choose one of them"),
    ("use_bdlora", "block-diagonal adapters are not supported: merge the adapter into the model"),
];

/// Ways to begin training that leave the model's own weights as they are.
const HARMLESS_INITS: &[&str] = &["gaussian", "eva", "orthogonal"];

/// What the configuration says.
#[derive(Clone, Debug)]
pub(super) struct AdapterConfig {
    path: PathBuf,
    rank: usize,
    alpha: f64,
    is_rank_stabilized: bool,
    ranks: Vec<(Pattern, usize)>,
    alphas: Vec<(Pattern, f64)>,
    targets: Targets,
    /// Ends of paths that are stored whole.
    saved: Vec<String>,
    base_model: Option<String>,
}

/// Which modules have pairs.
#[derive(Clone, Debug)]
enum Targets {
    /// Whatever the tensors say.
    Any,
    /// Ends of paths.
    Endings(Vec<String>),
    Path(Pattern),
}

impl AdapterConfig {
    /// Reads the configuration in `dir`.
    pub fn read(dir: &Path) -> Result<Self> {
        let path = dir.join(NAME);
        if !path.exists() {
            return Err(FormatError::NotAnAdapter { path: dir.to_owned() });
        }
        let bytes = read_limited(&path, CONFIG_BYTES_MAX)?;
        Self::parse(path, &bytes)
    }

    fn parse(path: PathBuf, bytes: &[u8]) -> Result<Self> {
        let parsed: Result<Map<String, Value>, _> = serde_json::from_slice(bytes);
        let fields = match parsed {
            Ok(fields) => Fields { path: &path, fields },
            Err(error) => {
                let problem = format!("is not a JSON object ({error}): download the adapter again");
                return Err(FormatError::AdapterConfig { path, problem });
            }
        };
        fields.refuse_foreign()?;
        let config = Self {
            rank: fields.rank("r", fields.value("r").unwrap_or(&Value::Null))?,
            alpha: match fields.value("lora_alpha") {
                None => 8.0,
                Some(alpha) => fields.alpha("lora_alpha", alpha)?,
            },
            is_rank_stabilized: fields.flag("use_rslora")?,
            ranks: fields.table("rank_pattern", Fields::rank)?,
            alphas: fields.table("alpha_pattern", Fields::alpha)?,
            targets: fields.targets()?,
            saved: fields.texts("modules_to_save"),
            base_model: fields
                .value("base_model_name_or_path")
                .and_then(Value::as_str)
                .map(str::to_owned),
            path: path.clone(),
        };
        Ok(config)
    }

    /// The model that it was trained for.
    pub fn base_model(&self) -> Option<&str> {
        self.base_model.as_deref()
    }

    /// The rank of the pair of a module.
    pub fn rank_of(&self, module: &str) -> usize {
        let special = self.ranks.iter().find(|(pattern, _)| pattern.matches(module));
        special.map_or(self.rank, |(_, rank)| *rank)
    }

    /// What multiplies the product of a module's pair.
    pub fn scale_of(&self, module: &str, rank: usize) -> Result<f32> {
        let special = self.alphas.iter().find(|(pattern, _)| pattern.matches(module));
        let alpha = special.map_or(self.alpha, |(_, alpha)| *alpha);
        let divisor = if self.is_rank_stabilized { (rank as f64).sqrt() } else { rank as f64 };
        let scale = alpha / divisor;
        if scale.abs() <= SCALE_MAX {
            return Ok(scale as f32);
        }
        let problem = format!(
            "scales {module} by {scale} (alpha {alpha}, rank {rank}), allowed is {SCALE_MAX}: the adapter is damaged"
        );
        Err(FormatError::AdapterConfig { path: self.path.clone(), problem })
    }

    /// Whether the configuration says that a module has a pair.
    pub fn is_target(&self, module: &str) -> bool {
        match &self.targets {
            Targets::Any => true,
            Targets::Path(pattern) => pattern.matches(module),
            Targets::Endings(endings) => endings.iter().any(|ending| ends_with(module, ending)),
        }
    }

    /// Ends of paths that are listed as having pairs.
    pub fn target_endings(&self) -> &[String] {
        match &self.targets {
            Targets::Endings(endings) => endings,
            Targets::Any | Targets::Path(_) => &[],
        }
    }

    /// Ends of paths that are listed as stored whole.
    pub fn saved_endings(&self) -> &[String] {
        &self.saved
    }
}

/// Whether a path ends in these parts.
pub(super) fn ends_with(path: &str, ending: &str) -> bool {
    let rest = path.strip_suffix(ending);
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// The fields of a configuration, with errors that name them.
struct Fields<'a> {
    path: &'a Path,
    fields: Map<String, Value>,
}

impl Fields<'_> {
    fn wrong(&self, problem: String) -> FormatError {
        FormatError::AdapterConfig { path: self.path.to_owned(), problem }
    }

    /// A field that is on.
    fn value(&self, key: &str) -> Option<&Value> {
        self.fields.get(key).filter(|value| !is_off(value))
    }

    fn flag(&self, key: &str) -> Result<bool> {
        match self.value(key) {
            None => Ok(false),
            Some(Value::Bool(on)) => Ok(*on),
            Some(other) => {
                Err(self.wrong(format!("`{key}` is {}, not true or false", shortened(other))))
            }
        }
    }

    fn rank(&self, key: &str, value: &Value) -> Result<usize> {
        let rank = value.as_u64().and_then(|rank| usize::try_from(rank).ok());
        rank.filter(|rank| (1..=RANK_MAX).contains(rank)).ok_or_else(|| {
            self.wrong(format!("`{key}` is {}, allowed is 1 to {RANK_MAX}", shortened(value)))
        })
    }

    fn alpha(&self, key: &str, value: &Value) -> Result<f64> {
        let most = SCALE_MAX * RANK_MAX as f64;
        value.as_f64().filter(|alpha| alpha.abs() <= most).ok_or_else(|| {
            let value = shortened(value);
            self.wrong(format!(
                "`{key}` is {value}, allowed is a number up to {most}: the adapter is damaged"
            ))
        })
    }

    /// A table from patterns to numbers, in the order of the file.
    fn table<T>(
        &self,
        key: &str,
        read: impl Fn(&Self, &str, &Value) -> Result<T>,
    ) -> Result<Vec<(Pattern, T)>> {
        let Some(value) = self.value(key) else { return Ok(Vec::new()) };
        let entries = value.as_object().filter(|entries| entries.len() <= ENTRIES_MAX);
        let entries = entries.ok_or_else(|| {
            self.wrong(format!("`{key}` is not a table of at most {ENTRIES_MAX} entries"))
        })?;
        let entry = |(pattern, value): (&String, &Value)| {
            let compiled = Pattern::of_ending(pattern).ok_or_else(|| {
                let pattern = shortened(&Value::String(pattern.clone()));
                self.wrong(format!(
                    "`{key}` has the pattern {pattern}, which cannot be read: write the names out"
                ))
            })?;
            Ok((compiled, read(self, key, value)?))
        };
        entries.iter().map(entry).collect()
    }

    /// The texts of a list; none where there is no list of them.
    fn texts(&self, key: &str) -> Vec<String> {
        let list = self.value(key).and_then(Value::as_array).filter(|l| l.len() <= ENTRIES_MAX);
        let texts = list.into_iter().flatten().filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    }

    fn targets(&self) -> Result<Targets> {
        match self.value("target_modules") {
            None => Ok(Targets::Any),
            Some(Value::String(all)) if all == "all-linear" => Ok(Targets::Any),
            // A pattern that only Python can read was applied by Python; the tensors are the result.
            Some(Value::String(pattern)) => {
                Ok(Pattern::of_path(pattern).map_or(Targets::Any, Targets::Path))
            }
            Some(list) => {
                let names = |list: &Vec<Value>| {
                    list.iter().map(|name| name.as_str().map(str::to_owned)).collect()
                };
                let endings: Option<Vec<String>> =
                    list.as_array().filter(|list| list.len() <= ENTRIES_MAX).and_then(names);
                endings.map(Targets::Endings).ok_or_else(|| {
                    self.wrong("`target_modules` is neither a list of names nor a pattern".into())
                })
            }
        }
    }

    /// Refuses other kinds of adapters and whatever would change the output and is not done here.
    fn refuse_foreign(&self) -> Result<()> {
        match self.fields.get("peft_type").and_then(Value::as_str) {
            None => {
                return Err(
                    self.wrong("has no `peft_type`: give the directory of a PEFT adapter".into())
                );
            }
            Some(kind) if !kind.eq_ignore_ascii_case("lora") => {
                let kind = shortened(&Value::String(kind.to_owned()));
                return Err(self.wrong(format!(
                    "`peft_type` is {kind} and only LORA is supported: merge the adapter into the model"
                )));
            }
            Some(_) => {}
        }
        for (key, advice) in REFUSED {
            if self.value(key).is_some() {
                return Err(self.wrong(format!("`{key}` is on and {advice}")));
            }
        }
        match self.fields.get("init_lora_weights") {
            None | Some(Value::Null | Value::Bool(_)) => {}
            Some(Value::String(name)) if HARMLESS_INITS.contains(&name.as_str()) => {}
            Some(other) => {
                return Err(self.wrong(format!(
                    "`init_lora_weights` is {}, which changes the model's own weights too: save the adapter converted to plain LoRA",
                    shortened(other)
                )));
            }
        }
        let known =
            |key: &str| INERT.contains(&key) || REFUSED.iter().any(|(name, _)| *name == key);
        let is_on = |value: &Value| !is_off(value) && !value.is_number();
        let unknown = self.fields.iter().find(|(key, value)| !known(key) && is_on(value));
        match unknown {
            None => Ok(()),
            Some((key, value)) => Err(self.wrong(format!(
                "`{}` is {} and this version does not know what that changes: update, or merge the adapter into the model",
                key.chars().take(40).collect::<String>(),
                shortened(value)
            ))),
        }
    }
}

/// Whether a field means nothing.
fn is_off(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(table) => table.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

/// A value as a message repeats it.
fn shortened(value: &Value) -> String {
    value.to_string().chars().take(60).collect()
}

/// The bytes of a small file.
pub(super) fn read_limited(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let io = |source| FormatError::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(io)?;
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > bytes_max {
        let problem = format!("is larger than {bytes_max} bytes: it is not the file of an adapter");
        return Err(FormatError::AdapterConfig { path: path.to_owned(), problem });
    }
    Ok(bytes)
}
