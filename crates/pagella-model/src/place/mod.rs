//! Placement: which layers of a model go to which device, decided before anything is loaded.
//!
//! A plan is plain data and a pure function of sizes: those of the model's parts
//! ([`PartSizes`], from headers) and those of the devices ([`Room`]). Devices are filled in their
//! order, with neighbouring layers each; the embedding goes with the first layer, and the head with the
//! last one or to a device of its own. Keys and values lie with their layers, so the cache is part of
//! the plan: it is as long as was asked for, or takes what is left.
//!
//! What must always hold: what a plan says of a device is at most what the device has; no other way to
//! cut the model in this order has a longer cache.

mod fill;
mod plan;
mod sizes;
#[cfg(test)]
mod tests;

pub use plan::{Beside, NoRoom, PagesWanted, PlacedPart, Placement, Room, Tail, place};
pub use sizes::{LayerSizes, PartSizes, RunSizes};
