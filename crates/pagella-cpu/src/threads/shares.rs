//! `Shares`: a slice that several pieces write, each its own part.

/// A slice that several pieces write, each its own part.
pub(crate) struct Shares<'a, T> {
    start: *mut T,
    len: usize,
    _owner: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: access goes through `part`, whose callers keep the parts of different pieces disjoint.
unsafe impl<T: Send> Sync for Shares<'_, T> {}

impl<'a, T> Shares<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Shares { start: slice.as_mut_ptr(), len: slice.len(), _owner: std::marker::PhantomData }
    }

    /// The first of the elements `range`. The pointer may go on to other elements of the slice.
    pub(crate) fn pointer(&self, range: std::ops::Range<usize>) -> *mut T {
        assert!(range.start <= range.end && range.end <= self.len, "part outside the slice");
        // SAFETY: in bounds by the assertion.
        unsafe { self.start.add(range.start) }
    }

    /// The elements `range`.
    ///
    /// # Safety
    /// No two live parts may overlap.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn part(&self, range: std::ops::Range<usize>) -> &mut [T] {
        // SAFETY: in bounds by `pointer`, disjoint by the caller, alive by the phantom borrow.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(range.clone()), range.len()) }
    }
}
