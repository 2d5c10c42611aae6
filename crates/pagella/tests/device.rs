//! On a GPU: predicted memory, little memory, too little memory, warming up. Without one, each test
//! says that it was skipped.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagella::{Device, Engine, EngineBuilder, KvFormat, Place, Session};
use pagella_cuda::MemoryGauge;
use pagella_cuda::probe::Probe;
use pagella_model::{SyntheticWeights, synthetic};

/// Predictions may be off by this share.
const TOLERANCE: f64 = 0.05;

/// Memory is measured, so one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// The device to use, alone; `None` where there is none.
fn device(test: &str) -> Option<(usize, MutexGuard<'static, ()>)> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    match Probe::look().best() {
        Ok(index) => Some((index, alone)),
        Err(reason) => {
            println!("SKIPPED: {test} ({reason})");
            None
        }
    }
}

fn demo(index: usize) -> EngineBuilder {
    Engine::builder("demo").device(Device::Cuda(index as u32))
}

fn text(engine: &Engine) -> String {
    engine.complete("The `map()` method").greedy().max_tokens(24).text().unwrap()
}

#[test]
fn a_run_takes_the_memory_that_was_predicted() {
    let Some((index, _alone)) = device("predicted memory") else { return };
    let dir = tempfile::tempdir().unwrap();
    let weights = SyntheticWeights::Exl2 { bits: 4.0, head_bits: 6 };
    synthetic::write_preset("llama-3.2-1b", weights, dir.path()).unwrap();
    let mut taken_with = Vec::new();
    for low_memory in [false, true] {
        let mut builder = Engine::builder(dir.path()).device(Device::Cuda(index as u32));
        builder = builder.cache_tokens(8192);
        if low_memory {
            builder = builder.low_memory();
        }
        let spec = builder.spec(dir.path()).unwrap();
        let need = builder.predict_memory(dir.path(), &spec, Place::Cuda(index)).unwrap();
        let predicted = need.peak_bytes(KvFormat::F16, 8192);
        let gauge = MemoryGauge::open(index).unwrap();
        let loaded = builder.load(&mut |_| ControlFlow::Continue(())).unwrap();
        let mut session = Session::new(loaded.forward);
        let prompt: Vec<u32> = (0..4096).collect();
        session.prefill(&prompt).unwrap();
        for id in 0..8 {
            session.write(id).unwrap();
        }
        let taken = gauge.taken_bytes().unwrap();
        println!("low memory {low_memory}: {taken} bytes taken, {predicted} predicted");
        let off = (predicted as f64 - taken as f64).abs() / taken as f64;
        assert!(off <= TOLERANCE, "{:.1} % off", 100.0 * off);
        taken_with.push(taken);
    }
    assert!(taken_with[1] < taken_with[0] / 4 * 3, "{taken_with:?}");
}

#[test]
fn little_memory_and_warming_up_change_no_text() {
    let Some((index, _alone)) = device("low memory, warming up") else { return };
    let usual = text(&demo(index).open().unwrap());
    assert_eq!(text(&demo(index).low_memory().open().unwrap()), usual);
    let warm = demo(index).open().unwrap();
    warm.warmup().unwrap();
    assert_eq!(warm.stats().unwrap().pages.cached, 0);
    assert_eq!(text(&warm), usual);
}

#[test]
fn a_cache_larger_than_the_memory_is_refused_and_a_smaller_one_runs() {
    let Some((index, _alone)) = device("running out of memory") else { return };
    let small = demo(index).cache_tokens(1024).open().unwrap();
    let before = text(&small);
    let dir = small.facts().dir.clone();
    let spec = demo(index).spec(&dir).unwrap();
    let need = demo(index).predict_memory(&dir, &spec, Place::Cuda(index)).unwrap();
    let gauge = MemoryGauge::open(index).unwrap();
    let tokens = 2 * gauge.free_bytes() / need.kv_bytes_per_token(KvFormat::F16);
    let refused = demo(index).cache_tokens(tokens as usize).open();
    let error = refused.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("for the cache: lower --cache-tokens"), "{error:?}");
    // Neither the engine that was there nor a new one suffers.
    assert_eq!(text(&small), before);
    let taken = gauge.taken_bytes().unwrap();
    assert!(taken < 64 << 20, "{taken} bytes are still taken");
    assert_eq!(text(&demo(index).cache_tokens(1024).open().unwrap()), before);
}
