//! Planning without a model or a device: jobs are described, and the plan is looked at.

use super::*;
use crate::pages::{Namespace, SequenceNeed};

/// The id that every job writes.
const ID: u32 = 5;

/// A page table and the jobs that have pages of it; no model, no device.
struct Scene {
    table: PageTable,
    jobs: Vec<(Vec<Sequence>, bool)>,
    options: GeneratorOptions,
}

impl Scene {
    fn new(step_tokens: usize) -> Self {
        let options =
            GeneratorOptions { step_tokens: Some(step_tokens), ..GeneratorOptions::default() };
        Scene { table: PageTable::new(32), jobs: Vec::new(), options }
    }

    /// Starts a job with these prompts.
    fn start(&mut self, prompts: &[Vec<u32>]) {
        let weight = 1.0 / prompts.len() as f32;
        let mut sequences: Vec<Sequence> = prompts
            .iter()
            .map(|ids| Sequence::new(ids.clone(), weight, Namespace::EMPTY))
            .collect();
        let need = |sequence: &'_ Sequence| Sequence::pages_for(sequence.ids.len() + 1);
        let needs: Vec<SequenceNeed<'_>> = sequences
            .iter()
            .map(|sequence| SequenceNeed {
                namespace: sequence.namespace,
                keys: &sequence.keys,
                unique: need(sequence) - sequence.keys.len(),
            })
            .collect();
        let pages = self.table.open(&needs).unwrap();
        for (sequence, pages) in sequences.iter_mut().zip(pages) {
            sequence.open(pages, &self.table);
        }
        self.jobs.push((sequences, false));
    }

    fn plan(&self) -> Plan {
        self.plan_with(&[])
    }

    /// Plans a step in which every job has these guesses behind its newest id.
    fn plan_with(&self, guessed: &[u32]) -> Plan {
        let jobs = self.jobs.iter().enumerate().map(|(idx, (sequences, scores))| Runnable {
            guessed,
            ..Runnable::new(idx, sequences, *scores)
        });
        Planner::new(&self.table, &self.options).plan(jobs.collect()).unwrap()
    }

    /// Does what a plan says, as far as it can be seen in the table; whoever chooses an id takes [`ID`].
    fn carry_out(&mut self, plan: &Plan) {
        for found in &plan.reuse {
            let sequence = &mut self.jobs[found.job].0[found.sequence];
            sequence.kv += found.filled;
            if let Some(copy) = found.copy {
                sequence.commit(copy.tokens - sequence.kv % PAGE_TOKENS, &mut self.table);
            }
        }
        for row in plan.step.iter().flat_map(|step| &step.rows) {
            let sequence = &mut self.jobs[row.job].0[row.sequence];
            sequence.commit(row.tokens, &mut self.table);
            sequence.ids.extend(row.logits.chooses().then_some(ID));
        }
    }

    fn step(&mut self) -> Plan {
        let plan = self.plan();
        self.carry_out(&plan);
        plan
    }
}

fn ids(n: usize, seed: u32) -> Vec<u32> {
    (0..n as u32).map(|i| i.wrapping_mul(7) ^ seed).collect()
}

/// Job, sequence, tokens and rows of logits of every row.
fn rows(plan: &Plan) -> Vec<(usize, usize, usize, usize)> {
    let rows = plan.step.iter().flat_map(|step| &step.rows);
    rows.map(|row| (row.job, row.sequence, row.tokens, row.logit_rows())).collect()
}

#[test]
fn jobs_that_write_come_before_prompts_and_share_the_budget() {
    let mut scene = Scene::new(100);
    scene.start(&[ids(80, 1)]);
    assert_eq!(rows(&scene.step()), [(0, 0, 80, 1)]);
    scene.start(&[ids(90, 2)]);
    scene.start(&[ids(90, 3)]);
    let plan = scene.step();
    assert_eq!(rows(&plan), [(0, 0, 1, 1), (1, 0, 90, 1), (2, 0, 9, 0)]);
    let step = plan.step.unwrap();
    assert_eq!((step.plan.past(0), step.plan.past(2), step.prefill_tokens()), (80, 0, 99));
    assert_eq!(step.plan.ids()[0], ID);
    scene.options.prefill_tokens_while_decoding = Some(4);
    assert_eq!(rows(&scene.plan()), [(0, 0, 1, 1), (1, 0, 1, 1), (2, 0, 4, 0)]);
}

#[test]
fn planning_twice_gives_the_same_plan() {
    let mut scene = Scene::new(300);
    scene.start(&[ids(400, 1)]);
    scene.start(&[ids(400, 1)]);
    scene.step();
    let (first, second) = (scene.plan(), scene.plan());
    assert_eq!(first.reuse, second.reuse);
    assert_eq!(first.step.unwrap().plan, second.step.unwrap().plan);
}

#[test]
fn equal_prompts_are_computed_once_and_found_by_the_other() {
    let mut scene = Scene::new(1000);
    scene.start(&[ids(300, 1)]);
    scene.start(&[ids(300, 1)]);
    // The second waits for the page that the first one fills.
    assert_eq!(rows(&scene.step()), [(0, 0, 300, 1)]);
    let plan = scene.step();
    let [found] = plan.reuse[..] else { panic!("{:?}", plan.reuse) };
    assert_eq!((found.job, found.filled), (1, 256));
    // The rest of the prompt is in a page of the first one's own.
    assert_eq!(found.copy.map(|copy| copy.tokens), Some(299 - 256));
    assert_eq!(rows(&plan), [(0, 0, 1, 1), (1, 0, 1, 1)]);
}

#[test]
fn a_common_beginning_of_a_page_is_copied_and_the_rest_computed() {
    let mut scene = Scene::new(1000);
    scene.start(&[ids(200, 1)]);
    scene.step();
    let mut other = ids(200, 1);
    other[120..].fill(3);
    scene.start(std::slice::from_ref(&other));
    let own = scene.jobs[1].0[0].pages[0];
    let from = scene.jobs[0].0[0].pages[0];
    let plan = scene.plan();
    let copy = Some(PageCopy { from, to: own, tokens: 120 });
    assert_eq!(plan.reuse, [Reuse { job: 1, sequence: 0, filled: 0, copy }]);
    assert_eq!(rows(&plan), [(0, 0, 1, 1), (1, 0, 80, 1)]);
    assert_eq!(plan.step.unwrap().plan.past(1), 120);
    assert_eq!(scene.table.fill(own), 0, "nothing was written");
    scene.options.copy_tokens_min = 121;
    let plan = scene.plan();
    assert_eq!((plan.reuse.len(), rows(&plan)), (0, vec![(0, 0, 1, 1), (1, 0, 200, 1)]));
}

#[test]
fn what_one_copy_brings_to_a_shared_page_others_find_in_the_same_plan() {
    let mut scene = Scene::new(1000);
    scene.start(&[ids(200, 1)]);
    scene.step();
    let mut other = ids(300, 1);
    other[120..].fill(3);
    scene.start(std::slice::from_ref(&other));
    scene.start(std::slice::from_ref(&other));
    let plan = scene.plan();
    let found: Vec<_> = plan.reuse.iter().map(|found| (found.job, found.filled)).collect();
    assert_eq!(found, [(1, 0), (2, 120)]);
    assert_eq!((plan.reuse[0].copy.is_some(), plan.reuse[1].copy), (true, None));
    assert_eq!(rows(&plan), [(0, 0, 1, 1), (1, 0, 180, 1)]);
}

#[test]
fn mixed_prompts_give_their_logits_in_one_step() {
    let mut scene = Scene::new(100);
    scene.start(&[ids(90, 1), ids(40, 2)]);
    assert_eq!(rows(&scene.step()), [(0, 0, 89, 0), (0, 1, 11, 0)]);
    assert_eq!(rows(&scene.step()), [(0, 1, 28, 0)]);
    let plan = scene.plan();
    assert_eq!(rows(&plan), [(0, 0, 1, 1), (0, 1, 1, 1)]);
    assert!(plan.step.unwrap().rows.iter().all(|row| row.logits == LogitUse::Mix));
}

#[test]
fn scored_prompts_have_all_their_logits_a_few_at_a_time() {
    let mut scene = Scene::new(100);
    scene.start(&[ids(50, 1)]);
    scene.jobs[0].1 = true;
    assert_eq!(rows(&scene.step()), [(0, 0, SCORED_ROWS_MAX, SCORED_ROWS_MAX)]);
    let plan = scene.plan();
    let row = plan.step.unwrap().rows[0];
    assert_eq!((row.tokens, row.logits), (18, LogitUse::Score { choice: true }));
}

#[test]
fn a_job_without_a_page_for_its_newest_id_waits() {
    let mut scene = Scene::new(1000);
    scene.start(&[ids(256, 1)]);
    scene.step();
    scene.jobs[0].0[0].pages.truncate(1);
    let plan = scene.plan();
    assert!(plan.reuse.is_empty() && plan.step.is_none());
}

/// The newest id and as many guesses as there can be.
const GUESSED: [u32; 32] = [ID; 32];

#[test]
fn guesses_have_no_more_rows_of_logits_than_a_batch_or_a_recording() {
    for batch_max in [8, 256] {
        let mut scene = Scene::new(2048);
        scene.options.batch_max = batch_max;
        (0..8).for_each(|seed| scene.start(&[ids(20, 100 * seed)]));
        scene.step();
        let plan = scene.plan_with(&GUESSED);
        let logits: usize = rows(&plan).iter().map(|row| row.3).sum();
        assert_eq!(logits, if batch_max == 8 { 128 } else { 8 * 32 });
        assert_eq!(rows(&plan).len(), 8, "everyone writes");
    }
}

#[test]
fn prompts_that_are_scored_side_by_side_share_the_rows_of_logits() {
    let mut scene = Scene::new(2048);
    scene.options.batch_max = 8;
    (0..8).for_each(|seed| scene.start(&[ids(100, 1000 * seed)]));
    scene.jobs.iter_mut().for_each(|job| job.1 = true);
    let plan = scene.step();
    assert_eq!(rows(&plan).len(), 8, "everyone gets on");
    assert_eq!(rows(&plan).iter().map(|row| row.3).sum::<usize>(), 128);
}

#[test]
fn guesses_leave_half_of_a_step_to_prompts() {
    let mut scene = Scene::new(128);
    (0..4).for_each(|seed| scene.start(&[ids(20, 100 * seed)]));
    scene.step();
    let alone: usize = rows(&scene.plan_with(&GUESSED)).iter().map(|row| row.2).sum();
    assert_eq!(alone, 128, "without prompts a step is full of guesses");
    scene.start(&[ids(400, 999)]);
    let plan = scene.plan_with(&GUESSED);
    let prompt: usize = rows(&plan).iter().filter(|row| row.0 == 4).map(|row| row.2).sum();
    assert_eq!((rows(&plan).len(), prompt), (5, 64));
}
