//! Cases every backend must pass, against f64 references.
