//! What this server is and where its interfaces are.

use serde_json::{Map, Value, json};

use crate::call::{Call, Reply};
use crate::settings::ApiServer;
use crate::wire::error::ApiError;

/// `/.well-known/serviceinfo`.
pub async fn show(call: Call) -> Result<Reply, ApiError> {
    let network = &call.app.settings.network;
    let base = &network.base_path;
    let interface = |server: ApiServer| {
        let (id, name, path) = match server {
            ApiServer::OpenAi => ("openai", "OpenAI API", "/v1"),
            ApiServer::Anthropic => ("anthropic", "Anthropic API", "/v1"),
            ApiServer::Ollama => ("ollama", "Ollama API", "/api"),
            ApiServer::LlamaCpp => ("llamacpp", "llama.cpp server", ""),
            ApiServer::Kobold => ("koboldai", "KoboldAI API", "/api"),
            ApiServer::Ws => ("exllamav2", "ExLlamaV2 WebSocket actions", "/ws"),
        };
        let described = json!({
            "name": name,
            "relative_url": format!("{base}{path}"),
            "documentation": env!("CARGO_PKG_REPOSITORY"),
            "version": 1,
        });
        (id.to_owned(), described)
    };
    let api: Map<String, Value> = network.api_servers.iter().copied().map(interface).collect();
    Reply::json(&json!({
        "version": 0.1,
        "software": {
            "name": "Pagella",
            "version": env!("CARGO_PKG_VERSION"),
            "repository": env!("CARGO_PKG_REPOSITORY"),
            "homepage": env!("CARGO_PKG_REPOSITORY"),
        },
        "api": api,
    }))
}
