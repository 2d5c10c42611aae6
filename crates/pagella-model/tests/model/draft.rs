//! Drafts against single steps whose ids the host chooses.

use pagella_backend::{
    Backend, BackendError, GUESS_ERROR, GUESS_LEVELS_MAX, Guess, KvFormat, LogitUse, PlanError,
    StepPlan, StepRow,
};
use pagella_cpu::MathMode;
use pagella_cuda::{CudaBackend, CudaOptions};
use pagella_model::{Cache, Model, ModelError};

use crate::cpu::{cpu, ids};
use crate::directory::{argmax, demo, load};
use crate::families::on_cuda;

/// Tokens of a row before and in the first step, and how many of the latter have logits. Some rows
/// cross the border of a page inside the first step, right after it, or later.
const RAGGED: &[(usize, usize, usize)] =
    &[(0, 3, 1), (250, 4, 2), (255, 1, 1), (252, 4, 4), (7, 1, 1)];
const STEP_TOKENS_MAX: usize = 512;

/// A model with rows whose pasts are in a cache.
struct Scene<'m, B: Backend> {
    model: &'m mut Model<B>,
    kv: Cache<B>,
    /// All ids of every row, and how many of them are in the cache.
    rows: Vec<(Vec<u32>, usize)>,
    pages: Vec<[u32; 2]>,
    logits: Vec<LogitUse>,
}

impl<'m, B: Backend> Scene<'m, B> {
    fn new(model: &'m mut Model<B>, shape: &[(usize, usize, usize)]) -> Self {
        let mut kv = model.new_kv(KvFormat::F16, 512 * shape.len()).unwrap();
        let pages: Vec<[u32; 2]> = (0..shape.len() as u32).map(|r| [2 * r + 1, 2 * r]).collect();
        let mut rows = Vec::new();
        for ((past, new, _), pages) in shape.iter().zip(&pages) {
            let mut all = ids(past + new + 1);
            all.rotate_left(past % 3);
            all.truncate(past + new);
            if *past > 0 {
                let row = StepRow::new(&all[..*past], 0, pages, LogitUse::None);
                model.forward(&StepPlan::new(&[row]).unwrap(), &mut kv).unwrap();
            }
            rows.push((all, *past));
        }
        let logits = shape.iter().map(|(_, _, wanted)| LogitUse::last(*wanted)).collect();
        Scene { model, kv, rows, pages, logits }
    }

    /// The plan of what is not in the cache yet.
    fn plan(&self) -> StepPlan {
        let rows: Vec<StepRow<'_>> = (0..self.rows.len())
            .map(|r| {
                let (ids, past) = &self.rows[r];
                StepRow::new(&ids[*past..], *past, &self.pages[r], self.logits[r])
            })
            .collect();
        StepPlan::new(&rows).unwrap()
    }

    fn draft(&mut self, n: usize, vocab: usize) -> Result<Vec<Guess>, ModelError> {
        let plan = self.plan();
        let pages: Vec<&[u32]> = self.pages.iter().map(<[u32; 2]>::as_slice).collect();
        // Something to be replaced.
        let mut out = vec![Guess::default(); 2];
        self.model.draft(&plan, &pages, n, vocab, &mut self.kv, &mut out)?;
        Ok(out)
    }

    /// Logits of the last token of every row, after a step with what is not in the cache yet.
    fn step(&mut self) -> Vec<Vec<f32>> {
        let plan = self.plan();
        self.model.forward(&plan, &mut self.kv).unwrap();
        let (mut all, width) = (Vec::new(), self.model.spec().vocab);
        self.model.read_logits(&mut all).unwrap();
        let of_row = |row: Option<usize>| all[row.unwrap() * width..][..width].to_vec();
        plan.last_logit_rows().map(of_row).collect()
    }

    /// Gives every row one more id; the ones before it are in the cache.
    fn push(&mut self, ids: impl Iterator<Item = u32>) {
        for ((row, past), id) in self.rows.iter_mut().zip(ids) {
            *past = row.len();
            row.push(id);
        }
        self.logits.fill(LogitUse::Choice);
    }
}

fn probability(logits: &[f32], id: u32) -> f64 {
    let highest = f64::from(logits[id as usize]);
    1.0 / logits.iter().map(|logit| (f64::from(*logit) - highest).exp()).sum::<f64>()
}

/// Several drafts, each against single steps, and what both leave in the cache.
fn compare<B: Backend>(model: &mut Model<B>, shape: &[(usize, usize, usize)]) {
    for (n, vocab) in [(1, 4096), (2, 4096), (17, 4096), (9, 1000)] {
        let what = format!("{n} ids of {vocab} after {shape:?}");
        let mut drafted = Scene::new(model, shape);
        let found = drafted.draft(n, vocab).unwrap();
        assert_eq!(found.len(), n * shape.len(), "{what}");
        for level in found.chunks(shape.len()) {
            drafted.push(level.iter().map(|guess| guess.id));
        }
        let after = drafted.step();

        let mut single = Scene::new(model, shape);
        for level in found.chunks(shape.len()) {
            let logits = single.step();
            for (guess, row) in level.iter().zip(&logits) {
                let row = &row[..vocab];
                assert_eq!(guess.id, argmax(row), "{what}");
                let expected = probability(row, guess.id);
                let error = (f64::from(guess.probability) - expected).abs();
                assert!(error <= GUESS_ERROR * expected, "{what}: {guess:?}, {expected}");
            }
            single.push(level.iter().map(|guess| guess.id));
        }
        assert!(single.step() == after, "{what}: the cache");
    }
}

fn compare_all<B: Backend>(backend: B) {
    let mut model = load(&demo(), backend, STEP_TOKENS_MAX).unwrap();
    compare(&mut model, RAGGED);
    compare(&mut model, &[(254, 1, 1)]);
    compare(&mut model, &[(1, 1, 1), (300, 1, 1), (40, 1, 1)]);
}

#[test]
fn a_draft_is_single_greedy_steps_on_the_cpu() {
    compare_all(cpu(MathMode::Exact, 2));
}

#[test]
fn a_draft_is_single_greedy_steps_on_cuda() {
    if on_cuda("drafts") {
        compare_all(CudaBackend::new(CudaOptions::default()).unwrap());
    }
}

#[test]
fn a_draft_that_does_not_fit_runs_nothing() {
    let mut model = load(&demo(), cpu(MathMode::Exact, 2), STEP_TOKENS_MAX).unwrap();
    let mut scene = Scene::new(&mut model, &[(250, 2, 1), (3, 2, 1)]);
    let size = |error: ModelError| matches!(error, ModelError::Backend(BackendError::Size { .. }));
    let option = |error: ModelError| matches!(error, ModelError::BadOption { .. });
    assert!(option(scene.draft(0, 4096).unwrap_err()));
    assert!(option(scene.draft(GUESS_LEVELS_MAX + 1, 4096).unwrap_err()));
    assert!(option(scene.draft(2, 0).unwrap_err()) && option(scene.draft(2, 4097).unwrap_err()));
    let plan = scene.plan();
    let mut out = vec![Guess::default()];
    let mut draft = |plan: &StepPlan, pages: &[&[u32]], n| {
        scene.model.draft(plan, pages, n, 4096, &mut scene.kv, &mut out).unwrap_err()
    };
    // The first step and four ids fit on the page, the fifth does not.
    let few = draft(&plan, &[&[1], &[3]], 6);
    assert!(matches!(few, ModelError::Plan(PlanError::TooFewPages { row: 0, .. })), "{few}");
    let other = draft(&plan, &[&[0, 1], &[3]], 2);
    assert!(matches!(other, ModelError::Plan(PlanError::OtherPages { row: 0 })), "{other}");
    let silent = StepPlan::new(&[StepRow::new(&[1], 0, &[1], LogitUse::None)]).unwrap();
    assert!(size(draft(&silent, &[&[1]], 2)));
    let next = plan.continued(&[&[1, 0], &[3]]).unwrap();
    assert!(size(draft(&next, &[&[1, 0], &[3]], 2)), "ids that nobody has guessed");
    let far: Vec<u32> = (0..8).collect();
    let late = StepPlan::new(&[StepRow::new(&[1], 2040, &far, LogitUse::Choice)]).unwrap();
    let far: Vec<u32> = (0..9).collect();
    let beyond = draft(&late, &[&far], 9);
    assert!(matches!(beyond, ModelError::ContextExceeded { tokens: 2049, .. }), "{beyond}");
    assert!(out.is_empty());
    // None of it was in the way of one that fits: five ids need no second page.
    let fits = scene.draft(5, 4096).unwrap();
    let fresh = Scene::new(&mut model, &[(250, 2, 1), (3, 2, 1)]).draft(5, 4096).unwrap();
    assert_eq!(fits, fresh);
}
