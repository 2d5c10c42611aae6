//! Bounds of histograms; those of vLLM, so that its dashboards fit.

/// Seconds to the first token.
pub const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
/// Seconds per token; the first three are ours, decoding here is faster than vLLM's first bound.
pub const PER_TOKEN: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
    5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
/// Seconds of a request.
pub const REQUEST: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
/// Tokens of a request.
pub const TOKENS: &[f64] = &[
    1e0, 2e0, 5e0, 1e1, 2e1, 5e1, 1e2, 2e2, 5e2, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6,
];
/// Choices of a request.
pub const CHOICES: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0];
/// Bytes of a body.
pub const BYTES: &[f64] = &[1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8];
/// Seconds of work that is done before a job begins.
pub const WORK: &[f64] = &[1e-4, 1e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1.0, 2.0, 5.0];
