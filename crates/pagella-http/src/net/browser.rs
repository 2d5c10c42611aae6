//! What a web page of another origin may do here: nothing, unless the operator allows it.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};

use crate::settings::Network;
use crate::wire::error::{ApiError, Code};

const ALLOWED_HEADERS: &str = "authorization, x-api-key, x-admin-key, content-type, x-request-id, \
    x-conversation-id, anthropic-version, anthropic-beta";
const EXPOSED_HEADERS: &str = "x-request-id, x-ignored-fields, retry-after";
/// Seconds for which a browser may remember what it was allowed.
const MAX_AGE: &str = "600";

/// Refuses names that are not the server's own, where a page could use one to reach it (rebinding),
/// and pages of other origins where no key would stop them.
pub fn check(
    network: &Network,
    bound: SocketAddr,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(), ApiError> {
    if (network.disable_auth || bound.ip().is_loopback())
        && !knows_host(network, bound, uri, headers)
    {
        let message = "the server does not go by that host name: list it in network.hosts";
        return Err(ApiError::new(Code::HostNotAllowed, message));
    }
    if !network.disable_auth {
        return Ok(());
    }
    let origin = headers.get(header::ORIGIN).map(|value| value.to_str().unwrap_or("null"));
    let foreign = origin.is_some_and(|origin| !is_own(origin, headers));
    let cross_site = headers.get("sec-fetch-site").is_some_and(|value| value == "cross-site");
    if (foreign || cross_site) && !origin.is_some_and(|origin| is_allowed(network, origin)) {
        let message = "web pages of other origins may not ask here: list them in cors.origins";
        return Err(ApiError::new(Code::OriginNotAllowed, message));
    }
    Ok(())
}

fn knows_host(network: &Network, bound: SocketAddr, uri: &Uri, headers: &HeaderMap) -> bool {
    let in_headers = headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let in_uri = uri.authority().map(|authority| authority.as_str());
    // Old clients send neither, and no browser is old enough.
    let Some(host) = in_uri.or(in_headers) else { return !headers.contains_key(header::HOST) };
    let name = host_name(host).to_ascii_lowercase();
    let address: Option<IpAddr> = name.parse().ok();
    name == "localhost"
        || name.ends_with(".localhost")
        || address.is_some_and(|address| address.is_loopback() || address == bound.ip())
        || network.hosts.iter().any(|known| known.eq_ignore_ascii_case(&name))
        || network.host.eq_ignore_ascii_case(&name)
}

/// A host without its port and without the brackets of an IPv6 address.
fn host_name(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or(rest);
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

/// Whether an origin is the host that the request was sent to.
fn is_own(origin: &str, headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    rest.is_some() && rest == host
}

fn is_allowed(network: &Network, origin: &str) -> bool {
    let name = origin.split_once("://").map_or("", |(_, host)| host_name(host));
    let local = name == "localhost" || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    network.cors_origins.iter().any(|allowed| match allowed.as_str() {
        "*" => true,
        "localhost" => local,
        other => other == origin,
    })
}

/// Adds what an allowed page must read to see the answer. `preflight` adds what it may send.
pub fn write_headers(
    network: &Network,
    request: &HeaderMap,
    preflight: Option<&str>,
    headers: &mut HeaderMap,
) {
    let Some(origin) = request.get(header::ORIGIN) else { return };
    if !origin.to_str().is_ok_and(|origin| is_allowed(network, origin)) {
        return;
    }
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    let exposed = HeaderValue::from_static(EXPOSED_HEADERS);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    let Some(methods) = preflight else { return };
    if let Ok(methods) = HeaderValue::from_str(methods) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    }
    let allowed = HeaderValue::from_static(ALLOWED_HEADERS);
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
    if request.contains_key("access-control-request-private-network") {
        let name = HeaderName::from_static("access-control-allow-private-network");
        headers.insert(name, HeaderValue::from_static("true"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(network: &Network, list: &[(&'static str, &str)]) -> Result<(), Code> {
        let headers =
            list.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let headers: HeaderMap = headers.collect();
        let bound = "127.0.0.1:5000".parse().unwrap();
        check(network, bound, &Uri::from_static("/v1/models"), &headers).map_err(|e| e.code)
    }

    #[test]
    fn browser_cannot_drive_open_server() {
        let open = Network { disable_auth: true, ..Network::default() };
        let own = ("host", "127.0.0.1:5000");
        for host in ["127.0.0.1:5000", "localhost", "LOCALHOST:1", "[::1]:5000", "a.localhost"] {
            assert_eq!(checked(&open, &[("host", host)]), Ok(()), "{host}");
        }
        for host in
            ["evil.example", "127.0.0.1.evil.example:5000", "", "localhost.evil", "10.0.0.1"]
        {
            assert_eq!(checked(&open, &[("host", host)]), Err(Code::HostNotAllowed), "{host}");
        }
        for origin in ["http://evil.example", "null", "file://", "http://localhost:9999"] {
            let asked = checked(&open, &[own, ("origin", origin)]);
            assert_eq!(asked, Err(Code::OriginNotAllowed), "{origin}");
        }
        let cross = checked(&open, &[own, ("sec-fetch-site", "cross-site")]);
        assert_eq!(cross, Err(Code::OriginNotAllowed));
        assert_eq!(checked(&open, &[own, ("origin", "http://127.0.0.1:5000")]), Ok(()));
        let local = Network { cors_origins: vec!["localhost".into()], ..open };
        assert_eq!(checked(&local, &[own, ("origin", "http://localhost:9999")]), Ok(()));
        assert_eq!(
            checked(&local, &[own, ("origin", "http://localhost.evil")]),
            Err(Code::OriginNotAllowed)
        );
    }

    #[test]
    fn only_allowed_pages_can_read() {
        let network =
            Network { cors_origins: vec!["https://a.example".into()], ..Network::default() };
        let written = |origin: &str| {
            let mut request = HeaderMap::new();
            request.insert("origin", origin.parse().unwrap());
            let mut headers = HeaderMap::new();
            write_headers(&network, &request, Some("GET"), &mut headers);
            headers
        };
        assert_eq!(written("https://a.example")["access-control-allow-methods"], "GET");
        assert!(!written("https://a.example").contains_key("access-control-allow-credentials"));
        assert!(written("https://b.example").is_empty());
    }
}
