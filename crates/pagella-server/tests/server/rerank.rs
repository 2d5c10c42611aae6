//! Documents by how well they fit a query.

use pagella_engine::Pooling;
use pagella_server::settings::RerankMethod;
use pagella_server::settings::UsualPooling;
use pagella_server::{Judge, JudgeForm, RerankFacts, Verdict};
use serde_json::{Value, json};

use crate::support::{API, TestServer, demo, keys, settings, wait_for};

const PATH: &str = "/v1/rerank";
const FORM: &str = "Query: {query}\nDocument: {document}\nDoes it fit? ";

/// The demo model as one that judges with two of its tokens.
fn judging(form: JudgeForm) -> TestServer {
    let mut parts = demo(32);
    let text = |text: &str| parts.tokenizer.encode_text(text).unwrap()[0];
    let (yes, no) = (Verdict::Id(text("y")), Verdict::Id(text("n")));
    let judge = Judge { yes, no, form, instruction: None };
    parts.facts.rerank = RerankFacts { judge: Some(judge), problem: None };
    TestServer::start(settings(), keys(), Some(parts))
}

fn body(extra: Value) -> Value {
    let documents = ["An array is a list.", "CSS styles pages.", "Cats sleep."];
    let mut body = json!({"query": "What is an array?", "documents": documents});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

/// The share of `y` in the probability of `y` and `n` after a prompt, from raw log-probabilities.
fn share(server: &TestServer, prompt: &str) -> f64 {
    let tokenize = |text: &str| {
        let ids = server.client(API).post("/tokenize", &json!({ "content": text })).good();
        ids["tokens"][0].as_u64().unwrap()
    };
    let probability = |text: &str| {
        let id = tokenize(text);
        let body = json!({"prompt": prompt, "max_tokens": 1, "logprobs": 0, "temperature": 0,
            "allowed_tokens": [id]});
        let value = server.client(API).post("/v1/completions", &body).good();
        value["choices"][0]["logprobs"]["token_logprobs"][0].as_f64().unwrap().exp()
    };
    let (yes, no) = (probability("y"), probability("n"));
    yes / (yes + no)
}

#[test]
fn scores_are_the_share_of_yes_and_the_best_come_first() {
    let server = judging(JudgeForm::Text(FORM.to_owned()));
    let client = server.client(API);
    let value = client.post(PATH, &body(json!({"return_documents": true}))).good();
    assert_eq!((&value["object"], &value["model"]), (&json!("list"), &json!("demo")));
    let results = value["results"].as_array().unwrap();
    assert_eq!(results.len(), 3);
    let score = |result: &Value| result["relevance_score"].as_f64().unwrap();
    assert!(results.is_sorted_by(|a, b| score(a) >= score(b)), "{value}");
    for result in results {
        let document = result["document"]["text"].as_str().unwrap();
        let index = result["index"].as_u64().unwrap() as usize;
        assert_eq!(body(json!({}))["documents"][index], document);
        let prompt = FORM.replace("{query}", "What is an array?").replace("{document}", document);
        let expected = share(&server, &prompt);
        assert!((score(result) - expected).abs() < 1e-4, "{} and {expected}", score(result));
    }
    assert!(value["usage"]["prompt_tokens"].as_u64().unwrap() > 20);
    let best = client.post(PATH, &body(json!({"top_n": 1}))).good();
    assert_eq!(best["results"].as_array().unwrap().len(), 1);
    assert_eq!(best["results"][0]["index"], results[0]["index"]);
    for alias in ["/rerank", "/reranking", "/v1/reranking"] {
        let again = client.post(alias, &body(json!({"top_n": 0, "top_k": null}))).good();
        assert_eq!(again["results"].as_array().unwrap().len(), 3, "{alias}");
    }
    server.wait_idle();
}

#[test]
fn many_documents_are_ranked_alike_however_they_are_grouped() {
    let server = judging(JudgeForm::Text(FORM.to_owned()));
    let documents: Vec<String> = (0..150).map(|n| format!("Document {}", n % 3)).collect();
    let value = server.client(API).post(PATH, &body(json!({ "documents": documents }))).good();
    let results = value["results"].as_array().unwrap();
    assert_eq!(results.len(), 150);
    for result in results {
        let same = results.iter().find(|other| {
            other["index"].as_u64().unwrap() == result["index"].as_u64().unwrap() % 3
        });
        assert_eq!(same.unwrap()["relevance_score"], result["relevance_score"]);
    }
    server.wait_idle();
}

#[test]
fn a_template_with_roles_for_query_and_document_is_used() {
    let server = judging(JudgeForm::Template);
    let source = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}Fits: ";
    let template = pagella_text::ChatTemplate::from_source(source).unwrap();
    let active = pagella_server::ActiveTemplate { name: "judge".into(), template };
    server.app.model.loaded().unwrap().set_template(Some(std::sync::Arc::new(active)));
    let asked = body(json!({"instruction": "Find it", "documents": ["Cats sleep."]}));
    let value = server.client(API).post(PATH, &asked).good();
    let prompt = "<system>Find it\n<query>What is an array?\n<document>Cats sleep.\nFits: ";
    let expected = share(&server, prompt);
    let score = value["results"][0]["relevance_score"].as_f64().unwrap();
    assert!((score - expected).abs() < 1e-4, "{score} and {expected}");
}

#[test]
fn models_that_do_not_say_how_they_judge_are_refused_and_nothing_takes_their_place() {
    let mut parts = demo(8);
    parts.facts.embedding.pooling = Some(Pooling::Mean);
    let server = TestServer::start(settings(), keys(), Some(parts));
    let refused = server.client(API).post(PATH, &body(json!({})));
    assert_eq!(refused.refusal(), (400, "unsupported_parameter".into(), Some("model".into())));
    for word in ["LogitScore", "model.toml", "rerank.method"] {
        assert!(refused.text().contains(word), "{}", refused.text());
    }
    let mut wrong = demo(8);
    wrong.facts.rerank.problem = Some("there is no 1_LogitScore/config.json".into());
    let server = TestServer::start(settings(), keys(), Some(wrong));
    assert!(server.client(API).post(PATH, &body(json!({}))).text().contains("1_LogitScore"));
}

#[test]
fn angles_count_where_the_operator_chose_them() {
    let mut chosen = settings();
    chosen.rerank.method = RerankMethod::Embeddings;
    chosen.embeddings.pooling = Some(UsualPooling::Mean);
    let server = TestServer::start(chosen, keys(), Some(demo(8)));
    let client = server.client(API);
    let asked = body(json!({"documents": ["What is an array?", "Cats sleep."]}));
    let value = client.post(PATH, &asked).good();
    let results = value["results"].as_array().unwrap();
    assert_eq!(results[0]["index"], 0, "the same text fits best");
    assert!((results[0]["relevance_score"].as_f64().unwrap() - 1.0).abs() < 1e-4);
    assert!(results[1]["relevance_score"].as_f64().unwrap() < 0.9999);
    // The setting holds for vectors as well: nobody has to name a pooling.
    let vector = client.post("/v1/embeddings", &json!({"input": "x"})).good();
    let named = client.post("/v1/embeddings", &json!({"input": "x", "pooling": "mean"})).good();
    assert_eq!(vector, named);
    let last = client.post("/v1/embeddings", &json!({"input": "x y", "pooling": "last"})).good();
    let usual = client.post("/v1/embeddings", &json!({"input": "x y"})).good();
    assert_ne!(last, usual, "a request says otherwise");
}

#[test]
fn a_client_that_leaves_ends_its_ranking() {
    let server = judging(JudgeForm::Text(FORM.to_owned()));
    let documents = vec!["word ".repeat(1000); 60];
    let asked = body(json!({ "documents": documents })).to_string();
    let socket = server.client(API).open("POST", PATH, Some(asked.as_bytes()));
    wait_for("documents to be judged", || server.stats().queue.active > 0);
    drop(socket);
    server.wait_idle();
}
