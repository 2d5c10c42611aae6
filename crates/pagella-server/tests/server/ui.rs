//! The built-in page, its files, and the way from the terminal to a key.

use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use crate::support::{API, TestServer, keys, settings};

fn server() -> TestServer {
    TestServer::start(settings(), keys(), None)
}

/// The value of every `name="…"` in a document.
fn attributes<'a>(html: &'a str, name: &str) -> Vec<&'a str> {
    let begin = format!(" {name}=\"");
    let begins = html.split(begin.as_str()).skip(1);
    begins.map(|rest| rest.split('"').next().unwrap()).collect()
}

#[test]
fn the_page_and_everything_it_names_is_served() {
    let server = server();
    let page = server.stranger().get("/");
    assert_eq!(page.status, 200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(page.header("cache-control"), Some("no-cache"));
    let html = page.text();
    let mut named = attributes(html, "src");
    named.extend(attributes(html, "href").iter().filter(|href| !href.starts_with("data:")));
    assert_eq!(named.len(), 3, "{named:?}");
    for name in named {
        let asset = server.stranger().get(&format!("/{name}"));
        assert_eq!(asset.status, 200, "{name}");
        if name.starts_with("ui/") {
            let cache = asset.header("cache-control");
            assert_eq!(cache, Some("public, max-age=31536000, immutable"), "{name}");
            assert_eq!(asset.header("vary"), Some("accept-encoding"));
            assert_eq!(asset.header("content-encoding"), None);
            let packed = server.stranger().with("accept-encoding", "gzip").get(&format!("/{name}"));
            assert_eq!(packed.header("content-encoding"), Some("gzip"));
            assert!(packed.body.len() * 2 < asset.body.len(), "{name}");
            assert_eq!(packed.body[..2], [0x1f, 0x8b]);
        }
    }
    assert_eq!(server.stranger().get("/ui/app.js").status, 404);
}

#[test]
fn the_policy_lets_the_page_do_nothing_else() {
    let server = server();
    for path in ["/", "/docs"] {
        let page = server.stranger().get(path);
        let policy = page.header("content-security-policy").unwrap();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self' data: blob:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(policy.split("; ").any(|given| given == part), "{path}: {part}");
        }
        assert!(!policy.contains("unsafe"));
        assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(page.header("cross-origin-opener-policy"), Some("same-origin"));
        assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
        assert!(page.header("permissions-policy").is_some());
        let html = page.text();
        assert!(!html.contains("<style") && !html.contains(" style="), "{path}: inline style");
        assert!(!html.contains("<script>"), "{path}: inline script");
    }
}

#[test]
fn nothing_of_the_page_lies_outside() {
    let server = server();
    let page = server.stranger().get("/");
    let mut texts = vec![page.text().to_owned()];
    for name in attributes(page.text(), "src").iter().chain(&attributes(page.text(), "href")) {
        if name.starts_with("ui/") {
            texts.push(server.stranger().get(&format!("/{name}")).text().to_owned());
        }
    }
    assert_eq!(texts.len(), 3);
    for text in texts {
        let addresses = text.split("//").skip(1).filter(|rest| {
            let host: String = rest
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || ".-".contains(*c))
                .collect();
            // The name of a format, which nobody asks for.
            host.contains('.') && !host.starts_with('.') && host != "www.w3.org"
        });
        let addresses: Vec<String> =
            addresses.map(|rest| rest.chars().take(40).collect()).collect();
        assert!(addresses.is_empty(), "{addresses:?}");
    }
}

#[test]
fn the_description_is_served_to_everyone() {
    let server = server();
    let document = server.stranger().get("/openapi.json").good();
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["paths"]["/v1/chat/completions"]["post"].is_object());
    let docs = server.stranger().get("/docs");
    assert!(docs.text().contains("/v1/chat/completions"));
}

#[test]
fn a_base_path_is_part_of_the_description() {
    let mut settings = settings();
    settings.network.base_path = "/llm".to_owned();
    let server = TestServer::start(settings, keys(), None);
    let document = server.stranger().get("/llm/openapi.json").good();
    assert_eq!(document["servers"][0]["url"], "/llm");
    assert_eq!(server.stranger().get("/llm/").status, 200);
}

#[test]
fn the_terminals_code_gives_a_key_once() {
    let server = server();
    let exchange = |code: &str| server.stranger().post("/ui/exchange", &json!({ "code": code }));
    let code = server.app.exchange.offer(Instant::now());
    assert_eq!(exchange("0").refusal().0, 401);
    let key = exchange(&code).good()["key"].as_str().unwrap().to_owned();
    // A second time. Who has a code that was good may hear where keys are, nobody else.
    let again = exchange(&code);
    assert_eq!(again.status, 401);
    let again: Value = serde_json::from_str(again.text()).unwrap();
    assert!(again["error"]["message"].as_str().unwrap().contains("was used already"), "{again}");
    let file = again["error"]["details"]["keys_file"].as_str().unwrap();
    assert!(file.ends_with("keys.toml") && Path::new(file).is_absolute(), "{file}");
    let stranger = exchange("0");
    assert!(!stranger.text().contains("keys"), "{}", stranger.text());
    let client = server.stranger().with("authorization", &format!("Bearer {key}"));
    let permission = client.get("/v1/auth/permission").good();
    assert_eq!(permission["permission"], "admin");
    // The code itself is no key, and the other keys are as good as before.
    let by_code = server.stranger().with("x-api-key", &code).get("/v1/auth/permission");
    assert_eq!(by_code.status, 401);
    assert_eq!(server.client(API).get("/v1/auth/permission").status, 200);
}

#[test]
fn a_page_of_another_origin_cannot_exchange() {
    let server = server();
    let code = server.app.exchange.offer(Instant::now());
    let body = json!({ "code": code });
    let plain = server.stranger().with("content-type", "text/plain").post("/ui/exchange", &body);
    assert_eq!(plain.status, 415);
    let rebound = server.stranger().with("host", "evil.example").post("/ui/exchange", &body);
    assert_eq!(rebound.status, 403);
    assert_eq!(server.stranger().post("/ui/exchange", &body).status, 200);
}

#[test]
fn codes_cannot_be_tried_one_after_the_other() {
    let server = server();
    let statuses: Vec<u16> = (0..40)
        .map(|i| server.stranger().post("/ui/exchange", &json!({ "code": i.to_string() })).status)
        .collect();
    assert!(statuses.contains(&429), "{statuses:?}");
}
