//! Texts through the engine. Everything the request holds goes with the future that waits here.

use pagella_engine::{EngineError, Pooling};
use tokio::sync::oneshot;

use crate::app::Phase;
use crate::call::Call;
use crate::generate::submit::{Entered, closes, draining};
use crate::model::ServedModel;
use crate::requests::Progress;
use crate::wire::error::{ApiError, Code};

/// The vectors of texts.
pub async fn run(
    entered: Entered,
    call: &Call,
    model: &ServedModel,
    texts: Vec<Vec<u32>>,
    pooling: Pooling,
) -> Result<Vec<Vec<f32>>, ApiError> {
    let Entered { ticket, listed, access, mut phases } = entered;
    let tokens = texts.iter().map(Vec::len).sum();
    listed.live.prompt_is(tokens);
    access.note(|facts| facts.prompt_tokens = tokens);
    listed.live.reach(Progress::Queued);
    let turn = async {
        let place = ticket.place().await;
        ticket.turn(tokens, call.caller.key.priority).await;
        place
    };
    let _place = tokio::select! {
        place = turn => place,
        _ = phases.wait_for(|phase| *phase >= Phase::Draining) => return Err(draining()),
    };
    let (send, receive) = oneshot::channel();
    // Whoever asked may have gone.
    let reply = move |vectors| drop(send.send(vectors));
    let handle = model.parts.worker.embed(texts, pooling, reply);
    let handle = handle.map_err(|error| model.explain(&error, "input"))?;
    let mut closings = model.closings();
    listed.live.owns(vec![handle.canceller()]);
    listed.live.reach(Progress::Prefill);
    access.note(|facts| facts.phase = Some(Progress::Prefill.name()));
    ticket.begin();
    ticket.charge(tokens);
    let answered = tokio::select! {
        biased;
        _ = phases.wait_for(|phase| *phase >= Phase::Cancelling) => return Err(draining()),
        closing = closes(&mut closings) => return Err(closing.error()),
        answered = receive => answered,
    };
    match answered {
        Ok(Ok(vectors)) => {
            call.app.metrics.note_texts(tokens);
            Ok(vectors)
        }
        Ok(Err(error)) => Err(model.explain(&error, "input")),
        Err(_) if listed.live.is_cancelled() => {
            Err(ApiError::new(Code::Cancelled, "the request was cancelled"))
        }
        Err(_) => Err(model.explain(&EngineError::WorkerGone, "input")),
    }
}
