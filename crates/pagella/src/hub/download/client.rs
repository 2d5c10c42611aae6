//! The few requests the hub needs to understand, over HTTP.
//!
//! Written on `ureq` rather than `hf-hub`, whose downloader (0.5) appends to a partial file without
//! checking that the server honoured the range, cannot finish a partial file that is already whole,
//! verifies neither length nor hash, and panics on unusual answers.
//!
//! The access token is sent to the endpoint only, never to the host that a file is redirected to.

use std::io::Read;
use std::time::Duration;

use serde::Deserialize;
use ureq::http::{Response, StatusCode, Uri, header};
use ureq::{Agent, Body};

use super::{HubError, HubId};

/// Time to establish a connection, and to wait for the beginning of an answer.
const WAIT: Duration = Duration::from_secs(30);
/// Redirects within the endpoint (renamed repositories) that are followed.
const REDIRECTS_MAX: usize = 5;
/// Largest list of files that is read, in bytes.
const LIST_BYTES_MAX: u64 = 16 << 20;

/// A connection to one endpoint.
pub(super) struct Client {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
    /// Patterns of the hosts that may be asked; any where there is none.
    hosts: Option<Vec<String>>,
}

/// A repository at one revision.
#[derive(Debug, Deserialize)]
pub(super) struct Listing {
    /// The commit that the revision means.
    pub sha: String,
    /// Its files.
    pub siblings: Vec<Sibling>,
}

/// One file of a repository.
#[derive(Debug, Deserialize)]
pub(super) struct Sibling {
    /// Path within the repository.
    pub rfilename: String,
}

/// What the hub says about a file before it is fetched.
#[derive(Debug)]
pub(super) struct Located {
    /// Identity of the contents; the SHA-256 for large files.
    pub etag: String,
    /// Length in bytes.
    pub bytes: u64,
    url: String,
    /// Whether the file lies on the endpoint itself, which may see the token.
    same_host: bool,
}

impl Client {
    pub fn new(endpoint: &str, token: Option<String>) -> Self {
        let config = Agent::config_builder()
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .timeout_connect(Some(WAIT))
            .timeout_recv_response(Some(WAIT))
            .timeout_recv_body(None)
            .user_agent(concat!("pagella/", env!("CARGO_PKG_VERSION")))
            .build();
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        Client { agent: config.into(), endpoint, token, hosts: None }
    }

    /// Asks only these hosts, and only over HTTPS unless they are on this machine.
    pub fn only(mut self, hosts: &[String]) -> Self {
        self.hosts = Some(hosts.to_vec());
        self
    }

    fn check_host(&self, url: &str) -> Result<(), HubError> {
        let Some(hosts) = &self.hosts else { return Ok(()) };
        let uri: Option<Uri> = url.parse().ok();
        let host = uri.as_ref().and_then(|uri| uri.host()).unwrap_or_default().to_ascii_lowercase();
        let address: Option<std::net::IpAddr> = host.trim_matches(['[', ']']).parse().ok();
        let local = host == "localhost" || address.is_some_and(|address| address.is_loopback());
        let safe = uri.as_ref().and_then(Uri::scheme_str) == Some("https") || local;
        let known = hosts.iter().any(|pattern| match pattern.strip_prefix("*.") {
            // Parts of an address are no domain.
            Some(_) if address.is_some() => false,
            Some(domain) => host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')),
            None => host.eq_ignore_ascii_case(pattern),
        });
        if safe && known { Ok(()) } else { Err(HubError::Host { host }) }
    }

    /// Commit and files of a repository.
    pub fn list(&self, id: &HubId) -> Result<Listing, HubError> {
        let revision = id.revision().replace('/', "%2F");
        let mut url =
            format!("{}/api/models/{}/revision/{revision}", self.endpoint, id.repository());
        for _ in 0..REDIRECTS_MAX {
            let mut response = self.get(&url, None, true)?;
            if let Some((next, true)) = self.redirect(&url, &response)? {
                url = next;
                continue;
            }
            expect(&url, response.status(), &[StatusCode::OK])?;
            let body = response.body_mut().with_config().limit(LIST_BYTES_MAX).read_to_vec();
            let body = body.map_err(|error| broken(&url, &error))?;
            return serde_json::from_slice(&body)
                .map_err(|error| HubError::Answer { url, problem: error.to_string() });
        }
        Err(HubError::Answer { url, problem: "too many redirects".to_owned() })
    }

    /// Where a file is, how long, and what identifies its contents.
    pub fn locate(&self, id: &HubId, commit: &str, file: &str) -> Result<Located, HubError> {
        let mut url = format!("{}/{}/resolve/{commit}/{file}", self.endpoint, id.repository());
        for _ in 0..REDIRECTS_MAX {
            let response = self.head(&url)?;
            let target = self.redirect(&url, &response)?;
            if let Some((next, true)) = &target
                && text(&response, "x-linked-size").is_none()
            {
                url = next.clone();
                continue;
            }
            if target.is_none() {
                expect(&url, response.status(), &[StatusCode::OK])?;
            }
            let absent = |what: &str| HubError::Answer {
                url: url.clone(),
                problem: format!("no {what} header"),
            };
            let etag = text(&response, "x-linked-etag").or_else(|| text(&response, "etag"));
            let etag = etag.ok_or_else(|| absent("etag"))?;
            let length = text(&response, "x-linked-size");
            let length = length.or_else(|| text(&response, header::CONTENT_LENGTH.as_str()));
            let bytes = length.and_then(|l| l.parse().ok()).ok_or_else(|| absent("length"))?;
            let etag = etag.trim_start_matches("W/").trim_matches('"').to_owned();
            let (url, same_host) = target.unwrap_or((url.clone(), true));
            return Ok(Located { etag, bytes, url, same_host });
        }
        Err(HubError::Answer { url, problem: "too many redirects".to_owned() })
    }

    /// The bytes of a file from `start` on, and the position at which they really start: 0 when the
    /// server ignores ranges.
    pub fn fetch(&self, file: &Located, start: u64) -> Result<(u64, Box<dyn Read>), HubError> {
        let range = (start > 0).then_some(start);
        let response = self.get(&file.url, range, file.same_host)?;
        let allowed = [StatusCode::OK, StatusCode::PARTIAL_CONTENT];
        expect(&file.url, response.status(), &allowed)?;
        let begins = match response.status() {
            StatusCode::PARTIAL_CONTENT => range_start(&response).unwrap_or(u64::MAX),
            _ => 0,
        };
        if begins != start && begins != 0 {
            let problem = format!("asked for bytes from {start}, got others");
            return Err(HubError::Answer { url: file.url.clone(), problem });
        }
        Ok((begins, Box::new(response.into_body().into_reader())))
    }

    fn get(
        &self,
        url: &str,
        from: Option<u64>,
        with_token: bool,
    ) -> Result<Response<Body>, HubError> {
        self.check_host(url)?;
        let mut request = self.agent.get(url).header("accept-encoding", "identity");
        if let Some(from) = from {
            request = request.header("range", format!("bytes={from}-"));
        }
        if let (Some(token), true) = (&self.token, with_token) {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request.call().map_err(|error| broken(url, &error))
    }

    fn head(&self, url: &str) -> Result<Response<Body>, HubError> {
        self.check_host(url)?;
        let mut request = self.agent.head(url).header("accept-encoding", "identity");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request.call().map_err(|error| broken(url, &error))
    }

    /// The target of a redirect, and whether it is on the endpoint itself.
    fn redirect(
        &self,
        url: &str,
        response: &Response<Body>,
    ) -> Result<Option<(String, bool)>, HubError> {
        if !response.status().is_redirection() {
            return Ok(None);
        }
        let strange = || HubError::Answer {
            url: url.to_owned(),
            problem: "a redirect to nowhere".to_owned(),
        };
        let target = text(response, header::LOCATION.as_str()).ok_or_else(strange)?;
        if target.starts_with('/') && !target.starts_with("//") {
            return Ok(Some((format!("{}{target}", origin(&self.endpoint)), true)));
        }
        let host = |address: &str| address.parse::<Uri>().ok()?.authority().cloned();
        let authority = host(&target).ok_or_else(strange)?;
        let same_host = host(&self.endpoint).is_some_and(|own| own == authority);
        Ok(Some((target, same_host)))
    }
}

/// `scheme://host` of an address.
fn origin(address: &str) -> &str {
    let after_scheme = address.find("://").map_or(0, |at| at + 3);
    let path = address[after_scheme..].find('/').map(|at| after_scheme + at);
    &address[..path.unwrap_or(address.len())]
}

fn text(response: &Response<Body>, name: &str) -> Option<String> {
    response.headers().get(name)?.to_str().ok().map(str::to_owned)
}

/// First byte of a partial answer.
fn range_start(response: &Response<Body>) -> Option<u64> {
    let range = text(response, header::CONTENT_RANGE.as_str())?;
    range.strip_prefix("bytes ")?.split('-').next()?.parse().ok()
}

fn expect(url: &str, status: StatusCode, allowed: &[StatusCode]) -> Result<(), HubError> {
    if allowed.contains(&status) {
        return Ok(());
    }
    Err(HubError::Status { url: url.to_owned(), status: status.as_u16() })
}

fn broken(url: &str, error: &ureq::Error) -> HubError {
    HubError::Connection { url: url.to_owned(), problem: error.to_string() }
}
