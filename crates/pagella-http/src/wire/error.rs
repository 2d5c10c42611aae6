//! Errors as clients see them: the one place that maps a code to status, type and headers.
//!
//! Messages are built from typed values: no path, no address, nothing of other requests.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Map, Value, json};

use super::nearest::nearest;
use crate::caught::Panicked;

/// Longest message, in bytes: a refused schema is not echoed back whole.
const MESSAGE_BYTES_MAX: usize = 1024;

/// Most causes that are told.
const CAUSES_MAX: usize = 16;

/// What Anthropic calls a server that cannot answer now.
const OVERLOADED: u16 = 529;

/// Whether official clients should ask again by themselves; they do so for many statuses unless
/// told otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Asking again cannot help.
    Never,
    /// Waiting helps.
    Later,
    /// Nothing is said; clients do not retry this status.
    Unsaid,
}

macro_rules! codes {
    ($($code:ident = $status:literal, $kind:literal, $name:literal, $retry:ident;)+) => {
        /// Why a request was refused or failed. Names are stable: programs read them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "the names say it, the table of the documentation too")]
        pub enum Code { $($code),+ }

        impl Code {
            /// Every code.
            pub const ALL: &[Code] = &[$(Code::$code),+];

            /// HTTP status.
            pub fn status(self) -> StatusCode {
                let number: u16 = match self { $(Code::$code => $status),+ };
                StatusCode::from_u16(number).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }

            /// The class of error.
            pub fn kind(self) -> &'static str {
                match self { $(Code::$code => $kind),+ }
            }

            /// The code as text.
            pub fn name(self) -> &'static str {
                match self { $(Code::$code => $name),+ }
            }

            /// Whether clients should try again.
            pub fn retry(self) -> Retry {
                match self { $(Code::$code => Retry::$retry),+ }
            }
        }
    };
}

codes! {
    InvalidJson = 400, "invalid_request_error", "invalid_json", Unsaid;
    MissingParameter = 400, "invalid_request_error", "missing_parameter", Unsaid;
    InvalidType = 400, "invalid_request_error", "invalid_type", Unsaid;
    OutOfRange = 400, "invalid_request_error", "out_of_range", Unsaid;
    UnknownParameter = 400, "invalid_request_error", "unknown_parameter", Unsaid;
    UnsupportedParameter = 400, "invalid_request_error", "unsupported_parameter", Unsaid;
    UnsupportedValue = 400, "invalid_request_error", "unsupported_value", Unsaid;
    ConflictingParameters = 400, "invalid_request_error", "conflicting_parameters", Unsaid;
    ContextLengthExceeded = 400, "invalid_request_error", "context_length_exceeded", Unsaid;
    InvalidSchema = 400, "invalid_request_error", "invalid_schema", Unsaid;
    InvalidRegex = 400, "invalid_request_error", "invalid_regex", Unsaid;
    InvalidGrammar = 400, "invalid_request_error", "invalid_grammar", Unsaid;
    ConstraintTooComplex = 400, "invalid_request_error", "constraint_too_complex", Unsaid;
    NoChatTemplate = 400, "invalid_request_error", "no_chat_template", Unsaid;
    TemplateError = 400, "invalid_request_error", "template_error", Unsaid;
    ReservedTemplateVariable = 400, "invalid_request_error", "reserved_template_variable", Unsaid;
    UnsupportedModality = 400, "invalid_request_error", "unsupported_modality", Unsaid;
    InvalidHeader = 400, "invalid_request_error", "invalid_header", Unsaid;
    InvalidApiKey = 401, "authentication_error", "invalid_api_key", Unsaid;
    MissingApiKey = 401, "authentication_error", "missing_api_key", Unsaid;
    KeyExpired = 401, "authentication_error", "key_expired", Unsaid;
    AdminKeyRequired = 403, "permission_error", "admin_key_required", Unsaid;
    OriginNotAllowed = 403, "permission_error", "origin_not_allowed", Unsaid;
    HostNotAllowed = 403, "permission_error", "host_not_allowed", Unsaid;
    UnknownRoute = 404, "not_found_error", "unknown_route", Unsaid;
    ModelNotFound = 404, "not_found_error", "model_not_found", Unsaid;
    LoraNotFound = 404, "not_found_error", "lora_not_found", Unsaid;
    TemplateNotFound = 404, "not_found_error", "template_not_found", Unsaid;
    PresetNotFound = 404, "not_found_error", "preset_not_found", Unsaid;
    ResponseNotFound = 404, "not_found_error", "response_not_found", Unsaid;
    DocumentNotFound = 404, "not_found_error", "document_not_found", Unsaid;
    RequestNotFound = 404, "not_found_error", "request_not_found", Unsaid;
    MethodNotAllowed = 405, "invalid_request_error", "method_not_allowed", Unsaid;
    BodyTimeout = 408, "invalid_request_error", "body_timeout", Never;
    NotBackground = 409, "conflict_error", "not_background", Never;
    Cancelled = 409, "conflict_error", "cancelled", Never;
    LengthRequired = 411, "invalid_request_error", "length_required", Unsaid;
    AlreadyExists = 409, "conflict_error", "already_exists", Never;
    VersionConflict = 409, "conflict_error", "version_conflict", Never;
    NotResumable = 409, "conflict_error", "not_resumable", Never;
    RequestTooLarge = 413, "invalid_request_error", "request_too_large", Unsaid;
    UriTooLong = 414, "invalid_request_error", "uri_too_long", Unsaid;
    UnsupportedMediaType = 415, "invalid_request_error", "unsupported_media_type", Unsaid;
    UpgradeRequired = 426, "invalid_request_error", "upgrade_required", Unsaid;
    LoadInProgress = 409, "conflict_error", "load_in_progress", Never;
    TooManyRequests = 429, "rate_limit_error", "too_many_requests", Later;
    KeyQueueFull = 429, "rate_limit_error", "key_queue_full", Later;
    TokensPerMinute = 429, "rate_limit_error", "tokens_per_minute", Later;
    InternalError = 500, "server_error", "internal_error", Never;
    NumericError = 500, "server_error", "numeric_error", Never;
    ConstraintDeadEnd = 400, "invalid_request_error", "constraint_dead_end", Unsaid;
    FeatureDisabled = 501, "not_supported_error", "feature_disabled", Never;
    NoModelLoaded = 503, "unavailable_error", "no_model_loaded", Never;
    ModelLoading = 503, "unavailable_error", "model_loading", Later;
    ModelUnloading = 503, "unavailable_error", "model_unloading", Later;
    OutOfMemory = 503, "unavailable_error", "out_of_memory", Never;
    QueueFull = 503, "unavailable_error", "queue_full", Later;
    TooManyConnections = 503, "unavailable_error", "too_many_connections", Later;
    UpstreamFailed = 503, "unavailable_error", "upstream_failed", Later;
    EngineRestarting = 503, "unavailable_error", "engine_restarting", Later;
    Draining = 503, "unavailable_error", "draining", Later;
    DeadlineExceeded = 504, "timeout_error", "deadline_exceeded", Never;
}

/// How a family of routes writes its errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `{"error": {...}}`.
    OpenAi,
    /// The same, with the message again as `detail`, which TabbyAPI's clients read.
    Tabby,
    /// `{"type": "error", "error": {...}, "request_id"}`, with statuses of its own.
    Anthropic,
    /// `{"error": "what happened"}`.
    Ollama,
}

/// An error on its way to a client.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// What kind of error.
    pub code: Code,
    /// What happened and what to do.
    pub message: String,
    /// The field at fault, as a path.
    pub param: Option<String>,
    /// Values for machines; in a box, so that results without an error stay small.
    pub details: Option<Box<Value>>,
    /// When asking again may help.
    pub retry_after: Option<Duration>,
    /// Methods that the path has, for 405.
    pub allow: Option<String>,
    /// What it came from, the outermost cause first. For administrators who want to know.
    pub causes: Box<[String]>,
    /// Whether the causes are told.
    pub tells_causes: bool,
}

impl ApiError {
    /// The same, because of a field, unless it names one.
    pub fn at(self, field: &str) -> Self {
        let param = self.param.or_else(|| (!field.is_empty()).then(|| field.to_owned()));
        ApiError { param, ..self }
    }

    /// An error with a message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.len() > MESSAGE_BYTES_MAX {
            let end = (0..=MESSAGE_BYTES_MAX).rev().find(|end| message.is_char_boundary(*end));
            message.truncate(end.unwrap_or(0));
            message.push('…');
        }
        ApiError {
            code,
            message,
            param: None,
            details: None,
            retry_after: None,
            allow: None,
            causes: Box::default(),
            tells_causes: false,
        }
    }

    /// The error of a field.
    pub fn field(code: Code, param: impl Into<String>, message: impl Into<String>) -> Self {
        let param = Some(param.into());
        ApiError { param, ..ApiError::new(code, message) }
    }

    /// With values for machines.
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// With a time after which asking again may help.
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// With what it came from: an error, what that came from, and so on.
    pub fn caused_by(mut self, error: &dyn std::error::Error) -> Self {
        let chain = std::iter::successors(Some(error), |error| error.source());
        self.causes = chain.take(CAUSES_MAX).map(ToString::to_string).collect();
        self
    }

    /// With the place of the defect that it came from.
    pub fn from_panic(panicked: &Panicked) -> Self {
        let place = panicked.place.as_deref().unwrap_or("an unknown place");
        ApiError { causes: [format!("panicked at {place}")].into(), ..Self::internal() }
    }

    /// Tells what it came from, or keeps it to itself.
    pub fn traced(mut self, tells: bool) -> Self {
        self.tells_causes = tells;
        self
    }

    /// What it came from, where that is told.
    fn trace(&self) -> Option<Value> {
        (self.tells_causes && !self.causes.is_empty()).then(|| json!(self.causes))
    }

    /// A field that nobody knows, with the nearest one that is known.
    pub fn unknown_field<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Self {
        let hint = match nearest(name, known) {
            Some(near) => format!("did you mean {near:?}?"),
            None => "remove it".to_owned(),
        };
        let shown: String = name.chars().take(64).collect();
        let message = format!("there is no parameter {shown:?}: {hint}");
        ApiError::field(Code::UnknownParameter, shown, message)
    }

    /// A defect of the server; the client learns nothing of it.
    pub fn internal() -> Self {
        ApiError::new(Code::InternalError, "internal error: please report it")
    }

    /// The inner object, as it also appears inside streams.
    pub fn object(&self) -> Value {
        let mut object = Map::new();
        object.insert("message".into(), self.message.clone().into());
        object.insert("type".into(), self.code.kind().into());
        object.insert("param".into(), json!(self.param));
        object.insert("code".into(), self.code.name().into());
        if let Some(details) = &self.details {
            object.insert("details".into(), (**details).clone());
        }
        if let Some(trace) = self.trace() {
            object.insert("trace".into(), trace);
        }
        Value::Object(object)
    }

    /// HTTP status: Anthropic's clients know a server that cannot answer now by one of their own.
    pub fn status(&self, dialect: Dialect) -> StatusCode {
        match (dialect, self.code.status()) {
            (Dialect::Anthropic, StatusCode::SERVICE_UNAVAILABLE) => {
                StatusCode::from_u16(OVERLOADED).unwrap_or(StatusCode::SERVICE_UNAVAILABLE)
            }
            (_, status) => status,
        }
    }

    /// The whole body, also as it appears inside streams.
    pub fn value(&self, dialect: Dialect, request_id: &str) -> Value {
        match dialect {
            Dialect::OpenAi => json!({ "error": self.object() }),
            Dialect::Tabby => json!({ "error": self.object(), "detail": self.message }),
            Dialect::Ollama => json!({ "error": self.message }),
            Dialect::Anthropic => {
                let message = self.anthropic_message();
                let mut error = json!({ "type": self.anthropic_kind(), "message": message });
                if let Some(trace) = self.trace() {
                    error["trace"] = trace;
                }
                json!({ "type": "error", "error": error, "request_id": request_id })
            }
        }
    }

    /// The whole body.
    pub fn body(&self, dialect: Dialect, request_id: &str) -> Bytes {
        Bytes::from(self.value(dialect, request_id).to_string())
    }

    /// The message in the words by which Anthropic's clients know an error.
    fn anthropic_message(&self) -> String {
        let count = |name: &str| self.details.as_ref()?.get(name)?.as_u64();
        match (self.code, count("n_prompt_tokens"), count("n_ctx")) {
            (Code::ContextLengthExceeded, Some(tokens), Some(most)) => {
                format!("prompt is too long: {tokens} tokens > {most} maximum")
            }
            _ => self.message.clone(),
        }
    }

    /// Anthropic's class of error.
    fn anthropic_kind(&self) -> &'static str {
        match self.status(Dialect::Anthropic).as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            504 => "timeout_error",
            OVERLOADED => "overloaded_error",
            500.. => "api_error",
            _ => "invalid_request_error",
        }
    }

    /// Adds what the error says in headers.
    pub fn write_headers(&self, headers: &mut HeaderMap) {
        let should_retry = HeaderName::from_static("x-should-retry");
        match self.code.retry() {
            Retry::Never => {
                headers.insert(should_retry, HeaderValue::from_static("false"));
            }
            Retry::Later => {
                let wait = self.retry_after.unwrap_or(Duration::from_secs(1));
                let seconds = wait.as_secs().clamp(1, 60);
                headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
                let name = HeaderName::from_static("retry-after-ms");
                headers.insert(name, HeaderValue::from(seconds * 1000));
            }
            Retry::Unsaid => {}
        }
        if self.code.status() == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.code == Code::TooManyConnections {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if self.code.status() == StatusCode::UPGRADE_REQUIRED {
            headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        }
        let allow = self.allow.as_deref().and_then(|allow| HeaderValue::from_str(allow).ok());
        if let Some(allow) = allow {
            headers.insert(header::ALLOW, allow);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_the_four_keys() {
        for &code in Code::ALL {
            let error = ApiError::new(code, "what happened: what to do");
            let body: Value = serde_json::from_slice(&error.body(Dialect::Tabby, "id")).unwrap();
            for key in ["message", "type", "param", "code"] {
                assert!(body["error"].get(key).is_some(), "{code:?} {key}");
            }
            assert_eq!(body["detail"], "what happened: what to do");
            assert!(code.status().as_u16() >= 400);
        }
    }

    #[test]
    fn anthropic_errors_have_their_own_shape() {
        for (code, status, kind) in [
            (Code::InvalidType, 400, "invalid_request_error"),
            (Code::InvalidApiKey, 401, "authentication_error"),
            (Code::AdminKeyRequired, 403, "permission_error"),
            (Code::ModelNotFound, 404, "not_found_error"),
            (Code::RequestTooLarge, 413, "request_too_large"),
            (Code::KeyQueueFull, 429, "rate_limit_error"),
            (Code::InternalError, 500, "api_error"),
            (Code::QueueFull, 529, "overloaded_error"),
            (Code::DeadlineExceeded, 504, "timeout_error"),
        ] {
            let error = ApiError::new(code, "what happened");
            assert_eq!(error.status(Dialect::Anthropic).as_u16(), status);
            let expected = json!({
                "type": "error",
                "error": { "type": kind, "message": "what happened" },
                "request_id": "id",
            });
            assert_eq!(error.value(Dialect::Anthropic, "id"), expected);
        }
    }

    #[test]
    fn causes_are_told_only_where_that_is_allowed() {
        let inner = std::io::Error::other("innermost");
        let outer = crate::config::ConfigError { problems: vec!["outermost".to_owned()] };
        for (error, told) in
            [(&inner as &dyn std::error::Error, "innermost"), (&outer, "outermost")]
        {
            let error = ApiError::internal().caused_by(error);
            for dialect in [Dialect::OpenAi, Dialect::Tabby, Dialect::Anthropic] {
                let silent = error.value(dialect, "id");
                assert!(!silent.to_string().contains("most"), "{silent}");
                let open = error.clone().traced(true).value(dialect, "id");
                assert_eq!(open["error"]["trace"], json!([told]), "{open}");
            }
        }
        let place = Some("src/a.rs:1:2".to_owned());
        let defect = ApiError::from_panic(&Panicked { place }).traced(true);
        assert_eq!(defect.object()["trace"][0], "panicked at src/a.rs:1:2");
        assert!(ApiError::internal().traced(true).object().get("trace").is_none());
    }

    #[test]
    fn clients_are_told_whether_to_ask_again() {
        for &code in Code::ALL {
            let mut headers = HeaderMap::new();
            ApiError::new(code, "x").write_headers(&mut headers);
            let status = code.status().as_u16();
            // The statuses that official clients repeat by themselves.
            let repeated = matches!(status, 408 | 409 | 429) || status >= 500;
            let said = headers.contains_key("retry-after-ms")
                && headers.contains_key("retry-after")
                || headers.get("x-should-retry").is_some_and(|value| value == "false");
            assert_eq!(said, repeated, "{code:?}");
        }
    }

    #[test]
    fn schema_echo_is_bounded() {
        let error = ApiError::new(Code::InvalidSchema, "ä".repeat(30 << 20));
        assert!(error.message.len() <= MESSAGE_BYTES_MAX + '…'.len_utf8());
    }

    #[test]
    fn an_unknown_field_names_its_neighbour() {
        let error = ApiError::unknown_field("temprature", ["top_p", "temperature"].into_iter());
        assert!(error.message.contains("\"temperature\""), "{}", error.message);
        let error = ApiError::unknown_field("zzz", ["top_p"].into_iter());
        assert!(!error.message.contains("top_p"), "{}", error.message);
    }
}
