//! Whether `/health` tells the truth: within its time about what is wrong, soon about what is well
//! again, and never by being silent itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::json;

use crate::folder::ModelFolder;
use crate::gate::Gate;
use crate::load::load;
use crate::support::{ADMIN, API, TestServer, demo, demo_behind, keys, settings, wait_for};

const TIMEOUT: Duration = Duration::from_millis(600);

fn quick() -> pagella_server::Settings {
    let mut quick = settings();
    quick.health.timeout = TIMEOUT;
    quick
}

/// Something is wrong and stays so until `heal`: it is noticed, everything that must answer does, and
/// it is noticed that it is well again.
fn check(server: &TestServer, what: &str, heal: impl FnOnce()) {
    let stranger = server.stranger();
    wait_for(&format!("{what} to be noticed"), || stranger.get("/health").status == 503);
    let told = stranger.get("/health").json();
    assert_eq!(told["status"], "unhealthy", "{what}: {told}");
    assert!(!told["issues"].as_array().unwrap().is_empty(), "{what}: {told}");
    assert_eq!(stranger.get("/health/ready").status, 503, "{what}");
    assert_eq!(stranger.get("/health/live").status, 200, "{what}");
    assert_eq!(stranger.get("/metrics").status, 200, "{what}");
    assert_eq!(server.client(ADMIN).get("/v1/stats").status, 200, "{what}");
    heal();
    wait_for(&format!("the end of {what} to be noticed"), || stranger.get("/health").status == 200);
    assert_eq!(stranger.get("/health/ready").status, 200, "{what}");
}

#[test]
fn liveness_tells_the_truth() {
    let server = TestServer::start(quick(), keys(), Some(demo(8)));
    let health = server.stranger().get("/health").good();
    assert_eq!(
        (&health["status"], &health["engine"]["state"]),
        (&json!("healthy"), &json!("idle"))
    );
    assert_eq!(server.stranger().get("/health/ready").status, 200);

    let worker = server.worker.clone().unwrap();
    let (thaw, frozen) = channel::<()>();
    let freezes = std::thread::spawn(move || worker.call(move |_| frozen.recv().unwrap()));
    check(&server, "a frozen engine", || thaw.send(()).unwrap());
    freezes.join().unwrap().unwrap();

    let worker = server.worker.clone().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let seen = over.clone();
    let spins = std::thread::spawn(move || {
        worker.call(move |_| {
            while !seen.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        })
    });
    check(&server, "a spinning engine", || over.store(true, Ordering::Relaxed));
    spins.join().unwrap().unwrap();
}

#[test]
fn liveness_tells_the_truth_of_a_device_that_hangs() {
    let gate = Arc::<Gate>::default();
    let server = TestServer::start(quick(), keys(), Some(demo_behind(gate.clone(), 8)));
    gate.hold_at(|_| true);
    let client = server.client(API);
    let body = json!({"prompt": "CSS is", "max_tokens": 3});
    let asked = std::thread::spawn(move || client.post("/v1/completions", &body).good());
    check(&server, "a hung device", || gate.open());
    asked.join().unwrap();
}

#[test]
fn liveness_tells_the_truth_of_a_dead_engine() {
    let folder = ModelFolder::with(&["a"]);
    let server = TestServer::with_folder(quick(), &folder);
    load(&server.client(ADMIN), "a");
    let gate = folder.hold_loads();
    crate::restart::kill(&server);
    check(&server, "a dead engine", || drop(gate));
}

/// Nothing can be answered while every thread that prepares requests is stuck.
#[test]
fn liveness_tells_the_truth_of_threads_that_are_stuck() {
    let mut narrow = quick();
    narrow.limits.blocking_threads = 1;
    let server = TestServer::start(narrow, keys(), Some(demo(8)));
    let (release, held) = channel::<()>();
    let (begin, begun) = channel();
    let app = server.app.clone();
    let sticks = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(app.blocking.run(move || {
            begin.send(()).unwrap();
            let _ = held.recv();
            Ok(())
        }))
    });
    begun.recv().unwrap();
    let client = server.client(API);
    let body = json!({"prompt": "CSS is", "max_tokens": 3});
    let asked = std::thread::spawn(move || client.post("/v1/completions", &body).good());
    check(&server, "stuck threads", || release.send(()).unwrap());
    asked.join().unwrap();
    assert!(sticks.join().unwrap().is_ok());
}
