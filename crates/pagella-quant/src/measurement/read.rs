//! JSON to a measurement, every fault with its place.

use serde_json::{Map, Value};

use super::{MeasuredCandidate, Measurement, ModuleMeasurement};
use crate::params::{LinearParams, SCALE_BITS, WidthShare};

/// What is wrong, and where.
#[derive(Debug, PartialEq)]
pub(super) struct Fault {
    pub place: String,
    pub fault: String,
}

type Read<T> = Result<T, Fault>;

/// A value and how to get to it.
struct At<'a> {
    value: &'a Value,
    place: String,
}

pub(super) fn parse(text: &str) -> Read<Measurement> {
    let value: Value = serde_json::from_str(text)
        .map_err(|error| Fault { place: "the file".to_owned(), fault: error.to_string() })?;
    let root = At { value: &value, place: String::new() };
    let modules = root.get("measurement")?;
    let module = |(name, value): (&String, &Value)| {
        let at = At { value, place: name.clone() };
        Ok((name.clone(), at.module()?))
    };
    let modules = modules.object()?.iter().map(module).collect::<Read<_>>()?;
    Ok(Measurement { modules, last_module_idx: root.get("last_module_idx")?.integer()? })
}

impl<'a> At<'a> {
    fn fault<T>(&self, fault: impl Into<String>) -> Read<T> {
        let place = if self.place.is_empty() { "the file" } else { &self.place };
        Err(Fault { place: place.to_owned(), fault: fault.into() })
    }

    fn child(&self, key: &str, value: &'a Value) -> At<'a> {
        let separator = if self.place.is_empty() { "" } else { "." };
        At { value, place: format!("{}{separator}{key}", self.place) }
    }

    fn object(&self) -> Read<&'a Map<String, Value>> {
        self.value.as_object().map_or_else(|| self.fault("an object is needed"), Ok)
    }

    fn list(&self) -> Read<Vec<At<'a>>> {
        let Some(values) = self.value.as_array() else { return self.fault("a list is needed") };
        Ok(values
            .iter()
            .enumerate()
            .map(|(idx, value)| At { value, place: format!("{}[{idx}]", self.place) })
            .collect())
    }

    fn get(&self, key: &str) -> Read<At<'a>> {
        match self.object()?.get(key) {
            Some(value) => Ok(self.child(key, value)),
            None => self.fault(format!("`{key}` is missing")),
        }
    }

    fn integer(&self) -> Read<u64> {
        self.value.as_u64().map_or_else(|| self.fault("a whole number is needed"), Ok)
    }

    fn number(&self) -> Read<f64> {
        self.value.as_f64().map_or_else(|| self.fault("a number is needed"), Ok)
    }

    fn module(&self) -> Read<ModuleMeasurement> {
        match self.value {
            Value::Null => Ok(ModuleMeasurement::Nothing),
            Value::Array(_) => Ok(ModuleMeasurement::Candidates(self.candidates()?)),
            Value::Object(_) => Ok(ModuleMeasurement::Parallel {
                attn: self.get("attn")?.candidates()?,
                mlp: self.get("mlp")?.candidates()?,
            }),
            _ => self.fault("a list of candidates, `attn` and `mlp`, or null is needed"),
        }
    }

    fn candidates(&self) -> Read<Vec<MeasuredCandidate>> {
        let list = self.list()?;
        if list.is_empty() {
            return self.fault("there is no candidate");
        }
        list.iter().map(Self::candidate).collect()
    }

    fn candidate(&self) -> Read<MeasuredCandidate> {
        let accuracy = self.get("accuracy")?;
        if !(0.0..=1.0).contains(&accuracy.number()?) {
            return accuracy.fault("an accuracy is from 0 to 1");
        }
        let mut linears = Vec::new();
        let mut divergence = None;
        for (key, value) in self.object()? {
            let at = self.child(key, value);
            match key.as_str() {
                "accuracy" | "total_bits" => {}
                "divergence" => divergence = Some(at.divergence()?),
                _ => linears.push((key.clone(), at.params()?)),
            }
        }
        if linears.is_empty() {
            return self.fault("there are no parameters of linears");
        }
        let (accuracy, total_bits) = (accuracy.number()?, self.get("total_bits")?.integer()?);
        Ok(MeasuredCandidate { accuracy, divergence, total_bits, linears })
    }

    fn divergence(&self) -> Read<f64> {
        let divergence = self.number()?;
        if divergence >= 0.0 { Ok(divergence) } else { self.fault("it must not be negative") }
    }

    fn params(&self) -> Read<LinearParams> {
        let bits = self.get("bits")?.list()?;
        let shares = self.get("bits_prop")?.list()?;
        if bits.len() != shares.len() {
            return self.fault("`bits` and `bits_prop` have different lengths");
        }
        let scale_bits = self.get("scale_bits")?;
        if scale_bits.integer()? != SCALE_BITS {
            return scale_bits.fault("EXL2 has 4 bits per scale");
        }
        let sizes = self.get("group_size")?;
        let mut widths = Vec::with_capacity(bits.len());
        for (idx, (bits, share)) in bits.iter().zip(&shares).enumerate() {
            let width = bits.integer()?;
            let Ok(width) = u8::try_from(width) else {
                return bits.fault(format!("{width} bits; 2, 3, 4, 5, 6 and 8 are possible"));
            };
            let group_rows = sizes.group_rows(idx, width)?;
            widths.push(WidthShare { bits: width, share: share.number()?, group_rows });
        }
        LinearParams::new(widths).or_else(|error| self.fault(error.to_string()))
    }

    /// Rows per group of the width at `idx`: one number for all, a list beside the widths, or by width.
    fn group_rows(&self, idx: usize, bits: u8) -> Read<usize> {
        let rows = match self.value {
            Value::Number(_) => self.integer()?,
            Value::Array(_) => match self.list()?.get(idx) {
                Some(rows) => rows.integer()?,
                None => return self.fault("it is shorter than `bits`"),
            },
            _ => self.get(&bits.to_string())?.integer()?,
        };
        usize::try_from(rows).or_else(|_| self.fault("it is too large"))
    }
}
