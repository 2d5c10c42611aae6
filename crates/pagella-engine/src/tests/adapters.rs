//! Adapters on the checksum model: loads that end anywhere leave nothing, and pages of different
//! adapters are never taken for each other.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use pagella_formats::Dtype;
use pagella_formats::safetensors::write::{TensorData, write_scratch_file};
use pagella_model::BoundAdapter;

use crate::tests::stand_in::{StandIn, greedy_ids};
use crate::tests::support::{ended, generator, ids, job, job_with, records, roomy, run, up_to};
use crate::{
    Adapter, Completion, EngineError, Forward, Generator, GeneratorOptions, JobOptions, Record,
    Worker,
};

/// Writes an adapter with a pair for every linear of a layer of the stand-in.
fn write_adapter(dir: &Path, model: &StandIn) {
    write_filled(dir, model, 0.0);
}

/// The same with this value everywhere.
fn write_filled(dir: &Path, model: &StandIn, value: f32) {
    let config = r#"{"peft_type": "LORA", "r": 2, "lora_alpha": 2}"#;
    std::fs::write(dir.join("adapter_config.json"), config).unwrap();
    let values = value.to_le_bytes().repeat(2 * 64);
    let mut tensors = Vec::new();
    for (_, linear) in model.spec().layers[0].linear_specs() {
        let name = format!("base_model.model.{}", linear.bases[0]);
        for (half, shape) in
            [("A", vec![2, linear.in_features]), ("B", vec![linear.out_features, 2])]
        {
            let name = format!("{name}.lora_{half}.weight");
            tensors.push(TensorData { name, dtype: Dtype::F32, shape, data: &values });
        }
    }
    write_scratch_file(&dir.join("adapter_model.safetensors"), &tensors).unwrap();
}

fn bound(model: &StandIn) -> BoundAdapter {
    let dir = tempfile::tempdir().unwrap();
    write_adapter(dir.path(), model);
    BoundAdapter::open(dir.path(), model.spec()).unwrap()
}

/// How jobs end of which this much was said already.
fn go_on(engine: &mut Generator, mut said: Vec<Record>) -> BTreeMap<u64, Completion> {
    said.extend(records(engine));
    ended(said)
}

fn with(adapters: &[(Adapter, f32)], n: usize) -> JobOptions {
    JobOptions { adapters: Some(adapters.to_vec()), ..up_to(n) }
}

#[test]
fn a_load_that_fails_at_any_part_leaves_nothing() {
    let (mut engine, model) = roomy();
    let bound = bound(&model);
    assert_eq!(bound.parts().len(), 7);
    let kept = engine.load_adapter("kept", &bound).unwrap();
    for parts in 0..bound.parts().len() {
        model.fail_fill_after(Some(parts));
        engine.load_adapter("a", &bound).unwrap_err();
        assert_eq!(model.filled_slots(), [0], "after {parts} parts");
        assert_eq!(engine.adapter_bytes(), bound.bytes());
        assert_eq!(engine.adapter("a"), None);
    }
    model.fail_fill_after(None);
    let adapter = engine.load_adapter("a", &bound).unwrap();
    assert_eq!((model.filled_slots(), engine.adapters().count()), (vec![0, 1], 2));
    let prompt = ids(300, 1);
    let plain = engine.enqueue(job_with(&prompt, up_to(5))).unwrap();
    let adapted =
        engine.enqueue(job_with(&prompt, with(&[(adapter, 1.0), (kept, 2.0)], 5))).unwrap();
    let done = run(&mut engine);
    assert_eq!(done[&plain].token_ids, greedy_ids(&prompt, 5));
    assert_ne!(done[&adapted].token_ids, done[&plain].token_ids);
}

#[test]
fn a_load_through_the_worker_that_fails_leaves_nothing() {
    let (engine, model) = roomy();
    let dir = tempfile::tempdir().unwrap();
    write_adapter(dir.path(), &model);
    let worker = Worker::spawn(engine).unwrap();
    for parts in 0..7 {
        model.fail_fill_after(Some(parts));
        worker.load_adapter("a", dir.path()).unwrap_err();
        assert_eq!(model.filled_slots(), [0u32; 0], "after {parts} parts");
    }
    model.fail_fill_after(None);
    drop(worker.load_adapter("a", dir.path()).unwrap());
    assert!(worker.load_adapter("a", dir.path()).unwrap_err().to_string().contains("already"));
    assert_eq!(model.filled_slots(), [0]);
    worker.unload_adapter("a").unwrap();
    assert_eq!(model.filled_slots(), [0u32; 0]);
}

#[test]
fn pages_are_shared_within_one_set_of_adapters_and_scales_only() {
    let (mut engine, model) = roomy();
    let bound = bound(&model);
    let [a, b] = ["a", "b"].map(|name| engine.load_adapter(name, &bound).unwrap());
    let prompt = ids(600, 2);
    let sets: [&[(Adapter, f32)]; 6] = [
        &[],
        &[(a.clone(), 1.0)],
        &[(b.clone(), 1.0)],
        &[(a.clone(), 0.5)],
        &[(a.clone(), 1.0), (b.clone(), 1.0)],
        &[(b, 1.0), (a, 1.0)],
    ];
    let mut seen = Vec::new();
    for round in 0..2 {
        for (index, set) in sets.iter().enumerate() {
            let serial = engine.enqueue(job_with(&prompt, with(set, 8))).unwrap();
            let done = run(&mut engine).remove(&serial).unwrap();
            assert_eq!(done.cached_pages, 2 * round, "set {index}");
            match round {
                0 => seen.push(done.token_ids),
                _ => assert_eq!(done.token_ids, seen[index]),
            }
        }
    }
    assert_eq!(seen[0], greedy_ids(&prompt, 8));
    assert!((1..6).all(|index| !seen[..index].contains(&seen[index])), "{seen:?}");
}

#[test]
fn a_name_that_comes_back_does_not_bring_old_pages() {
    let (mut engine, model) = roomy();
    let bound = bound(&model);
    let prompt = ids(600, 3);
    for _ in 0..3 {
        let adapter = engine.load_adapter("a", &bound).unwrap();
        let serial = engine.enqueue(job_with(&prompt, with(&[(adapter, 1.0)], 4))).unwrap();
        assert_eq!(run(&mut engine)[&serial].cached_tokens, 0);
        engine.unload_adapter("a").unwrap();
        assert_eq!(model.filled_slots(), [0u32; 0]);
    }
}

#[test]
fn jobs_with_adapters_survive_preemption() {
    // Room for little more than one job at a time.
    let model = StandIn::with_cache(2048, 6, 256);
    let mut engine = generator(&model, GeneratorOptions::default());
    let bound = bound(&model);
    let adapter = engine.load_adapter("a", &bound).unwrap();
    let options = |index: usize| match index % 2 {
        0 => with(&[(adapter.clone(), 1.0 + index as f32)], 400),
        _ => up_to(400),
    };
    let prompt = |index: usize| ids(500, index as u32);
    let serials: Vec<u64> =
        (0..4).map(|i| engine.enqueue(job_with(&prompt(i), options(i))).unwrap()).collect();
    engine.unload_adapter("a").unwrap();
    let done = run(&mut engine);
    assert!(done.values().any(|done| done.preemptions > 0));
    for (index, serial) in serials.iter().enumerate() {
        let alone = engine.enqueue(job_with(&prompt(index), options(index))).unwrap();
        assert_eq!(run(&mut engine)[&alone].token_ids, done[serial].token_ids, "job {index}");
    }
}

#[test]
fn a_cancelled_job_lets_its_adapter_go() {
    let (mut engine, model) = roomy();
    let adapter = engine.load_adapter("a", &bound(&model)).unwrap();
    let serial = engine.enqueue(job_with(&ids(50, 4), with(&[(adapter, 1.0)], 100))).unwrap();
    engine.step();
    engine.unload_adapter("a").unwrap();
    assert_eq!(model.filled_slots(), [0]);
    engine.cancel(serial).unwrap();
    assert_eq!((model.filled_slots(), engine.adapter_bytes()), (vec![], 0));
}

#[test]
fn jobs_that_say_nothing_have_the_adapters_of_the_engine() {
    let (mut engine, model) = roomy();
    let adapter = engine.load_adapter("a", &bound(&model)).unwrap();
    let prompt = ids(40, 5);
    let written = |engine: &mut crate::Generator, options: JobOptions| {
        let serial = engine.enqueue(job_with(&prompt, options)).unwrap();
        run(engine).remove(&serial).unwrap().token_ids
    };
    let stated = written(&mut engine, with(&[(adapter.clone(), 1.0)], 6));
    engine.set_default_adapters(vec![(adapter.clone(), 1.0)]).unwrap();
    assert_eq!(written(&mut engine, up_to(6)), stated);
    assert_eq!(written(&mut engine, with(&[], 6)), greedy_ids(&prompt, 6), "none is a choice too");
    assert!(engine.set_default_adapters(vec![(adapter.clone(), 1.0), (adapter, 1.0)]).is_err());
    // A job under way keeps it; nobody gets it any more.
    let serial = engine.enqueue(job_with(&prompt, up_to(6))).unwrap();
    let begun = engine.step();
    engine.unload_adapter("a").unwrap();
    assert_eq!(model.filled_slots(), [0]);
    assert_eq!(go_on(&mut engine, begun)[&serial].token_ids, stated);
    assert_eq!(written(&mut engine, up_to(6)), greedy_ids(&prompt, 6));
    assert_eq!((model.filled_slots(), engine.adapter_bytes()), (vec![], 0));
}

#[test]
fn sequences_are_neither_saved_nor_restored_under_adapters() {
    let (mut engine, model) = roomy();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sequence");
    let prompt = ids(40, 5);
    engine.enqueue(job(&prompt, 6)).unwrap();
    run(&mut engine);
    let stored = engine.save(&path, "m", None, &prompt).unwrap();
    assert_eq!(stored.tokens, 40);
    let adapter = engine.load_adapter("a", &bound(&model)).unwrap();
    engine.set_default_adapters(vec![(adapter.clone(), 1.0)]).unwrap();
    let refused = |result: Result<(), crate::EngineError>| {
        let message = result.unwrap_err().to_string();
        assert!(message.contains("without adapters"), "{message}");
    };
    refused(engine.save(&folder.path().join("other"), "m", None, &prompt).map(|_| ()));
    assert!(!folder.path().join("other").exists());
    refused(engine.restore(&path, "m", None).map(|_| ()));
    engine.set_default_adapters(vec![(adapter, 0.0)]).unwrap();
    assert_eq!(engine.restore(&path, "m", None).unwrap().1, prompt);
}

#[test]
fn default_adapters_can_be_taken_away_at_any_time() {
    let (mut engine, model) = roomy();
    let adapter = engine.load_adapter("a", &bound(&model)).unwrap();
    let prompt = ids(600, 6);
    engine.set_default_adapters(vec![(adapter.clone(), 1.0)]).unwrap();
    let adapted = engine.enqueue(job(&prompt, 20)).unwrap();
    let begun = (0..4).flat_map(|_| engine.step()).collect();
    engine.set_default_adapters(Vec::new()).unwrap();
    let plain = engine.enqueue(job(&prompt, 20)).unwrap();
    let done = go_on(&mut engine, begun);
    assert_eq!(
        (&done[&plain].token_ids, done[&plain].cached_tokens),
        (&greedy_ids(&prompt, 20), 0)
    );
    let stated = engine.enqueue(job_with(&prompt, with(&[(adapter, 1.0)], 20))).unwrap();
    assert_eq!(run(&mut engine)[&stated].token_ids, done[&adapted].token_ids);
}

/// Where a load fails.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Begin,
    Fill(usize),
    Finish,
    /// A part cannot be filled, and what was filled cannot be emptied so often.
    Clear(usize),
}

impl Fault {
    /// Lets a load fail there.
    fn strike(self, engine: &mut Generator, model: &StandIn, bound: &BoundAdapter) {
        match self {
            Fault::Begin => drop(engine.load_adapter("old", bound).unwrap_err()),
            Fault::Fill(parts) => {
                model.fail_fill_after(Some(parts));
                engine.load_adapter("new", bound).unwrap_err();
            }
            Fault::Finish => {
                let [first, second] = [0; 2].map(|_| engine.begin_adapter("new", bound).unwrap());
                engine.finish_adapter(first, Ok(())).unwrap();
                engine.finish_adapter(second, Ok(())).unwrap_err();
                engine.unload_adapter("new").unwrap();
            }
            Fault::Clear(attempts) => {
                model.fail_clears(attempts);
                Fault::Fill(3).strike(engine, model, bound);
            }
        }
        model.fail_fill_after(None);
    }
}

#[test]
fn a_load_that_fails_at_any_stage_leaves_nothing_and_disturbs_nobody() {
    let (mut engine, model) = roomy();
    let bound = bound(&model);
    let old = engine.load_adapter("old", &bound).unwrap();
    let prompt = ids(300, 7);
    let start = |engine: &mut Generator| {
        engine.enqueue(job_with(&prompt, with(&[(old.clone(), 1.0)], 40))).unwrap()
    };
    let serial = start(&mut engine);
    let expected = run(&mut engine).remove(&serial).unwrap().token_ids;
    let fills = (0..bound.parts().len()).map(Fault::Fill);
    let stages = [Fault::Begin, Fault::Finish, Fault::Clear(1), Fault::Clear(3)];
    for fault in fills.chain(stages) {
        for beside in [false, true] {
            let steps = if beside { 5 } else { 0 };
            let serial = start(&mut engine);
            let begun = (0..steps).flat_map(|_| engine.step()).collect();
            fault.strike(&mut engine, &model, &bound);
            let done = go_on(&mut engine, begun);
            assert_eq!(done[&serial].token_ids, expected, "{fault:?} {beside}");
            assert_eq!(model.filled_slots(), [0], "{fault:?} {beside}");
            assert_eq!((engine.adapter_bytes(), engine.adapters().count()), (bound.bytes(), 1));
        }
    }
}

#[test]
fn a_thousand_loads_under_traffic_leave_what_was_there() {
    let (mut engine, model) = roomy();
    let bound = BoundAdapter::synthetic(model.spec(), 1, 0);
    let kept = engine.load_adapter("kept", &bound).unwrap();
    let before = (engine.adapter_bytes(), model.filled_slots());
    let mut ended = 0;
    for cycle in 0..1000 {
        let adapter = engine.load_adapter("a", &bound).unwrap();
        let used = [(adapter, 1.0), (kept.clone(), 0.5)];
        let options = with(&used[..1 + cycle % 2], 1 + cycle % 7);
        engine.enqueue(job_with(&ids(1 + cycle % 40, cycle as u32), options)).unwrap();
        ended += engine.step().iter().filter(|record| record.is_last()).count();
        if cycle % 3 == 0 {
            engine.enqueue(job(&ids(20, cycle as u32), 4)).unwrap();
        }
        assert!(engine.unload_adapter("a").unwrap());
        assert!(model.filled_slots().len() < 64, "jobs that end let their adapters go");
    }
    while engine.has_work() {
        engine.step();
    }
    assert!(ended > 900, "{ended}: loads and jobs were side by side");
    assert_eq!((engine.adapter_bytes(), model.filled_slots()), before);
}

#[test]
fn an_idle_engine_returns_memory_when_the_last_handle_goes() {
    let (engine, model) = roomy();
    let bound = bound(&model);
    let worker = Worker::spawn(engine).unwrap();
    let adapter = worker.add_adapter("a", bound).unwrap();
    worker.unload_adapter("a").unwrap();
    assert_eq!(model.filled_slots(), [0], "someone holds it");
    drop(adapter);
    // What is asked of the thread now comes after that.
    assert_eq!(worker.call(|engine| engine.adapter_bytes()).unwrap(), 0);
    assert_eq!(model.filled_slots(), [0u32; 0]);
}

#[test]
fn a_handle_of_an_adapter_keeps_no_engine_alive() {
    let (engine, model) = roomy();
    let bound = bound(&model);
    let worker = Worker::spawn(engine).unwrap();
    let adapter = worker.add_adapter("a", bound).unwrap();
    let vitals = worker.vitals().clone();
    drop(worker);
    assert!(vitals.wait_over(Duration::from_secs(20)));
    drop(adapter);
}

#[test]
fn an_adapter_without_room_is_refused_before_its_values_are_read() {
    let model = StandIn::new(4096, 512);
    let dir = tempfile::tempdir().unwrap();
    // Reading it would fail.
    write_filled(dir.path(), &model, f32::NAN);
    let load = |adapter_bytes_max| {
        let options = GeneratorOptions { adapter_bytes_max, ..GeneratorOptions::default() };
        let worker = Worker::spawn(generator(&model, options)).unwrap();
        worker.load_adapter("a", dir.path()).unwrap_err()
    };
    let stored = BoundAdapter::stored_bytes(dir.path()).unwrap();
    assert!(
        matches!(load(stored - 1), EngineError::AdapterMemory { bytes, .. } if bytes == stored)
    );
    assert!(matches!(load(stored), EngineError::Model(_)));
}
