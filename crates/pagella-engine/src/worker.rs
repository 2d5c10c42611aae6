//! The thread that owns the generator, and the handle that talks to it.
//!
//! Everything the thread is told comes through one channel, and it sleeps only on that channel: so
//! nothing can be missed. When the last handle and the last stream are gone, or when it is told to
//! stop, the thread ends.

use std::collections::HashMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::task::Waker;
use std::time::Instant;

use pagella_model::BoundAdapter;

use crate::adapter::{Adapter, batches};
use crate::embed::EmbedJob;
use crate::job::{Facts, Job, JobSpec, Record, Stage, prepare};
use crate::stats::Stats;
use crate::stream::{Canceller, JobStream, Mailbox};
use crate::vitals::EndsWith;
use crate::waking::Waking;
use crate::{EngineError, Fault, Generator, Pooling, Vitals};

/// What the thread is told.
enum Command {
    Submit(Vec<(Job, Reader)>),
    Embed(EmbedJob),
    Cancel(u64),
    /// Someone has read the records of a resting job.
    Wake(u64),
    /// Nobody holds some adapter any more.
    SweepAdapters,
    /// Something to do between two steps.
    Call(Box<dyn FnOnce(&mut Generator) + Send>),
    /// Nothing more is to be done.
    Stop,
}

/// The way to the thread, which ends when the last clone is gone.
#[derive(Clone)]
pub(crate) struct Commands(Arc<Sender<Command>>);

impl Commands {
    pub fn cancel(&self, serial: u64) {
        // A thread that is gone has no jobs.
        let _ = self.0.send(Command::Cancel(serial));
    }

    pub fn wake(&self, serial: u64) {
        let _ = self.0.send(Command::Wake(serial));
    }
}

/// Handle of the thread; clones share it. `Send + Sync`.
#[derive(Clone)]
pub struct Worker {
    commands: Commands,
    facts: Arc<Facts>,
    serials: Arc<AtomicU64>,
    /// Jobs that were submitted and have not started.
    waiting: Arc<AtomicUsize>,
    queue_max: usize,
    vitals: Arc<Vitals>,
    waking: Waking,
}

impl Worker {
    /// Starts the thread.
    pub fn spawn(mut generator: Generator) -> Result<Self, EngineError> {
        let (sender, receiver) = channel();
        let vitals = Arc::new(Vitals::new());
        let stamped = vitals.clone();
        generator.forward.on_layer(Arc::new(move || stamped.beat()));
        let commands = Commands(Arc::new(sender));
        // Handles of adapters keep no engine alive, least of all those that the engine itself has.
        let told = Arc::downgrade(&commands.0);
        generator.adapters.on_gone(move || {
            if let Some(commands) = told.upgrade() {
                // A thread that is gone has no adapters.
                let _ = commands.send(Command::SweepAdapters);
            }
        });
        let facts = generator.facts.clone();
        let serials = generator.serials.clone();
        let queue_max = generator.options.queue_max;
        let waiting = Arc::new(AtomicUsize::new(0));
        let waking = Waking::default();
        let served = Served {
            readers: HashMap::new(),
            waiting: waiting.clone(),
            wakers: Vec::new(),
            waking: waking.clone(),
        };
        std::thread::Builder::new()
            .name("pagella-engine".to_owned())
            .spawn({
                let vitals = vitals.clone();
                move || {
                    // Over only when the generator is gone, and its memory with it.
                    let _over = EndsWith(&vitals);
                    // And only when nobody can be told anything any more: it is dropped first.
                    let receiver = receiver;
                    serve(generator, served, &receiver, &vitals);
                }
            })
            .map_err(EngineError::Thread)?;
        Ok(Worker { commands, facts, serials, waiting, queue_max, vitals, waking })
    }

    /// Lets `wake_all` wake the tasks that read streams, all those of a step at once, instead of the
    /// engine's thread. It is called on that thread and must not wait. The first one stays.
    pub fn wake_by(&self, wake_all: impl Fn(Vec<Waker>) + Send + Sync + 'static) {
        self.waking.set(Box::new(wake_all));
    }

    /// Ends the thread after the step it is in, whoever else holds a handle: jobs are lost, the model
    /// is closed. Does not wait for it; [`Vitals::wait_over`] does.
    pub fn stop(&self) {
        // A thread that is gone has stopped.
        let _ = self.commands.0.send(Command::Stop);
    }

    /// Signs of life of the thread. Holding them keeps nothing alive.
    pub fn vitals(&self) -> &Arc<Vitals> {
        &self.vitals
    }

    /// Checks a job and hands it over. What is wrong with the request itself is said here; what goes
    /// wrong later comes through the stream.
    pub fn submit(&self, spec: JobSpec) -> Result<JobStream, EngineError> {
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        let mut streams = self.submit_prepared(vec![prepare(spec, serial, &self.facts)?])?;
        streams.pop().ok_or(EngineError::WorkerGone)
    }

    /// Several completions of one prompt, with seeds counting up. The prompt is computed once.
    pub fn submit_n(&self, spec: &JobSpec, n: usize) -> Result<Vec<JobStream>, EngineError> {
        if n > self.queue_max {
            return Err(EngineError::Busy { queued: n, queue_max: self.queue_max });
        }
        let jobs = crate::generator::prepare_n(spec, n, &self.serials, &self.facts)?;
        self.submit_prepared(jobs)
    }

    fn submit_prepared(&self, jobs: Vec<Job>) -> Result<Vec<JobStream>, EngineError> {
        let queued = self.waiting.fetch_add(jobs.len(), Ordering::Relaxed);
        if queued + jobs.len() > self.queue_max {
            self.waiting.fetch_sub(jobs.len(), Ordering::Relaxed);
            return Err(EngineError::Busy { queued, queue_max: self.queue_max });
        }
        let mut streams = Vec::with_capacity(jobs.len());
        let mut submitted = Vec::with_capacity(jobs.len());
        for job in jobs {
            let mailbox = Mailbox::new(job.options.backpressure, job.options.granularity);
            streams.push(JobStream::new(job.serial, mailbox.clone(), self.commands.clone()));
            submitted.push((job, Reader { mailbox, started: false }));
        }
        let sent = self.commands.0.send(Command::Submit(submitted));
        sent.map_err(|_| EngineError::WorkerGone)?;
        Ok(streams)
    }

    /// Computes one vector per text, beside the jobs. `reply` is called on the engine's thread; it is
    /// dropped without a call when the handle is dropped before, or when the engine is gone.
    pub fn embed(
        &self,
        texts: Vec<Vec<u32>>,
        pooling: Pooling,
        reply: impl FnOnce(Result<Vec<Vec<f32>>, EngineError>) + Send + 'static,
    ) -> Result<EmbedHandle, EngineError> {
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        let job = EmbedJob::new(serial, texts, pooling, &self.facts, Box::new(reply))?;
        let sent = self.commands.0.send(Command::Embed(job));
        sent.map_err(|_| EngineError::WorkerGone)?;
        Ok(EmbedHandle { canceller: Canceller::new(serial, self.commands.clone()) })
    }

    /// Does something with the generator between two steps and waits for the result.
    pub fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Generator) -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        let (reply, answer) = channel();
        let call = Box::new(move |generator: &mut Generator| {
            // Whoever asked may have stopped waiting.
            let _ = reply.send(work(generator));
        });
        self.commands.0.send(Command::Call(call)).map_err(|_| EngineError::WorkerGone)?;
        answer.recv().map_err(|_| EngineError::WorkerGone)
    }

    /// Does something with the generator between two steps, without waiting for it.
    pub fn post(
        &self,
        work: impl FnOnce(&mut Generator) + Send + 'static,
    ) -> Result<(), EngineError> {
        let sent = self.commands.0.send(Command::Call(Box::new(work)));
        sent.map_err(|_| EngineError::WorkerGone)
    }

    /// Loads the adapter in `dir`, which is read on this thread, like [`Worker::add_adapter`]. One that
    /// has no room is refused before its values are read.
    pub fn load_adapter(&self, name: &str, dir: &Path) -> Result<Adapter, EngineError> {
        let (wanted, bytes) = (name.to_owned(), BoundAdapter::stored_bytes(dir)?);
        self.call(move |generator| generator.check_adapter_room(&wanted, bytes))??;
        self.add_adapter(name, BoundAdapter::open(dir, &self.facts.spec)?)
    }

    /// Puts an adapter into memory, a few megabytes at a time, between steps, under a name that no
    /// other has.
    pub fn add_adapter(&self, name: &str, bound: BoundAdapter) -> Result<Adapter, EngineError> {
        let bound = Arc::new(bound);
        let (name, parts) = (name.to_owned(), bound.clone());
        let adapter = self.call(move |generator| generator.begin_adapter(&name, &parts))??;
        let fill = |range: Range<usize>| {
            let (adapter, parts) = (adapter.clone(), bound.clone());
            self.call(move |generator| generator.fill_adapter(&adapter, &parts.parts()[range]))?
        };
        let filled = batches(bound.parts()).into_iter().try_for_each(fill);
        self.call(move |generator| generator.finish_adapter(adapter, filled))?
    }

    /// Gives these adapters to jobs that say nothing about theirs, and to texts that become vectors. They
    /// stay resident until they are unloaded or others are given.
    pub fn set_default_adapters(&self, adapters: Vec<(Adapter, f32)>) -> Result<(), EngineError> {
        self.facts.default_adapters.set(adapters, &self.facts.engine)
    }

    /// Takes an adapter's name away, and its place among those of jobs that say nothing about theirs.
    /// Jobs that use it keep it. `false` if there is none of that name.
    pub fn unload_adapter(&self, name: &str) -> Result<bool, EngineError> {
        let name = name.to_owned();
        self.call(move |generator| generator.unload_adapter(&name))?
    }

    /// The adapter of that name.
    pub fn adapter(&self, name: &str) -> Result<Option<Adapter>, EngineError> {
        let name = name.to_owned();
        self.call(move |generator| generator.adapter(&name))
    }

    /// All adapters that have a name, in its order.
    pub fn adapters(&self) -> Result<Vec<Adapter>, EngineError> {
        self.call(|generator| generator.adapters().cloned().collect())
    }

    /// Everything worth counting, now.
    pub fn stats(&self) -> Result<Stats, EngineError> {
        self.call(|generator| generator.stats())
    }

    /// One character per page, see [`PageTable::map`](crate::pages::PageTable::map).
    pub fn page_map(&self) -> Result<String, EngineError> {
        self.call(|generator| generator.pages().map())
    }

    /// Lets the engine write a few tokens and forget them, if it is idle.
    pub fn warmup(&self) -> Result<(), EngineError> {
        self.call(Generator::warmup)?
    }

    /// Longest sequence, reply included, in tokens.
    pub fn capacity(&self) -> usize {
        self.facts.capacity
    }

    /// Most jobs of a step.
    pub fn batch_max(&self) -> usize {
        self.facts.batch_max
    }

    /// Numbers of a text's vector.
    pub fn hidden(&self) -> usize {
        self.facts.hidden
    }
}

/// Texts on their way to vectors; dropping it ends that.
pub struct EmbedHandle {
    canceller: Canceller,
}

impl EmbedHandle {
    /// A handle that ends the work.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }
}

impl Drop for EmbedHandle {
    fn drop(&mut self) {
        self.canceller.cancel();
    }
}

/// Whom the thread answers.
struct Served {
    readers: HashMap<u64, Reader>,
    waiting: Arc<AtomicUsize>,
    /// Readers that have something to read and do not know it yet.
    wakers: Vec<Waker>,
    waking: Waking,
}

/// The way to whoever reads a job's records. Nobody may wait for a thread that is gone: the stream is
/// closed with the value, also if the job never reached the thread.
struct Reader {
    mailbox: Arc<Mailbox>,
    started: bool,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.mailbox.close();
    }
}

impl Served {
    /// Hands a record to its reader, who is woken by [`Served::wake`]; lets the job rest if nobody
    /// reads.
    fn deliver(&mut self, record: Record, generator: &mut Generator) {
        let (serial, last) = (record.serial, record.is_last());
        let Some(reader) = self.readers.get_mut(&serial) else { return };
        let starts = last || record.stage == Stage::Started;
        if starts && !std::mem::replace(&mut reader.started, true) {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        let rests = reader.mailbox.push(record, &mut self.wakers);
        if last {
            self.readers.remove(&serial);
        } else if rests {
            generator.set_resting(serial, true);
        }
    }

    /// Wakes whoever has something to read.
    fn wake(&mut self) {
        self.waking.wake(&mut self.wakers);
    }
}

impl Served {
    /// Closes the streams of jobs that the generator does not have any more and that got no last
    /// record: they were lost in a panic, or someone ended them by hand.
    fn close_lost(&mut self, generator: &Generator) {
        let waiting = &self.waiting;
        self.readers.retain(|&serial, reader| {
            let alive = generator.has_job(serial);
            if !alive {
                waiting.fetch_sub(usize::from(!reader.started), Ordering::Relaxed);
            }
            alive
        });
    }
}

fn serve(
    mut generator: Generator,
    mut served: Served,
    commands: &Receiver<Command>,
    vitals: &Vitals,
) {
    while drain(&mut generator, &mut served, commands, vitals) {
        let step = catch_unwind(AssertUnwindSafe(|| generator.step()));
        let panicked = step.is_err();
        if panicked {
            vitals.note_fault(Fault::Panicked);
        }
        for record in step.unwrap_or_else(|_| generator.recover()) {
            let done = record.eos.as_deref();
            if let Some(error) = done.and_then(|done| done.error.as_deref()) {
                vitals.note_error(error);
            }
            served.deliver(record, &mut generator);
        }
        served.wake();
        if let Some(error) = generator.embeddings.take_error() {
            vitals.note_error(&error);
        }
        let others = [generator.drafting.take_error(), generator.adapters.take_error()];
        others.iter().flatten().for_each(|error| vitals.note_error(error));
        if panicked {
            served.close_lost(&generator);
        }
    }
}

/// Takes all commands that are there; waits for one while there is nothing to compute. False when the
/// thread is to stop, or no command can come any more and nothing is left to do.
fn drain(
    generator: &mut Generator,
    served: &mut Served,
    commands: &Receiver<Command>,
    vitals: &Vitals,
) -> bool {
    loop {
        vitals.beat();
        let command = if generator.has_work() {
            match commands.try_recv() {
                Ok(command) => command,
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        } else {
            let left =
                generator.next_deadline().map(|at| at.saturating_duration_since(Instant::now()));
            let received = match left {
                Some(left) => commands.recv_timeout(left),
                None => commands.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match received {
                Ok(command) => command,
                // A job's time has run out.
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        };
        if matches!(command, Command::Stop) {
            return false;
        }
        obey(command, generator, served, vitals);
        served.wake();
    }
}

fn obey(command: Command, generator: &mut Generator, served: &mut Served, vitals: &Vitals) {
    match command {
        Command::Stop => {}
        Command::Submit(jobs) => {
            for (job, reader) in jobs {
                served.readers.insert(job.serial, reader);
                generator.queue_prepared(job);
            }
        }
        Command::Embed(job) => generator.queue_texts(job),
        Command::Cancel(serial) => {
            if let Some(record) = generator.cancel(serial) {
                served.deliver(record, generator);
            }
        }
        Command::Wake(serial) => generator.set_resting(serial, false),
        Command::SweepAdapters => generator.tidy_adapters(),
        Command::Call(work) => {
            if catch_unwind(AssertUnwindSafe(|| work(generator))).is_err() {
                vitals.note_fault(Fault::Panicked);
                let records = generator.recover();
                records.into_iter().for_each(|record| served.deliver(record, generator));
            }
            served.close_lost(generator);
        }
    }
}
