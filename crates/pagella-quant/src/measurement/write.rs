//! A measurement to JSON, laid out as Python does it.

use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Map, Value, json};

use super::{MeasuredCandidate, Measurement, ModuleMeasurement};
use crate::params::{LinearParams, SCALE_BITS};

pub(super) fn value(measurement: &Measurement) -> Value {
    let modules: Map<String, Value> =
        measurement.modules.iter().map(|(name, found)| (name.clone(), module(found))).collect();
    json!({ "measurement": modules, "last_module_idx": measurement.last_module_idx })
}

pub(super) fn text(measurement: &Measurement) -> String {
    let mut bytes = Vec::new();
    let mut serializer =
        Serializer::with_formatter(&mut bytes, PrettyFormatter::with_indent(b"    "));
    // Values go into memory, and their keys are strings: nothing can fail.
    let written = serde::Serialize::serialize(&value(measurement), &mut serializer);
    debug_assert!(written.is_ok());
    bytes.push(b'\n');
    String::from_utf8_lossy(&bytes).into_owned()
}

fn module(module: &ModuleMeasurement) -> Value {
    match module {
        ModuleMeasurement::Nothing => Value::Null,
        ModuleMeasurement::Candidates(list) => candidates(list),
        ModuleMeasurement::Parallel { attn, mlp } => {
            json!({ "attn": candidates(attn), "mlp": candidates(mlp) })
        }
    }
}

fn candidates(list: &[MeasuredCandidate]) -> Value {
    list.iter().map(candidate).collect()
}

fn candidate(candidate: &MeasuredCandidate) -> Value {
    let mut entry = Map::new();
    entry.insert("accuracy".to_owned(), candidate.accuracy.into());
    if let Some(divergence) = candidate.divergence {
        entry.insert("divergence".to_owned(), divergence.into());
    }
    entry.insert("total_bits".to_owned(), candidate.total_bits.into());
    entry.extend(candidate.linears.iter().map(|(name, set)| (name.clone(), params(set))));
    Value::Object(entry)
}

fn params(params: &LinearParams) -> Value {
    let widths = params.widths();
    let sizes: Map<String, Value> =
        widths.iter().map(|width| (width.bits.to_string(), width.group_rows.into())).collect();
    json!({
        "group_size": sizes,
        "bits": widths.iter().map(|width| width.bits).collect::<Vec<u8>>(),
        "bits_prop": widths.iter().map(|width| width.share).collect::<Vec<f64>>(),
        "scale_bits": SCALE_BITS,
    })
}
