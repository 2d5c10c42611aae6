//! Plans of real models, and loading by them.

use std::ops::ControlFlow;

use pagella_backend::{LogitUse, StepPlan, StepRow};

use super::*;
use crate::{Device, Engine, KvFormat};

/// Much more than the demo model takes.
const PLENTY: &str = "cpu:2GiB";

fn builder(devices: &str) -> EngineBuilder {
    let devices: Devices = devices.parse().unwrap();
    Engine::builder("demo").device(devices).threads(2).cache_tokens(1024).step_tokens(128)
}

/// Devices that hold these numbers of bytes.
fn limited(bytes: &[u64]) -> String {
    let each = bytes.iter().map(|bytes| format!("cpu:{}KiB", bytes.div_ceil(1024)));
    each.collect::<Vec<_>>().join(",")
}

/// Bytes of the whole model on one device.
fn whole_bytes(builder: &EngineBuilder) -> u64 {
    builder.placement().unwrap().unwrap().parts[0].bytes()
}

fn placing(builder: &EngineBuilder) -> Placing {
    let dir = builder.dir().unwrap();
    let spec = builder.spec(&dir).unwrap();
    builder.placing(&dir, &spec, &[], 128).unwrap()
}

fn load(
    builder: &EngineBuilder,
    placing: &mut Placing,
    backends: &[CpuBackend],
) -> Result<LoadedModel, Error> {
    let go_on = &mut |_: &pagella_model::LoadProgress<'_>| ControlFlow::Continue(());
    let dir = builder.dir().unwrap();
    let loaded = builder.load_on(&dir, placing, backends, go_on, &mut |_, _, _| Ok(()));
    loaded.map(|(model, ())| model)
}

/// Logits of the largest step there is, all of them.
fn largest_step(loaded: &mut LoadedModel) -> Vec<f32> {
    let ids: Vec<u32> = (0..128).collect();
    let rows = [StepRow::new(&ids, 0, &[0], LogitUse::last(128))];
    let mut logits = Vec::new();
    loaded.forward.forward(&StepPlan::new(&rows).unwrap(), &mut logits).unwrap();
    let plan = [StepRow::new(&ids, 0, &[1], LogitUse::None)];
    let mut states = Vec::new();
    loaded.forward.hidden_states(&StepPlan::new(&plan).unwrap(), &mut states).unwrap();
    logits
}

#[test]
fn a_model_takes_what_its_plan_says_and_runs_on_devices_without_a_byte_more() {
    let whole = whole_bytes(&builder(PLENTY));
    let mut texts = Vec::new();
    for shares in [vec![100], vec![60, 80], vec![50, 50, 70]] {
        for format in [KvFormat::F16, KvFormat::Q4] {
            let bytes: Vec<u64> = shares.iter().map(|share| whole * share / 100).collect();
            let builder = builder(&limited(&bytes)).cache(format);
            let mut placing = placing(&builder);
            let planned = placing.plan().unwrap().placement;
            let cpu = builder.cpu().unwrap();
            let exact = planned.parts.iter().map(|part| cpu.device(Some(part.bytes())));
            let exact: Vec<CpuBackend> = exact.collect();
            let mut loaded = load(&builder, &mut placing, &exact).unwrap();
            assert_eq!(loaded.placement.as_ref(), Some(&planned), "at the first try");
            let logits = largest_step(&mut loaded);
            for (part, cpu) in planned.parts.iter().zip(&exact) {
                let taken = cpu.memory().taken_bytes;
                assert!(taken <= part.bytes());
                assert!(taken >= part.weights_bytes + part.cache_bytes, "{part:?}: {taken}");
                println!("{}: planned {}, taken {taken}", part.words(), part.bytes());
            }
            texts.push((format, logits));
            drop(loaded);
            // A device keeps the buffers in which linears order their inputs.
            for (part, cpu) in planned.parts.iter().zip(&exact) {
                assert!(cpu.memory().taken_bytes <= part.scratch_bytes, "the rest comes back");
            }
        }
    }
    for (format, logits) in &texts {
        let first = &texts.iter().find(|(other, _)| other == format).unwrap().1;
        assert!(logits == first, "the same bits over other devices");
    }
}

#[test]
fn loading_and_unloading_leaves_nothing_behind_even_when_it_fails() {
    let whole = whole_bytes(&builder(PLENTY));
    let share = whole * 8 / 10;
    let builder = builder(&limited(&[share, share]));
    let cpu = builder.cpu().unwrap();
    let devices = [cpu.device(Some(share)), cpu.device(Some(share))];
    let small = [cpu.device(Some(whole * 6 / 10)), cpu.device(Some(whole / 10))];
    let mut left = Vec::new();
    for _ in 0..3 {
        drop(load(&builder, &mut placing(&builder), &devices).unwrap());
        assert!(load(&builder, &mut placing(&builder), &small).is_err());
        left.push(devices.iter().chain(&small).map(|cpu| cpu.memory().taken_bytes).sum::<u64>());
    }
    // Inputs of linears, for the next model.
    assert!(left[0] < whole / 1000, "{left:?}");
    assert_eq!(left, [left[0]; 3]);
}

#[test]
fn a_device_that_gives_less_than_it_said_is_planned_for_once_more() {
    let whole = whole_bytes(&builder(PLENTY));
    let builder = builder(&limited(&[whole * 7 / 10, whole * 9 / 10]));
    let cpu = builder.cpu().unwrap();
    let mut at_first = placing(&builder);
    let promised = at_first.plan().unwrap().placement;
    // The first device holds half of what it has promised; the second can take the rest.
    let honest = [cpu.device(Some(whole * 35 / 100)), cpu.device(Some(whole * 9 / 10))];
    let mut loaded = load(&builder, &mut at_first, &honest).unwrap();
    let found = loaded.placement.clone().unwrap();
    assert!(found.parts[0].layers.len() < promised.parts[0].layers.len(), "{found:?}");
    assert_eq!(found.parts[0].free_bytes, whole * 35 / 100);
    assert!(!largest_step(&mut loaded).is_empty());
    // Now nothing can: the refusal has the amount, and what would fit.
    let small = [cpu.device(Some(whole * 35 / 100)), cpu.device(Some(whole * 35 / 100))];
    let error = load(&builder, &mut placing(&builder), &small).map(drop).unwrap_err().to_string();
    assert!(error.contains("more than cpu:1") && error.contains("cache of 1024 tokens"), "{error}");
}

#[test]
fn memory_that_is_missing_for_no_reason_ends_the_second_attempt() {
    // The device has what it said, and every load needs more than was planned.
    let whole = whole_bytes(&builder(PLENTY));
    let builder = builder(&limited(&[whole, whole]));
    let cpu = builder.cpu().unwrap();
    let devices = [cpu.device(Some(whole)), cpu.device(Some(whole))];
    let mut placing = placing(&builder);
    placing.sizes.layers.iter_mut().for_each(|layer| layer.weights_bytes = 1);
    placing.sizes.head_bytes = 1;
    placing.pages = PagesWanted { least: 4, most: 4000 };
    let error = load(&builder, &mut placing, &devices).map(drop).unwrap_err();
    assert!(is_out_of_memory(&error), "{error}");
    assert!(devices.iter().all(|cpu| cpu.memory().taken_bytes < whole / 1000));
}

#[test]
fn a_refusal_says_what_would_fit_and_that_fits() {
    let whole = whole_bytes(&builder(PLENTY).cache_tokens(8192));
    let small = limited(&[whole * 6 / 10]);
    let asked = builder(&small).cache_tokens(8192);
    let error = asked.placement().unwrap_err().to_string();
    assert!(error.contains("need ") && error.contains("more than cpu may hold"), "{error}");
    let words: Vec<&str> = error.split(' ').collect();
    let at = words.iter().position(|word| *word == "--cache-tokens").unwrap();
    let tokens: usize = words[at + 1].parse().unwrap();
    assert!(tokens >= 256 && builder(&small).cache_tokens(tokens).placement().is_ok(), "{error}");
    assert!(builder(&small).cache_tokens(tokens + 256).placement().is_err());
    let tiny = builder(&limited(&[whole / 100])).placement().unwrap_err().to_string();
    assert!(tiny.contains("choose a smaller model"), "{tiny}");
}

#[test]
fn the_cache_takes_what_is_left_unless_it_was_stated() {
    let open = |tokens: u64| {
        let plan = |builder: &EngineBuilder| builder.placement().unwrap().unwrap().cache_tokens;
        let sized = builder(PLENTY).cache_tokens(tokens as usize);
        let devices: Devices = limited(&[whole_bytes(&sized)]).parse().unwrap();
        let unstated = Engine::builder("demo").device(devices).threads(2).step_tokens(128);
        (plan(&unstated), plan(&unstated.cache_tokens_most(1 << 20)))
    };
    let context = Engine::builder("demo").spec(&builder(PLENTY).dir().unwrap()).unwrap().context;
    let (usual, filled) = open(65536);
    assert_eq!(usual, context.max(crate::DEFAULT_CACHE_TOKENS), "no longer than can be used");
    assert!((65536..=65536 + 2048).contains(&filled), "{filled}");
}

#[test]
fn splits_are_obeyed_or_refused_with_a_sentence() {
    let two = format!("{PLENTY},{PLENTY}");
    let split =
        |change: &dyn Fn(&mut crate::Split)| builder(&two).with_split(|split| change(split));
    let layers = |builder: EngineBuilder| -> Vec<usize> {
        let parts = builder.placement().unwrap().unwrap().parts;
        parts.iter().map(|part| part.layers.len()).collect()
    };
    let n: usize = layers(builder(&two)).iter().sum();
    let half = whole_bytes(&builder(&two)) / 2;
    let shared = layers(split(&|split| split.shares = vec![half, 1 << 40]));
    assert!(shared[0] > 0 && shared[1] > 0 && shared.iter().sum::<usize>() == n, "{shared:?}");
    assert_eq!(layers(split(&|split| split.shares = vec![0, 1 << 40])), [0, n]);
    let reserved = split(&|split| split.reserves = vec![(2 << 30) - half]);
    assert_eq!(layers(reserved), shared, "what stays free is no room");
    let last = layers(split(&|split| split.cpu_layers = Some(CpuLayers::Exactly(1))));
    assert_eq!(last[2], 1, "behind the devices of the list: {last:?}");
    let none = layers(split(&|split| split.cpu_layers = Some(CpuLayers::Auto)));
    assert_eq!(none, [n, 0, 0]);
    for (change, says) in [
        (
            &(|split: &mut crate::Split| split.shares = vec![1, 1, 1]) as &dyn Fn(&mut _),
            "gpu_split",
        ),
        (&|split: &mut crate::Split| split.reserves = vec![1; 3], "reserve_vram"),
        (
            &|split: &mut crate::Split| split.cpu_layers = Some(CpuLayers::Exactly(99)),
            "the model has",
        ),
    ] {
        let error = split(change).placement().unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    assert!(Engine::builder("demo").device(Device::Cpu).placement().unwrap().is_none());
}

#[test]
fn engines_over_several_devices_write_the_same_and_share_saved_sequences() {
    let whole = whole_bytes(&builder(PLENTY).cache_tokens(2048));
    let open = |devices: &str| {
        let builder = builder(devices).cache_tokens(2048).draft("demo-draft");
        builder.open().unwrap()
    };
    let one = open("cpu");
    let two = open(&limited(&[whole * 7 / 10, whole * 13 / 10]));
    let plan = two.facts().placement.clone().unwrap();
    assert_eq!(plan.parts.iter().filter(|part| part.drafts).count(), 1, "{plan:?}");
    assert!(plan.parts.iter().all(|part| part.is_used()), "{plan:?}");
    assert!(two.facts().device.contains("over 2 devices") && one.facts().placement.is_none());
    let prompt = "The Array type represents an ordered list of values. ".repeat(40);
    let ask = |engine: &Engine| {
        let done = engine.complete(&prompt).greedy().max_tokens(24).run().unwrap();
        (done.text, done.token_ids)
    };
    let text = ask(&one);
    assert_eq!(ask(&two), text);
    // What one has computed, the other can use.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sequence");
    let ids = one.complete(&prompt).prompt_ids().unwrap();
    one.save(&file, &ids, None).unwrap();
    let fresh = open(&limited(&[whole * 13 / 10, whole * 7 / 10]));
    let (stored, _) = fresh.restore(&file, None).unwrap();
    assert!(stored.tokens > 0);
    let done = fresh.complete(&prompt).greedy().max_tokens(24).run().unwrap();
    assert!(done.cached_tokens >= 256, "{}", done.cached_tokens);
    assert_eq!((done.text, done.token_ids), text);
}
