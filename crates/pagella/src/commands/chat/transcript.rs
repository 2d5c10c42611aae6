//! Conversations in files: `{"system": …, "messages": [{"role": …, "content": …}, …]}`.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use pagella::{Chat, Message};
use serde::{Deserialize, Serialize};

/// Largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Transcript {
    #[serde(default)]
    system: Option<String>,
    messages: Vec<Turn>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Turn {
    role: Role,
    content: String,
}

/// Who speaks. A closed list, because templates build control tokens from it.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    User,
    Assistant,
}

/// Writes a conversation.
pub fn save(chat: &Chat, path: &Path) -> Result<()> {
    let messages = chat.turns().iter().map(|turn| Turn {
        role: if turn.role == "user" { Role::User } else { Role::Assistant },
        content: turn.content.as_str().unwrap_or_default().to_owned(),
    });
    let system = chat.system_text().map(str::to_owned);
    let transcript = Transcript { system, messages: messages.collect() };
    let json = serde_json::to_string_pretty(&transcript)?;
    std::fs::write(path, json + "\n").with_context(|| format!("cannot write {}", path.display()))
}

/// Replaces the conversation by one that was written before.
pub fn load(chat: &mut Chat, path: &Path) -> Result<()> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path);
    let file = file.with_context(|| format!("cannot read {}", path.display()))?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    ensure!(bytes.len() as u64 <= FILE_BYTES_MAX, "{} is too large", path.display());
    let transcript: Transcript = serde_json::from_slice(&bytes)
        .with_context(|| format!("{} is not a saved conversation", path.display()))?;
    let turns = transcript.messages.into_iter().map(|turn| {
        let role = match turn.role {
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        Message::new(role, turn.content)
    });
    chat.set_turns(turns.collect());
    chat.set_system(transcript.system);
    Ok(())
}
