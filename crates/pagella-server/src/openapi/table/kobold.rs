//! What is said about Kobold's routes.

use crate::kobold::{FIELDS, GENKEY, TOKENCOUNT};
use crate::openapi::operation::{Operation, op};

/// Statuses of routes that the operator has to choose, alone and with those of the model.
const OFF: &[u16] = &[501];
const MODEL: &[u16] = &[404, 501, 503];
const GENERATE: &[u16] = &[404, 501, 503, 504];

/// Every operation of the family.
pub const OPERATIONS: &[Operation] = &[
    op(
        ("POST", "/api/v1/generate"),
        ("kobold", "koboldGenerate"),
        "Continue a prompt",
        "KoboldResults",
    )
    .body("KoboldRequest", FIELDS, &["prompt"])
    .also(GENERATE),
    op(
        ("GET", "/api/v1/model"),
        ("kobold", "koboldModel"),
        "The model that answers",
        "KoboldResult",
    )
    .also(MODEL),
    op(
        ("GET", "/api/v1/config/max_length"),
        ("kobold", "koboldMaxLength"),
        "Most tokens of an answer",
        "KoboldValue",
    )
    .also(MODEL),
    op(
        ("GET", "/api/v1/config/max_context_length"),
        ("kobold", "koboldMaxContextLength"),
        "Most tokens of prompt and answer",
        "KoboldValue",
    )
    .also(MODEL),
    op(
        ("GET", "/api/v1/config/soft_prompt"),
        ("kobold", "koboldSoftPrompt"),
        "The soft prompt: there is none",
        "KoboldText",
    )
    .also(OFF),
    op(
        ("GET", "/api/v1/config/soft_prompts_list"),
        ("kobold", "koboldSoftPrompts"),
        "Soft prompts: there are none",
        "KoboldList",
    )
    .also(OFF),
    op(
        ("GET", "/api/v1/info/version"),
        ("kobold", "koboldVersion"),
        "The version of KoboldAI's interface",
        "KoboldResult",
    )
    .also(OFF),
    op(
        ("POST", "/api/latest/generate"),
        ("kobold", "koboldGenerateLatest"),
        "Continue a prompt; the same as under /api/v1",
        "KoboldResults",
    )
    .body("KoboldRequest", FIELDS, &["prompt"])
    .also(GENERATE),
    op(
        ("GET", "/api/latest/model"),
        ("kobold", "koboldModelLatest"),
        "The model that answers; the same as under /api/v1",
        "KoboldResult",
    )
    .also(MODEL),
    op(
        ("GET", "/api/latest/config/max_length"),
        ("kobold", "koboldMaxLengthLatest"),
        "Most tokens of an answer; the same as under /api/v1",
        "KoboldValue",
    )
    .also(MODEL),
    op(
        ("GET", "/api/latest/config/max_context_length"),
        ("kobold", "koboldMaxContextLengthLatest"),
        "Most tokens of prompt and answer; the same as under /api/v1",
        "KoboldValue",
    )
    .also(MODEL),
    op(
        ("GET", "/api/latest/config/soft_prompt"),
        ("kobold", "koboldSoftPromptLatest"),
        "The soft prompt: there is none; the same as under /api/v1",
        "KoboldText",
    )
    .also(OFF),
    op(
        ("GET", "/api/latest/config/soft_prompts_list"),
        ("kobold", "koboldSoftPromptsLatest"),
        "Soft prompts: there are none; the same as under /api/v1",
        "KoboldList",
    )
    .also(OFF),
    op(
        ("GET", "/api/latest/info/version"),
        ("kobold", "koboldVersionLatest"),
        "The version of KoboldAI's interface; the same as under /api/v1",
        "KoboldResult",
    )
    .also(OFF),
    op(
        ("POST", "/api/extra/generate/stream"),
        ("kobold", "koboldStream"),
        "Continue a prompt, piece by piece",
        "KoboldResults",
    )
    .body("KoboldRequest", FIELDS, &["prompt"])
    .events("KoboldPiece")
    .also(GENERATE),
    op(
        ("GET", "/api/extra/generate/check"),
        ("kobold", "koboldCheckUnnamed"),
        "What the key's answer without a genkey says so far",
        "KoboldResults",
    )
    .also(OFF),
    op(
        ("POST", "/api/extra/generate/check"),
        ("kobold", "koboldCheck"),
        "What the key's answer of this genkey says so far",
        "KoboldResults",
    )
    .body("GenkeyRequest", GENKEY, &[])
    .optional()
    .also(OFF),
    op(
        ("POST", "/api/extra/abort"),
        ("kobold", "koboldAbort"),
        "End the key's answers of this genkey with what was written",
        "KoboldSuccess",
    )
    .body("GenkeyRequest", GENKEY, &[])
    .optional()
    .also(OFF),
    op(
        ("POST", "/api/extra/tokencount"),
        ("kobold", "koboldTokenCount"),
        "The token ids of a text",
        "KoboldTokens",
    )
    .body("TokenCountRequest", TOKENCOUNT, &["prompt"])
    .also(MODEL),
    op(
        ("GET", "/api/extra/true_max_context_length"),
        ("kobold", "koboldTrueMaxContextLength"),
        "Most tokens of prompt and answer",
        "KoboldValue",
    )
    .also(MODEL),
    op(
        ("GET", "/api/extra/version"),
        ("kobold", "koboldExtraVersion"),
        "Which of KoboldCpp's additions there are",
        "KoboldVersion",
    )
    .also(OFF),
];
