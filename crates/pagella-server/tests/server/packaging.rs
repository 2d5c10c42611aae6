//! What is packaged with the server speaks of things that exist.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{ADMIN, TestServer};

const DASHBOARD: &str = include_str!("../../../../packaging/grafana-dashboard.json");

/// Words of a query that can be names of series.
fn names(query: &str) -> impl Iterator<Item = &str> {
    let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || "_:".contains(c)));
    words.filter(|word| word.starts_with("pagella_") || word.starts_with("http_"))
}

#[test]
fn every_series_of_the_dashboard_exists() {
    let server = TestServer::demo();
    let admin = server.client(ADMIN);
    admin.post("/v1/completions", &json!({ "prompt": "x", "max_tokens": 3 })).good();
    let metrics = admin.get("/metrics");
    let present: BTreeSet<&str> =
        metrics.text().lines().filter_map(|line| line.split(['{', ' ']).next()).collect();
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut n_series = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap();
            for name in names(query) {
                assert!(present.contains(name), "{}: {name}", panel["title"]);
                n_series += 1;
            }
        }
    }
    assert!(n_series > 20, "{n_series}");
}
