//! Adapters on the demo model: every job gets the ids of its solo run on a fresh engine, whatever
//! adapters others have, come and go with.

use std::path::Path;

use pagella_arch::{ModelSpec, SpecOptions, load_spec};
use pagella_backend::KvFormat;
use pagella_engine::{
    Adapter, EngineError, Generator, GeneratorOptions, JobOptions, JobSpec, SampleOptions, Worker,
};
use pagella_formats::Dtype;
use pagella_formats::safetensors::write::{TensorData, write_scratch_file};
use pagella_model::BoundAdapter;

use crate::schemas::Rng;
use crate::support::{demo_dir, generator, run, tokenizer};

/// Prompts that share their first page and a half.
const STEM: &str = "The Array type represents an ordered list of values. Its map() method creates a \
new array populated with the results of calling a provided function on every element. ";

fn spec() -> ModelSpec {
    load_spec(&demo_dir(), &SpecOptions::default()).unwrap()
}

/// Writes an adapter for the demo model; other seeds have other values and ranks.
fn write_adapter(dir: &Path, seed: u64) {
    let rank = 4 + seed as usize % 5;
    let mut rng = Rng(seed);
    let mut tensors = Vec::new();
    for (label, linear) in spec().linear_specs() {
        if !label.ends_with("attn.q") && !label.ends_with("attn.v") && !label.ends_with("mlp.down")
        {
            continue;
        }
        for (half, shape) in [("A", [rank, linear.in_features]), ("B", [linear.out_features, rank])]
        {
            let scale = 1.5 / (shape[1] as f32).sqrt();
            let values = (0..shape[0] * shape[1])
                .flat_map(|_| (scale * (rng.below(2001) as f32 / 1000.0 - 1.0)).to_le_bytes());
            let name = format!("base_model.model.{}.lora_{half}.weight", linear.bases[0]);
            tensors.push((name, shape.to_vec(), values.collect::<Vec<u8>>()));
        }
    }
    let data = tensors.iter().map(|(name, shape, data)| TensorData {
        name: name.clone(),
        dtype: Dtype::F32,
        shape: shape.clone(),
        data,
    });
    write_scratch_file(&dir.join("adapter_model.safetensors"), &data.collect::<Vec<_>>()).unwrap();
    let config = format!(r#"{{"peft_type": "LORA", "r": {rank}, "lora_alpha": {rank}}}"#);
    std::fs::write(dir.join("adapter_config.json"), config).unwrap();
}

fn bound(seed: u64) -> BoundAdapter {
    let dir = tempfile::tempdir().unwrap();
    write_adapter(dir.path(), seed);
    BoundAdapter::open(dir.path(), &spec()).unwrap()
}

fn engine() -> Generator {
    generator(KvFormat::F16, 8192, 256, GeneratorOptions::default())
}

fn job(index: usize, adapters: Vec<(Adapter, f32)>) -> JobSpec {
    let text = format!("{}Number {index} says:", STEM.repeat(8));
    let ids = tokenizer().encode_text(&text).unwrap();
    let seed = index as u64;
    let sampling = SampleOptions { temperature: 0.8, seed, ..SampleOptions::greedy() };
    let options = JobOptions {
        max_new_tokens: Some(12),
        sampling,
        adapters: Some(adapters),
        ..JobOptions::default()
    };
    JobSpec::new(ids, options).unwrap()
}

/// The ids of a job on a fresh engine with these adapters, by seed.
fn solo(index: usize, adapters: &[(u64, f32)]) -> Vec<u32> {
    let mut engine = engine();
    let adapters = adapters.iter().map(|(seed, scale)| {
        let name = format!("{seed}");
        (engine.load_adapter(&name, &bound(*seed)).unwrap(), *scale)
    });
    let adapters = adapters.collect();
    let serial = engine.enqueue(job(index, adapters)).unwrap();
    run(&mut engine).remove(&serial).unwrap().token_ids
}

#[test]
fn two_adapters_that_alternate_by_job_give_what_each_gives_alone() {
    let mut engine = engine();
    let adapters =
        [1, 2].map(|seed| engine.load_adapter(&format!("{seed}"), &bound(seed)).unwrap());
    let expected = [solo(0, &[(1, 1.0)]), solo(0, &[(2, 1.0)])];
    assert_ne!(expected[0], expected[1]);
    for round in 0..4 {
        // The same prompt: its pages are in the cache, of the other adapter too.
        let serial = engine.enqueue(job(0, vec![(adapters[round % 2].clone(), 1.0)])).unwrap();
        let done = run(&mut engine).remove(&serial).unwrap();
        assert_eq!(done.token_ids, expected[round % 2], "round {round}");
        assert_eq!(done.cached_pages > 0, round >= 2, "only pages of the same adapter are taken");
    }
}

#[test]
fn a_batch_with_none_and_three_adapters_gives_each_job_its_solo_ids() {
    let mut engine = engine();
    let adapters: Vec<Adapter> =
        (1..4).map(|seed| engine.load_adapter(&format!("{seed}"), &bound(seed)).unwrap()).collect();
    let sets: [&[(u64, f32)]; 7] = [
        &[],
        &[(1, 1.0)],
        &[(2, 0.5)],
        &[(3, -1.0)],
        &[(1, 1.0), (2, 0.5)],
        &[(2, 0.5), (1, 1.0)],
        &[(1, 0.5)],
    ];
    let serials = sets.iter().enumerate().map(|(index, set)| {
        let adapters =
            set.iter().map(|(seed, scale)| (adapters[*seed as usize - 1].clone(), *scale));
        // Half of them share a prompt.
        engine.enqueue(job(index / 2, adapters.collect())).unwrap()
    });
    let serials: Vec<u64> = serials.collect();
    let mut done = run(&mut engine);
    for (index, (set, serial)) in sets.iter().zip(serials).enumerate() {
        assert_eq!(done.remove(&serial).unwrap().token_ids, solo(index / 2, set), "{set:?}");
    }
}

#[test]
fn after_all_adapters_are_gone_the_model_is_as_it_was() {
    let mut engine = engine();
    let expected = solo(0, &[]);
    let adapter = engine.load_adapter("a", &bound(1)).unwrap();
    let serial = engine.enqueue(job(0, vec![(adapter.clone(), 1.0)])).unwrap();
    assert_ne!(run(&mut engine).remove(&serial).unwrap().token_ids, expected);
    assert!(engine.unload_adapter("a").unwrap() && !engine.unload_adapter("a").unwrap());
    assert!(engine.adapter_bytes() > 0, "someone holds it");
    drop(adapter);
    let serial = engine.enqueue(job(0, Vec::new())).unwrap();
    assert_eq!(run(&mut engine).remove(&serial).unwrap().token_ids, expected);
    assert_eq!(engine.adapter_bytes(), 0);
}

#[test]
fn a_job_keeps_an_adapter_that_is_unloaded_and_its_slot_is_free_afterwards() {
    let mut engine = engine();
    let adapter = engine.load_adapter("a", &bound(1)).unwrap();
    let serial = engine.enqueue(job(3, vec![(adapter, 1.0)])).unwrap();
    engine.step();
    engine.unload_adapter("a").unwrap();
    // Another one under the same name, in another slot.
    let other = engine.load_adapter("a", &bound(2)).unwrap();
    let second = engine.enqueue(job(3, vec![(other, 1.0)])).unwrap();
    let mut done = run(&mut engine);
    assert_eq!(done.remove(&serial).unwrap().token_ids, solo(3, &[(1, 1.0)]));
    assert_eq!(done.remove(&second).unwrap().token_ids, solo(3, &[(2, 1.0)]));
    assert_eq!(engine.adapter_bytes(), bound(2).bytes());
}

#[test]
fn an_adapter_of_scale_zero_is_the_model_as_it_is() {
    let mut engine = engine();
    let adapter = engine.load_adapter("a", &bound(1)).unwrap();
    let serial = engine.enqueue(job(0, vec![(adapter, 0.0)])).unwrap();
    assert_eq!(run(&mut engine).remove(&serial).unwrap().token_ids, solo(0, &[]));
}

#[test]
fn what_a_job_cannot_have_is_refused_with_a_reason() {
    let (mut engine, mut other) = (engine(), engine());
    let adapter = engine.load_adapter("a", &bound(1)).unwrap();
    let foreign = other.load_adapter("b", &bound(1)).unwrap();
    for (adapters, words) in [
        (vec![(adapter.clone(), 1.0), (adapter.clone(), 0.5)], "named twice"),
        (vec![(adapter.clone(), f32::NAN)], "not a number"),
        (vec![(adapter.clone(), 1e30)], "not a number"),
        (vec![(foreign, 1.0)], "belongs to another model"),
    ] {
        let error = engine.enqueue(job(0, adapters)).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let error = engine.load_adapter("a", &bound(2)).unwrap_err().to_string();
    assert!(error.contains("is loaded already"), "{error}");
}

#[test]
fn adapters_stay_within_their_budget() {
    let bytes = bound(1).bytes();
    let options = GeneratorOptions { adapter_bytes_max: 2 * bytes, ..GeneratorOptions::default() };
    let mut engine = generator(KvFormat::F16, 1024, 256, options);
    let first = engine.load_adapter("a", &bound(1)).unwrap();
    engine.load_adapter("b", &bound(1)).unwrap();
    let error = engine.load_adapter("c", &bound(1)).unwrap_err();
    assert!(matches!(error, EngineError::AdapterMemory { .. }), "{error}");
    engine.unload_adapter("a").unwrap();
    assert!(engine.load_adapter("c", &bound(1)).is_err(), "its handle keeps it");
    drop(first);
    engine.load_adapter("c", &bound(1)).unwrap();
    let names: Vec<&str> = engine.adapters().map(Adapter::name).collect();
    assert_eq!((names, engine.adapter_bytes()), (vec!["b", "c"], 2 * bytes));
}

#[test]
fn loading_and_unloading_under_traffic_leaves_nothing() {
    let dirs = [1, 2].map(|seed| {
        let dir = tempfile::tempdir().unwrap();
        write_adapter(dir.path(), seed);
        dir
    });
    let expected = [solo(1, &[(1, 1.0)]), solo(1, &[(2, 1.0)])];
    let worker = Worker::spawn(engine()).unwrap();
    let mut running = Vec::new();
    for cycle in 0..30 {
        let adapter = worker.load_adapter("a", dirs[cycle % 2].path()).unwrap();
        assert_eq!(worker.adapter("a").unwrap(), Some(adapter.clone()));
        running.push((cycle % 2, worker.submit(job(1, vec![(adapter, 1.0)])).unwrap()));
        assert!(worker.unload_adapter("a").unwrap());
        assert_eq!(worker.adapters().unwrap(), []);
        if running.len() == 5 {
            for (which, stream) in running.drain(..) {
                let done = stream.filter_map(|record| record.unwrap().eos).last().unwrap();
                assert_eq!(done.token_ids, expected[which], "cycle {cycle}");
            }
        }
    }
    let left = worker.call(|engine| {
        engine.unload_adapter("none").unwrap();
        engine.adapter_bytes()
    });
    assert_eq!(left.unwrap(), 0);
    let error = worker.load_adapter("a", Path::new("/nowhere")).unwrap_err().to_string();
    assert!(error.contains("adapter_config.json"), "{error}");
}
