//! The weights of one linear on their way through the quantiser.
//!
//! Always `[inputs, columns]`, row-major, inputs in the order of the checkpoint; every value is a finite
//! binary16 number held as f32. Columns are the outputs, filled up with zeros to a multiple of 32, as
//! EXL2 stores them.

use half::f16;

use crate::error::QuantError;

/// Inputs and columns are multiples of this.
pub(crate) const MULTIPLE: usize = 32;

/// Inputs that the permutation of EXL2 can number.
const INPUTS_MAX: usize = 1 << 16;

/// The weights of one linear, `[inputs, columns]`.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightMatrix {
    name: String,
    inputs: usize,
    outputs: usize,
    columns: usize,
    values: Vec<f32>,
}

impl WeightMatrix {
    /// The weights `[inputs, outputs]`, rounded to binary16. Refuses what is not finite then.
    pub fn new(
        name: &str,
        inputs: usize,
        outputs: usize,
        values: &[f32],
    ) -> Result<Self, QuantError> {
        let refuse = |reason| Err(QuantError::Weights { linear: name.to_owned(), reason });
        if inputs == 0 || outputs == 0 || values.len() != inputs * outputs {
            return refuse(format!("{} values do not make {inputs} × {outputs}", values.len()));
        }
        if !inputs.is_multiple_of(MULTIPLE) || inputs > INPUTS_MAX {
            return refuse(format!(
                "{inputs} inputs; EXL2 stores multiples of {MULTIPLE} up to {INPUTS_MAX}"
            ));
        }
        let columns = outputs.next_multiple_of(MULTIPLE);
        let mut padded = vec![0.0; inputs * columns];
        for (input, (to, from)) in
            padded.chunks_exact_mut(columns).zip(values.chunks_exact(outputs)).enumerate()
        {
            for (output, (to, from)) in to.iter_mut().zip(from).enumerate() {
                *to = f16::from_f32(*from).to_f32();
                if !to.is_finite() {
                    return refuse(format!(
                        "{from} at output {output}, input {input}: binary16 holds finite numbers \
                         up to 65504"
                    ));
                }
            }
        }
        Ok(Self { name: name.to_owned(), inputs, outputs, columns, values: padded })
    }

    /// Values `[inputs, columns]` that are finite binary16 numbers, with whole columns.
    pub(crate) fn decoded(name: &str, outputs: usize, columns: usize, values: Vec<f32>) -> Self {
        let inputs = values.len() / columns.max(1);
        Self { name: name.to_owned(), inputs, outputs, columns, values }
    }

    /// The name of the linear.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Rows.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Outputs, padding excluded.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Outputs, padding included.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// All values, `[inputs, columns]`.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The values as an unquantised checkpoint stores them: binary16, `[outputs, inputs]`.
    pub fn plain(&self) -> Vec<f16> {
        let mut plain = Vec::with_capacity(self.inputs * self.outputs);
        for output in 0..self.outputs {
            let column = self.values.iter().skip(output).step_by(self.columns);
            plain.extend(column.map(|value| f16::from_f32(*value)));
        }
        plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_rounded_and_columns_filled_up() {
        let values: Vec<f32> = (0..32 * 3).map(|idx| idx as f32 + 1e-4).collect();
        let weights = WeightMatrix::new("w", 32, 3, &values).unwrap();
        assert_eq!((weights.columns(), weights.values().len()), (32, 32 * 32));
        assert_eq!(weights.values()[32..37], [3.0, 4.0, 5.0, 0.0, 0.0]);
        let plain: Vec<f32> = weights.plain().into_iter().map(f16::to_f32).collect();
        assert_eq!(plain[..3], [0.0, 3.0, 6.0].map(|x: f32| f16::from_f32(x + 1e-4).to_f32()));
        assert_eq!(plain.len(), 96);
    }

    #[test]
    fn what_binary16_cannot_hold_is_refused_by_name_and_place() {
        for bad in [f32::NAN, f32::INFINITY, 65520.0, -1e9] {
            let mut values = vec![0.5; 32 * 8];
            values[8 * 5 + 2] = bad;
            let error = WeightMatrix::new("layers.3.q_proj", 32, 8, &values).unwrap_err();
            let message = error.to_string();
            assert!(message.contains("layers.3.q_proj"), "{message}");
            assert!(message.contains("output 2, input 5"), "{message}");
        }
        assert!(WeightMatrix::new("w", 32, 8, &[65504.0; 256]).is_ok());
    }

    #[test]
    fn shapes_that_the_format_does_not_have_are_refused() {
        for (inputs, outputs, len) in [(33, 8, 264), (0, 8, 0), (32, 8, 255), (1 << 17, 1, 1 << 17)]
        {
            assert!(WeightMatrix::new("w", inputs, outputs, &vec![0.0; len]).is_err());
        }
    }
}
