//! What `bench` says at the end.

use anyhow::Result;
use pagella::{Math, Place};
use pagella_cpu::Isa;
use serde_json::{Value, json};

use super::sweep::Swept;
use super::{BenchArgs, Run};
use crate::output;

/// Prints everything, for people or for programs.
pub fn print(args: &BenchArgs, run: &Run) -> Result<()> {
    if args.output.json {
        return output::print_json(&for_programs(args, run));
    }
    Ok(output::report(&output::facts(&lines(args, run)))?)
}

fn model(args: &BenchArgs) -> &str {
    args.model.as_deref().or(args.synthetic.as_deref()).unwrap_or_default()
}

/// Bytes per second of weights while writing.
fn rate(run: &Run) -> f64 {
    run.facts.memory.token_bytes as f64 * run.measured.decode.best
}

fn for_programs(args: &BenchArgs, run: &Run) -> Value {
    let Run { facts, measured, bandwidth, .. } = run;
    let on_cpu = run.place == Place::Cpu;
    let math = on_cpu.then(|| args.model_flags.math.unwrap_or(Math::Wide).name());
    json!({
        "model": model(args),
        "bits_per_weight": facts.memory.layers.bits_per_weight(),
        "device": facts.device,
        "isa": on_cpu.then(|| Isa::best().name()),
        "threads": on_cpu.then_some(run.threads),
        "math": math,
        "cache": facts.cache.name(),
        "bandwidth_gb_s": bandwidth / 1e9,
        "prompt_tokens": args.prompt_tokens,
        "prefill_tokens_per_s": measured.prefill.json(),
        "new_tokens": args.new_tokens,
        "context": args.context,
        "decode_tokens_per_s": measured.decode.json(),
        "batch_decode_tokens_per_s": run.swept.iter().map(Swept::json).collect::<Vec<_>>(),
        "weight_bytes_per_token": facts.memory.token_bytes,
        "decode_gb_s": rate(run) / 1e9,
        "bandwidth_share": rate(run) / bandwidth,
        "load_seconds": run.load.seconds,
        "weights_load_seconds": run.load.weights_seconds,
        "weights_load_bytes": run.load.weights_bytes,
        "weights_load_gb_s": run.load.rate() / 1e9,
        "peak_memory_bytes": run.peak_bytes,
        "device_memory_bytes": run.device_bytes,
        "predicted_device_memory_bytes": facts.predicted_bytes,
    })
}

fn lines(args: &BenchArgs, run: &Run) -> Vec<(&'static str, String)> {
    let Run { facts, measured, bandwidth, .. } = run;
    let BenchArgs { prompt_tokens, new_tokens, context, .. } = args;
    let (prefill, decode) = (measured.prefill.text(), measured.decode.text());
    let on_cpu = run.place == Place::Cpu;
    let small = |cache: u64| facts.memory.weights_bytes < 2 * cache;
    let fits_cache = on_cpu && run.machine.last_cache_bytes.is_some_and(small);
    let readers = if on_cpu { format!(", {} threads", run.threads) } else { String::new() };
    let remark = if fits_cache { " (the weights fit into the processor's cache)" } else { "" };
    let (bits, reached) = (facts.memory.layers.bits_per_weight(), rate(run) / 1e9);
    let share = 100.0 * rate(run) / bandwidth;
    let mut lines = vec![
        ("model", format!("{}, {bits:.2} bits per weight", model(args))),
        ("device", facts.device.clone()),
        ("loaded in", run.load.text()),
        ("memory speed", format!("{:.1} GB/s reading{readers}", bandwidth / 1e9)),
        ("prompt", format!("{prefill}, {prompt_tokens} tokens")),
        ("writing", format!("{decode}, {new_tokens} tokens after {context}")),
        ("weights", format!("{} read per token", output::bytes(facts.memory.token_bytes))),
        ("reached", format!("{reached:.1} GB/s, {share:.0} % of the memory speed{remark}")),
        ("peak memory", run.peak_bytes.map_or("unknown".to_owned(), output::bytes)),
    ];
    if let Some(bytes) = run.device_bytes {
        let predicted = facts.predicted_bytes.map(output::bytes);
        let predicted = predicted.map_or(String::new(), |bytes| format!(", {bytes} predicted"));
        lines.push(("GPU memory", output::bytes(bytes) + &predicted));
    }
    lines.extend(run.swept.iter().map(|swept| ("batch", swept.text())));
    lines
}
