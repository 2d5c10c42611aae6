//! Vectors of texts: what is asked for, the way through the engine, how vectors are written.

mod ask;
mod route;
mod run;
mod vector;

use crate::route::{Access, BodyRule, GENERATE, Route, of_family, post, to};
use crate::settings::ApiServer;
use crate::wire::error::Dialect;

pub use ask::{EmbedRequest, EmbeddingFields, EmbeddingsBody};
pub use run::run;
pub use vector::shaped;

/// Every route of the family.
pub const ROUTES: &[Route] = &of_family(
    ApiServer::OpenAi,
    Dialect::OpenAi,
    [post("/v1/embeddings", Access::Api, to!(route::create))
        .doc("generation", "createEmbeddings", "Vectors of texts")
        .json("EmbeddingList")
        .body::<EmbeddingsBody>(BodyRule::Generation, "EmbeddingRequest")
        .also(GENERATE)],
);
