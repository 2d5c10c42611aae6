//! Ranking of texts: how well documents fit a query.
//!
//! A model that judges is asked of every document whether it fits, and answers with one of two tokens;
//! the score is the share of the first one in the probability of both ([`judge`]). Where the operator
//! chose that, the angle between vectors counts instead ([`angle`]): it is never put in the place of a
//! judgement in silence.

mod angle;
mod ask;
mod judge;
mod route;

use crate::route::{Access, BodyRule, GENERATE, Route, post, to};

pub use angle::scores as angles;
pub use ask::{RerankBody, RerankRequest};
pub use judge::scores as judgements;

/// Every route of it.
pub const ROUTES: &[Route] = &[
    post("/v1/rerank", Access::Api, to!(route::create))
        .doc("generation", "rerank", "Documents by how well they fit")
        .json("Ranking")
        .body::<RerankBody>(BodyRule::Generation, "RerankRequest")
        .also(GENERATE),
    post("/v1/reranking", Access::Api, to!(route::create))
        .doc("generation", "reranking", "The same as /v1/rerank, as llama.cpp has it")
        .json("Ranking")
        .body::<RerankBody>(BodyRule::Generation, "RerankRequest")
        .also(GENERATE),
    post("/rerank", Access::Api, to!(route::create))
        .doc("generation", "rerankShort", "The same as /v1/rerank, as llama.cpp has it")
        .json("Ranking")
        .body::<RerankBody>(BodyRule::Generation, "RerankRequest")
        .also(GENERATE),
    post("/reranking", Access::Api, to!(route::create))
        .doc("generation", "rerankingShort", "The same as /v1/rerank, as llama.cpp has it")
        .json("Ranking")
        .body::<RerankBody>(BodyRule::Generation, "RerankRequest")
        .also(GENERATE),
];
