//! Text to ids and back.

use serde_json::json;

use crate::support::{API, TestServer};

#[test]
fn text_survives_the_way_there_and_back() {
    let server = TestServer::demo();
    let client = server.client(API);
    let text = "Zwei Wörter, 日本 and <b>";
    let encoded =
        client.post("/v1/token/encode", &json!({"text": text, "add_bos_token": false})).good();
    assert_eq!(encoded["length"], encoded["tokens"].as_array().unwrap().len());
    let decoded = client.post("/v1/token/decode", &json!({"tokens": encoded["tokens"]})).good();
    assert_eq!(decoded["text"], text);
    let ours = client.post("/tokenize", &json!({"content": text})).good();
    assert_eq!(ours["tokens"], encoded["tokens"]);
    let back = client.post("/detokenize", &json!({"tokens": ours["tokens"]})).good();
    assert_eq!(back["content"], text);
    let pieces = client.post("/tokenize", &json!({"content": "hi", "with_pieces": true})).good();
    let pieces = pieces["tokens"].as_array().unwrap().clone();
    let joined: String = pieces.iter().map(|piece| piece["piece"].as_str().unwrap()).collect();
    assert_eq!(joined, "hi");
}

#[test]
fn special_tokens_count_where_they_may() {
    let server = TestServer::demo();
    let client = server.client(API);
    let encode = |extra| client.post("/v1/token/encode", &extra).good();
    assert_eq!(encode(json!({"text": "<|end|>"}))["tokens"], json!([0, 4]));
    assert_eq!(encode(json!({"text": "<|end|>", "add_bos_token": false}))["tokens"], json!([4]));
    let inert = encode(json!({"text": "<|end|>", "encode_special_tokens": false}));
    assert!(inert["length"].as_u64().unwrap() > 3);
    let shown = client.post("/v1/token/decode", &json!({"tokens": [4]})).good();
    assert_eq!(shown["text"], "<|end|>");
    let hidden = json!({"tokens": [4], "decode_special_tokens": false});
    assert_eq!(client.post("/v1/token/decode", &hidden).good()["text"], "");
}

#[test]
fn conversations_are_encoded_without_an_opening() {
    let server = TestServer::demo();
    let client = server.client(API);
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let encode = |extra| client.post("/v1/token/encode", &extra).good()["length"].as_u64().unwrap();
    let closed = encode(json!({"text": messages}));
    let opened = encode(json!({"text": messages, "add_generation_prompt": true}));
    assert!(opened > closed);
    let counted = json!({"messages": messages});
    let counted = client.post("/v1/chat/completions/input_tokens", &counted).good();
    assert_eq!(counted["input_tokens"], opened);
}

#[test]
fn ids_that_do_not_exist_are_refused() {
    let server = TestServer::demo();
    let refused = |tokens| {
        server.client(API).post("/v1/token/decode", &json!({ "tokens": tokens })).refusal()
    };
    for tokens in [json!([4096]), json!([-1]), json!([1e300])] {
        assert_eq!(refused(tokens.clone()).0, 400, "{tokens}");
    }
    assert_eq!(refused(json!("1")).1, "invalid_type");
}

#[test]
fn a_large_text_is_encoded_with_pieces_and_offsets() {
    let server = TestServer::demo();
    let client = server.client(API);
    let text = "Some words, 日本 and 17. ".repeat(20_000);
    let ask = json!({"text": text, "add_bos_token": false, "with_offsets": true,
        "with_pieces": true});
    let encoded = client.post("/v1/token/encode", &ask).good();
    let list = |name: &str| encoded[name].as_array().unwrap().clone();
    assert_eq!(
        (list("pieces").len(), list("offsets").len()),
        (list("tokens").len(), list("tokens").len())
    );
    let mut bytes = Vec::new();
    for (piece, offset) in list("pieces").iter().zip(list("offsets")) {
        assert_eq!(offset, bytes.len());
        match piece.as_str() {
            Some(piece) => bytes.extend_from_slice(piece.as_bytes()),
            None => {
                bytes.extend(piece.as_array().unwrap().iter().map(|b| b.as_u64().unwrap() as u8))
            }
        }
    }
    assert!(bytes == text.as_bytes());
}
