//! The thread that owns the session, and the handle that talks to it.
//!
//! One thread owns model, cache and sequence by value; everyone else holds channels. Requests wait
//! their turn and run one after another. Dropping an [`EventStream`] cancels its generation before
//! the next step. When the last handle is gone the thread ends.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use pagella_text::Tokenizer;

use crate::{Completion, EngineError, Event, Generation, Request, Session};

/// A request on its way to the thread.
struct Job {
    request: Request,
    events: Sender<Result<Event, EngineError>>,
}

/// Handle of the thread; clones share it.
#[derive(Clone)]
pub struct Worker {
    jobs: Sender<Job>,
}

impl Worker {
    /// Starts the thread.
    pub fn spawn(session: Session, tokenizer: Tokenizer) -> Result<Self, EngineError> {
        let (jobs, queue) = channel();
        std::thread::Builder::new()
            .name("pagella-engine".to_owned())
            .spawn(move || serve(session, &tokenizer, &queue))
            .map_err(EngineError::Thread)?;
        Ok(Worker { jobs })
    }

    /// Queues a request. Errors of the request itself come as the stream's first item.
    pub fn generate(&self, request: Request) -> Result<EventStream, EngineError> {
        let (events, stream) = channel();
        self.jobs.send(Job { request, events }).map_err(|_| EngineError::WorkerGone)?;
        Ok(EventStream { events: stream, ended: false })
    }
}

fn serve(mut session: Session, tokenizer: &Tokenizer, queue: &Receiver<Job>) {
    while let Ok(job) = queue.recv() {
        let generation = match Generation::start(&mut session, tokenizer, job.request) {
            Ok(generation) => generation,
            Err(error) => {
                // A reader that is gone does not need the error.
                let _ = job.events.send(Err(error));
                continue;
            }
        };
        for event in generation {
            if job.events.send(event).is_err() {
                break;
            }
        }
    }
}

/// Events of one request; dropping it cancels the request.
pub struct EventStream {
    events: Receiver<Result<Event, EngineError>>,
    ended: bool,
}

impl EventStream {
    /// Waits at most `timeout` for the next event; `None` when nothing came in time.
    pub fn next_within(&mut self, timeout: Duration) -> Option<Option<<Self as Iterator>::Item>> {
        if self.ended {
            return Some(None);
        }
        match self.events.recv_timeout(timeout) {
            Ok(event) => Some(Some(self.note(event))),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                Some(Some(self.note(Err(EngineError::WorkerGone))))
            }
        }
    }

    /// Waits for the end.
    pub fn finish(self) -> Result<Completion, EngineError> {
        for event in self {
            if let Some(completion) = event?.end {
                return Ok(completion);
            }
        }
        Err(EngineError::WorkerGone)
    }

    /// Remembers whether anything can follow.
    fn note(&mut self, event: Result<Event, EngineError>) -> Result<Event, EngineError> {
        self.ended = match &event {
            Ok(event) => event.end.is_some(),
            Err(_) => true,
        };
        event
    }
}

impl Iterator for EventStream {
    type Item = Result<Event, EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let event = self.events.recv().unwrap_or(Err(EngineError::WorkerGone));
        Some(self.note(event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EosReason;
    use crate::stand_in::{StandIn, tokenizer};

    fn worker(context: usize) -> (Worker, StandIn) {
        let model = StandIn::new(context, 512);
        let session = Session::new(Box::new(model.clone()));
        (Worker::spawn(session, tokenizer()).unwrap(), model)
    }

    fn request(max_new_tokens: usize) -> Request {
        Request { max_new_tokens: Some(max_new_tokens), ..Request::new(vec![1, 2, 3]) }
    }

    #[test]
    fn requests_of_many_threads_all_get_the_answer_of_a_single_one() {
        let (worker, _) = worker(1024);
        let alone = worker.generate(request(20)).unwrap().finish().unwrap();
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let worker = worker.clone();
                std::thread::spawn(move || worker.generate(request(20)).unwrap().finish().unwrap())
            })
            .collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap().token_ids, alone.token_ids);
        }
    }

    #[test]
    fn two_streams_of_one_thread_do_not_block_each_other() {
        let (worker, _) = worker(1024);
        let first = worker.generate(request(5)).unwrap();
        let second = worker.generate(request(5)).unwrap();
        assert_eq!(second.finish().unwrap().new_tokens, 5);
        assert_eq!(first.finish().unwrap().new_tokens, 5);
    }

    #[test]
    fn a_dropped_stream_stops_the_computation() {
        let (worker, model) = worker(100_000);
        let mut endless = worker.generate(Request::new(vec![1])).unwrap();
        endless.next().unwrap().unwrap();
        drop(endless);
        // The next request only runs once the endless one has noticed.
        let done = worker.generate(request(1)).unwrap().finish().unwrap();
        assert_eq!(done.eos_reason, EosReason::MaxNewTokens);
        assert!(model.steps().len() < 99_000);
    }

    #[test]
    fn errors_arrive_as_the_first_item_and_the_worker_lives_on() {
        let (worker, _) = worker(8);
        let mut bad = worker.generate(Request::new(vec![0; 9])).unwrap();
        assert!(matches!(bad.next(), Some(Err(EngineError::PromptTooLong { .. }))));
        assert!(bad.next().is_none());
        assert!(worker.generate(request(1)).unwrap().finish().is_ok());
    }
}
