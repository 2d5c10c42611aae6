//! `api_tokens.yml`, TabbyAPI's file of keys: one or several keys for the model, one for everything.

use toml::Value;

use super::file::SECRET_BYTES_MIN;
use super::key::{Key, Keys, Role};
use crate::config::read_yaml;

/// Its name.
pub const FILE: &str = "api_tokens.yml";

/// Reads the file. What is wrong is told without showing a key.
pub fn parse(text: &str) -> Result<Keys, String> {
    // The parser's message may quote the line, and with it a key.
    let table = read_yaml(text).map_err(|_| "it is not a map of keys in YAML".to_owned())?;
    let mut keys = Keys::none();
    for (name, role) in [("api_key", Role::Api), ("admin_key", Role::Admin)] {
        let secrets = match table.get(name) {
            None => Vec::new(),
            Some(Value::String(secret)) => vec![secret.as_str()],
            Some(Value::Array(list)) => {
                let secrets: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
                secrets
                    .ok_or_else(|| format!("{name} is not a list of texts: put keys in quotes"))?
            }
            Some(_) => return Err(format!("{name} is not a text: put the key in quotes")),
        };
        for (idx, secret) in secrets.iter().enumerate() {
            if secret.len() < SECRET_BYTES_MIN {
                return Err(format!("{name} is shorter than {SECRET_BYTES_MIN} bytes"));
            }
            let key = match idx {
                0 => role.name().to_owned(),
                idx => format!("{}-{}", role.name(), idx + 1),
            };
            keys.add(secret, Key::new(key, role));
        }
    }
    match keys.is_empty() {
        true => Err("there is neither api_key nor admin_key: add one".to_owned()),
        false => Ok(keys),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_or_several_are_read() {
        assert_eq!(parse("api_key: abcdefgh\nadmin_key: ijklmnop\n").unwrap().len(), 2);
        assert_eq!(parse("api_key:\n- abcdefgh\n- ijklmnop\n").unwrap().len(), 2);
    }

    #[test]
    fn wrong_files_are_refused_without_showing_keys() {
        for text in [
            "api_key: [topsecret, 5]",
            "api_key: {a: topsecret}",
            "x: topsecret",
            "topsecret: [",
            "admin_key: short",
        ] {
            let problem = parse(text).err().unwrap();
            assert!(!problem.contains("topsecret"), "{problem}");
        }
    }
}
