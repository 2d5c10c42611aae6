//! The limits of one rendering, and the account of what it has used.
//! A limit that is hit is remembered, so that the error can name it whatever the template does.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

/// Most tokens between two braces; bounds how deep an expression can nest.
pub(super) const EXPRESSION_TOKENS_MAX: usize = 4096;
/// Bytes that may be built or looked at altogether.
const WORK_BYTES_MAX: u64 = 1 << 30;
/// Longest list a template may build.
pub(super) const LIST_ITEMS_MAX: usize = 1 << 20;
/// Most items that are counted when a value is weighed.
const WEIGHED_ITEMS_MAX: usize = 1 << 20;
/// Deepest nesting of values a template may build, print or serialise.
pub(super) const DEPTH_MAX: usize = 64;

/// How much a template may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TemplateLimits {
    /// Longest source in bytes; the longest published ones have about 30 kB.
    pub source_bytes_max: usize,
    /// Most steps of the template machine in one rendering; a long conversation needs some hundred
    /// thousand.
    pub steps_max: u64,
    /// Longest output in bytes, and longest string that may be built on the way.
    pub output_bytes_max: usize,
    /// Deepest nesting of macro calls, at most [`TemplateLimits::RECURSION_MAX`].
    pub recursion_max: usize,
    /// Longest time one rendering may take.
    pub time_max: Duration,
}

impl TemplateLimits {
    /// Deepest nesting of macro calls that the stack of a rendering has room for.
    pub const RECURSION_MAX: usize = 80;
}

impl Default for TemplateLimits {
    fn default() -> Self {
        TemplateLimits {
            source_bytes_max: 1 << 20,
            steps_max: 2_000_000,
            output_bytes_max: 16 << 20,
            recursion_max: 64,
            time_max: Duration::from_secs(2),
        }
    }
}

/// A limit that was hit, with its value in its own unit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tripped {
    pub what: &'static str,
    pub limit: u64,
}

/// What one rendering may still use.
pub(super) struct Budget {
    limits: TemplateLimits,
    /// What the pass that runs may still write, to the output or to what captures it.
    output_left: AtomicUsize,
    work_left: AtomicU64,
    deadline: Instant,
    tripped: Mutex<Option<Tripped>>,
    refusal: Mutex<Option<String>>,
}

impl Budget {
    pub fn new(limits: TemplateLimits) -> Self {
        Self {
            limits,
            output_left: AtomicUsize::new(limits.output_bytes_max),
            work_left: AtomicU64::new(WORK_BYTES_MAX),
            deadline: Instant::now() + limits.time_max,
            tripped: Mutex::new(None),
            refusal: Mutex::new(None),
        }
    }

    /// Pays for looking at or building `bytes`.
    pub fn charge(&self, bytes: usize) -> Result<(), Error> {
        // One byte at least, so that endless empty work ends too.
        let cost = (bytes as u64).saturating_add(1);
        let paid = self
            .work_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(cost));
        if paid.is_err() {
            return Err(self.trip("work", WORK_BYTES_MAX));
        }
        self.tick()
    }

    /// Pays for a string of `len` bytes that is about to be built.
    pub fn build(&self, len: usize) -> Result<(), Error> {
        let most = self.limits.output_bytes_max;
        if len > most {
            return Err(self.trip("string size", most as u64));
        }
        self.charge(len)
    }

    /// A pass begins that may write so much.
    pub fn begin_output(&self, bytes: usize) {
        self.output_left.store(bytes, Ordering::Relaxed);
    }

    /// Pays for `len` bytes that are about to be written.
    pub fn write(&self, len: usize) -> Result<(), Error> {
        let left = &self.output_left;
        let paid = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(len));
        match paid {
            Ok(_) => self.charge(len),
            Err(_) => Err(self.trip("output", self.limits.output_bytes_max as u64)),
        }
    }

    pub fn limits(&self) -> &TemplateLimits {
        &self.limits
    }

    /// Pays for a list of `items` that is about to be built.
    pub fn build_list(&self, items: usize) -> Result<(), Error> {
        if items > LIST_ITEMS_MAX {
            return Err(self.trip("list size", LIST_ITEMS_MAX as u64));
        }
        self.charge(items)
    }

    /// Pays for handing values to a filter, function or method.
    pub fn charge_values(&self, values: &[Value]) -> Result<(), Error> {
        for value in values {
            self.charge(weight(value))?;
        }
        Ok(())
    }

    /// Ends the rendering when its time is over.
    pub fn tick(&self) -> Result<(), Error> {
        if Instant::now() > self.deadline {
            return Err(
                self.trip("time (in milliseconds)", self.limits.time_max.as_millis() as u64)
            );
        }
        Ok(())
    }

    /// Records the limit and makes the error that ends the rendering.
    pub fn trip(&self, what: &'static str, limit: u64) -> Error {
        *self.tripped.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Tripped { what, limit });
        Error::new(ErrorKind::InvalidOperation, format!("{what} limit of {limit} exceeded"))
    }

    /// Records what the template said when it refused its input.
    pub fn refuse(&self, message: String) -> Error {
        let error = Error::new(ErrorKind::InvalidOperation, message.clone());
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(message);
        error
    }

    pub fn tripped(&self) -> Option<Tripped> {
        *self.tripped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn refusal(&self) -> Option<String> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// All bytes and items inside a value, shared ones counted as often as they occur, since that is
/// what comparing or printing it walks over. Values too large to count weigh infinitely much.
pub(super) fn weight(value: &Value) -> usize {
    fn add(value: &Value, depth: usize, nodes_left: &mut usize) -> usize {
        let own = size(value);
        if !matches!(value.kind(), ValueKind::Seq | ValueKind::Map) {
            return own;
        }
        if depth > DEPTH_MAX || *nodes_left < own {
            return usize::MAX;
        }
        *nodes_left -= own;
        let Ok(items) = value.try_iter() else { return own };
        let mut total = own;
        for item in items {
            total = total.saturating_add(add(&item, depth + 1, nodes_left));
            if value.kind() == ValueKind::Map
                && let Ok(child) = value.get_item(&item)
            {
                total = total.saturating_add(add(&child, depth + 1, nodes_left));
            }
        }
        total
    }
    add(value, 0, &mut { WEIGHED_ITEMS_MAX })
}

/// Bytes of a string, items of a list; the value itself without what is inside it.
pub(super) fn size(value: &Value) -> usize {
    match value.kind() {
        ValueKind::String => value.as_str().map_or(0, str::len),
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => value.len().unwrap_or(1),
        _ => 1,
    }
}
