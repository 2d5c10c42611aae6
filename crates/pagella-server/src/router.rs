//! The table of routes. Nothing else adds one: who may ask, how large the body may be and how errors
//! look follow from a route's row.

use std::pin::Pin;

use crate::call::{Call, Reply};
use crate::routes::{
    chat, completions, control, docs, download, embeddings, events, health, kobold, kobold_info,
    list, llamacpp, load, lora, messages, metrics, model, ollama, ollama_embed, ollama_info, pages,
    parameters, permission, requests, rerank, responses, sampling_override, service_info, slots,
    stats, stream, template, token, ui, ui_store, unload, ws,
};
use crate::settings::ApiServer;
use crate::wire::error::{ApiError, Dialect};

/// Who may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everyone.
    Public,
    /// Every valid key.
    Api,
    /// Keys of administrators.
    Admin,
    /// Everyone on this machine; from other machines, keys of administrators.
    Metrics,
    /// Everyone, unless the operator chose otherwise.
    Docs,
}

impl Access {
    /// What it comes to on an address that only this machine reaches, or on another.
    pub fn here(self, loopback: bool) -> Access {
        match self {
            Access::Metrics if loopback => Access::Public,
            Access::Metrics => Access::Admin,
            Access::Docs => Access::Public,
            other => other,
        }
    }
}

/// What body a route reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyRule {
    /// None.
    None,
    /// A small one.
    Small,
    /// One with conversations in it.
    Generation,
}

/// What answers.
pub type Handler = fn(Call) -> Pin<Box<dyn Future<Output = Result<Reply, ApiError>> + Send>>;

/// One row.
pub struct Route {
    /// Method.
    pub method: &'static str,
    /// Path; `{…}` stands for one segment.
    pub path: &'static str,
    /// Who may ask.
    pub access: Access,
    /// What body it reads.
    pub body: BodyRule,
    /// How its errors look.
    pub dialect: Dialect,
    /// What answers.
    pub handler: Handler,
}

impl Route {
    /// The family of routes that it belongs to, if it is one that the operator chooses.
    pub fn family(&self) -> Option<ApiServer> {
        const OPENAI: [&str; 4] =
            ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"];
        const KOBOLD: [&str; 3] = ["/api/v1", "/api/latest", "/api/extra"];
        const LLAMA_CPP: [&str; 3] = ["/completion", "/completions", "/infill"];
        let under = |base: &str| {
            let rest = self.path.strip_prefix(base);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if OPENAI.into_iter().any(under) {
            Some(ApiServer::OpenAi)
        } else if under("/v1/messages") {
            Some(ApiServer::Anthropic)
        } else if KOBOLD.into_iter().any(under) {
            Some(ApiServer::Kobold)
        } else if under("/api") {
            Some(ApiServer::Ollama)
        } else if LLAMA_CPP.into_iter().any(under) {
            Some(ApiServer::LlamaCpp)
        } else if under("/ws") {
            Some(ApiServer::Ws)
        } else {
            None
        }
    }
}

macro_rules! routes {
    ($($method:ident $path:literal $access:ident $body:ident $dialect:ident $handler:path;)+) => {
        /// Every route.
        pub static ROUTES: &[Route] = &[$(Route {
            method: stringify!($method),
            path: $path,
            access: Access::$access,
            body: BodyRule::$body,
            dialect: Dialect::$dialect,
            handler: |call| Box::pin($handler(call)),
        }),+];
    };
}

routes! {
    POST "/v1/chat/completions" Api Generation OpenAi chat::create;
    POST "/v1/chat/completions/control" Api Small OpenAi control::act;
    POST "/v1/chat/completions/input_tokens" Api Generation OpenAi chat::input_tokens;
    POST "/v1/completions" Api Generation OpenAi completions::create;
    POST "/v1/responses" Api Generation OpenAi responses::create;
    POST "/v1/responses/input_tokens" Api Generation OpenAi responses::input_tokens;
    GET "/v1/responses/{id}" Api None OpenAi responses::show;
    DELETE "/v1/responses/{id}" Api None OpenAi responses::delete;
    POST "/v1/responses/{id}/cancel" Api None OpenAi responses::cancel;
    GET "/v1/responses/{id}/input_items" Api None OpenAi responses::input_items;
    POST "/v1/messages" Api Generation Anthropic messages::create;
    POST "/v1/messages/count_tokens" Api Generation Anthropic messages::count_tokens;
    POST "/v1/embeddings" Api Generation OpenAi embeddings::create;
    POST "/v1/token/encode" Api Generation Tabby token::encode;
    POST "/v1/token/decode" Api Generation Tabby token::decode;
    POST "/tokenize" Api Generation OpenAi token::tokenize;
    POST "/detokenize" Api Generation OpenAi token::detokenize;
    POST "/apply-template" Api Generation OpenAi token::apply_template;
    GET "/v1/models" Api None OpenAi list::models;
    GET "/v1/model/list" Api None Tabby list::models;
    GET "/v1/models/{id}" Api None OpenAi list::card;
    GET "/v1/model" Api None Tabby model::show;
    GET "/props" Api None OpenAi model::props;
    GET "/v1/model/draft/list" Api None Tabby list::drafts;
    GET "/v1/model/embedding/list" Api None Tabby list::embedding_models;
    GET "/v1/model/embedding" Api None Tabby model::embedding;
    POST "/v1/model/load" Admin Small Tabby load::load;
    POST "/v1/model/unload" Admin Small Tabby unload::unload;
    POST "/v1/model/embedding/load" Admin Small Tabby model::change_embedding;
    POST "/v1/model/embedding/unload" Admin Small Tabby model::change_embedding;
    GET "/v1/events" Admin None OpenAi events::show;
    GET "/v1/auth/permission" Api None Tabby permission::show;
    GET "/v1/requests" Api None OpenAi requests::list;
    POST "/v1/requests/{id}/cancel" Api None OpenAi requests::cancel;
    GET "/v1/stats" Api None OpenAi stats::show;
    GET "/v1/cache/pages" Admin None OpenAi pages::show;
    POST "/v1/cache/clear" Admin None OpenAi pages::clear;
    GET "/slots" Admin None OpenAi slots::show;
    GET "/v1/stream" Api None OpenAi stream::read;
    DELETE "/v1/stream" Api None OpenAi stream::stop;
    POST "/v1/streams/lookup" Api Small OpenAi stream::lookup;
    GET "/v1/templates" Api None Tabby template::list;
    GET "/v1/template/list" Api None Tabby template::list;
    POST "/v1/template/switch" Admin Small Tabby template::switch;
    POST "/v1/template/unload" Admin None Tabby template::unload;
    GET "/v1/sampling/parameters" Public None Tabby parameters::list;
    GET "/v1/sampling/overrides" Api None Tabby sampling_override::list;
    GET "/v1/sampling/override/list" Api None Tabby sampling_override::list;
    POST "/v1/sampling/override/switch" Admin Small Tabby sampling_override::switch;
    POST "/v1/sampling/override/unload" Admin None Tabby sampling_override::unload;
    GET "/v1/loras" Api None Tabby lora::list;
    GET "/v1/lora/list" Api None Tabby lora::list;
    GET "/v1/lora" Api None Tabby lora::list;
    POST "/v1/lora/load" Admin Small Tabby lora::load;
    POST "/v1/lora/unload" Admin Small Tabby lora::unload;
    POST "/v1/download" Admin Small Tabby download::create;
    GET "/v1/download/{id}" Admin None Tabby download::show;
    DELETE "/v1/download/{id}" Admin None Tabby download::stop;
    POST "/v1/rerank" Api Generation OpenAi rerank::create;
    POST "/v1/reranking" Api Generation OpenAi rerank::create;
    POST "/rerank" Api Generation OpenAi rerank::create;
    POST "/reranking" Api Generation OpenAi rerank::create;
    POST "/completion" Api Generation OpenAi llamacpp::completion;
    POST "/completions" Api Generation OpenAi llamacpp::completion;
    POST "/infill" Api Generation OpenAi llamacpp::infill;
    POST "/api/chat" Api Generation Ollama ollama::chat;
    POST "/api/generate" Api Generation Ollama ollama::generate;
    POST "/api/embed" Api Generation Ollama ollama_embed::embed;
    POST "/api/embeddings" Api Generation Ollama ollama_embed::embeddings;
    GET "/api/tags" Api None Ollama ollama_info::tags;
    GET "/api/ps" Api None Ollama ollama_info::ps;
    GET "/api/version" Api None Ollama ollama_info::version;
    POST "/api/show" Api Small Ollama ollama_info::show;
    POST "/api/pull" Api Small Ollama ollama_info::pull;
    POST "/api/push" Api Small Ollama ollama_info::refuse;
    POST "/api/create" Api Small Ollama ollama_info::refuse;
    POST "/api/copy" Api Small Ollama ollama_info::refuse;
    DELETE "/api/delete" Api Small Ollama ollama_info::refuse;
    POST "/api/v1/generate" Api Generation OpenAi kobold::generate;
    GET "/api/v1/model" Api None OpenAi kobold_info::model;
    GET "/api/v1/config/max_length" Api None OpenAi kobold_info::max_length;
    GET "/api/v1/config/max_context_length" Api None OpenAi kobold_info::max_context_length;
    GET "/api/v1/config/soft_prompt" Public None OpenAi kobold_info::soft_prompt;
    GET "/api/v1/config/soft_prompts_list" Public None OpenAi kobold_info::soft_prompts;
    GET "/api/v1/info/version" Public None OpenAi kobold_info::version;
    POST "/api/latest/generate" Api Generation OpenAi kobold::generate;
    GET "/api/latest/model" Api None OpenAi kobold_info::model;
    GET "/api/latest/config/max_length" Api None OpenAi kobold_info::max_length;
    GET "/api/latest/config/max_context_length" Api None OpenAi kobold_info::max_context_length;
    GET "/api/latest/config/soft_prompt" Public None OpenAi kobold_info::soft_prompt;
    GET "/api/latest/config/soft_prompts_list" Public None OpenAi kobold_info::soft_prompts;
    GET "/api/latest/info/version" Public None OpenAi kobold_info::version;
    POST "/api/extra/generate/stream" Api Generation OpenAi kobold::stream;
    GET "/api/extra/generate/check" Api None OpenAi kobold::check_unnamed;
    POST "/api/extra/generate/check" Api Small OpenAi kobold::check;
    POST "/api/extra/abort" Api Small OpenAi kobold::abort;
    POST "/api/extra/tokencount" Api Generation OpenAi kobold_info::tokencount;
    GET "/api/extra/true_max_context_length" Api None OpenAi kobold_info::max_context_length;
    GET "/api/extra/version" Public None OpenAi kobold_info::extra_version;
    GET "/ws" Api None OpenAi ws::open;
    GET "/health" Public None OpenAi health::health;
    GET "/v1/health" Public None OpenAi health::health;
    GET "/health/live" Public None OpenAi health::live;
    GET "/health/ready" Public None OpenAi health::health;
    GET "/metrics" Metrics None OpenAi metrics::show;
    GET "/.well-known/serviceinfo" Public None OpenAi service_info::show;
    GET "/openapi.json" Docs None OpenAi docs::document;
    GET "/docs" Docs None OpenAi docs::page;
    GET "/" Public None OpenAi ui::index;
    GET "/ui/{name}" Public None OpenAi ui::asset;
    GET "/v1/ui/store" Api None OpenAi ui_store::list;
    GET "/v1/ui/store/{id}" Api None OpenAi ui_store::read;
    PUT "/v1/ui/store/{id}" Api Generation OpenAi ui_store::write;
    DELETE "/v1/ui/store/{id}" Api None OpenAi ui_store::delete;
    POST "/ui/exchange" Public Small OpenAi ui::exchange;
}

/// What a path leads to.
pub enum Found {
    /// A route, and the segment it leaves open.
    Route(&'static Route, Option<String>),
    /// The path exists with these methods only.
    OtherMethods(String),
    /// Nothing.
    Nothing,
}

/// How errors of a path look that leads nowhere: as those of the routes beside it.
pub fn dialect_beside(path: &str) -> Dialect {
    let under = |base: &str| {
        path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    // Kobold's routes, whose clients read errors as OpenAI's do.
    const KOBOLD: [&str; 3] = ["/api/v1", "/api/latest", "/api/extra"];
    match () {
        () if under("/v1/messages") => Dialect::Anthropic,
        () if under("/api") && !KOBOLD.into_iter().any(under) => Dialect::Ollama,
        () => Dialect::OpenAi,
    }
}

/// Looks for a path, without the base path, as it was sent. `HEAD` finds what `GET` finds.
pub fn find(method: &str, path: &str) -> Found {
    let path = match path.strip_suffix('/') {
        Some(shorter) if !matches!(shorter, "" | "/") => shorter,
        _ => path,
    };
    let wanted = if method == "HEAD" { "GET" } else { method };
    let mut methods: Vec<&str> = Vec::new();
    for route in ROUTES {
        let Some(segment) = matches(route.path, path) else { continue };
        if route.method == wanted {
            return Found::Route(route, segment);
        }
        methods.push(route.method);
        if route.method == "GET" {
            methods.push("HEAD");
        }
    }
    methods.dedup();
    match methods.is_empty() {
        true => Found::Nothing,
        false => Found::OtherMethods(methods.join(", ")),
    }
}

/// Whether a path has the form of a pattern; the inner value is the open segment.
fn matches(pattern: &str, path: &str) -> Option<Option<String>> {
    let (mut expected, mut given) = (pattern.split('/'), path.split('/'));
    let mut open = None;
    loop {
        match (expected.next(), given.next()) {
            (None, None) => return Some(open),
            (Some(name), Some(segment)) => {
                // Decoded once and by segment, so an encoded slash never makes two of one.
                let segment = percent_decode(segment)?;
                if name.starts_with('{') && !segment.is_empty() {
                    open = Some(segment);
                } else if name != segment {
                    return None;
                }
            }
            _ => return None,
        }
    }
}

/// Text with `%XX` replaced; `None` if that is not UTF-8 or a digit is missing.
pub fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = rest.get(..2).filter(|two| two.iter().all(u8::is_ascii_hexdigit))?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

/// The value of a parameter in a query.
pub fn query_value(query: &str, name: &str) -> Option<String> {
    let mut pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let (_, value) = pairs.find(|(key, _)| *key == name)?;
    percent_decode(&value.replace('+', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(method: &str, path: &str) -> Option<(&'static str, Option<String>)> {
        match find(method, path) {
            Found::Route(route, segment) => Some((route.path, segment)),
            _ => None,
        }
    }

    #[test]
    fn paths_match_exactly() {
        assert_eq!(route("GET", "/v1/models"), Some(("/v1/models", None)));
        assert_eq!(route("GET", "/v1/models/"), Some(("/v1/models", None)));
        let id = Some("org/name x".to_owned());
        assert_eq!(route("GET", "/v1/models/org%2Fname%20x"), Some(("/v1/models/{id}", id)));
        for path in ["/v1//models", "/V1/models", "/v1%2Fmodels", "/v1/models//", "/v1/models/a/b"]
        {
            assert_eq!(route("GET", path), None, "{path}");
        }
        assert_eq!(route("GET", "/%76%31/models"), Some(("/v1/models", None)));
        assert_eq!(route("GET", "/v1/models/%zz"), None);
    }

    #[test]
    fn other_methods_are_named() {
        let Found::OtherMethods(methods) = find("DELETE", "/v1/models") else { panic!() };
        assert_eq!(methods, "GET, HEAD");
        assert!(matches!(find("GET", "/nothing"), Found::Nothing));
    }

    #[test]
    fn errors_of_unknown_paths_look_like_those_beside_them() {
        for (path, dialect) in [
            ("/v1/messages/batches", Dialect::Anthropic),
            ("/v1/messages", Dialect::Anthropic),
            ("/v1/messages_x", Dialect::OpenAi),
            ("/api/nothing", Dialect::Ollama),
            ("/api", Dialect::Ollama),
            ("/api/v1/nothing", Dialect::OpenAi),
            ("/apis", Dialect::OpenAi),
            ("/v1/nothing", Dialect::OpenAi),
            ("/", Dialect::OpenAi),
        ] {
            assert_eq!(dialect_beside(path), dialect, "{path}");
        }
        for route in ROUTES.iter().filter(|route| route.dialect != Dialect::Tabby) {
            assert_eq!(dialect_beside(route.path), route.dialect, "{}", route.path);
        }
    }

    #[test]
    fn no_row_occurs_twice() {
        for (idx, row) in ROUTES.iter().enumerate() {
            let same = |other: &&Route| (other.method, other.path) == (row.method, row.path);
            assert_eq!(ROUTES.iter().position(|other| same(&other)), Some(idx), "{}", row.path);
        }
    }

    #[test]
    fn the_public_routes_are_these() {
        let public = ROUTES.iter().filter(|route| route.access == Access::Public);
        let paths: Vec<&str> = public.map(|route| route.path).collect();
        let expected = [
            "/v1/sampling/parameters",
            "/api/v1/config/soft_prompt",
            "/api/v1/config/soft_prompts_list",
            "/api/v1/info/version",
            "/api/latest/config/soft_prompt",
            "/api/latest/config/soft_prompts_list",
            "/api/latest/info/version",
            "/api/extra/version",
            "/health",
            "/v1/health",
            "/health/live",
            "/health/ready",
            "/.well-known/serviceinfo",
            "/",
            "/ui/{name}",
            "/ui/exchange",
        ];
        assert_eq!(paths, expected);
    }

    #[test]
    fn families_are_told_by_paths() {
        let of = |family| ROUTES.iter().filter(|route| route.family() == Some(family)).count();
        assert_eq!(ApiServer::ALL.map(of), [11, 2, 13, 3, 21, 1]);
        for (family, dialect) in
            [(ApiServer::Anthropic, Dialect::Anthropic), (ApiServer::Ollama, Dialect::Ollama)]
        {
            let alike =
                |route: &Route| (route.family() == Some(family)) == (route.dialect == dialect);
            assert!(ROUTES.iter().all(alike), "{}", family.name());
        }
    }

    #[test]
    fn query_values_are_decoded() {
        assert_eq!(query_value("a=1&deep=x%20y+z", "deep").as_deref(), Some("x y z"));
        assert_eq!(query_value("stream", "stream").as_deref(), Some(""));
        assert_eq!(query_value("a=1", "b"), None);
    }
}
