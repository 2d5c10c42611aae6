//! Ollama's interface: its words for fields, and answers of one JSON object per line.
//!
//! A conversation becomes a chat like that of every other dialect; what is different is here: fields
//! that stand under `options` (`request`), messages without ids of calls (`message`), answers whose
//! calls come whole and whose end tells counts and times (`answer`), and names with a tag (`card`).

mod answer;
mod card;
mod embed;
mod generate;
mod info;
mod message;
mod request;

use crate::route::{Access, BodyRule, Route, delete, get, of_family, post, to};
use crate::settings::ApiServer;
use crate::wire::error::Dialect;

pub use answer::{AnswerForm, OllamaAnswer, done_without_text};
pub use card::{entry, own_name, process, show, tagged};
pub use message::messages;
pub use request::{
    OllamaChatBody, OllamaEmbedBody, OllamaEmbeddingsBody, OllamaFields, OllamaGenerateBody,
    OllamaGenerateFields, OllamaModelName, OllamaNameBody,
};

/// Statuses of routes that the operator has to choose, alone and with those of the model.
const OFF: &[u16] = &[501];
const MODEL: &[u16] = &[404, 501, 503];
const GENERATED: &[u16] = &[404, 501, 503, 504];

/// Every route of the family.
pub const ROUTES: &[Route] = &of_family(
    ApiServer::Ollama,
    Dialect::Ollama,
    [
        post("/api/chat", Access::Api, to!(generate::chat))
            .doc("ollama", "ollamaChat", "Answer a conversation")
            .json("OllamaChat")
            .body::<OllamaChatBody>(BodyRule::Generation, "OllamaChatRequest")
            .lines("OllamaChat")
            .also(GENERATED),
        post("/api/generate", Access::Api, to!(generate::generate))
            .doc("ollama", "ollamaGenerate", "Answer or continue a prompt")
            .json("OllamaGenerated")
            .body::<OllamaGenerateBody>(BodyRule::Generation, "OllamaGenerateRequest")
            .lines("OllamaGenerated")
            .also(GENERATED),
        post("/api/embed", Access::Api, to!(embed::embed))
            .doc("ollama", "ollamaEmbed", "Vectors of texts, of length one")
            .json("OllamaVectors")
            .body::<OllamaEmbedBody>(BodyRule::Generation, "OllamaEmbedRequest")
            .also(GENERATED),
        post("/api/embeddings", Access::Api, to!(embed::embeddings))
            .doc("ollama", "ollamaEmbeddings", "The vector of one text; the older form")
            .json("OllamaVector")
            .body::<OllamaEmbeddingsBody>(BodyRule::Generation, "OllamaEmbeddingsRequest")
            .also(GENERATED),
        get("/api/tags", Access::Api, to!(info::tags))
            .doc("ollama", "ollamaTags", "Models that the key sees")
            .json("OllamaModels")
            .also(OFF),
        get("/api/ps", Access::Api, to!(info::ps))
            .doc("ollama", "ollamaPs", "Models that answer now")
            .json("OllamaModels")
            .also(OFF),
        get("/api/version", Access::Api, to!(info::version))
            .doc("ollama", "ollamaVersion", "The version of Ollama's interface")
            .json("OllamaVersion")
            .also(OFF),
        post("/api/show", Access::Api, to!(info::show))
            .doc("ollama", "ollamaShow", "A model in detail")
            .json("OllamaModel")
            .body::<OllamaNameBody>(BodyRule::Small, "OllamaShowRequest")
            .also(MODEL),
        post("/api/pull", Access::Api, to!(info::pull))
            .doc("ollama", "ollamaPull", "Whether a model is here; others are not fetched")
            .json("OllamaStatus")
            .body::<OllamaNameBody>(BodyRule::Small, "OllamaPullRequest")
            .also(OFF),
        post("/api/push", Access::Api, to!(info::refuse))
            .doc("ollama", "ollamaPush", "Not supported")
            .json("OllamaStatus")
            .body::<()>(BodyRule::Small, "OllamaChangeRequest")
            .optional()
            .also(OFF),
        post("/api/create", Access::Api, to!(info::refuse))
            .doc("ollama", "ollamaCreate", "Not supported")
            .json("OllamaStatus")
            .body::<()>(BodyRule::Small, "OllamaChangeRequest")
            .optional()
            .also(OFF),
        post("/api/copy", Access::Api, to!(info::refuse))
            .doc("ollama", "ollamaCopy", "Not supported")
            .json("OllamaStatus")
            .body::<()>(BodyRule::Small, "OllamaChangeRequest")
            .optional()
            .also(OFF),
        delete("/api/delete", Access::Api, to!(info::refuse))
            .doc("ollama", "ollamaDelete", "Not supported")
            .json("OllamaStatus")
            .body::<()>(BodyRule::Small, "OllamaChangeRequest")
            .optional()
            .also(OFF),
    ],
);
