//! The thread: many callers, streams that are dropped, slow readers, failures.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_core::Stream;

use crate::tests::stand_in::{StandIn, greedy_ids};
use crate::tests::support::{generator, ids, job, job_with, up_to};
use crate::{
    Backpressure, DraftDepth, DraftOptions, EngineError, EosReason, Fault, GeneratorOptions,
    JobOptions, JobSpec, StreamGranularity, Worker,
};

fn worker_with(options: GeneratorOptions) -> (Worker, StandIn) {
    let model = StandIn::with_cache(8192, 24, 512);
    (Worker::spawn(generator(&model, options)).unwrap(), model)
}

fn worker() -> (Worker, StandIn) {
    worker_with(GeneratorOptions::default())
}

fn assert_idle(worker: &Worker) {
    let stats = worker.stats().unwrap();
    assert_eq!((stats.pages.referenced, stats.queue.active, stats.queue.pending), (0, 0, 0));
}

/// A job that writes until the context is full.
fn endless(id: u32) -> JobSpec {
    job_with(&[id], JobOptions::default())
}

#[test]
fn jobs_of_many_threads_all_get_the_answer_of_a_single_one() {
    let (worker, _) = worker();
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            let worker = worker.clone();
            std::thread::spawn(move || {
                for round in 0..10 {
                    let prompt = ids(100 + 40 * thread, round);
                    let done = worker.submit(job(&prompt, 20)).unwrap().finish().unwrap();
                    assert_eq!(done.token_ids, greedy_ids(&prompt, 20));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_idle(&worker);
}

#[test]
fn a_dropped_stream_ends_its_job_in_every_phase() {
    let options = GeneratorOptions { batch_max: 1, ..GeneratorOptions::default() };
    let (worker, model) = worker_with(options);
    model.delay(Duration::from_millis(1));
    let mut writing = worker.submit(endless(1)).unwrap();
    writing.next().unwrap().unwrap();
    let waiting = worker.submit(endless(2)).unwrap();
    drop(waiting);
    drop(writing);
    let prefilling = worker.submit(job(&ids(4000, 1), 5)).unwrap();
    drop(prefilling);
    let done = worker.submit(job(&[3], 4)).unwrap().finish().unwrap();
    assert_eq!(done.token_ids, greedy_ids(&[3], 4));
    assert_idle(&worker);
}

#[test]
fn cancelling_from_elsewhere_wakes_the_reader_with_a_last_record() {
    let (worker, model) = worker();
    model.delay(Duration::from_millis(1));
    let stream = worker.submit(endless(1)).unwrap();
    let canceller = stream.canceller();
    let reader = std::thread::spawn(move || stream.finish().unwrap());
    std::thread::sleep(Duration::from_millis(20));
    canceller.cancel();
    assert_eq!(reader.join().unwrap().eos_reason, EosReason::Cancelled);
    canceller.cancel();
    assert_idle(&worker);
}

#[test]
fn a_job_rests_while_nobody_reads_and_goes_on_when_someone_does() {
    let (worker, _) = worker();
    let backpressure = Backpressure::Pause(3);
    let slow = job_with(&[1], JobOptions { backpressure, ..up_to(100) });
    let mut slow = worker.submit(slow).unwrap();
    // Another job is not held up.
    let other = worker.submit(job(&[2], 200)).unwrap().finish().unwrap();
    assert_eq!(other.new_tokens, 200);
    assert_eq!(worker.stats().unwrap().queue.resting, 1);
    let mut read = Vec::new();
    for record in slow.by_ref() {
        read.extend(record.unwrap().token_ids);
    }
    assert_eq!(read, greedy_ids(&[1], 100));
    assert_idle(&worker);
}

#[test]
fn records_can_be_joined_for_slow_readers_or_sent_once() {
    let (worker, _) = worker();
    for granularity in [StreamGranularity::Token, StreamGranularity::Done] {
        let options = JobOptions { granularity, backpressure: Backpressure::Merge, ..up_to(50) };
        let stream = worker.submit(job_with(&[1], options)).unwrap();
        let records: Vec<_> = stream.map(|record| record.unwrap()).collect();
        let ids: Vec<u32> = records.iter().flat_map(|r| r.token_ids.clone()).collect();
        assert_eq!(ids, greedy_ids(&[1], 50));
        assert!(granularity == StreamGranularity::Token || records.len() == 1);
    }
}

#[test]
fn a_full_queue_is_said_at_once() {
    let options = GeneratorOptions { queue_max: 2, batch_max: 1, ..GeneratorOptions::default() };
    let (worker, model) = worker_with(options);
    model.delay(Duration::from_millis(1));
    let mut running = worker.submit(endless(1)).unwrap();
    running.next().unwrap().unwrap();
    let waiting: Vec<_> = (0..2).map(|_| worker.submit(job(&[2], 1)).unwrap()).collect();
    assert!(matches!(worker.submit(job(&[2], 1)), Err(EngineError::Busy { queued: 2, .. })));
    drop(running);
    waiting.into_iter().for_each(|stream| drop(stream.finish().unwrap()));
    assert!(worker.submit(job(&[2], 1)).is_ok());
}

#[test]
fn after_a_failed_step_and_after_a_panic_new_jobs_run() {
    let (worker, model) = worker();
    for disaster in [StandIn::fail_at_step, StandIn::panic_at_step] {
        disaster(&model, model.steps().len() + 2);
        let error = worker.submit(job(&[1], 10)).unwrap().finish().unwrap_err();
        assert!(error.to_string().contains("please report it"), "{error}");
        let done = worker.submit(job(&[1], 10)).unwrap().finish().unwrap();
        assert_eq!(done.token_ids, greedy_ids(&[1], 10));
        assert_idle(&worker);
    }
}

#[test]
fn a_refused_job_is_refused_where_it_is_submitted() {
    let (worker, _) = worker();
    assert!(matches!(worker.submit(job(&ids(9000, 1), 1)), Err(EngineError::TooLong { .. })));
    assert_idle(&worker);
}

#[test]
fn a_time_limit_of_a_read_and_of_a_job() {
    let (worker, model) = worker();
    model.delay(Duration::from_millis(2));
    let mut spec = endless(1);
    spec.options.timeout = Some(Duration::from_millis(60));
    let mut stream = worker.submit(spec).unwrap();
    assert!(stream.next_within(Duration::ZERO).is_none_or(|item| item.is_some()));
    let done = stream.finish().unwrap();
    assert_eq!(done.eos_reason, EosReason::Deadline);
    assert_idle(&worker);
}

#[test]
fn a_resting_job_still_meets_its_deadline() {
    let (worker, _) = worker();
    let mut spec = endless(1);
    spec.options.timeout = Some(Duration::from_millis(50));
    spec.options.backpressure = Backpressure::Pause(1);
    let stream = worker.submit(spec).unwrap();
    std::thread::sleep(Duration::from_millis(120));
    assert_idle(&worker);
    let last = stream.last().unwrap().unwrap();
    assert_eq!(last.eos.unwrap().eos_reason, EosReason::Deadline);
}

/// Wakes a thread.
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn a_stream_can_be_awaited() {
    let (worker, model) = worker();
    model.delay(Duration::from_millis(1));
    let mut stream = worker.submit(job(&[1], 20)).unwrap();
    let mut read = Vec::new();
    let mut future = Box::pin(async {
        while let Some(record) = poll_fn(|cx| Pin::new(&mut stream).poll_next(cx)).await {
            read.extend(record.unwrap().token_ids);
        }
    });
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    while future.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Pending {
        std::thread::park();
    }
    drop(future);
    assert_eq!(read, greedy_ids(&[1], 20));
}

#[test]
fn several_completions_come_as_several_streams() {
    let (worker, _) = worker();
    let streams = worker.submit_n(&job(&ids(300, 1), 10), 3).unwrap();
    for stream in streams {
        assert_eq!(stream.finish().unwrap().token_ids, greedy_ids(&ids(300, 1), 10));
    }
    assert_idle(&worker);
}

#[test]
fn a_panic_in_a_call_does_not_end_the_engine() {
    let (worker, _) = worker();
    assert!(worker.call(|_| -> () { panic!("ordered by a test") }).is_err());
    let done = worker.submit(job(&[1], 5)).unwrap().finish().unwrap();
    assert_eq!(done.token_ids, greedy_ids(&[1], 5));
}

#[test]
fn a_reader_that_waits_for_the_end_does_not_stop_the_job() {
    let (worker, _) = worker();
    let backpressure = Backpressure::Pause(1);
    let granularity = StreamGranularity::Done;
    let spec = job_with(&[1], JobOptions { backpressure, granularity, ..up_to(20) });
    let stream = worker.submit(spec).unwrap();
    assert_eq!(stream.finish().unwrap().new_tokens, 20);
}

#[test]
fn jobs_at_rest_give_their_pages_to_those_that_go_on() {
    let model = StandIn::with_cache(4096, 5, 512);
    let worker = Worker::spawn(generator(&model, GeneratorOptions::default())).unwrap();
    let backpressure = Backpressure::Pause(1);
    let mut unread: Vec<_> = (0..3)
        .map(|seed| {
            let spec = job_with(&ids(300, seed), JobOptions { backpressure, ..up_to(40) });
            worker.submit(spec).unwrap()
        })
        .collect();
    // It needs every page there is, and the others rest for ever unless someone reads.
    let big = worker.submit(job(&ids(1000, 9), 200)).unwrap().finish().unwrap();
    assert_eq!(big.token_ids, greedy_ids(&ids(1000, 9), 200));
    for (seed, stream) in unread.drain(..).enumerate() {
        let done = stream.finish().unwrap();
        assert_eq!(done.token_ids, greedy_ids(&ids(300, seed as u32), 40));
    }
    assert_idle(&worker);
}

#[test]
fn completions_do_not_wait_for_a_leader_that_rests() {
    let (worker, _) = worker();
    let options = JobOptions { backpressure: Backpressure::Pause(1), ..up_to(10) };
    let streams = worker.submit_n(&job_with(&ids(300, 1), options), 3).unwrap();
    for stream in streams.into_iter().rev() {
        assert_eq!(stream.finish().unwrap().new_tokens, 10);
    }
    assert_idle(&worker);
}

#[test]
fn streams_of_jobs_that_were_ended_by_hand_or_lost_are_closed() {
    let (worker, model) = worker();
    model.delay(Duration::from_millis(1));
    let stream = worker.submit(endless(1)).unwrap();
    worker.call(|generator| generator.clear_queue()).unwrap();
    assert!(matches!(stream.last(), Some(Err(EngineError::WorkerGone))));
    let queued = worker.submit(job(&[1], 3)).unwrap();
    assert_eq!(queued.finish().unwrap().new_tokens, 3);
    assert_idle(&worker);
}

#[test]
fn text_before_a_failure_is_not_lost_with_it() {
    let (worker, model) = worker();
    model.fail_at_step(model.steps().len() + 6);
    let granularity = StreamGranularity::Done;
    let spec = job_with(&[1], JobOptions { granularity, ..up_to(20) });
    let mut stream = worker.submit(spec).unwrap();
    let first = stream.next().unwrap().unwrap();
    assert_eq!(first.token_ids, greedy_ids(&[1], first.token_ids.len()));
    assert!(!first.token_ids.is_empty() && !first.is_last());
    assert!(matches!(stream.next(), Some(Err(EngineError::Failed(_)))));
    assert!(stream.next().is_none());
}

#[test]
fn warming_up_leaves_no_trace() {
    let (worker, model) = worker();
    worker.warmup().unwrap();
    assert!(model.forwarded() >= 32);
    assert_eq!(worker.stats().unwrap().pages.cached, 0);
    assert_eq!(worker.submit(job(&[0], 3)).unwrap().finish().unwrap().cached_tokens, 0);
}

#[test]
fn warming_up_counts_guesses_and_remembers_nothing() {
    let written = |warm: bool| {
        let model = StandIn::new(4096, 512);
        let depth = DraftDepth::Fixed(4);
        let draft = DraftOptions { depth, ..DraftOptions::default() };
        let mut generator =
            generator(&model, GeneratorOptions { draft, ..GeneratorOptions::default() });
        if warm {
            generator.warmup().unwrap();
            assert!(model.steps().iter().flatten().all(|row| row.logits <= 1), "no guesses");
            let stats = generator.stats();
            assert_eq!((stats.steps, stats.prefill_tokens, stats.decode_tokens), (0, 0, 0));
            assert!(stats.finished.is_empty() && generator.trace().next().is_none());
            assert_eq!(stats.draft, crate::DraftStats::default());
        }
        // What warming up has written as well.
        let serial = generator.enqueue(job(&[0], 30)).unwrap();
        let done = crate::tests::support::run(&mut generator).remove(&serial).unwrap();
        (done.accepted_draft_tokens, done.token_ids)
    };
    assert_eq!(written(true), written(false));
}

#[test]
fn warming_up_runs_the_longest_step_and_all_recorded_sizes_largest_first() {
    let model = StandIn::new(4096, 512).narrowing(64);
    let options = GeneratorOptions { batch_max: 6, ..GeneratorOptions::default() };
    let mut generator = generator(&model, options);
    generator.warmup().unwrap();
    let steps = model.steps();
    assert_eq!(steps[0].iter().map(|row| row.tokens).collect::<Vec<_>>(), [512]);
    let mut rows: Vec<usize> = steps[1..].iter().map(Vec::len).collect();
    assert!(rows.chunk_by(|a, b| a == b).all(|same| same.len() >= 3));
    rows.dedup();
    assert_eq!(rows, [6, 4, 2, 1]);
    assert_eq!((generator.n_jobs(), generator.stats().pages.cached), (0, 0));
}

#[test]
fn a_thread_that_is_told_to_stop_ends_whoever_holds_it() {
    let (worker, model) = worker();
    model.delay(Duration::from_millis(1));
    let mut writing = worker.submit(endless(1)).unwrap();
    writing.next().unwrap().unwrap();
    let vitals = worker.vitals().clone();
    assert!(!vitals.is_over() && !vitals.wait_over(Duration::ZERO));
    worker.clone().stop();
    assert!(vitals.wait_over(Duration::from_secs(20)));
    assert!(matches!(writing.last(), Some(Err(EngineError::WorkerGone))));
    assert!(matches!(worker.submit(job(&[1], 1)), Err(EngineError::WorkerGone)));
    assert_eq!(vitals.fault(), None);
    worker.stop();
}

#[test]
fn faults_of_the_thread_and_of_the_device_are_noted_and_those_of_a_job_are_not() {
    let (worker, model) = worker();
    model.fail_at_step(0);
    assert!(worker.submit(job(&[1], 10)).unwrap().finish().is_err());
    assert_eq!(worker.vitals().fault(), None);
    model.panic_at_step(model.steps().len());
    assert!(worker.submit(job(&[1], 10)).unwrap().finish().is_err());
    assert!(worker.vitals().wait_fault(Duration::from_secs(20)));
    assert_eq!(worker.vitals().fault(), Some(Fault::Panicked));
    let (other, _) = self::worker();
    let failed = pagella_backend::BackendError::Device { backend: "test", message: "gone".into() };
    let error = EngineError::Failed(Arc::new(EngineError::Model(failed.into())));
    other.vitals().note_error(&error);
    assert!(matches!(other.vitals().fault(), Some(Fault::Device(text)) if text.contains("gone")));
}

#[test]
fn a_thread_that_hangs_gives_no_sign_of_life() {
    let (worker, _) = worker();
    worker.stats().unwrap();
    let (thaw, frozen) = std::sync::mpsc::channel::<()>();
    let hanging = worker.clone();
    let asked = std::thread::spawn(move || hanging.call(move |_| frozen.recv().unwrap()));
    let vitals = worker.vitals();
    while vitals.silence() < Duration::from_millis(50) {
        std::thread::sleep(Duration::from_millis(5));
    }
    thaw.send(()).unwrap();
    asked.join().unwrap().unwrap();
    worker.stats().unwrap();
    assert!(vitals.silence() < Duration::from_secs(10) && !vitals.is_over());
}

#[test]
fn tokens_and_numbers_that_are_none_are_counted() {
    let (worker, _) = worker();
    for (n, expected) in [(20, 19), (1, 19), (2, 20)] {
        worker.submit(job(&[1, 2], n)).unwrap().finish().unwrap();
        let stats = worker.stats().unwrap();
        assert_eq!(stats.token_seconds.count(), expected, "all but the first of each job");
        assert_eq!(stats.step_seconds.count(), stats.steps);
    }
    let mut broken = job(&[3], 5);
    broken.options.logits_hook = Some(crate::LogitsHook(std::sync::Arc::new(|logits, _| {
        logits.fill(f32::NAN);
    })));
    assert!(worker.submit(broken).unwrap().finish().is_err());
    let stats = worker.stats().unwrap();
    assert_eq!((stats.numeric_errors, stats.mask_seconds.count()), (1, 0));
    assert_idle(&worker);
}
