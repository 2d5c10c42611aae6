//! The built-in page, carried by the program: `build.rs` joined and compressed it.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::call::Reply;

/// What a page of this server may do: run its own scripts, talk to its own server, and nothing else.
/// Text cannot become markup even by mistake (Trusted Types).
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
/// Everything a page could ask a person for, switched off; copying to the clipboard remains.
const PERMISSIONS_POLICY: &str = "accelerometer=(), camera=(), display-capture=(), geolocation=(), \
    gyroscope=(), magnetometer=(), microphone=(), midi=(), payment=(), usb=()";

/// A file of the page, as it is and compressed.
pub struct Asset {
    name: &'static str,
    plain: &'static [u8],
    gzip: &'static [u8],
}

static INDEX: Asset = include!(concat!(env!("OUT_DIR"), "/index.rs"));
static ASSETS: &[Asset] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// The style of pages that are not the page itself.
pub const DOCS_STYLE: &str = env!("PAGELLA_DOCS_STYLE");

/// The page.
pub fn index(request: &HeaderMap) -> Reply {
    let mut reply = INDEX.reply("text/html; charset=utf-8", "no-cache", request);
    write_page_headers(&mut reply.headers);
    reply
}

/// A file of the page; its name changes with its content, so browsers keep it.
pub fn asset(name: &str, request: &HeaderMap) -> Option<Reply> {
    let asset = ASSETS.iter().find(|asset| asset.name == name)?;
    let kind = match asset.name.ends_with(".css") {
        true => "text/css; charset=utf-8",
        false => "text/javascript; charset=utf-8",
    };
    Some(asset.reply(kind, "public, max-age=31536000, immutable", request))
}

impl Asset {
    fn reply(&self, kind: &'static str, cache: &'static str, request: &HeaderMap) -> Reply {
        let gzip = accepts_gzip(request);
        let bytes = if gzip { self.gzip } else { self.plain };
        let mut reply = Reply::bytes(StatusCode::OK, kind, bytes);
        reply.headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
        reply.headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        if gzip {
            reply.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        reply
    }
}

/// Adds what makes a document harmless: its policy, and that it tells others nothing.
pub fn write_page_headers(headers: &mut HeaderMap) {
    for (name, value) in [
        ("content-security-policy", CONTENT_SECURITY_POLICY),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("permissions-policy", PERMISSIONS_POLICY),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}

/// Whether a client can unpack gzip.
fn accepts_gzip(request: &HeaderMap) -> bool {
    let lists = request.get_all(header::ACCEPT_ENCODING).iter();
    let items = lists.filter_map(|value| value.to_str().ok()).flat_map(|list| list.split(','));
    items.into_iter().any(|item| {
        let mut parts = item.split(';').map(str::trim);
        let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let refused = parts.any(|part| {
            let weight = part.strip_prefix("q=").and_then(|weight| weight.parse::<f32>().ok());
            weight == Some(0.0)
        });
        named && !refused
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Body;
    use crate::model::OptionsBody;
    use pagella_conversation::tools::format_names;

    /// What the page may weigh, compressed and not (`html`, `css` and `js` together).
    const GZIP_BYTES_MAX: usize = 120_000;
    const PLAIN_BYTES_MAX: usize = 450_000;

    #[test]
    fn the_page_stays_within_its_weight() {
        let parts = || ASSETS.iter().filter(|asset| asset.name.starts_with("app")).chain([&INDEX]);
        assert_eq!(parts().count(), 3);
        let gzip: usize = parts().map(|asset| asset.gzip.len()).sum();
        let plain: usize = parts().map(|asset| asset.plain.len()).sum();
        assert!(gzip <= GZIP_BYTES_MAX && plain <= PLAIN_BYTES_MAX, "{gzip} {plain}");
    }

    /// The quoted words of a constant of the page's form of load options.
    fn words(name: &str) -> Vec<&'static str> {
        let form = include_str!("../ui/models/load_form.js");
        let (_, rest) = form.split_once(&format!("const {name} = [")).unwrap();
        let list = rest.split_once("];").unwrap().0;
        list.split('\'').skip(1).step_by(2).collect()
    }

    #[test]
    fn the_page_offers_what_a_load_takes_and_nothing_that_it_refuses() {
        let kinds = ["int", "number", "text", "choice"];
        let fields: Vec<&str> = words("LOAD_FIELDS");
        let fields = fields.into_iter().filter(|word| !kinds.contains(word));
        let known = |name: &str| OptionsBody::table::<crate::App>().field(name).is_some();
        assert_eq!(fields.filter(|name| !known(name)).collect::<Vec<_>>(), [""; 0]);
        let mut formats: Vec<&str> = format_names().chain(["harmony"]).collect();
        formats.sort_unstable();
        assert_eq!(words("TOOL_FORMATS"), formats);
    }

    #[test]
    fn compression_is_for_those_who_ask() {
        let asked = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("accept-encoding", text.parse().unwrap());
            accepts_gzip(&headers)
        };
        assert!(asked("gzip") && asked("br, GZIP;q=0.5") && asked("deflate, gzip , br"));
        assert!(!asked("br") && !asked("gzip;q=0") && !asked("x-gzip2") && !asked(""));
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
