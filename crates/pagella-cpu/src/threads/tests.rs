//! The pool under every kind of use; what must hold does not depend on when threads run.

use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;

use super::*;

/// More than a worker spins.
const PAUSE: Duration = Duration::from_millis(2);

fn pool(threads: usize) -> Pool {
    Pool::new(threads, None)
}

/// Counts how often every piece ran.
fn counts(pool: &Pool, pieces: usize) -> Vec<u32> {
    let mut counts = vec![0u32; pieces];
    let shares = Shares::new(&mut counts);
    // SAFETY: every index is handed out once.
    pool.run(pieces, &|i| unsafe { shares.part(i..i + 1)[0] += 1 }).unwrap();
    counts
}

#[test]
fn every_piece_runs_exactly_once() {
    for threads in [1, 2, 3, 8] {
        let pool = pool(threads);
        for pieces in [0, 1, 2, 5, 100, 3_000] {
            let counts = counts(&pool, pieces);
            assert!(counts.iter().all(|&c| c == 1), "{threads} threads: {counts:?}");
        }
    }
}

#[test]
fn many_small_jobs_lose_no_piece_and_no_write() {
    let pool = pool(5);
    let mut sums = vec![0usize; 7];
    for round in 0..20_000 {
        let shares = Shares::new(&mut sums);
        // SAFETY: every index is handed out once.
        pool.run(7, &|i| unsafe { shares.part(i..i + 1)[0] += i + round }).unwrap();
    }
    let rounds: usize = (0..20_000).sum();
    let expected: Vec<usize> = (0..7).map(|i| 20_000 * i + rounds).collect();
    assert_eq!(sums, expected);
}

/// Pieces that wait for each other end only if as many threads came.
#[test]
fn sleeping_workers_come_when_they_are_needed() {
    for threads in [2, 4] {
        let pool = pool(threads);
        for round in 0..200 {
            let all = Barrier::new(threads);
            pool.run(threads, &|_| {
                all.wait();
            })
            .unwrap();
            if round % 20 == 0 {
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// The caller sleeps meanwhile, and is woken.
#[test]
fn the_caller_waits_for_pieces_that_others_hold() {
    let pool = pool(2);
    let caller = std::thread::current().id();
    for _ in 0..20 {
        let (both, done) = (Barrier::new(2), AtomicUsize::new(0));
        pool.run(2, &|_| {
            both.wait();
            if std::thread::current().id() != caller {
                std::thread::sleep(PAUSE);
            }
            done.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
        assert_eq!(done.load(Ordering::Relaxed), 2);
    }
}

/// As if the system had put all workers aside for ever.
#[test]
fn nobody_waits_for_workers_that_hold_nothing() {
    let shared = Arc::new(Shared::new(3));
    let pool = Pool { shared, turn: Mutex::new(()), workers: Vec::new() };
    for pieces in [2, 50] {
        assert_eq!(counts(&pool, pieces), vec![1; pieces]);
    }
    let error = pool.run(9, &|i| assert!(i != 4, "four")).unwrap_err();
    assert!(error.to_string().contains("four"), "{error}");
}

#[test]
fn a_panicking_piece_is_an_error_and_the_pool_survives() {
    for threads in [1, 3] {
        let pool = pool(threads);
        for _ in 0..20 {
            let error = pool.run(5, &|i| assert!(i != 3, "piece three")).unwrap_err();
            assert!(error.to_string().contains("piece three"), "{error}");
            assert!(pool.run(40, &|i| assert!(i > 100, "all of them")).is_err());
            assert_eq!(counts(&pool, 5), [1; 5]);
        }
    }
}

/// Panics once more when it is dropped.
struct Hostile;

impl Drop for Hostile {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn a_panic_that_panics_again_when_it_is_dropped_is_an_error() {
    for threads in [1, 3] {
        let pool = pool(threads);
        for _ in 0..3 {
            let all_panic = |_: usize| std::panic::panic_any(Hostile);
            assert!(pool.run(7, &all_panic).is_err());
            assert_eq!(counts(&pool, 5), [1; 5]);
        }
    }
}

#[test]
fn a_piece_may_use_the_pool() {
    for threads in [1, 2, 3] {
        let (pool, total) = (pool(threads), AtomicUsize::new(0));
        pool.run(6, &|i| {
            let inner = |k: usize| {
                total.fetch_add(i * k, Ordering::Relaxed);
            };
            pool.run(10, &inner).unwrap();
        })
        .unwrap();
        assert_eq!(total.load(Ordering::Relaxed), 15 * 45);
    }
}

#[test]
fn callers_take_turns() {
    let pool = pool(3);
    let total = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let add = |i: usize| {
                        total.fetch_add(i, Ordering::Relaxed);
                    };
                    pool.run(11, &add).unwrap();
                }
            });
        }
    });
    assert_eq!(total.load(Ordering::Relaxed), 4 * 500 * 55);
}

#[test]
fn pools_end_whatever_their_workers_do() {
    for round in 0..60 {
        let pools: Vec<Pool> = (1..6).map(pool).collect();
        if round % 2 == 0 {
            pools.iter().for_each(|pool| assert_eq!(counts(pool, 9), [1; 9]));
        }
        if round % 10 == 0 {
            std::thread::sleep(PAUSE);
        }
    }
}
