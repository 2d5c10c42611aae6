//! Who may ask what.

use std::io::{BufRead, BufReader};
use std::time::{Duration, SystemTime};

use pagella_server::settings::ApiServer;
use pagella_server::{Access, Key, Keys, ROUTES, Role, Settings};
use serde_json::json;

use crate::support::{ADMIN, API, Client, TestServer, demo, keys, settings};

fn concrete(path: &str) -> String {
    path.replace("{id}", "some-id").replace("{name}", "some-name")
}

/// With every family of routes.
fn all_families() -> Settings {
    let mut settings = settings();
    settings.network.api_servers = ApiServer::ALL.to_vec();
    settings
}

fn ask(client: &Client, method: &str, path: &str) -> u16 {
    let body = if method == "GET" { None } else { Some(&b"{}"[..]) };
    // Some answers have no end.
    let mut line = String::new();
    BufReader::new(client.open(method, path, body)).read_line(&mut line).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn every_route_needs_a_key() {
    let server = TestServer::start(all_families(), keys(), None);
    for route in ROUTES {
        let path = concrete(route.path);
        let variants = [
            path.clone(),
            format!("{path}/"),
            format!("{path}?key={API}"),
            format!("{path}?api_key={API}"),
            format!("/{path}"),
            path.to_uppercase(),
            format!("/{}", path[1..].replace('/', "%2f")),
            path.replacen("/v1", "/v1/", 1),
            format!("http://{}{path}", server.address),
        ];
        for variant in variants {
            // A server of its own for few: failures of one peer are counted.
            let status =
                ask(&server.stranger().with("x-original-url", "/health"), route.method, &variant);
            let host = format!("http://{}", server.address);
            let shown = variant.strip_prefix(&host).unwrap_or(&variant);
            let literal = shown == path
                || (path != "/" && shown == format!("{path}/"))
                || shown.starts_with(&format!("{path}?"));
            match route.access.here(true) == Access::Public && literal {
                // Answered, or refused for what was sent.
                true => {
                    let answered = [200, 400, 404, 503].contains(&status);
                    assert!(answered, "{} {variant}: {status}", route.method)
                }
                false => {
                    assert!([401, 429].contains(&status), "{} {variant}: {status}", route.method)
                }
            }
        }
    }
}

#[test]
fn role_matrix() {
    let mut all = keys();
    let past = SystemTime::now() - Duration::from_secs(1);
    all.add("expired-secret", Key { expires: Some(past), ..Key::new("old", Role::Admin) });
    let server = TestServer::start(all_families(), all, None);
    for route in ROUTES {
        let path = concrete(route.path);
        let status = |client: Client| ask(&client, route.method, &path);
        for header in ["x-api-key", "x-admin-key", "authorization"] {
            let form = |secret: &str| match header {
                "authorization" => server.stranger().with(header, &format!("Bearer {secret}")),
                _ => server.stranger().with(header, secret),
            };
            let admin = status(form(ADMIN));
            assert!(![401, 403, 429].contains(&admin), "{} admin {admin}", route.path);
            let api = status(form(API));
            match route.access {
                Access::Admin => assert_eq!(api, 403, "{}", route.path),
                _ => assert_eq!(api, admin, "{}", route.path),
            }
            if route.access.here(true) != Access::Public {
                let expired = status(form("expired-secret"));
                assert!([401, 429].contains(&expired), "{} {expired}", route.path);
            }
        }
    }
}

/// Routes that refuse whatever they are asked.
const NOT_BUILT: [&str; 4] = ["/api/push", "/api/create", "/api/copy", "/api/delete"];

#[test]
fn families_that_were_not_chosen_are_switched_off() {
    for chosen in ApiServer::ALL {
        let mut one = settings();
        one.network.api_servers = vec![chosen];
        let server = TestServer::start(one, keys(), None);
        for route in ROUTES.iter().filter(|route| route.family().is_some()) {
            let path = concrete(route.path);
            let off = route.family() != Some(chosen);
            let absent = off || NOT_BUILT.contains(&route.path);
            let key = if route.access == Access::Admin { ADMIN } else { API };
            assert_eq!(ask(&server.client(key), route.method, &path) == 501, absent, "{path}");
            if off && route.access != Access::Public {
                let status = ask(&server.stranger(), route.method, &path);
                assert!([401, 429].contains(&status), "{path}: {status}");
            }
        }
    }
}

#[test]
fn guessing_is_slowed_and_valid_keys_are_not() {
    let server = TestServer::start(settings(), keys(), None);
    let wrong = server.client("wrong-secret");
    let codes: Vec<u16> = (0..22).map(|_| wrong.get("/v1/models").status).collect();
    assert_eq!((codes[0], codes[19], codes[20]), (401, 401, 429));
    let refused = wrong.get("/v1/models");
    assert!(refused.header("retry-after").is_some() && refused.header("retry-after-ms").is_some());
    assert_eq!(server.client(API).get("/v1/models").status, 200);
}

#[test]
fn a_401_says_how_to_come_back() {
    let server = TestServer::start(settings(), keys(), None);
    let answer = server.stranger().get("/v1/models");
    assert_eq!(answer.refusal(), (401, "missing_api_key".to_owned(), None));
    assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    assert_eq!(server.stranger().get("/nowhere").status, 401);
    assert_eq!(server.client(API).get("/nowhere").refusal().1, "unknown_route");
}

#[test]
fn permission_names_the_key() {
    let server = TestServer::start(settings(), keys(), None);
    let permission = |key| server.client(key).get("/v1/auth/permission").good();
    assert_eq!(permission(API), json!({"permission": "api", "name": "alice"}));
    assert_eq!(permission(ADMIN), json!({"permission": "admin", "name": "root"}));
    let mut open = settings();
    open.network.disable_auth = true;
    let server = TestServer::start(open, Keys::none(), None);
    let permission = server.stranger().get("/v1/auth/permission").good();
    assert_eq!(permission["permission"], "admin");
}

#[test]
fn a_model_outside_the_keys_list_does_not_exist_for_it() {
    let mut all = keys();
    all.add("narrow-secret", Key { models: vec!["qwen*".into()], ..Key::new("n", Role::Api) });
    let server = TestServer::start(settings(), all, Some(demo(8)));
    let narrow = server.client("narrow-secret");
    assert_eq!(narrow.get("/v1/models").good()["data"], json!([]));
    assert_eq!(narrow.get("/v1/model").refusal().1, "model_not_found");
    let body = json!({"prompt": "x", "max_tokens": 1});
    assert_eq!(narrow.post("/v1/completions", &body).refusal().1, "model_not_found");
}
