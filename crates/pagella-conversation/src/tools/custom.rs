//! Custom tools: they take one text, perhaps in a language of their own. Templates and models know
//! only functions with arguments, so the text travels as the one argument `input`.

use pagella_engine::constraint::InputRule;
use serde_json::{Value, json};

use super::definition::TextInput;
use crate::error::ConversationError;

/// The schema of a function that takes one text.
pub fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": { "input": { "type": "string" } },
        "required": ["input"],
        "additionalProperties": false,
    })
}

/// Reads the format of a tool's input: text, or `grammar` with its syntax and definition, which chat
/// completions wrap once more.
pub fn input(path: &str, format: Option<&Value>) -> Result<TextInput, ConversationError> {
    let Some(format) = format else { return Ok(TextInput::default()) };
    let path = format!("{path}.format");
    match format.get("type").and_then(Value::as_str) {
        Some("text") => return Ok(TextInput::default()),
        Some("grammar") => {}
        _ => {
            return Err(ConversationError::unsupported(
                format!("{path}.type"),
                "it is text or grammar",
            ));
        }
    }
    let grammar = format.get("grammar").filter(|grammar| grammar.is_object()).unwrap_or(format);
    let definition_path = format!("{path}.definition");
    let definition =
        grammar.get("definition").ok_or_else(|| ConversationError::missing(&definition_path));
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let definition = || {
        text(definition?).ok_or_else(|| ConversationError::wrong_type(definition_path, "a string"))
    };
    let rule = match grammar.get("syntax").and_then(Value::as_str) {
        Some("lark") => InputRule::Lark(definition()?),
        Some("regex") => InputRule::Regex(definition()?),
        _ => {
            return Err(ConversationError::unsupported(
                format!("{path}.syntax"),
                "it is lark or regex",
            ));
        }
    };
    Ok(TextInput { rule: Some(rule) })
}

/// What the model is told of a tool: also what its input must look like.
pub fn described(description: &str, input: &TextInput) -> String {
    match &input.rule {
        None => description.to_owned(),
        Some(InputRule::Regex(pattern)) => {
            format!("{description}\nThe input matches this regular expression:\n{pattern}")
        }
        Some(InputRule::Lark(grammar)) => {
            format!("{description}\nThe input follows this grammar:\n{grammar}")
        }
        Some(_) => description.to_owned(),
    }
}

/// Takes the text out of arguments as they come.
#[derive(Debug, Default)]
pub struct InputReader {
    at: At,
    /// An escape sequence so far.
    escape: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// Before the key.
    #[default]
    Key,
    InKey,
    Colon,
    /// In the text.
    Inside,
    Behind,
}

impl InputReader {
    /// More of the arguments, and what that adds to the text.
    pub fn push(&mut self, arguments: &str) -> String {
        let mut text = String::new();
        for c in arguments.chars() {
            self.at = match (self.at, c) {
                (At::Key, '"') => At::InKey,
                (At::InKey, '"') => At::Colon,
                (At::Colon, '"') => At::Inside,
                (At::Inside, '"') if self.escape.is_empty() => At::Behind,
                (At::Inside, c) => {
                    self.inside(c, &mut text);
                    At::Inside
                }
                (at, _) => at,
            };
        }
        text
    }

    fn inside(&mut self, c: char, text: &mut String) {
        if self.escape.is_empty() && c != '\\' {
            return text.push(c);
        }
        self.escape.push(c);
        // Half of a pair waits for the other half.
        if let Ok(read) = serde_json::from_str::<String>(&format!("\"{}\"", self.escape)) {
            text.push_str(&read);
            self.escape.clear();
        } else if self.escape.len() > "\\ud83d\\ude00".len() {
            text.push_str(&std::mem::take(&mut self.escape));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_taken_out_of_arguments_in_any_pieces() {
        let text = "a \"b\" \\ c\n\u{1}€😀 \\n";
        for arguments in [
            json!({ "input": text }).to_string(),
            "{\"input\": \"a \\\"b\\\" \\\\ c\\n\\u0001\\u20ac\\ud83d\\ude00 \\\\n\"}".to_owned(),
        ] {
            for cut in (0..=arguments.len()).filter(|cut| arguments.is_char_boundary(*cut)) {
                let mut reader = InputReader::default();
                let first = reader.push(&arguments[..cut]);
                assert!(text.starts_with(&first), "{first:?}");
                assert_eq!(first + &reader.push(&arguments[cut..]), text);
            }
        }
    }

    #[test]
    fn formats_are_read() {
        let read = |format: Value| input("tools[0].custom", Some(&format)).map(|input| input.rule);
        let lark = Some(InputRule::Lark("start: \"a\"".into()));
        let flat = json!({"type": "grammar", "syntax": "lark", "definition": "start: \"a\""});
        assert_eq!(read(flat.clone()).unwrap(), lark);
        let wrapped = json!({"type": "grammar", "grammar": flat});
        assert_eq!(read(wrapped).unwrap(), lark);
        assert_eq!(read(json!({"type": "text"})).unwrap(), None);
        for (format, field) in [
            (json!({"type": "grammar", "definition": "a"}), "syntax"),
            (json!({"type": "grammar", "syntax": "regex"}), "definition"),
            (json!({"type": "grammar", "syntax": "lark", "definition": 5}), "definition"),
            (json!({"type": "json"}), "type"),
            (json!("grammar"), "type"),
        ] {
            let refused = read(format).err().unwrap();
            assert_eq!(refused.path, format!("tools[0].custom.format.{field}"));
        }
    }
}
