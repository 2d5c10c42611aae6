//! Sequences saved to disk and brought back.

use crate::tests::stand_in::{StandIn, greedy_ids};
use crate::tests::support::{generator, ids, job, job_with, roomy, run, up_to};
use crate::{EngineError, GeneratorOptions, JobOptions};

#[test]
fn a_saved_sequence_is_found_by_jobs_of_another_engine() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chat.pages");
    let prompt = ids(700, 1);
    let (mut first, _) = roomy();
    let serial = first.enqueue(job(&prompt, 10)).unwrap();
    let answer = run(&mut first)[&serial].token_ids.clone();
    let all = [prompt, answer].concat();
    let stored = first.save(&path, "model", None, &all).unwrap();
    // The last token was never fed.
    assert_eq!((stored.tokens, stored.pages), (709, 3));

    let (mut second, model) = roomy();
    let (stored, restored_ids) = second.restore(&path, "model", None).unwrap();
    assert_eq!((stored.tokens, stored.pages), (709, 3));
    assert_eq!(restored_ids, all[..709]);
    let serial = second.enqueue(job(&all, 5)).unwrap();
    let done = run(&mut second).remove(&serial).unwrap();
    assert_eq!((done.cached_tokens, model.forwarded()), (709, 1 + 4));
    assert_eq!(done.token_ids, greedy_ids(&all, 5));
    let (again, _) = second.restore(&path, "model", None).unwrap();
    assert_eq!(again.pages, 0, "what is there is not loaded twice");
}

#[test]
fn a_file_of_another_model_salt_or_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chat.pages");
    let (mut generator, _) = roomy();
    let spec = job_with(&ids(300, 1), JobOptions { cache_salt: Some("s".into()), ..up_to(1) });
    generator.enqueue(spec).unwrap();
    run(&mut generator);
    let stored = generator.save(&path, "model", Some("s"), &ids(300, 1)).unwrap();
    assert_eq!(stored.tokens, 300);
    let mut refused = |model, salt| match generator.restore(&path, model, salt) {
        Err(EngineError::Saved { problem, .. }) => problem,
        other => panic!("{other:?}"),
    };
    assert!(refused("another", Some("s")).contains("other weights"));
    assert!(refused("model", None).contains("salt"));
    assert!(generator.restore(&path, "model", Some("s")).is_ok());
}

#[test]
fn damaged_files_are_refused_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chat.pages");
    let (mut first, _) = roomy();
    first.enqueue(job(&ids(300, 1), 1)).unwrap();
    run(&mut first);
    first.save(&path, "model", None, &ids(300, 1)).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let (mut second, _) = roomy();
    for cut in [0, 7, 15, 16, 100, whole.len() - 1] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        assert!(second.restore(&path, "model", None).is_err(), "{cut}");
    }
    for at in [0, 9, 40, 400, whole.len() - 40, whole.len() - 1] {
        let mut changed = whole.clone();
        changed[at] ^= 0x40;
        std::fs::write(&path, &changed).unwrap();
        assert!(second.restore(&path, "model", None).is_err(), "{at}");
    }
    assert!(second.restore(&dir.path().join("none"), "model", None).is_err());
    assert_eq!(second.stats().pages.cached, 0);
}

#[test]
fn a_cache_smaller_than_the_file_takes_what_fits() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chat.pages");
    let prompt = ids(1500, 1);
    let (mut first, _) = roomy();
    first.enqueue(job(&prompt, 1)).unwrap();
    run(&mut first);
    first.save(&path, "model", None, &prompt).unwrap();
    let model = StandIn::with_cache(4096, 7, 512);
    let mut second = generator(&model, GeneratorOptions::default());
    second.restore(&path, "model", None).unwrap();
    second.check().unwrap();
    let serial = second.enqueue(job(&prompt, 3)).unwrap();
    assert_eq!(run(&mut second)[&serial].token_ids, greedy_ids(&prompt, 3));
}
