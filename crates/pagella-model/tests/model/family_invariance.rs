//! For one model of every family: same row, same bits, however a text is cut, whatever else runs, on
//! any pages, with any number of threads, in every kind of cache.

use pagella_arch::families;
use pagella_backend::{Backend, KvFormat, LogitUse, PAGE_TOKENS, StepPlan, StepRow};
use pagella_cpu::MathMode;
use pagella_cuda::{CudaBackend, CudaOptions};
use pagella_model::Model;

use crate::cpu::cpu;
use crate::directory::load_with;
use crate::families::{Case, cases, on_cuda};

/// The first case of every family whose heads fit every kind of cache.
fn one_of_each() -> Vec<Case> {
    let mut first: Vec<Case> = Vec::new();
    for case in cases() {
        let attn = &case.spec.layers[0].attn;
        let fits =
            attn.head_dim.is_multiple_of(32) && (attn.kv_heads * attn.head_dim).is_multiple_of(64);
        if fits && first.iter().all(|known| known.spec.family != case.spec.family) {
            first.push(case);
        }
    }
    assert_eq!(first.len(), families().len());
    first
}

fn load<B: Backend>(case: &Case, backend: B) -> Model<B> {
    let dir = tempfile::tempdir().unwrap();
    case.write(dir.path());
    load_with(dir.path(), case.spec.clone(), backend, 128).unwrap()
}

fn cuda() -> CudaBackend {
    CudaBackend::new(CudaOptions::default()).unwrap()
}

/// Logits of all ids of one text, fed in chunks on the given page.
fn in_chunks<B: Backend>(
    model: &mut Model<B>,
    format: KvFormat,
    ids: &[u32],
    chunk: usize,
    page: u32,
) -> Vec<f32> {
    let mut kv = model.new_kv(format, 4 * PAGE_TOKENS).unwrap();
    let (mut logits, mut part) = (Vec::new(), Vec::new());
    for (i, ids) in ids.chunks(chunk).enumerate() {
        let pages = [page];
        let row = StepRow::new(ids, i * chunk, &pages, LogitUse::last(ids.len()));
        model.forward(&StepPlan::new(&[row]).unwrap(), &mut kv).unwrap();
        model.read_logits(&mut part).unwrap();
        logits.extend_from_slice(&part);
    }
    logits
}

/// The first model is given whole texts, the second one pieces on other pages.
fn check_chunks<B: Backend>(case: &Case, formats: &[KvFormat], mut models: [Model<B>; 2]) {
    let ids = &case.input_ids[..40];
    let [one, other] = &mut models;
    for &format in formats {
        let whole = in_chunks(one, format, ids, 40, 0);
        assert!(whole.iter().all(|logit| logit.is_finite()), "{}", case.name);
        for (chunk, page) in [(1, 3), (7, 1)] {
            let cut = in_chunks(other, format, ids, chunk, page);
            assert!(cut == whole, "{} {}: chunks of {chunk}", case.name, format.name());
        }
    }
}

#[test]
fn chunks_threads_and_pages_do_not_change_a_bit_in_any_cache() {
    for case in one_of_each() {
        let models = [1, 3].map(|threads| load(&case, cpu(MathMode::Exact, threads)));
        check_chunks(&case, &KvFormat::ALL, models);
    }
}

#[test]
fn chunks_and_pages_do_not_change_a_bit_in_any_cache_on_cuda() {
    if !on_cuda("every family in chunks") {
        return;
    }
    // Full precision is for checking the CPU; the device refuses it.
    let formats: Vec<KvFormat> =
        KvFormat::ALL.into_iter().filter(|&format| format != KvFormat::F32).collect();
    for case in one_of_each() {
        check_chunks(&case, &formats, [load(&case, cuda()), load(&case, cuda())]);
    }
}

fn check_ragged<B: Backend>(case: &Case, mut model: Model<B>) {
    let vocab = case.spec.vocab;
    // Past and new tokens of each row.
    let rows = [(0, 5), (20, 1), (10, 30), (0, 1), (33, 2)];
    let own = |r: usize| &case.input_ids[r..];
    let mut kv = model.new_kv(KvFormat::F16, rows.len() * PAGE_TOKENS).unwrap();
    let pages: Vec<[u32; 1]> = (0..rows.len() as u32).rev().map(|page| [page]).collect();
    for (r, (past, _)) in rows.iter().enumerate().filter(|(_, (past, _))| *past > 0) {
        let ids = &own(r)[..*past];
        let row = StepRow::new(ids, 0, &pages[r], LogitUse::None);
        model.forward(&StepPlan::new(&[row]).unwrap(), &mut kv).unwrap();
    }
    let batch: Vec<StepRow<'_>> = rows
        .iter()
        .enumerate()
        .map(|(r, (past, new))| {
            let ids = &own(r)[*past..past + new];
            StepRow::new(ids, *past, &pages[r], LogitUse::Choice)
        })
        .collect();
    let mut together = Vec::new();
    model.forward(&StepPlan::new(&batch).unwrap(), &mut kv).unwrap();
    model.read_logits(&mut together).unwrap();
    for (r, (past, new)) in rows.iter().enumerate() {
        let alone = in_chunks(&mut model, KvFormat::F16, &own(r)[..past + new], 128, 2);
        let wanted = &alone[alone.len() - vocab..];
        assert!(&together[r * vocab..(r + 1) * vocab] == wanted, "{}: row {r}", case.name);
    }
}

#[test]
fn a_row_of_a_ragged_batch_equals_the_row_alone() {
    for case in one_of_each() {
        check_ragged(&case, load(&case, cpu(MathMode::Exact, 2)));
    }
}

#[test]
fn a_row_of_a_ragged_batch_equals_the_row_alone_on_cuda() {
    if !on_cuda("every family in ragged batches") {
        return;
    }
    for case in one_of_each() {
        check_ragged(&case, load(&case, cuda()));
    }
}
