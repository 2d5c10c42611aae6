//! The routes of llama.cpp's server that are not OpenAI's: its words for fields, prompts of text and
//! ids mixed, and what it tells about an answer. Everything else is that of completions.

mod answer;
mod generate;
mod infill;
mod lora;
mod prompt;
mod request;
mod settings;

use crate::route::{Access, BodyRule, MODEL, Route, get, of_family, post, to};
use crate::settings::ApiServer;
use crate::wire::error::Dialect;

pub use answer::{LlamaAnswer, Prompted};
pub use generate::default_settings;
pub use infill::spans as infill_spans;
pub use prompt::prompts;
pub use request::{InfillFields, LlamaBody, LlamaFields, LlamaPrompt, set_defaults};
pub use settings::generation_settings;

const STATUSES: &[u16] = &[404, 501, 503, 504];

/// Every route of the family.
pub const ROUTES: &[Route] = &of_family(
    ApiServer::LlamaCpp,
    Dialect::OpenAi,
    [
        post("/completion", Access::Api, to!(generate::completion))
            .doc("llamacpp", "llamaCompletion", "Continue prompts")
            .json("LlamaCompletion")
            .body::<LlamaBody<LlamaPrompt>>(BodyRule::Generation, "LlamaRequest")
            .events("LlamaPiece")
            .also(STATUSES),
        post("/completions", Access::Api, to!(generate::completion))
            .doc("llamacpp", "llamaCompletions", "Continue prompts; the same as /completion")
            .json("LlamaCompletion")
            .body::<LlamaBody<LlamaPrompt>>(BodyRule::Generation, "LlamaRequest")
            .events("LlamaPiece")
            .also(STATUSES),
        post("/infill", Access::Api, to!(generate::infill))
            .doc(
                "llamacpp",
                "llamaInfill",
                "Fill a gap between two texts, with models that have tokens for it",
            )
            .json("LlamaCompletion")
            .body::<LlamaBody<InfillFields>>(BodyRule::Generation, "InfillRequest")
            .events("LlamaPiece")
            .also(STATUSES),
        get("/lora-adapters", Access::Api, to!(lora::list))
            .doc("llamacpp", "llamaAdapters", "Loaded adapters and their scales by default")
            .json("LlamaAdapters")
            .also(MODEL),
        post("/lora-adapters", Access::Admin, to!(lora::set))
            .doc(
                "llamacpp",
                "llamaScaleAdapters",
                "Scales of adapters by default; 0 for all others",
            )
            .json("Success")
            .body::<lora::AdapterScales>(BodyRule::Small, "LlamaAdapterScales")
            .also(MODEL),
    ],
);
