//! What was made, for people and for programs.

use pagella_quant::{Outcome, QuantizedModel};
use serde_json::{Value, json};

use crate::output::{Table, bytes};

/// Experts that a note names at most.
const STARVED_LISTED_MAX: usize = 5;

/// For programs.
pub fn json(outcome: &Outcome, seconds: f64) -> Value {
    let model = |model: &QuantizedModel| {
        let starved = model.starved.iter();
        json!({
            "dir": model.dir.to_string_lossy(),
            "bits": model.bits,
            "layer_bits": model.layer_bits,
            "head_bits": model.head_bits,
            "total_bits": model.total_bits,
            "bytes": model.bytes,
            "expected": model.expected,
            "bound": model.bound,
            "starved": starved.map(|s| json!({ "linear": s.linear, "tokens": s.tokens })).collect::<Vec<_>>(),
        })
    };
    let (rows, length) = outcome.calibration;
    json!({
        "models": outcome.models.iter().map(model).collect::<Vec<_>>(),
        "rows": rows,
        "length": length,
        "seconds": seconds,
    })
}

/// For people.
pub fn text(outcome: &Outcome, seconds: f64) -> String {
    let (rows, length) = outcome.calibration;
    let mut text =
        format!("calibrated with {rows} rows of {length} tokens; {seconds:.0} s in all\n");
    if outcome.models.is_empty() {
        return text;
    }
    let mut table =
        Table::new(&["model", "layers", "head", "tensors", "expected loss", "at least"]);
    for model in &outcome.models {
        table.row(vec![
            model.dir.display().to_string(),
            format!("{:.4} bpw", model.layer_bits),
            model.head_bits.map_or("plain".to_owned(), |bits| format!("{bits:.4} bpw")),
            bytes(model.bytes),
            format!("{:.4} nats", model.expected),
            format!("{:.4}", model.bound),
        ]);
    }
    text.push_str(&table.render());
    for model in outcome.models.iter().filter(|model| !model.starved.is_empty()) {
        let named = model.starved.iter().take(STARVED_LISTED_MAX);
        let named: Vec<String> =
            named.map(|s| format!("{} ({} tokens)", s.linear, s.tokens)).collect();
        text.push_str(&format!(
            "{:?} bpw: {} linears of experts saw too little and were quantised with what the other experts \
             of their layer saw: {}{}; more rows help (--rows)\n",
            model.bits,
            model.starved.len(),
            named.join(", "),
            if model.starved.len() > STARVED_LISTED_MAX { ", …" } else { "" }
        ));
    }
    text
}
