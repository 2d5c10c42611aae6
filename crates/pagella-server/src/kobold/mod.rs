//! KoboldAI's interface, as KoboldCpp extends it: its words for fields, and answers that are known by
//! a name of the client's choice. Everything else is that of completions.

mod generate;
mod genkeys;
mod info;
mod order;
mod request;

use crate::route::{Access, BodyRule, Route, get, of_family, post, to};
use crate::settings::ApiServer;
use crate::wire::error::Dialect;

pub use genkeys::{Genkeys, Named};
pub use request::{Genkey, KoboldBody, KoboldRequest, TokenCount};

/// Statuses of routes that the operator has to choose, alone and with those of the model.
const OFF: &[u16] = &[501];
const MODEL: &[u16] = &[404, 501, 503];
const GENERATED: &[u16] = &[404, 501, 503, 504];

/// Every route of the family.
pub const ROUTES: &[Route] = &of_family(
    ApiServer::Kobold,
    Dialect::OpenAi,
    [
        post("/api/v1/generate", Access::Api, to!(generate::generate))
            .doc("kobold", "koboldGenerate", "Continue a prompt")
            .json("KoboldResults")
            .body::<KoboldBody>(BodyRule::Generation, "KoboldRequest")
            .also(GENERATED),
        get("/api/v1/model", Access::Api, to!(info::model))
            .doc("kobold", "koboldModel", "The model that answers")
            .json("KoboldResult")
            .also(MODEL),
        get("/api/v1/config/max_length", Access::Api, to!(info::max_length))
            .doc("kobold", "koboldMaxLength", "Most tokens of an answer")
            .json("KoboldValue")
            .also(MODEL),
        get("/api/v1/config/max_context_length", Access::Api, to!(info::max_context_length))
            .doc("kobold", "koboldMaxContextLength", "Most tokens of prompt and answer")
            .json("KoboldValue")
            .also(MODEL),
        get("/api/v1/config/soft_prompt", Access::Public, to!(info::soft_prompt))
            .doc("kobold", "koboldSoftPrompt", "The soft prompt: there is none")
            .json("KoboldText")
            .also(OFF),
        get("/api/v1/config/soft_prompts_list", Access::Public, to!(info::soft_prompts))
            .doc("kobold", "koboldSoftPrompts", "Soft prompts: there are none")
            .json("KoboldList")
            .also(OFF),
        get("/api/v1/info/version", Access::Public, to!(info::version))
            .doc("kobold", "koboldVersion", "The version of KoboldAI's interface")
            .json("KoboldResult")
            .also(OFF),
        post("/api/latest/generate", Access::Api, to!(generate::generate))
            .doc("kobold", "koboldGenerateLatest", "Continue a prompt; the same as under /api/v1")
            .json("KoboldResults")
            .body::<KoboldBody>(BodyRule::Generation, "KoboldRequest")
            .also(GENERATED),
        get("/api/latest/model", Access::Api, to!(info::model))
            .doc("kobold", "koboldModelLatest", "The model that answers; the same as under /api/v1")
            .json("KoboldResult")
            .also(MODEL),
        get("/api/latest/config/max_length", Access::Api, to!(info::max_length))
            .doc(
                "kobold",
                "koboldMaxLengthLatest",
                "Most tokens of an answer; the same as under /api/v1",
            )
            .json("KoboldValue")
            .also(MODEL),
        get("/api/latest/config/max_context_length", Access::Api, to!(info::max_context_length))
            .doc(
                "kobold",
                "koboldMaxContextLengthLatest",
                "Most tokens of prompt and answer; the same as under /api/v1",
            )
            .json("KoboldValue")
            .also(MODEL),
        get("/api/latest/config/soft_prompt", Access::Public, to!(info::soft_prompt))
            .doc(
                "kobold",
                "koboldSoftPromptLatest",
                "The soft prompt: there is none; the same as under /api/v1",
            )
            .json("KoboldText")
            .also(OFF),
        get("/api/latest/config/soft_prompts_list", Access::Public, to!(info::soft_prompts))
            .doc(
                "kobold",
                "koboldSoftPromptsLatest",
                "Soft prompts: there are none; the same as under /api/v1",
            )
            .json("KoboldList")
            .also(OFF),
        get("/api/latest/info/version", Access::Public, to!(info::version))
            .doc(
                "kobold",
                "koboldVersionLatest",
                "The version of KoboldAI's interface; the same as under /api/v1",
            )
            .json("KoboldResult")
            .also(OFF),
        post("/api/extra/generate/stream", Access::Api, to!(generate::stream))
            .doc("kobold", "koboldStream", "Continue a prompt, piece by piece")
            .json("KoboldResults")
            .body::<KoboldBody>(BodyRule::Generation, "KoboldRequest")
            .events("KoboldPiece")
            .also(GENERATED),
        get("/api/extra/generate/check", Access::Api, to!(generate::check_unnamed))
            .doc(
                "kobold",
                "koboldCheckUnnamed",
                "What the key's answer without a genkey says so far",
            )
            .json("KoboldResults")
            .also(OFF),
        post("/api/extra/generate/check", Access::Api, to!(generate::check))
            .doc("kobold", "koboldCheck", "What the key's answer of this genkey says so far")
            .json("KoboldResults")
            .body::<(Genkey,)>(BodyRule::Small, "GenkeyRequest")
            .optional()
            .also(OFF),
        post("/api/extra/abort", Access::Api, to!(generate::abort))
            .doc(
                "kobold",
                "koboldAbort",
                "End the key's answers of this genkey with what was written",
            )
            .json("KoboldSuccess")
            .body::<(Genkey,)>(BodyRule::Small, "GenkeyRequest")
            .optional()
            .also(OFF),
        post("/api/extra/tokencount", Access::Api, to!(info::tokencount))
            .doc("kobold", "koboldTokenCount", "The token ids of a text")
            .json("KoboldTokens")
            .body::<(TokenCount,)>(BodyRule::Generation, "TokenCountRequest")
            .also(MODEL),
        get("/api/extra/true_max_context_length", Access::Api, to!(info::max_context_length))
            .doc("kobold", "koboldTrueMaxContextLength", "Most tokens of prompt and answer")
            .json("KoboldValue")
            .also(MODEL),
        get("/api/extra/version", Access::Public, to!(info::extra_version))
            .doc("kobold", "koboldExtraVersion", "Which of KoboldCpp's additions there are")
            .json("KoboldVersion")
            .also(OFF),
    ],
);
