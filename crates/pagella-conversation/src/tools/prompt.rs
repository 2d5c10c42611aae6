//! Tools for templates that know nothing of them.
//!
//! The tools and the form of a call are explained in the system message. Calls in the conversation
//! become the text that the model would write, and results become what the user says. So any model
//! can be given tools, whatever its template.

use pagella_text::Message;
use serde_json::{Value, json};

use super::definition::ToolSet;

/// What the system message says about tools.
fn explanation(set: &ToolSet) -> String {
    let mut text = "You can call tools. Each is described by one line of JSON:\n".to_owned();
    for tool in set.for_template().as_array().into_iter().flatten() {
        let function = tool.get("function").unwrap_or(tool);
        text.push_str(&format!("{function}\n"));
    }
    text.push_str(
        "To call some, answer with one JSON object and nothing else:\n\
         {\"tool_calls\": [{\"name\": \"…\", \"arguments\": {…}}]}\n\
         Their results follow. Otherwise answer as usual.",
    );
    text
}

/// A conversation in words that every template knows, with an explanation of the tools if there are
/// any.
pub fn plain(messages: Vec<Message>, tools: Option<&ToolSet>) -> Vec<Message> {
    let mut plain: Vec<Message> = Vec::with_capacity(messages.len() + 1);
    let mut names: Vec<(Value, String)> = Vec::new();
    for mut message in messages {
        if let Some(Value::Array(calls)) = message.extra.remove("tool_calls") {
            let listed = calls.iter().filter_map(|call| {
                let function = call.get("function")?;
                let name = function.get("name")?.as_str()?;
                names.push((call.get("id").cloned().unwrap_or_default(), name.to_owned()));
                Some(json!({ "name": name, "arguments": function.get("arguments") }))
            });
            let text = json!({ "tool_calls": listed.collect::<Vec<_>>() }).to_string();
            message.content = joined(text_of(&message), &text).into();
        }
        if message.role != "tool" {
            plain.push(message);
            continue;
        }
        let id = message.extra.get("tool_call_id").cloned().unwrap_or_default();
        let known = names.iter().find(|(known, _)| *known == id).map(|(_, name)| name.as_str());
        let name = known.or(message.extra.get("name").and_then(Value::as_str)).unwrap_or("a tool");
        let text = format!("Result of {name}:\n{}", text_of(&message));
        match plain.last_mut() {
            // Templates may insist that user and assistant take turns.
            Some(last) if last.extra.contains_key("results") => {
                last.content = joined(text_of(last), &text).into();
            }
            _ => plain.push(Message::new("user", text).with("results", true.into())),
        }
    }
    for message in &mut plain {
        message.extra.remove("results");
    }
    let Some(set) = tools else { return plain };
    let explanation = explanation(set);
    match plain.first_mut() {
        Some(first) if first.role == "system" => {
            first.content = joined(text_of(first), &explanation).into();
        }
        _ => plain.insert(0, Message::new("system", explanation)),
    }
    plain
}

fn text_of(message: &Message) -> &str {
    message.content.as_str().unwrap_or_default()
}

fn joined(first: &str, second: &str) -> String {
    if first.is_empty() { second.to_owned() } else { format!("{first}\n\n{second}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_results_become_text() {
        let call = |id: &str, name: &str| json!({"id": id, "function": {"name": name, "arguments": {"x": 1}}});
        let result = |id: &str| Message::new("tool", "42").with("tool_call_id", id.into());
        let messages = vec![
            Message::new("user", "?"),
            Message::new("assistant", "")
                .with("tool_calls", json!([call("a", "f"), call("b", "g")])),
            result("b"),
            result("a"),
        ];
        let plain = plain(messages, None);
        let roles: Vec<&str> = plain.iter().map(|message| message.role.as_str()).collect();
        assert_eq!(roles, ["user", "assistant", "user"]);
        let calls: Value = serde_json::from_str(text_of(&plain[1])).unwrap();
        assert_eq!(calls["tool_calls"][1], json!({"name": "g", "arguments": {"x": 1}}));
        assert_eq!(text_of(&plain[2]), "Result of g:\n42\n\nResult of f:\n42");
        assert!(plain.iter().all(|message| message.extra.is_empty() || message.role != "user"));
    }
}
