//! Conversations in files: `{"system": …, "messages": [{"role": …, "content": …}, …]}`.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use pagella::{Chat, Message};
use pagella_conversation::messages;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::read_bounded;

/// Most messages of a file.
const MESSAGES_MAX: usize = 1 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Transcript {
    #[serde(default)]
    system: Option<String>,
    messages: Vec<Value>,
}

/// Writes a conversation.
pub fn save(chat: &Chat, path: &Path) -> Result<()> {
    let messages = chat.turns().iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
    let transcript = Transcript { system: chat.system_text().map(str::to_owned), messages };
    let json = serde_json::to_string_pretty(&transcript)?;
    std::fs::write(path, json + "\n").with_context(|| format!("cannot write {}", path.display()))
}

/// Replaces the conversation by one that was written before.
pub fn load(chat: &mut Chat, path: &Path) -> Result<()> {
    let bytes = read_bounded(path)?;
    let not_saved = || format!("{} is not a saved conversation", path.display());
    let Transcript { system, messages } = serde_json::from_slice(&bytes).with_context(not_saved)?;
    let turns = turns(messages).with_context(not_saved)?;
    chat.set_turns(turns);
    chat.set_system(system);
    Ok(())
}

fn turns(list: Vec<Value>) -> Result<Vec<Message>> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let turns = messages(&Value::Array(list), MESSAGES_MAX)?;
    let spoken = turns.iter().all(|turn| turn.role != "system" && turn.role != "developer");
    ensure!(spoken, "the system message stands beside the messages, as `system`");
    Ok(turns)
}
