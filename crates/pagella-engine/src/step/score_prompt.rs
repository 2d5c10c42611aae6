//! What the model thinks of prompts: log-probabilities of their own ids, for jobs that ask for them.

use crate::generator::Generator;
use crate::job::TokenLogprobs;
use crate::logit_rows::RowAnswer;
use crate::sample::raw_logprobs;
use crate::schedule::PlannedStep;

/// A row of logits that scores an id of a prompt.
pub(super) struct Scoring {
    /// Index of the job.
    job: usize,
    /// Number of the row among those with logits.
    row: usize,
    /// Place of the id that it scores.
    position: usize,
}

/// The rows that score prompts, before the step is committed.
pub(super) fn scoring_rows(generator: &Generator, planned: &PlannedStep) -> Vec<Scoring> {
    let mut scoring = Vec::new();
    let mut number = 0;
    for row in &planned.rows {
        let sequence = &generator.active[row.job].sequences[row.sequence];
        let scored = (0..row.logits.scored(row.tokens)).map(|idx| Scoring {
            job: row.job,
            row: number + idx,
            position: sequence.kv + idx + 1,
        });
        scoring.extend(scored);
        number += row.logit_rows();
    }
    scoring
}

impl Generator {
    /// Scores ids of prompts. What a job that had to start over has scored already is left alone.
    pub(super) fn score_prompts(&mut self, scoring: &[Scoring]) {
        let Generator { active, rows, .. } = self;
        for scored in scoring {
            let job = &mut active[scored.job];
            let Some(top) = job.options.return_prompt_logprobs else { continue };
            let id = job.sequences[0].ids.get(scored.position).copied();
            let next = job.prompt_scored + 1 == scored.position;
            if let (Some(id), RowAnswer::Whole(logits), true) = (id, rows.get(scored.row), next) {
                let (logprob, top) = raw_logprobs(logits, id, top);
                job.prompt_logprobs.push(TokenLogprobs { logprob, top });
                job.prompt_scored += 1;
            }
        }
    }
}
