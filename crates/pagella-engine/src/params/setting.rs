//! Scalars of [`SampleOptions`](super::SampleOptions) as numbers and back.

use crate::sample::{NanPolicy, PenaltyScope, Rng, XtcMode};

/// A scalar that a row of the table reads and writes.
pub(crate) trait Setting {
    /// As a number.
    fn number(&self) -> f64;
    /// From a number, which was checked or is the type's own.
    fn take(&mut self, number: f64);
}

impl Setting for f32 {
    fn number(&self) -> f64 {
        f64::from(*self)
    }

    fn take(&mut self, number: f64) {
        *self = number as f32;
    }
}

impl Setting for usize {
    fn number(&self) -> f64 {
        *self as f64
    }

    fn take(&mut self, number: f64) {
        *self = number as usize;
    }
}

impl Setting for bool {
    fn number(&self) -> f64 {
        f64::from(*self)
    }

    fn take(&mut self, number: f64) {
        *self = number > 0.0;
    }
}

/// A count that may be without bound: then −1.
impl Setting for Option<usize> {
    fn number(&self) -> f64 {
        self.map_or(-1.0, |count| count as f64)
    }

    fn take(&mut self, number: f64) {
        *self = (number >= 0.0).then_some(number as usize);
    }
}

/// A weight of the first of two prompts: without a second, 1.
impl Setting for Option<f32> {
    fn number(&self) -> f64 {
        self.map_or(1.0, f64::from)
    }

    fn take(&mut self, number: f64) {
        *self = (number != 1.0).then_some(number as f32);
    }
}

/// Words, in the order of their row.
macro_rules! words {
    ($($type:ident: $($word:ident),+;)+) => {$(
        impl Setting for $type {
            fn number(&self) -> f64 {
                f64::from(*self as u8)
            }

            fn take(&mut self, number: f64) {
                let all = [$($type::$word),+];
                *self = all.get(number as usize).copied().unwrap_or_default();
            }
        }
    )+};
}

words! {
    PenaltyScope: All, Output, Prompt;
    NanPolicy: Error, Mask;
    Rng: Philox, Mt19937;
    XtcMode: Mixture, Draw;
}
