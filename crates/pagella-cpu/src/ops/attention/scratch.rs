//! Memory that a thread keeps between calls, so that a step allocates nothing once warm.

use std::cell::RefCell;

/// Elements in a cache line.
const LINE: usize = 16;

thread_local! {
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Lends `len` elements that start on a cache line; contents are left over from earlier uses.
pub(in crate::ops) fn with_scratch<R>(len: usize, use_it: impl FnOnce(&mut [f32]) -> R) -> R {
    SCRATCH.with_borrow_mut(|memory| {
        if memory.len() < len + LINE {
            memory.resize(len + LINE, 0.0);
        }
        let start = memory.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE);
        use_it(&mut memory[start..start + len])
    })
}
