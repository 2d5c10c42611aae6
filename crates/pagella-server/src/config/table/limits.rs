//! How much a client may ask for, and how slowly.

use crate::config::entry::{Entry, Kind, entry};

const L: &str = "limits";
/// At least one.
const SOME: Kind = Kind::Int { min: 1, max: i64::MAX };
/// Any number, or none where 0 means that.
const ANY: Kind = Kind::Int { min: 0, max: i64::MAX };

pub(super) const ROWS: &[Entry] = &[
    entry((L, "connections"), SOME, "1024", "Connections in all", |s, v| {
        s.limits.connections = v.count();
    }),
    entry((L, "connections_per_peer"), SOME, "64", "Connections of one address", |s, v| {
        s.limits.connections_per_peer = v.count();
    })
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
        "Streams that a client of HTTP/2 may reset before they were answered",
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
    entry((L, "max_queue"), SOME, "256", "Requests that wait", |s, v| {
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
    entry((L, "blocking_queue"), SOME, "256", "Work that waits for these threads", |s, v| {
        s.limits.blocking_queue = v.count();
    }),
];
