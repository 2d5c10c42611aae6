//! `pagella doctor`: what this machine offers, and what is in the way.

mod cuda;

use anyhow::Result;
use clap::Args;
use pagella::hub::HubCache;
use pagella::{DEMO, resolve_model};
use pagella_cpu::Isa;
use pagella_cuda::probe::Probe;
use serde_json::json;

use crate::bandwidth::Bandwidth;
use crate::flags::OutputFlags;
use crate::machine::Machine;
use crate::output;

/// Passes of the quick measurement of memory speed.
const PASSES: usize = 3;

/// Show what this machine offers and what is in the way
#[derive(Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    output: OutputFlags,
}

/// Runs the command.
pub fn run(args: &DoctorArgs) -> Result<()> {
    let machine = Machine::look();
    let isa = Isa::best().name();
    let bandwidth = Bandwidth::new(&machine, machine.cores)?.measure(PASSES);
    let demo = resolve_model(DEMO).ok();
    let cache = HubCache::from_env().ok();
    let models = cache.as_ref().map(HubCache::models).unwrap_or_default();
    let models = models.into_iter().filter(|model| model.dir.join("config.json").is_file());
    let models: Vec<String> = models.map(|model| model.name).collect();
    let advice = advice(&machine, isa);
    let mut probe = Probe::look();
    probe.measure_free();
    if args.output.json {
        return output::print_json(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "machine": machine.json(),
            "isa": isa,
            "threads": machine.cores,
            "bandwidth_gb_s": bandwidth / 1e9,
            "cuda": cuda::json(&probe),
            "demo": demo,
            "hub_cache": cache.as_ref().map(HubCache::root),
            "hub_models": models,
            "advice": advice,
        }));
    }
    let optional = |bytes: Option<u64>| bytes.map_or("unknown".to_owned(), output::bytes);
    let unknown = || "unknown".to_owned();
    let memory =
        format!("{}, {} free", optional(machine.memory_bytes), optional(machine.available_bytes));
    let mut facts = vec![
        ("pagella", env!("CARGO_PKG_VERSION").to_owned()),
        ("processor", machine.cpu.clone().unwrap_or_else(unknown)),
        ("features", machine.features.join(" ")),
        ("vector code", isa.to_owned()),
        ("threads", format!("{} ({} usable CPUs)", machine.cores, machine.parallelism)),
        ("memory", memory),
        ("memory speed", format!("{:.1} GB/s reading", bandwidth / 1e9)),
        ("huge pages", machine.huge_pages.clone().unwrap_or_else(unknown)),
    ];
    let about_cuda = cuda::facts(&probe, machine.nvidia_driver.as_deref());
    facts.extend(about_cuda.iter().map(|(label, value)| (label.as_str(), value.clone())));
    facts
        .push(("demo model", demo.map_or("not found".to_owned(), |dir| dir.display().to_string())));
    let hub = |cache: HubCache| format!("{} ({} models)", cache.root().display(), models.len());
    facts.push(("hub cache", cache.map_or_else(unknown, hub)));
    let mut text = output::facts(&facts);
    for line in &advice {
        text.push_str(&format!("advice: {line}\n"));
    }
    Ok(output::report(&text)?)
}

/// What could be better, each with what to do.
fn advice(machine: &Machine, isa: &str) -> Vec<String> {
    let mut advice = Vec::new();
    if machine.huge_pages.as_deref() == Some("never") {
        advice.push(
            "huge pages are off, which slows down reading weights: as root, write madvise to \
             /sys/kernel/mm/transparent_hugepage/enabled"
                .to_owned(),
        );
    }
    if isa == "portable" {
        advice.push("no known vector instructions were found, expect it to be slow".to_owned());
    }
    if machine.available_bytes.is_some_and(|free| free < 1 << 30) {
        advice.push("less than 1 GiB of memory is free: close other programs".to_owned());
    }
    advice
}
