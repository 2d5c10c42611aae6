//! Stages side by side, each as soon as those it comes after have ended.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::Report;
use super::stage::Stage;

/// What is left to do and what came of the rest.
struct Progress {
    waiting: Vec<&'static Stage>,
    running: Vec<&'static Stage>,
    reports: Vec<Report>,
}

impl Progress {
    /// The first stage that waits for no other; what was never asked for is not waited for.
    fn start_next(&mut self) -> Option<&'static Stage> {
        let ahead = |name: &&str| {
            self.waiting.iter().chain(&self.running).any(|unfinished| unfinished.name == *name)
        };
        let ready = self.waiting.iter().position(|stage| !stage.after.iter().any(|n| ahead(n)))?;
        let stage = self.waiting.remove(ready);
        self.running.push(stage);
        Some(stage)
    }
}

/// Runs stages, up to `at_once` of them at the same time. The reports are in the order of the list.
pub fn run(
    stages: Vec<&'static Stage>,
    at_once: usize,
    perform: impl Fn(&'static Stage) -> Report + Sync,
) -> Vec<Report> {
    let names: Vec<&str> = stages.iter().map(|stage| stage.name).collect();
    let progress = Progress { waiting: stages, running: Vec::new(), reports: Vec::new() };
    let (progress, changed) = (Mutex::new(progress), Condvar::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(stage) = wait_for_next(&progress, &changed) {
                    let report = perform(stage);
                    let mut progress = lock(&progress);
                    progress.running.retain(|running| running.name != stage.name);
                    progress.reports.push(report);
                    changed.notify_all();
                }
            });
        }
    });
    let mut reports = lock(&progress).reports.split_off(0);
    reports.sort_by_key(|report| names.iter().position(|name| *name == report.stage.name));
    reports
}

/// Starts a stage, waiting for others where it must; none when all were started.
fn wait_for_next(progress: &Mutex<Progress>, changed: &Condvar) -> Option<&'static Stage> {
    let mut progress = lock(progress);
    loop {
        if progress.waiting.is_empty() {
            return None;
        }
        if let Some(stage) = progress.start_next() {
            return Some(stage);
        }
        progress = changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
    }
}

fn lock(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::Duration;

    use super::*;
    use crate::test::stage::Outcome;

    const STAGES: &[Stage] = &[named("a", &[]), named("b", &["a"]), named("c", &[])];

    const fn named(name: &'static str, after: &'static [&'static str]) -> Stage {
        Stage { name, about: "", after, run: |_| Ok(Outcome::Passed(String::new())) }
    }

    fn report(stage: &'static Stage) -> Report {
        Report { stage, outcome: Outcome::Passed(String::new()), took: Duration::ZERO }
    }

    /// The order in which stages started, and that of the reports.
    fn run_all(
        stages: &[&'static Stage],
        at_once: usize,
    ) -> (Vec<&'static str>, Vec<&'static str>) {
        let started = Mutex::new(Vec::new());
        let reports = run(stages.to_vec(), at_once, |stage| {
            started.lock().unwrap().push(stage.name);
            report(stage)
        });
        (started.into_inner().unwrap(), reports.iter().map(|r| r.stage.name).collect())
    }

    #[test]
    fn one_at_a_time_keeps_the_order_of_the_list() {
        let all: Vec<&Stage> = STAGES.iter().collect();
        assert_eq!(run_all(&all, 1), (vec!["a", "b", "c"], vec!["a", "b", "c"]));
    }

    #[test]
    fn what_was_not_asked_for_is_not_waited_for() {
        assert_eq!(run_all(&[&STAGES[1]], 2), (vec!["b"], vec!["b"]));
    }

    #[test]
    fn a_stage_waits_for_another_and_others_run_beside_it() {
        let (all, meet) = (STAGES.iter().collect(), Barrier::new(2));
        let ended = Mutex::new(Vec::new());
        let reports = run(all, 2, |stage| {
            if stage.name == "b" {
                assert!(ended.lock().unwrap().contains(&"a"));
            } else {
                // Both must be running for either to go on.
                meet.wait();
            }
            ended.lock().unwrap().push(stage.name);
            report(stage)
        });
        assert_eq!(reports.len(), 3);
    }
}
