//! Shows that masks of constraints are computed beside the forward pass and not after it.
//!
//! `cargo run --release -p pagella-engine --example mask_trace [JOBS]`
//!
//! Lets the demo model write JSON under a schema and prints where the time of a step went: medians
//! and the worst step.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use pagella_arch::{SpecOptions, load_spec};
use pagella_backend::KvFormat;
use pagella_cpu::{CpuBackend, CpuOptions};
use pagella_engine::constraint::{ConstraintFactory, ConstraintLimits, ConstraintSpec};
use pagella_engine::{
    BoxedConstraint, Generator, GeneratorOptions, JobOptions, JobSpec, ModelWithCache,
    SampleOptions, StepTrace,
};
use pagella_model::{LoadOptions, LoadProgress, Model};
use pagella_text::Tokenizer;

/// A column of the table: a name and where it is in a step.
type Column = (&'static str, fn(&StepTrace) -> Duration);

const COLUMNS: [Column; 7] = [
    ("plan", |step| step.plan),
    ("launch of forward", |step| step.launch),
    ("wait for forward", |step| step.wait),
    ("mask (beside forward)", |step| step.mask),
    ("wait for masks", |step| step.mask_wait),
    ("sample and text", |step| step.sample),
    ("whole step", |step| step.total),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let jobs: u64 = std::env::args().nth(1).map_or(Ok(8), |text| text.parse())?;
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo");
    let mut generator = open(&dir)?;
    let tokenizer = Tokenizer::from_dir(&dir)?;
    let vocab = generator.forward().spec().vocab;
    let factory = ConstraintFactory::new(&tokenizer, vocab, ConstraintLimits::default())?;
    let schema = serde_json::json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "maxLength": 40 },
            "tags": { "type": "array", "items": { "type": "string", "maxLength": 12 }, "maxItems": 4 },
            "score": { "type": "number", "minimum": 0, "maximum": 1 },
        },
        "required": ["name", "tags", "score"],
    });
    let constraint = factory.compile(&ConstraintSpec::JsonSchema(schema))?;
    for seed in 0..jobs {
        let options = JobOptions {
            constraint: Some(BoxedConstraint(constraint.fork())),
            max_new_tokens: Some(200),
            stop_ids: tokenizer.eos_ids().to_vec(),
            sampling: SampleOptions { seed, ..SampleOptions::default() },
            ..JobOptions::default()
        };
        let prompt = tokenizer.encode_text("An example in JSON: ")?;
        generator.enqueue(JobSpec::new(prompt, options)?)?;
    }
    while generator.has_work() {
        for record in generator.step() {
            if let Some(done) = record.eos {
                println!("job {}: {} ({})", record.serial, done.text, done.eos_reason.name());
            }
        }
    }
    print(&generator);
    Ok(())
}

fn open(dir: &Path) -> Result<Generator, Box<dyn std::error::Error>> {
    let spec = load_spec(dir, &SpecOptions::default())?;
    let backend = CpuBackend::new(CpuOptions::default())?;
    let mut progress = |_: &LoadProgress<'_>| ControlFlow::Continue(());
    let model = Model::load(dir, spec, backend, &LoadOptions::default(), &mut progress)?;
    let forward = ModelWithCache::new(model, KvFormat::F16, 8192)?;
    let tokenizer = Tokenizer::from_dir(dir)?;
    Ok(Generator::new(Box::new(forward), tokenizer, GeneratorOptions::default())?)
}

fn print(generator: &Generator) {
    let steps: Vec<&StepTrace> = generator.trace().filter(|step| step.sampled > 0).collect();
    println!("\n{} steps that sampled, microseconds", steps.len());
    println!("{:24}{:>10}{:>10}", "", "median", "worst");
    for (name, of) in COLUMNS {
        let mut times: Vec<u128> = steps.iter().map(|step| of(step).as_micros()).collect();
        times.sort_unstable();
        let median = times.get(times.len() / 2).copied().unwrap_or(0);
        println!("{name:24}{median:>10}{:>10}", times.last().copied().unwrap_or(0));
    }
}
