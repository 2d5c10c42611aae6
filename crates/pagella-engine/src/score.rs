//! Scoring: how likely a model finds a given text, token by token.
//!
//! Log-probabilities are natural logarithms, summed in f64, of the raw distribution: no
//! temperature, no penalties.

use crate::{EngineError, Session};

/// What the model thought of one token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoredToken {
    /// Log-probability of the token that really followed.
    pub logprob: f64,
    /// The token the model found most likely; lowest id among equals.
    pub argmax: u32,
}

/// Scores `ids[1..]`, each given everything before it. The session is cleared first; the ids are fed
/// in chunks, which does not change a result.
pub fn score(session: &mut Session, ids: &[u32]) -> Result<Vec<ScoredToken>, EngineError> {
    let Some((_, context)) = ids.split_last() else { return Err(EngineError::EmptyPrompt) };
    session.clear();
    let mut scored = Vec::with_capacity(context.len());
    session.feed_all(context, |position, logits| {
        scored.push(log_prob_and_argmax(logits, ids[position + 1]));
    })?;
    Ok(scored)
}

/// Feeds `ids[..prefill]` at once, then `steps` tokens one at a time, and scores the token after
/// each of those: what the cache gives back, rather than what a single pass computes.
pub fn score_steps(
    session: &mut Session,
    ids: &[u32],
    prefill: usize,
    steps: usize,
) -> Result<Vec<ScoredToken>, EngineError> {
    let needed = prefill.saturating_add(steps).saturating_add(1);
    if ids.len() < needed || steps == 0 {
        return Err(EngineError::TooFewIds { ids: ids.len(), needed });
    }
    session.clear();
    if prefill > 0 {
        session.prefill(&ids[..prefill])?;
    }
    let mut scored = Vec::with_capacity(steps);
    for at in prefill..prefill + steps {
        session.decode(ids[at])?;
        scored.push(log_prob_and_argmax(session.logits(), ids[at + 1]));
    }
    Ok(scored)
}

/// Log-softmax of one row at `target`, and the row's most likely id. Shape `[vocab]`. An id beyond
/// the row has log-probability −∞.
pub fn log_prob_and_argmax(logits: &[f32], target: u32) -> ScoredToken {
    let argmax = argmax(logits);
    let max = logits.get(argmax).copied().map_or(0.0, f64::from);
    let sum: f64 = logits.iter().map(|&l| (f64::from(l) - max).exp()).sum();
    let target = logits.get(target as usize).map_or(f64::NEG_INFINITY, |&l| f64::from(l));
    ScoredToken { logprob: target - max - sum.ln(), argmax: argmax as u32 }
}

/// The highest logit's id, the lowest among equals.
pub(crate) fn argmax(logits: &[f32]) -> usize {
    let mut best = 0;
    for (id, &l) in logits.iter().enumerate() {
        if l > logits[best] {
            best = id;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::stand_in::StandIn;

    #[test]
    fn log_softmax_is_exact_and_ties_go_to_the_lowest_id() {
        let scored = log_prob_and_argmax(&[1.0, 3.0, 3.0, -2.0], 0);
        let sum = 1f64.exp() + 2.0 * 3f64.exp() + (-2f64).exp();
        assert!((scored.logprob - (1.0 - sum.ln())).abs() < 1e-12);
        assert_eq!(scored.argmax, 1);
        let large = log_prob_and_argmax(&[1e30, 1e30], 1);
        assert!((large.logprob + 2f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn chunks_and_single_steps_give_the_same_scores() {
        let ids: Vec<u32> = (0..40).map(|i| i * 11 % 64).collect();
        let scores = |step| {
            let mut session = Session::new(Box::new(StandIn::new(256, step)));
            score(&mut session, &ids).unwrap()
        };
        let whole = scores(512);
        assert_eq!(whole.len(), 39);
        assert_eq!(whole, scores(7));
        let mut session = Session::new(Box::new(StandIn::new(256, 16)));
        let stepped = score_steps(&mut session, &ids, 20, 10).unwrap();
        assert_eq!(stepped, &whole[20..30]);
    }

    #[test]
    fn too_few_ids_are_an_error() {
        let mut session = Session::new(Box::new(StandIn::new(256, 16)));
        assert!(matches!(
            score_steps(&mut session, &[1, 2, 3], 2, 1),
            Err(EngineError::TooFewIds { ids: 3, needed: 4 })
        ));
        assert!(matches!(score(&mut session, &[]), Err(EngineError::EmptyPrompt)));
        assert!(matches!(score(&mut session, &[1]), Ok(scored) if scored.is_empty()));
    }
}
