//! All routes. Nothing else adds one: who may ask, how large the body may
//! be, how errors look and what is said about it follow from a route's row.

use crate::app::App;
#[cfg(feature = "kobold")]
use crate::kobold;
pub use pagella_http::router::query_value;

use crate::route::{Route, count, joined};
use crate::wire::error::Dialect;
#[cfg(feature = "ws")]
use crate::ws;
use crate::{embeddings, llamacpp, messages, ollama, rerank, responses, routes};

/// The rows of every family.
const TABLES: &[&[Route]] = &[
    routes::ROUTES,
    responses::ROUTES,
    messages::ROUTES,
    embeddings::ROUTES,
    rerank::ROUTES,
    ollama::ROUTES,
    llamacpp::ROUTES,
    #[cfg(feature = "kobold")]
    kobold::ROUTES,
    #[cfg(feature = "ws")]
    ws::ROUTES,
];

/// Every route.
pub static ROUTES: &[Route] = &joined::<App, { count(TABLES) }>(TABLES);

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::Access;
    use crate::settings::ApiServer;
    use pagella_http::router::Found;

    fn find(method: &str, path: &str) -> Found<App> {
        pagella_http::router::find(method, path)
    }

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
            "/health",
            "/v1/health",
            "/health/live",
            "/health/ready",
            "/.well-known/serviceinfo",
            "/",
            "/ui/{name}",
            "/ui/exchange",
            "/api/v1/config/soft_prompt",
            "/api/v1/config/soft_prompts_list",
            "/api/v1/info/version",
            "/api/latest/config/soft_prompt",
            "/api/latest/config/soft_prompts_list",
            "/api/latest/info/version",
            "/api/extra/version",
        ];
        assert_eq!(paths, expected);
    }

    #[test]
    fn families_are_told_by_paths() {
        let of = |family| ROUTES.iter().filter(|route| route.family() == Some(family)).count();
        assert_eq!(ApiServer::ALL.map(of), [11, 2, 13, 5, 21, 1]);
        for (family, dialect) in
            [(ApiServer::Anthropic, Dialect::Anthropic), (ApiServer::Ollama, Dialect::Ollama)]
        {
            let alike =
                |route: &Route| (route.family() == Some(family)) == (route.dialect == dialect);
            assert!(ROUTES.iter().all(alike), "{}", family.name());
        }
    }
}
