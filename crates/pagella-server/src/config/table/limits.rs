//! How much a client may ask for, and how slowly.

use pagella_text::TemplateLimits;

use crate::config::entry::{Entry, Kind, entry, unbuilt};

const L: &str = "limits";
/// At least one.
const SOME: Kind = Kind::Int { min: 1, max: i64::MAX };
/// Any number, or none where 0 means that.
const ANY: Kind = Kind::Int { min: 0, max: i64::MAX };
/// A time that is not nothing.
const TIME: Kind = Kind::Float { min: 0.001, max: 3600.0 };

pub(super) const ROWS: &[Entry] = &[
    entry((L, "connections"), SOME, "4096", "Connections in all", |s, v| {
        s.limits.connections = v.count();
    }),
    entry(
        (L, "connections_per_peer"),
        SOME,
        "64",
        "Connections of one address; not for this machine and for network.proxies",
        |s, v| s.limits.connections_per_peer = v.count(),
    )
    .live(),
    entry((L, "header_bytes"), SOME, "32768", "Bytes of all headers of a request", |s, v| {
        s.limits.header_bytes = v.count();
    })
    .live(),
    entry((L, "headers"), SOME, "100", "Headers of a request", |s, v| s.limits.headers = v.count())
        .live(),
    entry((L, "url_bytes"), SOME, "8192", "Bytes of a URL", |s, v| s.limits.url_bytes = v.count())
        .live(),
    entry((L, "header_time"), Kind::Seconds, "10", "Seconds for sending the headers", |s, v| {
        s.limits.header_time = v.seconds();
    })
    .live(),
    entry((L, "body_time"), Kind::Seconds, "60", "Seconds for sending the body", |s, v| {
        s.limits.body_time = v.seconds();
    })
    .live(),
    entry((L, "body_rate"), SOME, "1024", "Slowest body, in bytes per second", |s, v| {
        s.limits.body_rate = v.count() as u64;
    })
    .live(),
    entry(
        (L, "half_close_time"),
        Kind::Seconds,
        "2",
        "Seconds of an answer before a client that has ended its side is asked whether it reads",
        |s, v| s.limits.half_close_time = v.seconds(),
    )
    .live(),
    entry(
        (L, "keep_alive"),
        Kind::Seconds,
        "75",
        "Idle seconds after which a connection is closed",
        |s, v| s.limits.keep_alive = v.seconds(),
    )
    .live(),
    entry(
        (L, "http2_streams"),
        Kind::Int { min: 1, max: 65535 },
        "128",
        "Streams of one HTTP/2 connection",
        |s, v| s.limits.http2_streams = u32::try_from(v.int()).unwrap_or(1),
    )
    .live(),
    entry(
        (L, "http2_resets"),
        SOME,
        "50",
        "Streams that a client of HTTP/2 may reset per second on one connection",
        |s, v| s.limits.http2_resets = v.count(),
    )
    .live(),
    entry(
        (L, "generation_body_bytes"),
        SOME,
        "33554432",
        "Bytes of a body on routes that generate text",
        |s, v| s.limits.generation_body_bytes = v.count(),
    )
    .live(),
    entry((L, "body_bytes"), SOME, "1048576", "Bytes of a body on other routes", |s, v| {
        s.limits.body_bytes = v.count();
    })
    .live(),
    entry((L, "messages"), SOME, "20000", "Messages of a conversation", |s, v| {
        s.limits.messages = v.count();
    })
    .live(),
    entry((L, "tools"), SOME, "128", "Tools of a conversation", |s, v| s.limits.tools = v.count())
        .live(),
    entry((L, "prompts"), SOME, "64", "Prompts of a completion request", |s, v| {
        s.limits.prompts = v.count();
    })
    .live(),
    entry((L, "max_n"), SOME, "8", "Choices per prompt", |s, v| s.limits.max_n = v.count()).live(),
    entry((L, "max_choices"), SOME, "64", "Choices of a request in all", |s, v| {
        s.limits.max_choices = v.count();
    })
    .live(),
    entry((L, "max_tokens"), ANY, "0", "Most tokens of an answer; 0 is the context", |s, v| {
        s.limits.max_tokens = v.count();
    })
    .live(),
    entry(
        (L, "top_logprobs"),
        SOME,
        "20",
        "Alternatives per token in log-probabilities",
        |s, v| s.limits.top_logprobs = v.count(),
    )
    .live(),
    entry((L, "logit_bias"), SOME, "1024", "Entries of logit_bias", |s, v| {
        s.limits.logit_bias = v.count();
    })
    .live(),
    entry((L, "stop"), SOME, "64", "Strings and ids that end an answer", |s, v| {
        s.limits.stop = v.count();
    })
    .live(),
    entry((L, "banned_strings"), SOME, "256", "Strings that an answer must not have", |s, v| {
        s.limits.banned_strings = v.count();
    })
    .live(),
    unbuilt(L, "images", &["16"], "Images of a request"),
    unbuilt(L, "image_bytes", &["20971520"], "Bytes of an image"),
    unbuilt(L, "image_pixels", &["40000000"], "Pixels of an image, decoded"),
    entry(
        (L, "template_bytes"),
        // No larger file is read as a template.
        Kind::Int { min: 1, max: 1 << 20 },
        "1048576",
        "Bytes of a template from a request or the folder of templates",
        |s, v| s.limits.template.source_bytes_max = v.count(),
    )
    .live(),
    entry((L, "template_steps"), SOME, "2000000", "Steps of rendering a template", |s, v| {
        s.limits.template.steps_max = v.count() as u64;
    })
    .live(),
    entry(
        (L, "template_output_bytes"),
        SOME,
        "16777216",
        "Bytes of a rendered prompt, and of every text on the way to it",
        |s, v| s.limits.template.output_bytes_max = v.count(),
    )
    .live(),
    entry(
        (L, "template_recursion"),
        Kind::Int { min: 1, max: TemplateLimits::RECURSION_MAX as i64 },
        "64",
        "Calls of macros inside each other in a template",
        |s, v| s.limits.template.recursion_max = v.count(),
    )
    .live(),
    entry((L, "template_time"), TIME, "2", "Seconds of rendering a template", |s, v| {
        s.limits.template.time_max = v.seconds();
    })
    .live(),
    entry((L, "constraint_bytes"), SOME, "1048576", "Bytes of a schema or grammar", |s, v| {
        s.limits.constraint_bytes = v.count();
    })
    .live(),
    entry((L, "constraint_time"), TIME, "2", "Seconds of compiling one", |s, v| {
        s.limits.constraint_time = v.seconds();
    })
    .live(),
    entry(
        (L, "constraint_memory_bytes"),
        Kind::Int { min: 1 << 20, max: i64::MAX },
        "67108864",
        "Bytes of a compiled one",
        |s, v| s.limits.constraint_memory_bytes = v.count(),
    )
    .live(),
    entry(
        (L, "mask_time"),
        TIME,
        "0.05",
        "Seconds of finding out which tokens a schema or grammar allows next, as work",
        |s, v| s.limits.mask_time = v.seconds(),
    )
    .live(),
    entry((L, "max_queue"), SOME, "2048", "Requests that wait", |s, v| {
        s.limits.max_queue = v.count();
    })
    .live(),
    entry((L, "max_queue_wait"), Kind::Seconds, "0", "Longest estimated wait; 0 is any", |s, v| {
        s.limits.max_queue_wait = v.seconds()
    })
    .live(),
    entry(
        (L, "request_time"),
        Kind::Seconds,
        "0",
        "Longest time of a request; 0 is any",
        |s, v| {
            s.limits.request_time = v.seconds();
        },
    )
    .live(),
    entry(
        (L, "blocking_threads"),
        Kind::Int { min: 0, max: 1024 },
        "0",
        "Threads that render, tokenize and compile; 0 is one per core",
        |s, v| s.limits.blocking_threads = v.count(),
    ),
    entry((L, "blocking_queue"), SOME, "2048", "Work that waits for these threads", |s, v| {
        s.limits.blocking_queue = v.count();
    })
    .live(),
];
