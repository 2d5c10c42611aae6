//! Spec, weights and a backend become a model; the forward pass, written once.
