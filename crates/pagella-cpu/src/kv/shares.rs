//! Planes that several tasks write at once, each its own slots.

use super::code::Bits;
use super::layer::Store;
use super::plane::Plane;
use crate::threads::Shares;

/// A plane, to be written by several tasks.
pub(super) struct PlaneShares<'a> {
    bytes: Shares<'a, u8>,
    slot_bytes: usize,
    heads: usize,
}

impl<'a> PlaneShares<'a> {
    pub(super) fn new(plane: &'a mut Plane, heads: usize) -> Self {
        let slot_bytes = plane.slot_bytes;
        PlaneShares { bytes: Shares::new(&mut plane.bytes), slot_bytes, heads }
    }

    /// Start of a slot.
    ///
    /// # Safety
    /// The slot belongs to the caller's task alone.
    pub(super) unsafe fn slot(&self, page: usize, head: usize) -> *mut u8 {
        let start = (page * self.heads + head) * self.slot_bytes;
        // SAFETY: disjoint by the caller, in bounds by the assertion inside.
        unsafe { self.bytes.part(start..start + self.slot_bytes).as_mut_ptr() }
    }
}

/// Keys or values, to be written by several tasks.
pub(super) struct StoreShares<'a> {
    pub(super) elements: PlaneShares<'a>,
    /// Width of the codes and their scales.
    pub(super) code: Option<(Bits, PlaneShares<'a>)>,
}

impl<'a> StoreShares<'a> {
    pub(super) fn new(store: &'a mut Store, heads: usize) -> Self {
        let scales = |(bits, plane): &'a mut (Bits, Plane)| (*bits, PlaneShares::new(plane, heads));
        StoreShares {
            elements: PlaneShares::new(&mut store.elements, heads),
            code: store.code.as_mut().map(scales),
        }
    }
}
