//! Several models at once, as many as memory and the operator allow.

use serde_json::json;

use crate::folder::{MODEL_BYTES, ModelFolder};
use crate::load::{UNLOAD, answers, ids, load};
use crate::support::{ADMIN, TestServer, settings};

#[test]
fn models_answer_side_by_side_and_the_least_recently_used_goes() {
    let folder = ModelFolder::with(&["a", "b", "c"]);
    let mut two = settings();
    two.model.max_models = 2;
    let server = TestServer::with_folder(two, &folder);
    let admin = server.client(ADMIN);
    load(&admin, "a");
    load(&admin, "b");
    assert_eq!(folder.alive(), 2);
    assert_eq!(answers(&admin, None), "b", "the last one loaded answers whoever names none");
    assert_eq!((answers(&admin, Some("b")), answers(&admin, Some("a"))), (json!("b"), json!("a")));
    load(&admin, "c");
    assert_eq!(folder.alive(), 2);
    let loaded: Vec<String> =
        ids(&admin).into_iter().filter(|(_, s)| s == "loaded").map(|(id, _)| id).collect();
    assert_eq!(loaded, ["c", "a"], "b was used before a");
    // Asking for one that is there makes it current.
    assert_eq!(load(&admin, "a").len(), 1);
    assert_eq!(answers(&admin, None), "a");
    admin.post(UNLOAD, &json!({"model_name": "a"})).good();
    assert_eq!((answers(&admin, None), folder.alive()), (json!("c"), 1));
    assert_eq!(admin.post(UNLOAD, &json!({"model_name": "a"})).refusal().1, "model_not_found");
    let deep = admin.get("/health?deep=1").good();
    assert_eq!(deep["deep"]["models"], 1);
}

#[test]
fn memory_decides_too() {
    for budget in [false, true] {
        let folder = ModelFolder::with(&["a", "b", "c"]);
        let mut many = settings();
        many.model.max_models = 3;
        let room = 5 * MODEL_BYTES / 2;
        match budget {
            true => many.model.memory_budget = room,
            false => {
                let bytes = room as usize;
                folder.levers.total_bytes.store(bytes, std::sync::atomic::Ordering::SeqCst);
            }
        }
        let server = TestServer::with_folder(many, &folder);
        let admin = server.client(ADMIN);
        for id in ["a", "b", "c"] {
            load(&admin, id);
        }
        assert_eq!(folder.alive(), 2, "budget: {budget}");
        assert_eq!(answers(&admin, Some("b")), "b");
    }
}
