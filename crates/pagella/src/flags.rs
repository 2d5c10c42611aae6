//! Every flag that more than one command has, once.

use anyhow::Result;
use clap::Args;
use pagella::{
    Complete, Device, Engine, EngineBuilder, KvFormat, Math, RopeOverride, SampleOptions,
};

use pagella_cpu::Isa;

use crate::usage::Usage;

/// How a model is loaded and run.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Model")]
pub struct ModelFlags {
    /// Where to run: auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "auto", env = "PAGELLA_DEVICE")]
    pub device: Device,
    /// Threads on the CPU [default: one per physical core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), env = "PAGELLA_THREADS")]
    pub threads: Option<u16>,
    /// Vector code on the CPU: portable, avx2, avx512 or neon [default: the best there is]
    #[arg(long, value_name = "NAME", value_parser = isa, env = "PAGELLA_CPU_ISA")]
    pub isa: Option<Isa>,
    /// Arithmetic: exact, or wide (16-bit activations, faster)
    #[arg(long, value_name = "MODE", env = "PAGELLA_MATH")]
    pub math: Option<Math>,
    /// How keys and values are stored: fp32, fp16, q8, fp8, q6 or q4 [default: fp16]
    #[arg(long, value_name = "FORMAT", value_parser = kv_format, env = "PAGELLA_CACHE")]
    cache: Option<KvFormat>,
    /// Tokens in the cache [default: the context, at most 8192]
    #[arg(long, value_name = "N", value_parser = token_count)]
    pub cache_tokens: Option<usize>,
    /// Longest sequence in tokens [default: the model's own]
    #[arg(short, long, value_name = "N", value_parser = token_count)]
    pub length: Option<usize>,
    /// Most prompt tokens computed at once; more need more memory
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = step_count)]
    pub step_tokens: usize,
    /// Load an unknown architecture as Llama instead of refusing it
    #[arg(long)]
    pub assume_llama: bool,
    /// Divide positions by this factor (linear scaling)
    #[arg(long, value_name = "F", group = "rope")]
    pub rope_scale: Option<f32>,
    /// Raise the rotary base by this alpha (NTK scaling)
    #[arg(long, value_name = "A", group = "rope")]
    pub rope_alpha: Option<f32>,
    /// Scale positions by this factor with YaRN
    #[arg(long, value_name = "F", group = "rope")]
    pub rope_yarn: Option<f32>,
}

impl ModelFlags {
    /// The cache that was asked for, or the command's default.
    pub fn cache_or(&self, default: KvFormat) -> KvFormat {
        self.cache.unwrap_or(default)
    }

    /// A builder with these choices; `math` is the command's default.
    pub fn builder(&self, model: &str, math: Math) -> EngineBuilder {
        let mut builder = Engine::builder(model)
            .device(self.device)
            .math(self.math.unwrap_or(math))
            .cache(self.cache_or(KvFormat::F16))
            .step_tokens(self.step_tokens);
        if let Some(threads) = self.threads {
            builder = builder.threads(usize::from(threads));
        }
        if self.assume_llama {
            builder = builder.assume_llama();
        }
        if let Some(isa) = self.isa {
            builder = builder.isa(isa);
        }
        if let Some(tokens) = self.cache_tokens {
            builder = builder.cache_tokens(tokens);
        }
        if let Some(tokens) = self.length {
            builder = builder.context(tokens);
        }
        let rope = self.rope_scale.map(RopeOverride::Linear);
        let rope = rope.or(self.rope_alpha.map(RopeOverride::NtkAlpha));
        match rope.or(self.rope_yarn.map(RopeOverride::Yarn)) {
            Some(rope) => builder.rope(rope),
            None => builder,
        }
    }
}

/// How text is chosen. What is not given comes from the model's `generation_config.json`.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingFlags {
    /// Always take the most likely token
    #[arg(long, conflicts_with_all = ["temperature", "top_k", "top_p", "min_p"])]
    pub greedy: bool,
    /// Same seed, prompt and settings: same text [default: random]
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// Higher is more surprising, 0 is greedy
    #[arg(long, value_name = "T", visible_alias = "temp")]
    pub temperature: Option<f32>,
    /// Keep the K most likely tokens; 0 is off
    #[arg(long, value_name = "K")]
    pub top_k: Option<usize>,
    /// Keep the most likely tokens that together have probability P; 0 or 1 is off
    #[arg(long, value_name = "P")]
    pub top_p: Option<f32>,
    /// Keep tokens with at least this share of the highest probability; 0 is off
    #[arg(long, value_name = "P")]
    pub min_p: Option<f32>,
    /// Lower tokens that occurred before; 1 is off
    #[arg(long, value_name = "R")]
    pub repetition_penalty: Option<f32>,
    /// Lower tokens for every time they occurred; 0 is off
    #[arg(long, value_name = "F", allow_negative_numbers = true)]
    pub frequency_penalty: Option<f32>,
    /// Lower tokens that occurred at all; 0 is off
    #[arg(long, value_name = "F", allow_negative_numbers = true)]
    pub presence_penalty: Option<f32>,
    /// How many of the newest tokens the penalties look at [default: all]
    #[arg(long, value_name = "N")]
    pub penalty_range: Option<usize>,
    /// Most tokens to write [default: 512 for run, 1024 for chat]
    #[arg(long, value_name = "N", visible_alias = "max-tokens", value_parser = token_count)]
    pub max_new_tokens: Option<usize>,
    /// The model may not end its text before this many tokens
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub min_new_tokens: usize,
    /// End the text where this string would begin; can be repeated
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
}

impl SamplingFlags {
    /// The model's recommendation with the given flags on top.
    pub fn options(&self, recommended: &SampleOptions) -> Result<SampleOptions> {
        let mut options = recommended.clone();
        if self.greedy {
            options.temperature = 0.0;
        }
        let set = |target: &mut f32, given: Option<f32>| *target = given.unwrap_or(*target);
        set(&mut options.temperature, self.temperature);
        set(&mut options.top_p, self.top_p);
        set(&mut options.min_p, self.min_p);
        set(&mut options.repetition_penalty, self.repetition_penalty);
        set(&mut options.frequency_penalty, self.frequency_penalty);
        set(&mut options.presence_penalty, self.presence_penalty);
        options.top_k = self.top_k.unwrap_or(options.top_k);
        options.penalty_range = self.penalty_range.or(options.penalty_range);
        options.validate().map_err(|error| Usage::error(error.to_string()))?;
        Ok(options)
    }

    /// A prompt with these settings.
    pub fn apply(&self, complete: Complete, recommended: &SampleOptions) -> Result<Complete> {
        let mut complete =
            complete.sampling(self.options(recommended)?).min_tokens(self.min_new_tokens);
        if let Some(seed) = self.seed {
            complete = complete.seed(seed);
        }
        for stop in &self.stop {
            if stop.is_empty() {
                return Err(Usage::error("--stop needs a text that is not empty"));
            }
            complete = complete.stop(stop.clone());
        }
        Ok(complete)
    }
}

/// How results are printed.
#[derive(Args, Clone, Copy, Debug)]
pub struct OutputFlags {
    /// Print JSON for programs
    #[arg(long)]
    pub json: bool,
}

fn isa(text: &str) -> Result<Isa, String> {
    let known: Vec<_> = Isa::available().into_iter().map(Isa::name).collect();
    Isa::by_name(text).ok_or_else(|| format!("this machine has {}", known.join(", ")))
}

fn kv_format(text: &str) -> Result<KvFormat, String> {
    let names = KvFormat::ALL.map(KvFormat::name).join(", ");
    KvFormat::from_name(text).ok_or_else(|| format!("choose one of {names}"))
}

/// A number of tokens: at least one, at most what positions can count.
fn token_count(text: &str) -> Result<usize, String> {
    match text.parse::<u32>() {
        Ok(tokens) if tokens > 0 => Ok(tokens as usize),
        _ => Err("give a number of tokens, at least 1".to_owned()),
    }
}

fn step_count(text: &str) -> Result<usize, String> {
    match text.parse::<u32>() {
        Ok(tokens) if (1..=8192).contains(&tokens) => Ok(tokens as usize),
        _ => Err("give a number of tokens from 1 to 8192".to_owned()),
    }
}
