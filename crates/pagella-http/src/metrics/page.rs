//! A page of text that grows, series by series. Writing to a string cannot fail, so results are not
//! looked at.

use std::fmt::Write;

use super::histogram::Histogram;
use crate::settings::MetricNames;

/// Values counted by size.
pub struct Buckets {
    /// `(bound, values up to it)`, the last bound being infinite.
    pub cumulative: Vec<(f64, u64)>,
    /// Of all values.
    pub sum: f64,
}

impl From<&Histogram> for Buckets {
    fn from(histogram: &Histogram) -> Self {
        Buckets { cumulative: histogram.cumulative(), sum: histogram.sum() }
    }
}

/// A page of text.
pub struct Page {
    /// What was written so far.
    pub text: String,
    /// What vLLM's dashboards filter by.
    labels: String,
    names: Vec<MetricNames>,
}

/// A label's value as the format wants it.
pub fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

impl Page {
    /// An empty one, for these sets of names; `model` is what vLLM's dashboards filter by.
    pub fn new(model: &str, names: Vec<MetricNames>) -> Self {
        let labels = format!("model_name=\"{}\",engine=\"0\"", escape(model));
        Page { text: String::new(), labels, names }
    }

    /// Whether a set of names is wanted.
    pub fn tells(&self, names: MetricNames) -> bool {
        self.names.contains(&names)
    }

    /// A series under its full name; samples are labels, or nothing, and a value.
    pub fn plain(&mut self, name: &str, kind: &str, samples: &[(&str, f64)]) {
        let _ = writeln!(self.text, "# TYPE {name} {kind}");
        for (labels, value) in samples {
            let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
            let _ = writeln!(self.text, "{name}{braces} {value}");
        }
    }

    /// A series that only we have.
    pub fn own(&mut self, name: &str, kind: &str, samples: &[(&str, f64)]) {
        if self.tells(MetricNames::Native) {
            self.plain(&format!("pagella_{name}"), kind, samples);
        }
    }

    /// A series under both names.
    pub fn both(&mut self, name: &str, kind: &str, samples: &[(&str, f64)]) {
        self.own(name, kind, samples);
        if !self.tells(MetricNames::Vllm) {
            return;
        }
        let _ = writeln!(self.text, "# TYPE vllm:{name} {kind}");
        for (labels, value) in samples {
            let comma = if labels.is_empty() { "" } else { "," };
            let _ = writeln!(self.text, "vllm:{name}{{{}{comma}{labels}}} {value}", self.labels);
        }
    }

    /// A histogram under both names. `ours` bounds at its beginning are not vLLM's.
    pub fn histogram(&mut self, name: &str, counted: &Buckets, ours: usize) {
        self.own_histogram(name, counted);
        if self.tells(MetricNames::Vllm) {
            let name = format!("vllm:{name}");
            let labels = format!("{},", self.labels);
            let _ = writeln!(self.text, "# TYPE {name} histogram");
            let buckets = counted.cumulative.get(ours..).unwrap_or_default();
            self.buckets(&name, &labels, buckets, counted.sum);
        }
    }

    /// A histogram under our name alone.
    pub fn own_histogram(&mut self, name: &str, counted: &Buckets) {
        if self.tells(MetricNames::Native) {
            let name = format!("pagella_{name}");
            let _ = writeln!(self.text, "# TYPE {name} histogram");
            self.buckets(&name, "", &counted.cumulative, counted.sum);
        }
    }

    /// The header of a histogram whose series differ in labels, and then each of them.
    pub fn distributions<'h>(
        &mut self,
        name: &str,
        series: impl Iterator<Item = (String, &'h Histogram)>,
    ) {
        let _ = writeln!(self.text, "# TYPE {name} histogram");
        for (labels, histogram) in series {
            self.buckets(name, &labels, &histogram.cumulative(), histogram.sum());
        }
    }

    /// Buckets that add up, their sum and their count. Labels end with a comma.
    fn buckets(&mut self, name: &str, labels: &str, cumulative: &[(f64, u64)], sum: f64) {
        for (bound, count) in cumulative {
            let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
            let _ = writeln!(self.text, "{name}_bucket{{{labels}le=\"{bound}\"}} {count}");
        }
        let all = cumulative.last().map_or(0, |(_, count)| *count);
        let labels = labels.trim_end_matches(',');
        let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(self.text, "{name}_sum{braces} {sum}\n{name}_count{braces} {all}");
    }
}
