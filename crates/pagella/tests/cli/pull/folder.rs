//! Fetching into a folder of its own, as servers do.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use pagella::hub::{FetchOptions, HubError, PullOptions, fetch, free_bytes};

use super::hub::Quirk;
use super::{FILES, Place, demo_bytes, demo_dir};

fn options(place: &Place, hosts: &[&str]) -> FetchOptions {
    let pull = PullOptions {
        endpoint: place.hub.address(),
        token: None,
        attempts: 2,
        retry_wait: Duration::from_millis(1),
        free_bytes,
    };
    let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
    FetchOptions { pull, include: Vec::new(), exclude: Vec::new(), hosts, cleanup: false }
}

/// Fetches until so many bytes are there. Returns how far it came.
fn fetched(
    place: &Place,
    target: &Path,
    options: &FetchOptions,
    until: u64,
) -> (u64, Result<(), HubError>) {
    let mut done = 0;
    let id = "org/demo".parse().unwrap();
    let result = fetch(&id, target, options, &mut |at| {
        assert_eq!((at.bytes_total, at.n_files), (demo_bytes(), FILES.len()));
        assert!(at.bytes_done >= done || place.hub.requests().len() > 8);
        done = at.bytes_done;
        if done >= until { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    (done, result)
}

#[test]
fn a_folder_appears_when_it_is_complete() {
    let place = Place::new(Quirk::None);
    let target = place.home.path().join("models/demo");
    let options = options(&place, &["127.0.0.1"]);
    let half = demo_bytes() / 2;
    let (done, stopped) = fetched(&place, &target, &options, half);
    assert!(matches!(stopped, Err(HubError::Stopped)) && done < demo_bytes() && !target.exists());
    // What was there is not fetched again.
    let before = place.hub.requests().len();
    let (done, finished) = fetched(&place, &target, &options, u64::MAX);
    finished.unwrap();
    assert_eq!(done, demo_bytes());
    assert!(
        place.hub.requests()[before..]
            .iter()
            .any(|request| request.to_lowercase().contains("range: bytes="))
    );
    for file in FILES {
        let fetched = std::fs::read(target.join(file)).unwrap();
        assert_eq!(fetched, std::fs::read(demo_dir().join(file)).unwrap(), "{file}");
    }
    let beside: Vec<_> = std::fs::read_dir(target.parent().unwrap()).unwrap().collect();
    assert_eq!(beside.len(), 1, "nothing is left over: {beside:?}");
}

#[test]
fn disk_full_and_interrupted() {
    // A connection that always breaks and bytes that are wrong: no folder that looks complete.
    for quirk in [
        Quirk::BreakAlways { file: "output.safetensors", after: 1000 },
        Quirk::Corrupt { file: "output.safetensors" },
        Quirk::HostileEtag,
        Quirk::HostileCommit,
    ] {
        let place = Place::new(quirk);
        let target = place.home.path().join("demo");
        let options = options(&place, &["127.0.0.1"]);
        assert!(fetched(&place, &target, &options, u64::MAX).1.is_err());
        assert!(!target.exists());
        place.hub.set_quirk(Quirk::None);
        fetched(&place, &target, &options, u64::MAX).1.unwrap();
        assert!(target.join("config.json").exists());
    }
    let place = Place::new(Quirk::None);
    let cleanup = FetchOptions { cleanup: true, ..options(&place, &["127.0.0.1"]) };
    let target = place.home.path().join("demo");
    assert!(fetched(&place, &target, &cleanup, 1).1.is_err());
    assert_eq!(std::fs::read_dir(place.home.path()).unwrap().count(), 0);
}

#[test]
fn only_hosts_of_the_list_are_asked() {
    let place = Place::new(Quirk::Redirect);
    let target = place.home.path().join("demo");
    for hosts in [&["huggingface.co"][..], &["*.0.0.1"], &[]] {
        let refused = fetched(&place, &target, &options(&place, hosts), u64::MAX).1;
        assert!(matches!(refused, Err(HubError::Host { .. })), "{hosts:?}");
    }
    assert!(place.hub.requests().is_empty(), "nobody was asked");
    // A redirect leads to another host.
    let refused = fetched(&place, &target, &options(&place, &["127.0.0.1"]), u64::MAX).1;
    assert!(matches!(refused, Err(HubError::Host { host }) if host == "localhost"));
    assert!(!place.hub.requests().iter().any(|request| request.contains("elsewhere")));
    fetched(&place, &target, &options(&place, &["127.0.0.1", "localhost"]), u64::MAX).1.unwrap();
}

#[test]
fn nothing_is_fetched_where_there_is_too_little_room() {
    let place = Place::new(Quirk::None);
    let target = place.home.path().join("demo");
    let mut tight = options(&place, &["127.0.0.1"]);
    tight.pull.free_bytes = |_| Some(1000);
    let (done, refused) = fetched(&place, &target, &tight, u64::MAX);
    let Err(HubError::NoSpace { needed, free, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!((done, needed, free), (0, demo_bytes(), 1000));
    let bodies = place.hub.requests();
    assert!(!bodies.iter().any(|r| r.starts_with("GET") && r.contains("/resolve/")), "{bodies:?}");
    assert_eq!(std::fs::read_dir(place.home.path()).unwrap().count(), 0, "nothing is left over");
    // What is there already needs no room.
    let roomy = options(&place, &["127.0.0.1"]);
    assert!(fetched(&place, &target, &roomy, demo_bytes() / 2).1.is_err());
    let (_, refused) = fetched(&place, &target, &tight, u64::MAX);
    let Err(HubError::NoSpace { needed, .. }) = refused else { panic!("{refused:?}") };
    assert!(needed < demo_bytes(), "{needed}");
    fetched(&place, &target, &roomy, u64::MAX).1.unwrap();
}
