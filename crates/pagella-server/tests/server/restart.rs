//! Engines that fail: their requests are told, their models come back, health tells the truth.

use std::sync::atomic::Ordering;

use pagella_engine::Worker;
use serde_json::{Value, json};

use crate::folder::ModelFolder;
use crate::load::{COMPLETIONS, answers, load, long};
use crate::support::{ADMIN, API, TestServer, settings, wait_for};

fn worker(server: &TestServer) -> Worker {
    server.app.model.loaded().unwrap().parts.worker.clone()
}

/// Ends an engine as a defect would.
pub fn kill(server: &TestServer) {
    let killed = worker(server).call(|_| -> () { panic!("ordered by a test") });
    assert!(killed.is_err());
}

#[test]
fn a_panic_and_a_failed_device_end_requests_and_the_model_comes_back() {
    let folder = ModelFolder::with(&["a"]);
    let server = TestServer::with_folder(settings(), &folder);
    let (admin, api) = (server.client(ADMIN), server.client(API));
    let ask = json!({"model_name": "a", "cache_size": 4096, "stream": false});
    admin.post(crate::load::LOAD, &ask).good();
    let alone = api.post(COMPLETIONS, &short()).good()["choices"][0]["text"].clone();
    for (n, device) in [false, true].into_iter().enumerate() {
        let mut streams: Vec<_> = (0..3).map(|_| api.stream(COMPLETIONS, &long())).collect();
        streams.iter_mut().for_each(|stream| stream.until_text());
        // The new engine waits, so that what lies between can be seen.
        let gate = folder.hold_loads();
        match device {
            true => folder.levers.device_gone.store(true, Ordering::SeqCst),
            false => kill(&server),
        }
        for stream in &mut streams {
            let last = stream.rest().pop().unwrap();
            assert_eq!(last["error"]["code"], "engine_restarting", "device: {device}, {last}");
            assert!(!last.to_string().contains("0x7f00"), "{last}");
        }
        wait_for("the model to be loaded again", || folder.is_waiting());
        let health = api.get("/health");
        assert_eq!((health.status, folder.alive()), (503, 0));
        let body = health.json();
        assert_eq!(
            (&body["status"], &body["engine"]["state"]),
            (&json!("unhealthy"), &json!("restarting"))
        );
        assert!(body["issues"][0]["description"].as_str().unwrap().contains("restarted"), "{body}");
        assert!(body["issues"][0]["time"].as_str().unwrap().starts_with("20"), "{body}");
        assert_eq!(api.get("/health/ready").status, 503);
        assert_eq!(api.get("/health/live").status, 200);
        let refused = api.post(COMPLETIONS, &short());
        assert_eq!((refused.status, refused.refusal().1), (503, "engine_restarting".to_owned()));
        assert!(refused.header("retry-after").is_some());
        drop(gate);
        wait_for("the engine to come back", || api.get("/health").status == 200);
        assert_eq!(api.get("/health/ready").status, 200);
        assert_eq!(api.get("/v1/model").good()["parameters"]["cache_size"], 4096, "as it was");
        assert_eq!(api.post(COMPLETIONS, &short()).good()["choices"][0]["text"], alone);
        let metrics = api.get("/metrics").text().to_owned();
        let line = format!("pagella_restarts_total {}", n + 1);
        assert!(metrics.lines().any(|known| known == line), "{line}");
    }
    assert_eq!((folder.alive(), folder.opened()), (1, 3));
}

fn short() -> Value {
    json!({"prompt": "The `map()` method", "max_tokens": 12, "temperature": 0})
}

#[test]
fn an_engine_that_keeps_failing_is_given_up_until_someone_loads_it() {
    let folder = ModelFolder::with(&["a"]);
    let server = TestServer::with_folder(settings(), &folder);
    let admin = server.client(ADMIN);
    load(&admin, "a");
    for restart in 1..=3 {
        kill(&server);
        wait_for("the engine to come back", || {
            folder.opened() == restart + 1 && admin.get("/health").status == 200
        });
    }
    kill(&server);
    wait_for("the engine to be given up", || {
        admin.get("/health").json()["engine"]["state"] == "failed"
    });
    assert_eq!((admin.get("/health").status, folder.alive(), folder.opened()), (503, 0, 4));
    assert_eq!(admin.post(COMPLETIONS, &short()).refusal().1, "no_model_loaded");
    assert_eq!(admin.get("/v1/models").good()["data"][0]["status"], "failed");
    load(&admin, "a");
    assert_eq!((admin.get("/health").status, answers(&admin, None)), (200, json!("a")));
}

#[test]
fn a_restart_that_fails_is_tried_again() {
    let folder = ModelFolder::with(&["a"]);
    let server = TestServer::with_folder(settings(), &folder);
    let admin = server.client(ADMIN);
    load(&admin, "a");
    folder.fail_at(crate::folder::Fault::Module(2));
    kill(&server);
    wait_for("the engine to come back", || {
        folder.opened() == 2 && admin.get("/health").status == 200
    });
    assert_eq!(folder.alive(), 1);
}

#[test]
fn another_model_may_be_loaded_while_one_comes_back() {
    for models in [1, 2] {
        let folder = ModelFolder::with(&["a", "b"]);
        let mut several = settings();
        several.model.max_models = models;
        let server = TestServer::with_folder(several, &folder);
        let admin = server.client(ADMIN);
        load(&admin, "a");
        let gate = folder.hold_loads();
        kill(&server);
        wait_for("the model to be loaded again", || folder.is_waiting());
        // The one that comes back is first; the other has its turn after it.
        let other = admin.post(crate::load::LOAD, &json!({"model_name": "b"}));
        assert_eq!(other.refusal().1, "load_in_progress");
        drop(gate);
        wait_for("the engine to come back", || admin.get("/health").status == 200);
        load(&admin, "b");
        assert_eq!((answers(&admin, None), folder.alive()), (json!("b"), models));
        assert_eq!(admin.get("/health").status, 200);
    }
}

#[test]
fn a_deep_look_computes_something_and_is_for_administrators() {
    let mut quick = settings();
    quick.health.timeout = std::time::Duration::from_secs(3);
    let server = TestServer::start(quick, crate::support::keys(), Some(crate::support::demo(8)));
    let admin = server.client(ADMIN);
    let deep = admin.get("/health?deep=1").good();
    assert_eq!((&deep["status"], &deep["deep"]["models"]), (&json!("healthy"), &json!(1)));
    assert_eq!(server.stranger().get("/health?deep=1").status, 401);
    assert_eq!(server.client(API).get("/health?deep=1").status, 403);
    assert_eq!(server.stranger().get("/health?deep=0").status, 200);
    let (thaw, frozen) = std::sync::mpsc::channel::<()>();
    let worker = server.worker.clone().unwrap();
    let (begin, begun) = std::sync::mpsc::channel::<()>();
    let freeze = std::thread::spawn(move || {
        worker.call(move |_| {
            begin.send(()).unwrap();
            frozen.recv().unwrap();
        })
    });
    begun.recv().unwrap();
    let hung = admin.get("/health?deep=1");
    assert_eq!((hung.status, &hung.json()["status"]), (503, &json!("unhealthy")));
    assert_eq!(server.stranger().get("/metrics").status, 200);
    thaw.send(()).unwrap();
    freeze.join().unwrap().unwrap();
    wait_for("recovery to be noticed", || admin.get("/health?deep=1").status == 200);
}
