//! OpenAI's Responses: items instead of messages, events instead of pieces, and a memory.
//!
//! A request is read into the same [`ChatRequest`](crate::chat::ChatRequest) as every conversation and
//! answered by the same code. What is different is here: items (`item`), tools (`tool`) and fields
//! (`request`) on the way in; the object (`object`), its items (`output`) and events (`writer`) on the
//! way out; what is kept of answers (`store`), and answers that nobody waits for (`background`).

mod background;
mod item;
mod object;
mod output;
mod request;
mod routes;
mod store;
mod tool;
mod writer;

use crate::route::{
    Access, BodyRule, GENERATE, MODEL, Query, Route, delete, get, of_family, post, to,
};
use crate::settings::ApiServer;
use crate::wire::error::Dialect;

pub use background::{follow, run as run_in_background, shown};
pub use item::with_references;
pub use object::Object;
pub use request::{ResponsesBody, ResponsesRequest};
pub use store::{Store, Stored};
pub use writer::Writer;

const RESPONSE: &[Query] = &[
    Query {
        name: "stream",
        about: "Whether its events are told again",
        schema: r#"{"type": "string", "enum": ["0", "1", "false", "true"]}"#,
        required: false,
    },
    Query {
        name: "starting_after",
        about: "Only events after this one",
        schema: r#"{"type": "integer", "minimum": 0}"#,
        required: false,
    },
];
const ITEMS: &[Query] = &[
    Query {
        name: "order",
        about: "Newest first, or oldest",
        schema: r#"{"type": "string", "enum": ["asc", "desc"], "default": "desc"}"#,
        required: false,
    },
    Query {
        name: "limit",
        about: "Most items",
        schema: r#"{"type": "integer", "minimum": 1, "maximum": 100}"#,
        required: false,
    },
    Query {
        name: "after",
        about: "Only items after this one",
        schema: r#"{"type": "string"}"#,
        required: false,
    },
];

/// Every route of the family.
pub const ROUTES: &[Route] = &of_family(
    ApiServer::OpenAi,
    Dialect::OpenAi,
    [
        post("/v1/responses", Access::Api, to!(routes::create))
            .doc("generation", "createResponse", "Answer items, as OpenAI's Responses have it")
            .json("Response")
            .body::<ResponsesBody>(BodyRule::Generation, "ResponseRequest")
            .events("ResponseEvent")
            .also(GENERATE),
        post("/v1/responses/input_tokens", Access::Api, to!(routes::input_tokens))
            .doc("tokens", "countResponseTokens", "Count the tokens of a response's prompt")
            .json("InputTokens")
            .body::<ResponsesBody>(BodyRule::Generation, "ResponseRequest")
            .also(MODEL),
        get("/v1/responses/{id}", Access::Api, to!(routes::show))
            .doc("generation", "getResponse", "A response that is kept")
            .json("Response")
            .query(RESPONSE)
            .events("ResponseEvent")
            .also(&[409]),
        delete("/v1/responses/{id}", Access::Api, to!(routes::delete))
            .doc("generation", "deleteResponse", "Forget a response")
            .json("ResponseDeleted"),
        post("/v1/responses/{id}/cancel", Access::Api, to!(routes::cancel))
            .doc("generation", "cancelResponse", "End a response that runs in the background")
            .json("Response")
            .also(&[409]),
        get("/v1/responses/{id}/input_items", Access::Api, to!(routes::input_items))
            .doc("generation", "listInputItems", "What a response answered")
            .json("ItemList")
            .query(ITEMS),
    ],
);
