//! Vectors as they are written: cut, of length one, as numbers or as bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::wire::error::{ApiError, Code};

/// How numbers are written.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// A list.
    Float,
    /// Base64 of little-endian f32.
    Base64,
}

/// How vectors are written.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How numbers are written.
    pub encoding: Encoding,
    /// Only so many of them.
    pub dimensions: Option<usize>,
    /// Of length one.
    pub normalize: bool,
}

/// A vector as it is sent.
pub fn shaped(mut vector: Vec<f32>, shape: Shape) -> Result<Value, ApiError> {
    vector.truncate(shape.dimensions.unwrap_or(vector.len()));
    if vector.iter().any(|value| !value.is_finite()) {
        let message = "the model computed something that is not a number";
        return Err(ApiError::new(Code::NumericError, message));
    }
    if shape.normalize {
        let square: f64 = vector.iter().map(|value| f64::from(*value).powi(2)).sum();
        // A vector of zeros has no direction and stays as it is.
        let inverse = if square > 0.0 { square.sqrt().recip() } else { 0.0 };
        vector.iter_mut().for_each(|value| *value = (f64::from(*value) * inverse) as f32);
    }
    Ok(match shape.encoding {
        Encoding::Float => vector.into(),
        Encoding::Base64 => {
            let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
            STANDARD.encode(bytes).into()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PLAIN: Shape = Shape { encoding: Encoding::Float, dimensions: None, normalize: false };

    #[test]
    fn vectors_are_cut_before_they_get_length_one() {
        let vector = vec![3.0, 4.0, 12.0];
        assert_eq!(shaped(vector.clone(), PLAIN).unwrap(), json!([3.0, 4.0, 12.0]));
        let shape = Shape { dimensions: Some(2), normalize: true, ..PLAIN };
        assert_eq!(shaped(vector.clone(), shape).unwrap(), json!([0.6f32, 0.8f32]));
        let bytes = Shape { encoding: Encoding::Base64, ..PLAIN };
        assert_eq!(shaped(vector, bytes).unwrap(), "AABAQAAAgEAAAEBB");
        let zero = Shape { normalize: true, ..PLAIN };
        assert_eq!(shaped(vec![0.0, 0.0], zero).unwrap(), json!([0.0, 0.0]));
    }

    #[test]
    fn what_is_no_number_is_an_error() {
        for value in [f32::NAN, f32::INFINITY] {
            assert_eq!(shaped(vec![1.0, value], PLAIN).unwrap_err().code, Code::NumericError);
        }
    }
}
