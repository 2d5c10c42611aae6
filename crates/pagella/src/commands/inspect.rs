//! `pagella inspect`: what a model is and what it needs, from its configuration and headers only.

mod stored;
mod text;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use pagella::{EngineBuilder, KvFormat, Math, MemoryNeed, Place, Placement};
use pagella_arch::{Extra, MlpSpec, ModelSpec, MoeSpec};
use pagella_cuda::probe::Probe;
use pagella_model::{BoundAdapter, LinearFacts, Survey, UnusedTensors};
use serde_json::{Value, json};

use crate::flags::{AdapterFlags, ModelFlags, OutputFlags};
use crate::machine::available_bytes;
use crate::output::{self, Table};
use text::TextFacts;

/// Names of tensors that are shown of those that nothing takes.
const UNUSED_LISTED_MAX: usize = 5;

/// What a run adds to a process with a tokenizer besides the model: stacks, sampler, text. Measured.
const RUN_BYTES: u64 = 3 << 20;

/// Show what a model is and what it needs
///
/// Reads the configuration and the headers of the weights, no weights. The table shows the largest
/// memory of a run by context and kind of cache: of the process, or of the GPU if the model would run
/// there.
#[derive(Args)]
pub struct InspectArgs {
    /// Model: a directory, a hub id in the local cache, or demo
    #[arg(env = "PAGELLA_MODEL")]
    model: String,
    /// Count a draft model, too: a directory, a hub id in the local cache, or demo-draft
    #[arg(long, value_name = "MODEL")]
    draft: Option<String>,
    #[command(flatten)]
    adapters: AdapterFlags,
    #[command(flatten)]
    model_flags: ModelFlags,
    #[command(flatten)]
    output: OutputFlags,
}

/// Everything there is to say.
struct Findings {
    spec: ModelSpec,
    place: Place,
    need: MemoryNeed,
    /// Of the draft model, whose cache is as long and of the same kind.
    draft: Option<MemoryNeed>,
    /// Directories of adapters, with the bytes of their values.
    adapters: Vec<(PathBuf, u64)>,
    /// Tokens the cache would have with the given flags.
    cache_tokens: usize,
    cache: KvFormat,
    available_bytes: Option<u64>,
    text: TextFacts,
    files_bytes: u64,
    /// How the model would be cut over its devices, or why it cannot be.
    placement: Option<Result<Placement, String>>,
    /// Tensors that no part of the model takes.
    unused: Vec<UnusedTensors>,
    /// Every linear, as stored.
    linears: Vec<LinearFacts>,
}

/// Runs the command.
pub fn run(args: &InspectArgs) -> Result<()> {
    if args.output.json {
        return output::print_json(&json(args)?);
    }
    let (findings, dir) = look(args)?;
    Ok(output::report(&findings.text(&dir))?)
}

/// Everything there is to say, for programs.
pub fn json(args: &InspectArgs) -> Result<Value> {
    let (findings, dir) = look(args)?;
    Ok(findings.json(&dir))
}

fn look(args: &InspectArgs) -> Result<(Findings, PathBuf)> {
    let builder = args.model_flags.builder(&args.model, Math::Wide);
    let place = builder.place()?;
    let dir = builder.dir()?;
    let mut spec = spec(&builder, &dir)?;
    let text = TextFacts::of(&dir);
    let mut need = builder.predict_memory(&dir, &spec, place)?;
    if let (MemoryNeed::Cpu(need), Some(bytes)) = (&mut need, text.memory_bytes) {
        need.baseline_bytes = need.baseline_bytes.max(bytes + RUN_BYTES);
    }
    let survey = Survey::of(&dir, &spec).map_err(pagella::Error::from)?;
    spec.warnings.extend(survey.warnings);
    let findings = Findings {
        unused: survey.unused,
        linears: survey.linears,
        cache_tokens: builder.cache_tokens_for(&spec),
        cache: args.model_flags.cache_or(KvFormat::F16),
        draft: draft_need(args, &builder, place)?,
        placement: placement(args, &builder)?,
        adapters: adapters(args, &spec)?,
        spec,
        place,
        need,
        available_bytes: match place {
            Place::Cpu => available_bytes(),
            Place::Cuda(index) => free_bytes(index),
        },
        text,
        files_bytes: weight_file_bytes(&dir),
    };
    Ok((findings, dir))
}

/// The plan for the devices, if there is one. That there is no room is a finding.
fn placement(
    args: &InspectArgs,
    builder: &EngineBuilder,
) -> Result<Option<Result<Placement, String>>> {
    let mut builder = args.adapters.apply(builder.clone());
    if let Some(draft) = &args.draft {
        builder = builder.draft(draft);
    }
    match builder.placement() {
        Err(error @ pagella::Error::NoRoom { .. }) => Ok(Some(Err(error.to_string()))),
        placed => Ok(placed?.map(Ok)),
    }
}

/// What the draft model will need.
fn draft_need(
    args: &InspectArgs,
    builder: &EngineBuilder,
    place: Place,
) -> Result<Option<MemoryNeed>> {
    let Some(model) = &args.draft else { return Ok(None) };
    // How long its cache is does not change what a token takes.
    let Some(own) = builder.clone().draft(model).draft_builder(0) else { return Ok(None) };
    let dir = own.dir()?;
    Ok(Some(own.predict_memory(&dir, &own.spec(&dir)?, place)?))
}

/// The adapters, which must fit the model.
fn adapters(args: &InspectArgs, spec: &ModelSpec) -> Result<Vec<(PathBuf, u64)>> {
    let bytes = |(dir, _): &(PathBuf, f32)| {
        let bound = BoundAdapter::open(dir, spec).map_err(pagella::Error::from)?;
        Ok((dir.clone(), bound.bytes()))
    };
    args.adapters.all().iter().map(bytes).collect()
}

/// The model as data. A `generation_config.json` that cannot be read is a finding of its own.
fn spec(builder: &EngineBuilder, dir: &Path) -> Result<ModelSpec> {
    let generation = dir.join("generation_config.json").display().to_string();
    match builder.spec(dir) {
        Err(pagella::Error::Arch(error)) if error.file().as_ref() == Some(&generation) => {
            Ok(builder.spec_of_config(dir)?)
        }
        spec => Ok(spec?),
    }
}

/// Free memory of a GPU.
fn free_bytes(index: usize) -> Option<u64> {
    let mut probe = Probe::look();
    probe.measure_free();
    probe.gpus().get(index)?.free_bytes
}

pub(super) fn weight_file_bytes(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let weights = entries.flatten().map(|entry| entry.path());
    let weights = weights.filter(|path| path.extension().is_some_and(|e| e == "safetensors"));
    weights.filter_map(|path| Some(std::fs::metadata(path).ok()?.len())).sum()
}

/// How many layers have experts, and what one of them is like.
fn experts(spec: &ModelSpec) -> Option<(usize, &MoeSpec)> {
    let mut layers = spec.layers.iter().filter_map(|layer| match &layer.mlp {
        MlpSpec::Moe(moe) => Some(&**moe),
        _ => None,
    });
    let first = layers.next()?;
    Some((1 + layers.count(), first))
}

/// A kind of unused tensors as a word for programs.
fn unused_json(unused: &UnusedTensors) -> Value {
    let (known, what) = match unused.kind {
        Extra::Known(what) => (true, what),
        Extra::Foreign => (true, "tensors of another model"),
        Extra::Own => (false, "tensors that the model should take"),
    };
    json!({ "what": what, "refused": !known, "tensors": unused.names, "bytes": unused.bytes })
}

fn unused_words(unused: &UnusedTensors) -> String {
    let (n, bytes) = (unused.names.len(), output::bytes(unused.bytes));
    match unused.kind {
        Extra::Known(what) => format!("{what}: {n} tensors, {bytes}"),
        Extra::Foreign => {
            format!("tensors of another model: {n}, {bytes} ({})", listed(&unused.names))
        }
        Extra::Own => format!(
            "{n} tensors that the model should take ({}): config.json is of another model or states \
             too few layers, and only --ignore-unused-tensors loads this one",
            listed(&unused.names)
        ),
    }
}

fn listed(names: &[String]) -> String {
    let some: Vec<&str> = names.iter().take(UNUSED_LISTED_MAX).map(String::as_str).collect();
    let more = if names.len() > some.len() { ", …" } else { "" };
    format!("{}{more}", some.join(", "))
}

impl Findings {
    /// Weights of layers, head and embedding.
    fn params(&self) -> u64 {
        let report = self.need.report();
        let embedding = (self.spec.vocab * self.spec.hidden) as u64;
        report.layers.params + report.head.params + embedding
    }

    /// Largest memory of a run with a cache of so many tokens, draft model and adapters included.
    fn peak_bytes(&self, cache: KvFormat, tokens: usize) -> u64 {
        let needs = std::iter::once(&self.need).chain(&self.draft);
        let models: u64 = needs.map(|need| need.peak_bytes(cache, tokens)).sum();
        models + self.adapters.iter().map(|(_, bytes)| bytes).sum::<u64>()
    }

    /// Kinds of cache that there are where the model runs.
    fn caches(&self) -> Vec<KvFormat> {
        let on_cpu = self.place == Place::Cpu;
        KvFormat::ALL.into_iter().filter(|format| on_cpu || *format != KvFormat::F32).collect()
    }

    /// Where the model would run.
    fn device(&self) -> String {
        match self.place {
            Place::Cpu => "cpu".to_owned(),
            Place::Cuda(index) => format!("cuda:{index}"),
        }
    }

    /// Contexts worth a row: powers of two up to the model's own.
    fn contexts(&self) -> Vec<usize> {
        let mut contexts: Vec<usize> =
            (0..).map(|i| 2048 << i).take_while(|&tokens| tokens < self.spec.context).collect();
        contexts.push(self.spec.context);
        contexts
    }

    /// Largest context, in whole pages and at most the model's own, that fits into the memory that
    /// is free now.
    fn fitting(&self, cache: KvFormat) -> Option<usize> {
        let free = self.available_bytes?;
        let fits = |tokens: usize| self.peak_bytes(cache, tokens) <= free;
        let (mut low, mut high) = (0, self.spec.context);
        if fits(high) {
            return Some(high);
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle) { low = middle } else { high = middle }
        }
        Some(low / pagella_backend::PAGE_TOKENS * pagella_backend::PAGE_TOKENS)
    }

    fn json(&self, dir: &Path) -> Value {
        let (spec, report) = (&self.spec, self.need.report());
        let kinds: Vec<Value> = report
            .kinds
            .iter()
            .map(|kind| {
                json!({
                    "kind": kind.kind.name(),
                    "linears": kind.count,
                    "bits_per_weight": kind.share.bits_per_weight(),
                })
            })
            .collect();
        let memory: Vec<Value> = self.contexts().into_iter().map(|c| self.memory_row(c)).collect();
        let fits: serde_json::Map<String, Value> =
            self.caches().iter().map(|&f| (f.name().to_owned(), json!(self.fitting(f)))).collect();
        json!({
            "dir": dir,
            "family": spec.family,
            "architecture": spec.architecture,
            "layers": spec.layers.len(),
            "hidden": spec.hidden,
            "vocab": spec.vocab,
            "context": spec.context,
            "params": self.params(),
            "experts": experts(spec).map(|(layers, moe)| json!({
                "layers": layers,
                "per_layer": moe.experts.len(),
                "per_token": moe.experts_per_token,
                "inner": moe.inner(),
            })),
            "formats": kinds,
            "widths": stored::widths(&self.linears).into_iter().map(|(bits, share)| json!({
                "bits": bits,
                "share": share,
            })).collect::<Vec<_>>(),
            "linears": self.linears.iter().map(stored::json).collect::<Vec<_>>(),
            "bits_per_weight": report.layers.bits_per_weight(),
            "head_bits_per_weight": report.head.bits_per_weight(),
            "files_bytes": self.files_bytes,
            "device": self.device(),
            "weights_bytes": report.weights_bytes,
            "embedding_bytes": report.mapped_bytes,
            "scratch_bytes": report.scratch_bytes,
            "kv_bytes_per_token": self.need.kv_bytes_per_token(self.cache),
            "chat_template": self.text.template,
            "chat_template_problem": self.text.template_problem,
            "generation_config_problem": self.text.generation_problem,
            "unused": self.unused.iter().map(unused_json).collect::<Vec<_>>(),
            "notes": spec.notes,
            "warnings": spec.warnings,
            "draft": self.draft.as_ref().map(|need| json!({
                "weights_bytes": need.report().weights_bytes,
                "kv_bytes_per_token": need.kv_bytes_per_token(self.cache),
            })),
            "adapters": self.adapters_json(),
            "placement": self.placement_json(),
            "memory": memory,
            "available_bytes": self.available_bytes,
            "context_that_fits": fits,
            "predicted": {
                "cache": self.cache.name(),
                "cache_tokens": self.cache_tokens,
                "cache_bytes": self.need.kv_bytes(self.cache, self.cache_tokens),
                "peak_bytes": self.peak_bytes(self.cache, self.cache_tokens),
            },
        })
    }

    fn adapters_json(&self) -> Vec<Value> {
        self.adapters.iter().map(|(dir, bytes)| json!({ "dir": dir, "bytes": bytes })).collect()
    }

    fn placement_json(&self) -> Option<Value> {
        self.placement.as_ref().map(|placed| match placed {
            Ok(plan) => output::placement_json(plan),
            Err(problem) => json!({ "problem": problem }),
        })
    }

    fn memory_row(&self, context: usize) -> Value {
        let mut row = json!({ "context": context });
        for format in self.caches() {
            row[format.name()] = json!(self.peak_bytes(format, context));
        }
        row
    }

    fn text(&self, dir: &Path) -> String {
        let mut text = output::facts(&self.facts(dir));
        for warning in &self.spec.warnings {
            text.push_str(&format!("warning: {warning}\n"));
        }
        for note in &self.spec.notes {
            text.push_str(&format!("note: {note}\n"));
        }
        let header: Vec<&str> = std::iter::once("context")
            .chain(self.caches().iter().map(|format| format.name()))
            .collect();
        let mut table = Table::new(&header);
        for context in self.contexts() {
            let cells = self.caches().into_iter();
            let cells = cells.map(|f| output::bytes(self.peak_bytes(f, context)));
            table.row(std::iter::once(context.to_string()).chain(cells).collect());
        }
        if self.available_bytes.is_some() {
            let cells = self.caches().into_iter();
            let cells = cells.map(|f| self.fitting(f).unwrap_or(0).to_string());
            table.row(std::iter::once("fits here".to_owned()).chain(cells).collect());
        }
        let whose = match self.place {
            Place::Cpu => String::new(),
            Place::Cuda(_) => format!("{} ", self.device()),
        };
        text.push_str(&format!(
            "\n{whose}memory of a run, by context in tokens and kind of cache:\n"
        ));
        text.push_str(&table.render());
        match &self.placement {
            None => {}
            Some(Ok(plan)) => text.push_str(&format!("\n{}", output::placement(plan))),
            Some(Err(problem)) => text.push_str(&format!("\nno placement: {problem}\n")),
        }
        text
    }

    fn facts(&self, dir: &Path) -> Vec<(&'static str, String)> {
        let (spec, report) = (&self.spec, self.need.report());
        let kinds: Vec<String> = report
            .kinds
            .iter()
            .map(|k| {
                let bits = k.share.bits_per_weight();
                format!("{} ({} linears, {bits:.2} bits)", k.kind.name(), k.count)
            })
            .collect();
        let mut facts = vec![
            ("model", dir.display().to_string()),
            ("family", format!("{} ({})", spec.family, spec.architecture)),
            ("weights", kinds.join(", ")),
            ("widths", stored::words(&self.linears)),
            (
                "bits per weight",
                format!(
                    "{:.2} in the layers, {:.2} in the head",
                    report.layers.bits_per_weight(),
                    report.head.bits_per_weight()
                ),
            ),
            ("parameters", format!("{:.1} million", self.params() as f64 / 1e6)),
            ("layers", format!("{}, {} wide", spec.layers.len(), spec.hidden)),
            ("vocabulary", format!("{}; tokenizer: {}", spec.vocab, self.text.tokenizer)),
            ("chat template", self.text.template_words()),
            ("context", format!("{} tokens", spec.context)),
        ];
        if let Some((layers, moe)) = experts(spec) {
            let (n, inner, taken) = (moe.experts.len(), moe.inner(), moe.experts_per_token);
            let text =
                format!("{n} in each of {layers} layers, {inner} wide; a token takes {taken}");
            facts.insert(6, ("experts", text));
        }
        if let Some(layer) = spec.layers.first() {
            let attn = &layer.attn;
            let heads = match &attn.latent {
                Some(latent) => format!(
                    "{} over one latent entry of {} + {} elements",
                    attn.heads,
                    latent.rank,
                    attn.head_dim - latent.rank
                ),
                None => format!(
                    "{} over {} key/value heads, {} wide",
                    attn.heads, attn.kv_heads, attn.head_dim
                ),
            };
            facts.insert(6, ("heads", heads));
        }
        facts.extend(self.text.generation_problem.iter().map(|p| ("settings", p.clone())));
        facts.extend(self.unused.iter().map(|unused| ("not used", unused_words(unused))));
        facts.extend(self.memory_facts());
        facts
    }

    /// What the model takes on disk and in memory.
    fn memory_facts(&self) -> Vec<(&'static str, String)> {
        let report = self.need.report();
        let mut facts = vec![
            ("weight files", output::bytes(self.files_bytes)),
            ("in memory", output::bytes(report.weights_bytes)),
        ];
        facts.extend(self.draft.iter().map(|need| {
            let weights = output::bytes(need.report().weights_bytes);
            let token = output::bytes(need.kv_bytes_per_token(self.cache));
            ("draft model", format!("{weights}, {token} of cache per token"))
        }));
        facts.extend(self.adapters.iter().map(|(dir, bytes)| {
            ("adapter", format!("{}: {}", dir.display(), output::bytes(*bytes)))
        }));
        if let MemoryNeed::Cuda(need) = &self.need {
            let tables = match need.tables_bytes() {
                0 => format!("{} on the host", output::bytes(report.mapped_bytes)),
                bytes => output::bytes(bytes),
            };
            let scratch = report.scratch_bytes + need.scratch_bytes(self.cache_tokens);
            facts.extend([("embedding", tables), ("scratch", output::bytes(scratch))]);
        }
        let peak = output::bytes(self.peak_bytes(self.cache, self.cache_tokens));
        let (cache, tokens) = (self.cache.name(), self.cache_tokens);
        facts.extend([
            ("cache per token", output::bytes(self.need.kv_bytes_per_token(self.cache))),
            ("with these flags", format!("{peak} ({cache} cache of {tokens} tokens)")),
        ]);
        if let Some(free) = self.available_bytes {
            facts.push(("free memory", output::bytes(free)));
        }
        facts
    }
}
