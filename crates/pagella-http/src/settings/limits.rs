//! How much a client may ask for, and how slowly.

use std::ops::RangeInclusive;
use std::time::Duration;

use pagella_text::TemplateLimits;

use super::declare::section;

/// Seconds of work that a request may cost: some, and not for ever.
const WORK: RangeInclusive<f64> = 0.001..=3600.0;
/// Calls of macros inside each other that a template may have at most.
const RECURSION_MAX: i64 = TemplateLimits::RECURSION_MAX as i64;

section! {
    /// How much a client may ask for, and how slowly.
    Limits at limits {
        /// Connections in all
        connections: usize = 4096, at_least(1);
        /// Connections of one address; not for this machine and for network.proxies
        connections_per_peer: usize = 64, at_least(1), live;
        /// Bytes of all headers of a request
        header_bytes: usize = 32 << 10, at_least(1), live;
        /// Headers of a request
        headers: usize = 100, at_least(1), live;
        /// Bytes of a URL
        url_bytes: usize = 8 << 10, at_least(1), live;
        /// Seconds for sending the headers
        header_time: Duration = Duration::from_secs(10), live;
        /// Seconds for sending the body
        body_time: Duration = Duration::from_secs(60), live;
        /// Slowest body, in bytes per second
        // Not counted in the first seconds.
        body_rate: u64 = 1 << 10, at_least(1), live;
        /// Seconds of an answer before a client that has ended its side is asked whether it reads
        half_close_time: Duration = Duration::from_secs(2), live;
        /// Idle seconds after which a connection is closed
        keep_alive: Duration = Duration::from_secs(75), live;
        /// Streams of one HTTP/2 connection
        http2_streams: u32 = 128, within(1..=65535), live;
        /// Streams that a client of HTTP/2 may reset per second on one connection
        http2_resets: usize = 50, at_least(1), live;
        /// Bytes of a body on routes that generate text
        generation_body_bytes: usize = 32 << 20, at_least(1), live;
        /// Bytes of a body on other routes
        body_bytes: usize = 1 << 20, at_least(1), live;
        /// Messages of a conversation
        messages: usize = 20_000, at_least(1), live;
        /// Tools of a conversation
        tools: usize = 128, at_least(1), live;
        /// Prompts of a completion request
        prompts: usize = 64, at_least(1), live;
        /// Choices per prompt
        max_n: usize = 8, at_least(1), live;
        /// Choices of a request in all
        max_choices: usize = 64, at_least(1), live;
        /// Most tokens of an answer; 0 is the context
        max_tokens: usize = 0, live;
        /// Alternatives per token in log-probabilities
        top_logprobs: usize = 20, at_least(1), live;
        /// Entries of logit_bias
        logit_bias: usize = 1024, at_least(1), live;
        /// Strings and ids that end an answer
        stop: usize = 64, at_least(1), live;
        /// Strings that an answer must not have
        banned_strings: usize = 256, at_least(1), live;
        /// Bytes of a template from a request or the folder of templates
        // No larger file is read as a template.
        template_bytes: usize = TemplateLimits::default().source_bytes_max,
            within(1..=1 << 20), live;
        /// Steps of rendering a template
        template_steps: u64 = TemplateLimits::default().steps_max, at_least(1), live;
        /// Bytes of a rendered prompt, and of every text on the way to it
        template_output_bytes: usize = TemplateLimits::default().output_bytes_max,
            at_least(1), live;
        /// Calls of macros inside each other in a template
        template_recursion: usize = TemplateLimits::default().recursion_max,
            within(1..=RECURSION_MAX), live;
        /// Seconds of rendering a template
        template_time: Duration = TemplateLimits::default().time_max, within(WORK), live;
        /// Bytes of a schema or grammar
        constraint_bytes: usize = 1 << 20, at_least(1), live;
        /// Seconds of compiling one
        constraint_time: Duration = Duration::from_secs(2), within(WORK), live;
        /// Bytes of a compiled one
        constraint_memory_bytes: usize = 64 << 20, at_least(1 << 20), live;
        /// Seconds of finding out which tokens a schema or grammar allows next, as work
        mask_time: Duration = Duration::from_millis(50), within(WORK), live;
        /// Requests that wait
        max_queue: usize = 2048, at_least(1), live;
        /// Longest estimated wait; 0 is any
        max_queue_wait: Duration = Duration::ZERO, live;
        /// Longest time of a request; 0 is any
        request_time: Duration = Duration::ZERO, live;
        /// Threads that render, tokenize and compile; 0 is one per core
        blocking_threads: usize = 0, within(0..=1024);
        /// Work that waits for these threads
        blocking_queue: usize = 2048, at_least(1), live;
    }
}

impl Limits {
    /// How much templates may use.
    pub fn template(&self) -> TemplateLimits {
        TemplateLimits {
            source_bytes_max: self.template_bytes,
            steps_max: self.template_steps,
            output_bytes_max: self.template_output_bytes,
            recursion_max: self.template_recursion,
            time_max: self.template_time,
        }
    }
}
