//! A page of text that grows, series by series. Writing to a string cannot fail, so results are not
//! looked at.

use std::fmt::Write;

use pagella_engine::Distribution;

use crate::app::App;
use crate::metrics::histogram::Histogram;
use crate::settings::MetricNames;

/// A page of text.
pub struct Page {
    pub text: String,
    /// What vLLM's dashboards filter by.
    labels: String,
    names: Vec<MetricNames>,
}

/// A label's value as the format wants it.
pub fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// `(bound, values up to it)`, the last bound being infinite.
fn cumulative(counted: &Distribution) -> Vec<(f64, u64)> {
    let bounds = counted.bounds.iter().copied().chain([f64::INFINITY]);
    let mut all = 0;
    let mut add = |count: &u64| {
        all += count;
        all
    };
    bounds.zip(&counted.counts).map(|(bound, count)| (bound, add(count))).collect()
}

impl Page {
    pub fn new(app: &App) -> Self {
        let name = app.model.loaded().map(|model| escape(&model.parts.id)).unwrap_or_default();
        let labels = format!("model_name=\"{name}\",engine=\"0\"");
        Page { text: String::new(), labels, names: app.settings.metrics.names.clone() }
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
    pub fn histogram(&mut self, name: &str, histogram: &Histogram, ours: usize) {
        if self.tells(MetricNames::Native) {
            self.distribution(&format!("pagella_{name}"), "", histogram, 0);
        }
        if self.tells(MetricNames::Vllm) {
            let labels = format!("{},", self.labels);
            self.distribution(&format!("vllm:{name}"), &labels, histogram, ours);
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

    fn distribution(&mut self, name: &str, labels: &str, histogram: &Histogram, skipped: usize) {
        let _ = writeln!(self.text, "# TYPE {name} histogram");
        let cumulative = histogram.cumulative();
        self.buckets(name, labels, cumulative.get(skipped..).unwrap_or_default(), histogram.sum());
    }

    /// Buckets that add up, their sum and their count. Labels end with a comma.
    pub fn buckets(&mut self, name: &str, labels: &str, cumulative: &[(f64, u64)], sum: f64) {
        for (bound, count) in cumulative {
            let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
            let _ = writeln!(self.text, "{name}_bucket{{{labels}le=\"{bound}\"}} {count}");
        }
        let all = cumulative.last().map_or(0, |(_, count)| *count);
        let labels = labels.trim_end_matches(',');
        let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(self.text, "{name}_sum{braces} {sum}\n{name}_count{braces} {all}");
    }

    /// A histogram that the engine keeps, under our name alone.
    pub fn own_counted(&mut self, name: &str, counted: &Distribution) {
        if self.tells(MetricNames::Native) {
            let name = format!("pagella_{name}");
            let _ = writeln!(self.text, "# TYPE {name} histogram");
            self.buckets(&name, "", &cumulative(counted), counted.sum);
        }
    }

    /// A histogram that the engine keeps, under both names. `ours` bounds at its beginning are not
    /// vLLM's.
    pub fn counted(&mut self, name: &str, counted: &Distribution, ours: usize) {
        self.own_counted(name, counted);
        if self.tells(MetricNames::Vllm) {
            let name = format!("vllm:{name}");
            let labels = format!("{},", self.labels);
            let cumulative = cumulative(counted);
            let _ = writeln!(self.text, "# TYPE {name} histogram");
            self.buckets(&name, &labels, cumulative.get(ours..).unwrap_or_default(), counted.sum);
        }
    }
}
