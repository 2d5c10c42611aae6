//! Everything between the linears: one file per op, with the mirror of its kernel's arguments.

pub(crate) mod activate;
pub(crate) mod adapt;
pub(crate) mod append;
pub(crate) mod append_latent;
pub(crate) mod attend;
pub(crate) mod embed;
pub(crate) mod guess;
pub(crate) mod heads;
pub(crate) mod logits;
pub(crate) mod narrow;
pub(crate) mod norm;
pub(crate) mod rope;
