//! A model over several devices gives the bits that it gives on one, whatever is asked of it: steps,
//! pages that are copied, read and written, hidden states, drafts, adapters, jobs.

use std::ops::ControlFlow;

use pagella_backend::{AdapterUse, Guess, KvFormat, LogitUse, StepPlan, StepRow};
use pagella_cpu::{CpuBackend, CpuOptions};
use pagella_engine::{Forward, Generator, GeneratorOptions, ModelWithCache};
use pagella_model::{BoundAdapter, LoadOptions, LoadProgress, Model};

use crate::families::{Case, case_of};
use crate::schemas::Rng;
use crate::support::{on_cuda, run, tokenizer};

/// Families that differ in what a device needs to know: windows and two kinds of rotation, experts,
/// sinks, latent attention, post-norms, norms of heads, fused weights.
const FAMILIES: [&str; 9] =
    ["llama", "qwen3", "gemma3", "mixtral", "gpt_oss", "deepseek_v3", "glm4", "phi3", "gemma2"];

/// Uneven cuts of so many layers over one to four devices; the head may be alone.
fn cuts(layers: usize) -> Vec<Vec<usize>> {
    let mut cuts = vec![vec![layers], vec![1, layers - 1], vec![layers, 0]];
    if layers > 2 {
        cuts.extend([vec![layers - 1, 1], vec![1, layers - 2, 1], vec![1, 1, layers - 2, 0]]);
    }
    cuts
}

fn over(case: &Case, cut: &[usize], format: KvFormat) -> Box<dyn Forward> {
    let options = CpuOptions { threads: Some(2), ..CpuOptions::default() };
    let cpu = CpuBackend::new(options).unwrap();
    let parts = cut.iter().map(|layers| (cpu.device(None), *layers)).collect();
    let load = LoadOptions { step_tokens_max: 128, ..LoadOptions::default() };
    let progress = &mut |_: &LoadProgress<'_>| ControlFlow::Continue(());
    let model = Model::load_over(case.dir.path(), case.spec.clone(), parts, &load, progress);
    Box::new(ModelWithCache::new(model.unwrap(), format, 1024).unwrap())
}

/// Runs a step and adds the bits of its logits to `all`.
fn step(forward: &mut dyn Forward, rows: &[StepRow<'_>], all: &mut Vec<u8>) {
    let mut logits = Vec::new();
    forward.forward(&StepPlan::new(rows).unwrap(), &mut logits).unwrap();
    assert!(!logits.is_empty() && logits.iter().all(|logit| logit.is_finite()));
    all.extend(logits.iter().flat_map(|logit| logit.to_le_bytes()));
}

/// Everything a model can be asked, as bytes.
fn answers(forward: &mut dyn Forward, adapter: &BoundAdapter) -> Vec<u8> {
    let mut all = Vec::new();
    let ids: Vec<u32> = (0..90).map(|i| (i * 37 + 11) % 150).collect();
    let first = [
        StepRow::new(&ids, 0, &[0], LogitUse::last(4)),
        StepRow::new(&ids[..9], 0, &[2], LogitUse::None),
    ];
    step(forward, &first, &mut all);
    forward.copy_pages(&[(0, 1)]).unwrap();
    forward.copy_page_prefix(1, 3, 33).unwrap();
    let later = [
        StepRow::new(&[7], 90, &[1], LogitUse::Choice),
        StepRow::new(&[8, 9], 33, &[3], LogitUse::last(2)),
    ];
    step(forward, &later, &mut all);
    // A page that is read and written elsewhere is the same.
    let (mut page, mut again) = (Vec::new(), Vec::new());
    forward.read_page(3, &mut page).unwrap();
    assert_eq!(page.len(), forward.page_bytes());
    forward.write_page(0, &page).unwrap();
    forward.read_page(0, &mut again).unwrap();
    assert!(page == again);
    assert!(forward.write_page(0, &page[1..]).is_err());
    step(forward, &[StepRow::new(&[5], 35, &[0], LogitUse::Choice)], &mut all);
    all.extend(&page);
    let plan = StepPlan::new(&[StepRow::new(&ids[..20], 0, &[2], LogitUse::None)]).unwrap();
    let mut states = Vec::new();
    forward.hidden_states(&plan, &mut states).unwrap();
    all.extend(states.iter().flat_map(|state| state.to_le_bytes()));
    let mut guesses: Vec<Guess> = Vec::new();
    let plan = StepPlan::new(&[StepRow::new(&[3], 20, &[2], LogitUse::Choice)]).unwrap();
    forward.draft(&plan, &[&[2]], 5, 150, &mut guesses).unwrap();
    assert_eq!(guesses.len(), 5);
    all.extend(guesses.iter().flat_map(|guess| guess.id.to_le_bytes()));
    for part in adapter.parts() {
        forward.fill_adapter(0, part).unwrap();
    }
    let adapters = &[AdapterUse { slot: 0, scale: 1.0 }][..];
    let plain = StepRow::new(&ids[..12], 0, &[2], LogitUse::last(3));
    step(forward, &[StepRow { adapters, ..plain }], &mut all);
    forward.clear_adapter(0).unwrap();
    all
}

#[test]
fn every_family_and_cache_gives_the_same_bits_over_any_devices() {
    if on_cuda() {
        return;
    }
    let mut compared = 0;
    for family in FAMILIES {
        let case = case_of(family);
        let adapter = BoundAdapter::synthetic(&case.spec, 4, 9);
        let cuts = cuts(case.spec.layers.len());
        for (index, format) in KvFormat::ALL.into_iter().enumerate() {
            let whole = answers(&mut *over(&case, &cuts[0], format), &adapter);
            // Every kind of cache over two of the cuts, and every cut with some kind of cache.
            for turn in [0, 3] {
                let cut = &cuts[1 + (index + turn) % (cuts.len() - 1)];
                let found = answers(&mut *over(&case, cut, format), &adapter);
                assert!(found == whole, "{} {} over {cut:?}", case.name, format.name());
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 2 * FAMILIES.len() * KvFormat::ALL.len());
}

#[test]
fn jobs_together_get_the_same_ids_over_several_devices() {
    if on_cuda() {
        return;
    }
    for (family, cut) in
        [("gemma3", vec![1, 2, 1]), ("deepseek_v3", vec![2, 1, 0]), ("gpt_oss", vec![1, 1])]
    {
        let case = case_of(family);
        let cut = if cut.iter().sum::<usize>() == case.spec.layers.len() {
            cut
        } else {
            vec![1, case.spec.layers.len() - 1]
        };
        let jobs = case.jobs(&mut Rng(3));
        let ids = |cut: &[usize]| {
            let options = GeneratorOptions { batch_max: 4, ..GeneratorOptions::default() };
            let forward = over(&case, cut, KvFormat::Q8);
            let mut generator = Generator::new(forward, tokenizer(), options).unwrap();
            let serials: Vec<u64> =
                jobs.iter().map(|job| generator.enqueue(job.clone()).unwrap()).collect();
            let done = run(&mut generator);
            serials.iter().map(|serial| done[serial].token_ids.clone()).collect::<Vec<_>>()
        };
        assert_eq!(ids(&cut), ids(&[case.spec.layers.len()]), "{} over {cut:?}", case.name);
    }
}

#[test]
fn parts_that_are_not_the_whole_model_are_refused() {
    let case = case_of("llama");
    let cpu = CpuBackend::new(CpuOptions::default()).unwrap();
    let n = case.spec.layers.len();
    for cut in [vec![], vec![n - 1], vec![1, n]] {
        let parts = cut.iter().map(|layers| (cpu.device(None), *layers)).collect();
        let progress = &mut |_: &LoadProgress<'_>| ControlFlow::Continue(());
        let (dir, spec) = (case.dir.path(), case.spec.clone());
        let loaded = Model::load_over(dir, spec, parts, &LoadOptions::default(), progress);
        assert_eq!(loaded.map(drop).unwrap_err().code(), "bad_option", "{cut:?}");
    }
}
