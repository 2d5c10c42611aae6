//! One thread of the load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pagella::{
    Backpressure, Complete, Completion, Engine, EngineError, EosReason, Error, JobStream,
};

use crate::Requests;
use crate::watch::{Counts, Watch};

/// Asks at random.
pub struct Client {
    engine: Engine,
    requests: Requests,
    random: u64,
    counts: Arc<Counts>,
    /// Seconds on the watch's clock when the current action began.
    began: Arc<std::sync::atomic::AtomicU64>,
}

impl Client {
    pub fn new(engine: &Engine, requests: &Requests, seed: u64, watch: &Watch) -> Self {
        let (engine, requests) = (engine.clone(), requests.clone());
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Client { engine, requests, random, counts: watch.counts(), began: watch.register() }
    }

    /// A number below `n`.
    fn below(&mut self, n: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % n
    }

    /// Asks until it is over, or something is wrong.
    pub fn run(mut self, over: &AtomicBool) -> Result<(), String> {
        while !over.load(Ordering::Relaxed) {
            self.began.store(self.counts.now(), Ordering::Relaxed);
            match self.act() {
                // A full queue is part of the load.
                Err(Error::Engine(error)) if matches!(*error, EngineError::Busy { .. }) => {
                    self.counts.busy.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => return Err(format!("a request failed: {error}")),
                Ok(Some(difference)) => return Err(difference),
                Ok(None) => {}
            }
        }
        self.began.store(u64::MAX, Ordering::Relaxed);
        Ok(())
    }

    /// One action. `Some` says how an answer was wrong.
    fn act(&mut self) -> Result<Option<String>, Error> {
        let chosen = self.below(self.requests.len() as u64) as usize;
        let requests = self.requests.clone();
        let (request, alone) = &requests[chosen];
        let complete = request(&self.engine);
        match self.below(12) {
            0 | 1 => self.drop_early(complete),
            2 => self.run_out_of_time(complete, alone),
            3 => self.read_slowly(complete, alone),
            4 => {
                self.engine.stats()?;
                let map = self.engine.page_map()?;
                Ok(map.contains('#').then(|| format!("the page table is damaged: {map}")))
            }
            _ => {
                let answers = complete.run_all()?;
                Ok(answers.iter().zip(alone).find_map(|(a, b)| self.compare(chosen, a, b)))
            }
        }
    }

    fn drop_early(&mut self, complete: Complete) -> Result<Option<String>, Error> {
        let mut streams = complete.stream_all()?;
        for _ in 0..self.below(12) {
            let n = streams.len() as u64;
            let stream: &mut JobStream = &mut streams[self.below(n) as usize];
            stream.next().transpose()?;
        }
        self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        Ok(None)
    }

    fn run_out_of_time(
        &mut self,
        complete: Complete,
        alone: &[Completion],
    ) -> Result<Option<String>, Error> {
        let time = Duration::from_millis(self.below(200) + 1);
        for (answer, alone) in complete.timeout(time).run_all()?.iter().zip(alone) {
            self.counts.late.fetch_add(1, Ordering::Relaxed);
            let right = match answer.eos_reason {
                EosReason::Deadline => alone.text.starts_with(&answer.text),
                _ => answer == alone,
            };
            if !right {
                return Ok(Some(format!("in time {:?}, alone {:?}", answer.text, alone.text)));
            }
        }
        Ok(None)
    }

    fn read_slowly(
        &mut self,
        complete: Complete,
        alone: &[Completion],
    ) -> Result<Option<String>, Error> {
        let streams = complete.backpressure(Backpressure::Pause(2)).stream_all()?;
        for (stream, alone) in streams.into_iter().zip(alone) {
            let mut text = String::new();
            for record in stream {
                text.push_str(&record?.text);
                if self.below(4) == 0 {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            self.counts.compared.fetch_add(1, Ordering::Relaxed);
            if text != alone.text {
                return Ok(Some(format!("read slowly {text:?}, alone {:?}", alone.text)));
            }
        }
        Ok(None)
    }

    fn compare(&self, request: usize, found: &Completion, alone: &Completion) -> Option<String> {
        self.counts.compared.fetch_add(1, Ordering::Relaxed);
        (found != alone).then(|| {
            let (found, alone) = ((&found.text, found.eos_reason), (&alone.text, alone.eos_reason));
            format!("request {request}: together {found:?}, alone {alone:?}")
        })
    }
}
