//! How a model is loaded and run.

use clap::Args;
use pagella::{Devices, Engine, EngineBuilder, KvFormat, Math, RopeOverride};
use pagella_cpu::Isa;
use pagella_server::settings::ModelSettings;
use pagella_server::whole_pages;

use super::{SplitFlags, token_count};
use crate::usage::Usage;

/// How a model is loaded and run.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Model")]
pub struct ModelFlags {
    /// Where to run: auto, cpu, cuda or cuda:N; or several CPU devices with the memory that each may
    /// take, such as cpu:8GiB,cpu:4GiB
    #[arg(
        long,
        visible_alias = "devices",
        value_name = "DEVICE",
        default_value = "auto",
        env = "PAGELLA_DEVICE"
    )]
    pub device: Devices,
    #[command(flatten)]
    split: SplitFlags,
    /// Threads on the CPU, at most one per CPU [default: one per physical core]
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
    /// Tokens in the cache, which all prompts share, a multiple of 256 [default: 8192, or --length if
    /// that is more]
    #[arg(long, value_name = "N", value_parser = cache_count)]
    pub cache_tokens: Option<usize>,
    /// Longest sequence in tokens [default: the model's own]
    #[arg(short, long, value_name = "N", value_parser = token_count)]
    pub length: Option<usize>,
    /// Most prompt tokens computed at once; more need more memory [default: 512, on CUDA 2048]
    #[arg(long, value_name = "N", value_parser = step_count)]
    pub step_tokens: Option<usize>,
    /// Most weights that CUDA unpacks at once for long prompts, in Mi; fewer need less memory
    /// [default: 512]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub max_dq_size: Option<u32>,
    /// Prefer little memory to speed: shorter steps, on CUDA also fewer weights unpacked at once and
    /// the embedding in host memory
    #[arg(long)]
    pub low_memory: bool,
    /// Load an unknown architecture as Llama instead of refusing it
    #[arg(long)]
    pub assume_llama: bool,
    /// Load files with tensors that no part of the model takes instead of refusing them
    #[arg(long)]
    pub ignore_unused_tensors: bool,
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

    /// With what the configuration says where the command line says nothing.
    pub fn or(mut self, settings: &ModelSettings) -> anyhow::Result<Self> {
        let mode = match settings.cache_mode.to_lowercase().as_str() {
            "f8" => "fp8".to_owned(),
            other => other.to_owned(),
        };
        let format =
            kv_format(&mode).map_err(|problem| Usage::error(format!("cache_mode: {problem}")))?;
        self.cache = self.cache.or(Some(format));
        let (shares, reserve) = (&settings.gpu_split.0, &settings.autosplit_reserve.0);
        if !settings.gpu_split_auto && shares.iter().all(|share| *share == 0.0) {
            let sentence =
                "gpu_split_auto: without it, gpu_split says what each device takes: state it";
            return Err(Usage::error(sentence));
        }
        // 96 MB is what files say that do not care.
        let reserve = if reserve[..] == [96.0] { &[][..] } else { reserve };
        let split = self.split.or(shares, reserve, settings.tensor_parallel);
        self.split = split.map_err(|problem| Usage::error(format!("gpu_split: {problem}")))?;
        self.cache_tokens = self.cache_tokens.or(settings.cache_size);
        self.length = self.length.or(settings.max_seq_len);
        self.step_tokens = self.step_tokens.or(settings.chunk_size.map(|tokens| tokens.min(8192)));
        if self.rope_scale.or(self.rope_alpha).or(self.rope_yarn).is_none() {
            self.rope_alpha = settings.rope_alpha;
            let scales = settings.rope_scale != 1.0 && settings.rope_alpha.is_none();
            self.rope_scale = scales.then_some(settings.rope_scale);
        }
        Ok(self)
    }

    /// Those choices that concern the machine, not one model.
    pub fn of_the_machine(&self) -> Self {
        let (rope_scale, rope_alpha, rope_yarn) = (None, None, None);
        let (cache, cache_tokens, length) = (None, None, None);
        let own = ModelFlags { ignore_unused_tensors: false, ..self.clone() };
        ModelFlags { cache, cache_tokens, length, rope_scale, rope_alpha, rope_yarn, ..own }
    }

    /// A builder with these choices; `math` is the command's default.
    pub fn builder(&self, model: &str, math: Math) -> EngineBuilder {
        let mut builder = Engine::builder(model)
            .device(self.device.clone())
            .default_math(math)
            .cache(self.cache_or(KvFormat::F16));
        builder = self.split.apply(builder);
        if let Some(math) = self.math {
            builder = builder.math(math);
        }
        if let Some(tokens) = self.step_tokens {
            builder = builder.step_tokens(tokens);
        }
        if let Some(mega) = self.max_dq_size {
            builder = builder.dequantised_max((mega as usize) << 20);
        }
        if let Some(threads) = self.threads {
            builder = builder.threads(usize::from(threads));
        }
        if self.low_memory {
            builder = builder.low_memory();
        }
        if self.assume_llama {
            builder = builder.assume_llama();
        }
        if self.ignore_unused_tensors {
            builder = builder.ignore_unused_tensors();
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

fn isa(text: &str) -> Result<Isa, String> {
    let known: Vec<_> = Isa::available().into_iter().map(Isa::name).collect();
    Isa::by_name(text).ok_or_else(|| format!("this machine has {}", known.join(", ")))
}

pub fn kv_format(text: &str) -> Result<KvFormat, String> {
    let names = KvFormat::ALL.map(KvFormat::name).join(", ");
    KvFormat::from_name(text).ok_or_else(|| format!("choose one of {names}"))
}

fn cache_count(text: &str) -> Result<usize, String> {
    whole_pages(token_count(text)?).map_err(|problem| format!("give {problem}"))
}

fn step_count(text: &str) -> Result<usize, String> {
    match text.parse::<u32>() {
        Ok(tokens) if (1..=8192).contains(&tokens) => Ok(tokens as usize),
        _ => Err("give a number of tokens from 1 to 8192".to_owned()),
    }
}
