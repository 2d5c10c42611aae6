//! A model on its way: what was said about it so far, who listens, how it ended.
//!
//! Whoever comes later hears everything from the beginning. A load goes on when its listeners leave,
//! unless all of them said that they would not need it then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::open::LoadStep;
use super::options::LoadOptions;
use crate::wire::error::ApiError;

/// Who asked for a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadOrigin {
    /// Whoever started the server.
    Start,
    /// A request to load.
    Request,
    /// A request for an answer, which waits for it.
    Answer,
    /// The end of an engine.
    Restart,
}

/// One load.
pub struct Load {
    /// Which model.
    pub id: String,
    /// How.
    pub options: LoadOptions,
    /// Who asked for it.
    pub origin: LoadOrigin,
    begun: Instant,
    state: Mutex<State>,
    /// Something was said.
    said: watch::Sender<()>,
    cancelled: AtomicBool,
}

#[derive(Default)]
struct State {
    events: Vec<Value>,
    /// Of the model itself.
    step: LoadStep,
    /// Of its draft model, once that is reached.
    draft: Option<LoadStep>,
    end: Option<Result<(), ApiError>>,
    followers: usize,
    /// Someone relies on it who may be gone.
    kept: bool,
}

/// What a follower hears.
pub enum Followed {
    /// How far it is.
    Step(Value),
    /// How it ended.
    End(Result<(), ApiError>),
}

impl Load {
    /// A load that is about to begin.
    pub fn new(id: &str, options: LoadOptions, origin: LoadOrigin) -> Arc<Self> {
        Arc::new(Load {
            id: id.to_owned(),
            options,
            origin,
            begun: Instant::now(),
            state: Mutex::default(),
            said: watch::Sender::new(()),
            cancelled: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it should stop at the next module.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Stops it at the next module.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Seconds since it began.
    pub fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// The next module is about to be laid out. Returns the event; `None` for the call after the last.
    /// A draft model is finished by itself; the model is when all of it is ready.
    pub fn step(&self, step: LoadStep) -> Option<Value> {
        let mut state = self.lock();
        match step.of_draft {
            true => state.draft = Some(step),
            false => state.step = step,
        }
        drop(state);
        match (step.modules_done < step.modules_total, step.of_draft) {
            (true, _) => Some(self.say_of(step, "processing")),
            (false, true) => Some(self.say_of(step, "finished")),
            (false, false) => None,
        }
    }

    /// How far it is now.
    pub fn progress(&self) -> Value {
        let state = self.lock();
        let step = state.draft.unwrap_or(state.step);
        drop(state);
        json!({
            "module": step.modules_done,
            "modules": step.modules_total,
            "bytes_done": step.bytes_done,
            "bytes_total": step.bytes_total,
            "elapsed": self.seconds(),
        })
    }

    /// Says what happens now. Returns the event.
    pub fn say(&self, status: &str) -> Value {
        let step = self.lock().step;
        self.say_of(step, status)
    }

    fn say_of(&self, step: LoadStep, status: &str) -> Value {
        let module = match status {
            "processing" => step.modules_done + 1,
            "finished" => step.modules_total,
            _ => step.modules_done,
        };
        let event = json!({
            "model_type": if step.of_draft { "draft" } else { "model" },
            "module": module,
            "modules": step.modules_total,
            "status": status,
            "bytes_done": step.bytes_done,
            "bytes_total": step.bytes_total,
            "elapsed": self.seconds(),
        });
        self.lock().events.push(event.clone());
        self.said.send_replace(());
        event
    }

    /// It is over.
    pub fn end(&self, end: Result<(), ApiError>) {
        if end.is_ok() {
            self.say("finished");
        }
        self.lock().end = Some(end);
        self.said.send_replace(());
    }

    /// Listens from the beginning. With `keep`, the load goes on when the listener leaves.
    pub fn follow(self: &Arc<Self>, keep: bool) -> Follower {
        let mut state = self.lock();
        state.followers += 1;
        state.kept |= keep;
        drop(state);
        Follower { load: self.clone(), said: self.said.subscribe(), heard: 0 }
    }
}

/// Listens to a load.
pub struct Follower {
    load: Arc<Load>,
    said: watch::Receiver<()>,
    /// Events that were heard.
    heard: usize,
}

impl Follower {
    /// The next event, or the end.
    pub async fn next(&mut self) -> Followed {
        loop {
            self.said.borrow_and_update();
            if let Some(followed) = self.hear() {
                return followed;
            }
            // The sender lives in the load, which is held.
            let _ = self.said.changed().await;
        }
    }

    /// What was said already.
    fn hear(&mut self) -> Option<Followed> {
        let state = self.load.lock();
        if let Some(event) = state.events.get(self.heard) {
            self.heard += 1;
            return Some(Followed::Step(event.clone()));
        }
        state.end.clone().map(Followed::End)
    }

    /// Waits for the end; returns the last event.
    pub async fn finish(mut self) -> Result<Value, ApiError> {
        let mut last = Value::Null;
        loop {
            match self.next().await {
                Followed::Step(event) => last = event,
                Followed::End(end) => return end.map(|()| last),
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut state = self.load.lock();
        state.followers -= 1;
        if state.followers == 0 && !state.kept && state.end.is_none() {
            drop(state);
            self.load.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::error::Code;

    fn load() -> Arc<Load> {
        Load::new("a", LoadOptions::default(), LoadOrigin::Request)
    }

    async fn hear(mut follower: Follower) -> (Vec<(u64, String)>, Result<(), ApiError>) {
        let mut heard = Vec::new();
        loop {
            match follower.next().await {
                Followed::Step(event) => {
                    let status = event["status"].as_str().unwrap().to_owned();
                    heard.push((event["module"].as_u64().unwrap(), status));
                }
                Followed::End(end) => return (heard, end),
            }
        }
    }

    #[test]
    fn whoever_comes_late_hears_everything() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let load = load();
        let early = load.follow(true);
        let telling = load.clone();
        let thread = std::thread::spawn(move || {
            telling.say("queued");
            for done in 0..=3 {
                let step = LoadStep { modules_done: done, modules_total: 3, ..LoadStep::default() };
                assert_eq!(telling.step(step).is_some(), done < 3);
            }
            telling.end(Ok(()));
        });
        let heard = runtime.block_on(hear(early));
        thread.join().unwrap();
        let statuses: Vec<(u64, &str)> = heard.0.iter().map(|(k, s)| (*k, s.as_str())).collect();
        let processing = [(1, "processing"), (2, "processing"), (3, "processing")];
        assert_eq!(statuses[0], (0, "queued"));
        assert_eq!(statuses[1..4], processing);
        assert_eq!(statuses[4..], [(3, "finished")]);
        assert_eq!(runtime.block_on(hear(load.follow(true))), heard);
        assert!(!load.is_cancelled());
    }

    #[test]
    fn a_draft_model_has_steps_of_its_own_before_the_model_is_finished() {
        let load = load();
        for of_draft in [false, true] {
            for modules_done in 0..=2 {
                let step =
                    LoadStep { modules_done, modules_total: 2, of_draft, ..LoadStep::default() };
                load.step(step);
            }
        }
        assert_eq!(load.progress()["module"], 2);
        load.end(Ok(()));
        let events = load.lock().events.clone();
        let told: Vec<String> = events
            .iter()
            .map(|event| format!("{} {} {}", event["model_type"], event["module"], event["status"]))
            .collect();
        let expected = [
            "model 1 processing",
            "model 2 processing",
            "draft 1 processing",
            "draft 2 processing",
            "draft 2 finished",
            "model 2 finished",
        ];
        assert_eq!(
            told,
            expected.map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                format!("\"{}\" {} \"{}\"", words[0], words[1], words[2])
            })
        );
    }

    #[test]
    fn a_load_that_nobody_needs_is_cancelled_and_any_other_goes_on() {
        let (first, second) = (load(), load());
        let (a, b) = (first.follow(false), first.follow(false));
        drop(a);
        assert!(!first.is_cancelled(), "someone still listens");
        drop(b);
        assert!(first.is_cancelled());
        drop(second.follow(true));
        drop(second.follow(false));
        assert!(!second.is_cancelled(), "someone relied on it");
        let ended = load();
        let follower = ended.follow(false);
        ended.end(Err(ApiError::new(Code::NoModelLoaded, "x")));
        drop(follower);
        assert!(!ended.is_cancelled());
    }
}
