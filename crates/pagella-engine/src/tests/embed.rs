//! Texts as vectors: the same whatever runs beside them, and nothing is left of them.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use pagella_model::BoundAdapter;

use crate::tests::stand_in::{StandIn, greedy_ids, sums};
use crate::tests::support::{generator, ids, job};
use crate::{EmbedHandle, EngineError, Forward, GeneratorOptions, Pooling, Worker};

type Vectors = Result<Vec<Vec<f32>>, EngineError>;

fn worker(n_pages: usize) -> (Worker, StandIn) {
    let model = StandIn::with_cache(4096, n_pages, 64);
    (Worker::spawn(generator(&model, GeneratorOptions::default())).unwrap(), model)
}

fn ask(worker: &Worker, texts: &[Vec<u32>], pooling: Pooling) -> (EmbedHandle, Receiver<Vectors>) {
    let (send, receive) = channel();
    let reply = move |vectors| drop(send.send(vectors));
    (worker.embed(texts.to_vec(), pooling, reply).unwrap(), receive)
}

/// The first number of the vector of a text; the others are one.
fn expected(text: &[u32], pooling: Pooling) -> f32 {
    let sums: Vec<f64> = sums(text).iter().map(|sum| f64::from(*sum as f32)).collect();
    let value = match pooling {
        Pooling::Mean => sums.iter().sum::<f64>() / sums.len() as f64,
        Pooling::First => sums[0],
        Pooling::Last => sums[sums.len() - 1],
    };
    value as f32
}

fn check(texts: &[Vec<u32>], vectors: &[Vec<f32>], pooling: Pooling) {
    assert_eq!(texts.len(), vectors.len());
    for (text, vector) in texts.iter().zip(vectors) {
        assert_eq!(vector[0], expected(text, pooling), "{} ids, {pooling:?}", text.len());
        assert!(vector.len() == 64 && vector[1..].iter().all(|value| *value == 1.0));
    }
}

fn assert_idle(worker: &Worker) {
    let stats = worker.stats().unwrap();
    let queue = &stats.queue;
    assert_eq!(
        (stats.pages.referenced, queue.active, queue.pending, queue.embedding),
        (0, 0, 0, 0)
    );
    worker.call(|generator| generator.check().unwrap()).unwrap();
}

#[test]
fn vectors_and_jobs_do_not_change_each_other() {
    let (worker, _) = worker(24);
    let texts: Vec<Vec<u32>> =
        [1, 3, 64, 65, 700, 2, 256].iter().zip(0..).map(|(&n, seed)| ids(n, seed)).collect();
    for pooling in Pooling::ALL {
        let prompt = ids(300, 9);
        let streams = worker.submit_n(&job(&prompt, 40), 2).unwrap();
        let asked: Vec<_> = (0..3).map(|_| ask(&worker, &texts, pooling)).collect();
        for (_handle, vectors) in &asked {
            check(&texts, &vectors.recv().unwrap().unwrap(), pooling);
        }
        for stream in streams {
            assert_eq!(stream.finish().unwrap().token_ids, greedy_ids(&prompt, 40));
        }
        assert_idle(&worker);
    }
}

#[test]
fn a_small_request_does_not_wait_for_a_large_one() {
    let (worker, model) = worker(24);
    model.delay(Duration::from_millis(2));
    let (_large, large) = ask(&worker, &vec![ids(64, 1); 60], Pooling::Mean);
    let (_small, small) = ask(&worker, &[ids(10, 2)], Pooling::Mean);
    check(&[ids(10, 2)], &small.recv().unwrap().unwrap(), Pooling::Mean);
    assert!(large.try_recv().is_err());
    check(&vec![ids(64, 1); 60], &large.recv().unwrap().unwrap(), Pooling::Mean);
    assert_idle(&worker);
}

#[test]
fn a_dropped_handle_ends_the_work_and_frees_its_pages() {
    let (worker, model) = worker(24);
    model.delay(Duration::from_millis(1));
    let (handle, vectors) = ask(&worker, &vec![ids(3000, 1); 50], Pooling::Last);
    while worker.stats().unwrap().pages.referenced == 0 {}
    drop(handle);
    assert!(vectors.recv().is_err(), "the reply is dropped without a call");
    assert_idle(&worker);
    let done = worker.submit(job(&[3], 4)).unwrap().finish().unwrap();
    assert_eq!(done.token_ids, greedy_ids(&[3], 4));
}

#[test]
fn texts_wait_for_pages_and_leave_the_cache_as_it_was_found() {
    let (worker, model) = worker(8);
    model.delay(Duration::from_micros(200));
    let prompt = ids(1500, 4);
    let mut stream = worker.submit(job(&prompt, 100)).unwrap();
    stream.next().unwrap().unwrap();
    // Six or seven of eight pages are in use.
    let text = ids(1000, 5);
    let (_handle, vectors) = ask(&worker, std::slice::from_ref(&text), Pooling::Mean);
    assert_eq!(stream.finish().unwrap().token_ids, greedy_ids(&prompt, 100));
    check(&[text], &vectors.recv().unwrap().unwrap(), Pooling::Mean);
    assert_idle(&worker);
    let done = worker.submit(job(&prompt, 10)).unwrap().finish().unwrap();
    assert_eq!(done.token_ids, greedy_ids(&prompt, 10));
}

#[test]
fn a_step_that_fails_ends_its_own_texts_only() {
    let (worker, model) = worker(24);
    model.fail_at_step(0);
    let (_handle, vectors) = ask(&worker, &[ids(10, 1)], Pooling::Mean);
    assert!(vectors.recv().unwrap().is_err());
    let (_handle, vectors) = ask(&worker, &[ids(10, 1)], Pooling::Mean);
    check(&[ids(10, 1)], &vectors.recv().unwrap().unwrap(), Pooling::Mean);
    model.panic_at_step(2);
    let (_handle, vectors) = ask(&worker, &[ids(10, 1)], Pooling::Mean);
    assert!(matches!(vectors.recv().unwrap(), Err(EngineError::Failed(_))));
    let (_handle, vectors) = ask(&worker, &[ids(10, 1)], Pooling::Mean);
    check(&[ids(10, 1)], &vectors.recv().unwrap().unwrap(), Pooling::Mean);
    assert_idle(&worker);
}

#[test]
fn texts_that_cannot_be_computed_are_refused_at_once() {
    let (worker, _) = worker(8);
    let refused = |texts: Vec<Vec<u32>>| worker.embed(texts, Pooling::Mean, drop).err().unwrap();
    assert!(matches!(refused(vec![]), EngineError::EmptyPrompt));
    assert!(matches!(refused(vec![vec![1], vec![]]), EngineError::EmptyPrompt));
    assert!(matches!(refused(vec![vec![64]]), EngineError::IdOutOfRange { .. }));
    assert!(matches!(refused(vec![ids(2049, 1)]), EngineError::PromptTooLong { .. }));
}

#[test]
fn texts_have_the_adapters_that_everything_has() {
    let (worker, model) = worker(24);
    let bound = BoundAdapter::synthetic(model.spec(), 1, 0);
    let adapter = worker.add_adapter("a", bound).unwrap();
    worker.set_default_adapters(vec![(adapter, 1.0)]).unwrap();
    let text = ids(70, 3);
    let vectors = |worker: &Worker| {
        let (_handle, vectors) = ask(worker, std::slice::from_ref(&text), Pooling::Last);
        vectors.recv().unwrap().unwrap()
    };
    // What the first slot with scale 1 changes of an id.
    let changed: Vec<u32> = text.iter().map(|id| id ^ (1.0f32.to_bits() >> 7)).collect();
    assert_eq!(vectors(&worker)[0][0], expected(&changed, Pooling::Last));
    // Those that were asked for keep it.
    let (_handle, asked) = ask(&worker, &vec![text.clone(); 40], Pooling::Last);
    worker.unload_adapter("a").unwrap();
    for vector in asked.recv().unwrap().unwrap() {
        assert_eq!(vector[0], expected(&changed, Pooling::Last));
    }
    check(std::slice::from_ref(&text), &vectors(&worker), Pooling::Last);
    assert_eq!(worker.call(|generator| generator.adapter_bytes()).unwrap(), 0);
}
