//! What is never written down: keys and tokens, by the names under which they are sent, and wherever
//! else the same text appears in what is shown of the request.

use http::HeaderMap;
use serde_json::{Map, Value};

/// Names of headers and fields that hold secrets; `-` and `_` are the same.
const NAMES: &[&str] = &[
    "authorization",
    "proxy_authorization",
    "cookie",
    "set_cookie",
    "x_api_key",
    "x_admin_key",
    "api_key",
    "admin_key",
    "token",
    "hf_token",
];
/// What stands in their place.
const HIDDEN: &str = "[redacted]";
/// Shorter texts are not looked for elsewhere: they would hide ordinary words.
const SECRET_BYTES_MIN: usize = 6;

fn is_secret(name: &str) -> bool {
    let plain = name.to_ascii_lowercase().replace('-', "_");
    NAMES.contains(&plain.as_str())
}

/// The secrets that came with a request.
pub struct Secrets(Vec<String>);

impl Secrets {
    /// Those in its headers.
    pub fn of(headers: &HeaderMap) -> Self {
        let values = headers.iter().filter(|(name, _)| is_secret(name.as_str()));
        let texts = values.filter_map(|(_, value)| value.to_str().ok());
        // `Bearer SECRET`, or the secret alone.
        let last = texts.filter_map(|text| text.split_whitespace().last());
        Secrets(last.filter(|text| text.len() >= SECRET_BYTES_MIN).map(str::to_owned).collect())
    }

    /// Headers as an object, without secrets.
    pub fn headers(&self, headers: &HeaderMap) -> Value {
        let mut shown = Map::new();
        for name in headers.keys() {
            let values = headers.get_all(name).iter();
            let texts = values.map(|value| String::from_utf8_lossy(value.as_bytes()));
            let text = match is_secret(name.as_str()) {
                true => HIDDEN.to_owned(),
                false => self.text(&texts.collect::<Vec<_>>().join(", ")),
            };
            shown.insert(name.as_str().to_owned(), text.into());
        }
        Value::Object(shown)
    }

    /// A body without secrets. Bodies nest no deeper than their parser allows.
    pub fn object(&self, map: &Map<String, Value>) -> Value {
        let entry = |(name, value): (&String, &Value)| {
            let shown = match is_secret(name) && !value.is_null() {
                true => HIDDEN.into(),
                false => self.value(value),
            };
            (self.text(name), shown)
        };
        Value::Object(map.iter().map(entry).collect())
    }

    fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.text(text).into(),
            Value::Array(list) => list.iter().map(|item| self.value(item)).collect(),
            Value::Object(map) => self.object(map),
            other => other.clone(),
        }
    }

    /// A text without the secrets that came with the request.
    pub fn text(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, HIDDEN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_name_on_the_list_is_hidden_and_so_is_the_same_text_elsewhere() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer sk-one-two"),
            ("cookie", "a=b"),
            ("x-api-key", "key-of-alice"),
            ("x-admin-key", "key-of-root"),
            ("x-other", "again sk-one-two"),
            ("accept", "*/*"),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        let secrets = Secrets::of(&headers);
        let body = json!({
            "api_key": "k1", "admin_key": "k2", "token": "k3", "hf_token": "k4", "API-Key": "k5",
            "Authorization": {"deep": "k6"}, "token_healing": true, "key-of-alice": 1,
            "messages": [{"content": "my key is key-of-root", "token": "k7"}], "cookie": null,
        });
        let Value::Object(map) = &body else { panic!() };
        let shown = format!("{} {}", secrets.headers(&headers), secrets.object(map));
        for secret in ["sk-one-two", "a=b", "key-of", "k1", "k2", "k3", "k4", "k5", "k6", "k7"] {
            assert!(!shown.contains(secret), "{secret}: {shown}");
        }
        for harmless in ["*/*", "token_healing\":true", "my key is [redacted]", "cookie\":null"] {
            assert!(shown.contains(harmless), "{harmless}: {shown}");
        }
    }
}
