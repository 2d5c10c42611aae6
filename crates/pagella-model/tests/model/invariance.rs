//! Results depend on the tokens of a row and on nothing else: not on threads, chunks, other rows
//! or where its pages lie.

use pagella_backend::{Backend, KvFormat, LogitUse, PAGE_TOKENS, StepPlan, StepRow};
use pagella_cpu::MathMode;
use pagella_model::{Cache, Model};

use crate::cpu::{cpu, ids};
use crate::directory::{all_logits_in, argmax, demo, load};

const MODES: [MathMode; 2] = [MathMode::Exact, MathMode::Wide];

fn step<B: Backend>(model: &mut Model<B>, kv: &mut Cache<B>, rows: &[StepRow<'_>]) -> Vec<f32> {
    let mut logits = Vec::new();
    model.forward(&StepPlan::new(rows).unwrap(), kv).unwrap();
    model.read_logits(&mut logits).unwrap();
    logits
}

/// Greedy ids after a prompt, with the last logits; the prompt is fed in chunks.
fn generate<B: Backend>(
    model: &mut Model<B>,
    prompt: &[u32],
    chunk: usize,
    pages: &[u32],
    n: usize,
) -> (Vec<u32>, Vec<f32>) {
    let mut kv = model.new_kv(KvFormat::F16, pages.len() * PAGE_TOKENS).unwrap();
    let mut logits = Vec::new();
    for (i, ids) in prompt.chunks(chunk).enumerate() {
        let past = i * chunk;
        let logits_last = usize::from(past + ids.len() == prompt.len());
        logits =
            step(model, &mut kv, &[StepRow::new(ids, past, pages, LogitUse::last(logits_last))]);
    }
    let mut generated = Vec::new();
    for i in 0..n {
        let id = argmax(&logits);
        generated.push(id);
        let ids = [id];
        let row = StepRow::new(&ids, prompt.len() + i, pages, LogitUse::Choice);
        logits = step(model, &mut kv, &[row]);
    }
    (generated, logits)
}

#[test]
fn greedy_ids_do_not_depend_on_threads_or_chunks() {
    let prompt = ids(300);
    for math in MODES {
        let mut first = None;
        for threads in [1, 2, 4] {
            let mut model = load(&demo(), cpu(math, threads), 2048).unwrap();
            for chunk in [1, 7, 256, 2048] {
                let got = generate(&mut model, &prompt, chunk, &[0, 1], 16);
                let want = first.get_or_insert_with(|| got.clone());
                assert_eq!(got.0, want.0, "{math:?}, {threads} threads, chunks of {chunk}");
                assert!(got.1 == want.1, "{math:?}, {threads} threads, chunks of {chunk}: bits");
            }
        }
    }
}

#[test]
fn page_order_does_not_change_a_bit() {
    let prompt = ids(700);
    for math in MODES {
        let mut model = load(&demo(), cpu(math, 2), 512).unwrap();
        let in_order = generate(&mut model, &prompt, 512, &[0, 1, 2], 4);
        let shuffled = generate(&mut model, &prompt, 512, &[2, 0, 1], 4);
        assert_eq!(in_order, shuffled, "{math:?}");
    }
}

#[test]
fn a_row_of_a_ragged_batch_equals_the_row_alone() {
    let all = ids(600);
    // Past and new tokens of each row; prompt chunks and decode rows share the step.
    let rows = [(0, 5), (300, 1), (255, 2), (10, 40), (511, 1)];
    for math in MODES {
        let mut model = load(&demo(), cpu(math, 2), 1024).unwrap();
        let mut kv = model.new_kv(KvFormat::F16, rows.len() * 3 * PAGE_TOKENS).unwrap();
        let pages: Vec<Vec<u32>> =
            (0..rows.len() as u32).map(|r| vec![3 * r + 2, 3 * r, 3 * r + 1]).collect();
        let own = |r: usize, from: usize, to: usize| &all[r + from..r + to];
        for (r, (past, _)) in rows.iter().enumerate().filter(|(_, (past, _))| *past > 0) {
            let ids = own(r, 0, *past);
            step(&mut model, &mut kv, &[StepRow::new(ids, 0, &pages[r], LogitUse::None)]);
        }
        let batch: Vec<StepRow<'_>> = rows
            .iter()
            .enumerate()
            .map(|(r, (past, new))| {
                StepRow::new(own(r, *past, past + new), *past, &pages[r], LogitUse::Choice)
            })
            .collect();
        let together = step(&mut model, &mut kv, &batch);
        let vocab = model.spec().vocab;
        for (r, (past, new)) in rows.iter().enumerate() {
            let ids = own(r, 0, past + new);
            let alone = all_logits_in(KvFormat::F16, &mut model, ids, 1024);
            let want = &alone[alone.len() - vocab..];
            assert!(&together[r * vocab..(r + 1) * vocab] == want, "{math:?}: row {r}");
        }
    }
}
