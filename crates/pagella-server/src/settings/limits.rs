//! How much a client may ask for, and how slowly.

use std::time::Duration;

/// How much a client may ask for, and how slowly.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections in all.
    pub connections: usize,
    /// Connections of one peer address.
    pub connections_per_peer: usize,
    /// Bytes of all headers of a request.
    pub header_bytes: usize,
    /// Headers of a request.
    pub headers: usize,
    /// Bytes of a URL.
    pub url_bytes: usize,
    /// From the first byte of a request to the end of its headers.
    pub header_time: Duration,
    /// For reading a body.
    pub body_time: Duration,
    /// Slowest body, in bytes per second, after the first seconds.
    pub body_rate: u64,
    /// Idle time after which a connection is closed.
    pub keep_alive: Duration,
    /// Bytes of a body on routes that generate text.
    pub generation_body_bytes: usize,
    /// Bytes of a body on other routes.
    pub body_bytes: usize,
    /// Messages of a conversation.
    pub messages: usize,
    /// Prompts of a completion request.
    pub prompts: usize,
    /// Choices per prompt.
    pub max_n: usize,
    /// Choices of a request in all.
    pub max_choices: usize,
    /// Most tokens of an answer; 0 is the context.
    pub max_tokens: usize,
    /// Requests that wait.
    pub max_queue: usize,
    /// Longest estimated wait; zero is any.
    pub max_queue_wait: Duration,
    /// Longest time of a request; zero is any.
    pub request_time: Duration,
    /// Threads that render, tokenize and compile; 0 is one per core.
    pub blocking_threads: usize,
    /// Work that waits for them.
    pub blocking_queue: usize,
    /// Streams of one HTTP/2 connection.
    pub http2_streams: u32,
    /// Streams of one HTTP/2 connection that a client may reset before it is told to go away.
    pub http2_resets: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 1024,
            connections_per_peer: 64,
            header_bytes: 32 << 10,
            headers: 100,
            url_bytes: 8 << 10,
            header_time: Duration::from_secs(10),
            body_time: Duration::from_secs(60),
            body_rate: 1 << 10,
            keep_alive: Duration::from_secs(75),
            generation_body_bytes: 32 << 20,
            body_bytes: 1 << 20,
            messages: 20_000,
            prompts: 64,
            max_n: 8,
            max_choices: 64,
            max_tokens: 0,
            max_queue: 256,
            max_queue_wait: Duration::ZERO,
            request_time: Duration::ZERO,
            blocking_threads: 0,
            blocking_queue: 256,
            http2_streams: 128,
            http2_resets: 50,
        }
    }
}
