//! What the counts of an engine tell the log: jobs that lost their pages to others, steps that took
//! long, and a draft model that was given up.

use pagella_engine::Stats;
use serde_json::Value;

use crate::log::Log;

/// The counts that were told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    preemptions: u64,
    slow_steps: u64,
    draft_failures: u64,
}

impl Told {
    /// Tells what happened since; returns what is told now.
    pub fn follow(self, stats: &Stats, model: &str, log: &Log) -> Self {
        let millis = u64::try_from(stats.slow_step.as_millis()).unwrap_or(u64::MAX);
        let now = Told {
            preemptions: stats.preemptions,
            slow_steps: stats.slow_steps,
            draft_failures: stats.draft.model_failures,
        };
        self.tell(now, millis, model, log);
        now
    }

    fn tell(self, now: Told, slow_ms: u64, model: &str, log: &Log) {
        let more = |count: fn(&Told) -> u64| count(&now).saturating_sub(count(&self));
        let preempted = more(|told| told.preemptions);
        let name = || ("model", Value::from(model));
        if preempted > 0 {
            log.info("preempt", &[name(), ("jobs", preempted.into())]);
        }
        let slow = more(|told| told.slow_steps);
        if slow > 0 {
            log.warn("slow_iteration", &[name(), ("ms", slow_ms.into()), ("steps", slow.into())]);
        }
        if more(|told| told.draft_failures) > 0 {
            log.warn("draft_model_failed", &[name(), ("drafting", "without it".into())]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Logging;

    #[test]
    fn what_is_new_is_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        let log = Log::open(Logging { file: Some(file.clone()), ..Logging::default() }).unwrap();
        let none = Told::default();
        let some = Told { preemptions: 2, slow_steps: 1, draft_failures: 1 };
        none.tell(none, 0, "a", &log);
        none.tell(some, 1500, "a", &log);
        some.tell(some, 1500, "a", &log);
        some.tell(Told { preemptions: 3, ..some }, 1500, "a", &log);
        let text = std::fs::read_to_string(file).unwrap();
        let lines: Vec<&str> =
            text.lines().map(|line| &line["00:00:00 ".len()..]).skip(1).collect();
        let expected = [
            "info preempt model=a jobs=2",
            "warn slow_iteration model=a ms=1500 steps=1",
            "warn draft_model_failed model=a drafting=\"without it\"",
            "info preempt model=a jobs=1",
        ];
        assert_eq!(lines, expected);
    }
}
