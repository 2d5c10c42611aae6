//! Tests of the vector levels.
