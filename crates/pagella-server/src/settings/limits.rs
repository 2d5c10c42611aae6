//! How much a client may ask for, and how slowly.

use std::time::Duration;

use pagella_engine::constraint::ConstraintLimits;
use pagella_text::TemplateLimits;

/// How much a client may ask for, and how slowly.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections in all.
    pub connections: usize,
    /// Connections of one peer address; not for this machine and for proxies.
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
    /// How long an answer may take after a client has ended its own side, before it is asked whether it
    /// still reads.
    pub half_close_time: Duration,
    /// Idle time after which a connection is closed.
    pub keep_alive: Duration,
    /// Bytes of a body on routes that generate text.
    pub generation_body_bytes: usize,
    /// Bytes of a body on other routes.
    pub body_bytes: usize,
    /// Messages of a conversation.
    pub messages: usize,
    /// Tools of a conversation.
    pub tools: usize,
    /// Prompts of a completion request.
    pub prompts: usize,
    /// Choices per prompt.
    pub max_n: usize,
    /// Choices of a request in all.
    pub max_choices: usize,
    /// Most tokens of an answer; 0 is the context.
    pub max_tokens: usize,
    /// Alternatives per token in log-probabilities.
    pub top_logprobs: usize,
    /// Entries of a bias.
    pub logit_bias: usize,
    /// Strings and ids that end an answer.
    pub stop: usize,
    /// Strings that never appear in an answer.
    pub banned_strings: usize,
    /// How much templates may use.
    pub template: TemplateLimits,
    /// Bytes of a schema or grammar.
    pub constraint_bytes: usize,
    /// For compiling one.
    pub constraint_time: Duration,
    /// Bytes of a compiled one.
    pub constraint_memory_bytes: usize,
    /// For finding out which tokens one allows next.
    pub mask_time: Duration,
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
    /// Streams of one HTTP/2 connection that a client may reset per second before it is told to go
    /// away.
    pub http2_resets: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 4096,
            connections_per_peer: 64,
            header_bytes: 32 << 10,
            headers: 100,
            url_bytes: 8 << 10,
            header_time: Duration::from_secs(10),
            body_time: Duration::from_secs(60),
            body_rate: 1 << 10,
            half_close_time: Duration::from_secs(2),
            keep_alive: Duration::from_secs(75),
            generation_body_bytes: 32 << 20,
            body_bytes: 1 << 20,
            messages: 20_000,
            tools: 128,
            prompts: 64,
            max_n: 8,
            max_choices: 64,
            max_tokens: 0,
            top_logprobs: 20,
            logit_bias: 1024,
            stop: 64,
            banned_strings: 256,
            template: TemplateLimits::default(),
            constraint_bytes: 1 << 20,
            constraint_time: Duration::from_secs(2),
            constraint_memory_bytes: 64 << 20,
            mask_time: Duration::from_millis(50),
            max_queue: 2048,
            max_queue_wait: Duration::ZERO,
            request_time: Duration::ZERO,
            blocking_threads: 0,
            blocking_queue: 2048,
            http2_streams: 128,
            http2_resets: 50,
        }
    }
}

impl Limits {
    /// How large constraints may be and how much work they may cost.
    pub fn constraint(&self) -> ConstraintLimits {
        let limits = ConstraintLimits {
            text_bytes_max: self.constraint_bytes,
            compile_time: self.constraint_time,
            ..ConstraintLimits::default()
        };
        limits.with_memory(self.constraint_memory_bytes).with_mask_time(self.mask_time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_constraints_are_those_of_the_engine() {
        let limits = Limits {
            constraint_bytes: 7,
            constraint_time: Duration::from_millis(3),
            constraint_memory_bytes: 32 << 20,
            mask_time: Duration::from_millis(10),
            ..Limits::default()
        };
        let usual = ConstraintLimits::default();
        let made = limits.constraint();
        assert_eq!((made.text_bytes_max, made.compile_time), (7, Duration::from_millis(3)));
        assert_eq!((made.mask_fuel, made.mask_items_max), (70_000, 100_000));
        // Half of the usual memory, and all of it.
        let all = Limits::default().constraint().states_max;
        assert_eq!((made.states_max, all), ((32 << 20) / 1342, (64 << 20) / 1342));
        assert!(all.abs_diff(usual.states_max) < usual.states_max / 1000, "{all}");
    }
}
