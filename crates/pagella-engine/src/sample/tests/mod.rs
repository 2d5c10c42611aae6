//! Tests of the whole sampler.
