//! The two forms in which Prometheus reads counts.

use std::fmt::Write;

/// In which form counts are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Prometheus' text, version 0.0.4.
    Text,
    /// OpenMetrics.
    OpenMetrics,
}

impl Form {
    /// The form that a client prefers.
    pub fn accepted(accept: &str) -> Self {
        match accept.contains("application/openmetrics-text") {
            true => Form::OpenMetrics,
            false => Form::Text,
        }
    }

    /// What the body is called.
    pub fn content_type(self) -> &'static str {
        match self {
            Form::Text => "text/plain; version=0.0.4; charset=utf-8",
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// A page of Prometheus' text in this form.
    pub fn of_text(self, mut text: String) -> String {
        if self == Form::OpenMetrics {
            let lines = text.lines().map(|line| match line.strip_suffix("_total counter") {
                Some(family) if line.starts_with("# TYPE ") => format!("{family} counter\n"),
                _ => format!("{line}\n"),
            });
            text = lines.collect();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# EOF");
        }
        text
    }
}
