//! Places a job can go back to, and what it must not choose there again.
//!
//! A point is kept for every id that may still turn out to begin a banned string. It holds the row of
//! logits, so going back costs no computation. What is denied at a position is remembered as long as
//! the position can be revisited.

use std::collections::{BTreeMap, VecDeque};

use crate::job::ConstraintSlot;
use crate::job::text::TextPoint;
use crate::sample::SamplerState;

/// The state of a job before it chose the id at position `len`.
pub(crate) struct RestorePoint {
    /// Ids of the first sequence, prompt included.
    pub len: usize,
    pub text: TextPoint,
    pub sampler: SamplerState,
    /// As the model gave it. Shape `[vocab]`.
    pub logits: Vec<f32>,
    pub new_tokens: usize,
    pub healing_bytes: usize,
    /// The constraint while it heals, since it may be gone later.
    pub healing: Option<ConstraintSlot>,
}

/// The places a job can go back to, oldest first.
#[derive(Default)]
pub(crate) struct RestorePoints {
    points: VecDeque<RestorePoint>,
    /// Ids that led to a banned string, by position.
    denied: BTreeMap<usize, Vec<u32>>,
    /// How often the job went back.
    pub rewinds: u32,
}

impl RestorePoints {
    pub fn push(&mut self, point: RestorePoint) {
        self.points.push_back(point);
    }

    /// Drops everything before position `len`, which is settled.
    pub fn settle(&mut self, len: usize) {
        while self.points.front().is_some_and(|point| point.len < len) {
            self.points.pop_front();
        }
        self.denied = self.denied.split_off(&len);
    }

    /// Whether the job can go back to position `len`.
    pub fn has(&self, len: usize) -> bool {
        self.points.iter().any(|point| point.len == len)
    }

    /// Takes the point at position `len` and drops all later ones. `None` if it is settled.
    pub fn take(&mut self, len: usize) -> Option<RestorePoint> {
        while self.points.back().is_some_and(|point| point.len > len) {
            self.points.pop_back();
        }
        self.denied.split_off(&(len + 1));
        match self.points.back() {
            Some(point) if point.len == len => self.points.pop_back(),
            _ => None,
        }
    }

    /// Remembers that `id` must not be chosen at position `len`.
    pub fn deny(&mut self, len: usize, id: u32) {
        self.denied.entry(len).or_default().push(id);
    }

    /// Allows every id at position `len` again.
    pub fn allow_all(&mut self, len: usize) {
        self.denied.remove(&len);
    }

    /// Ids that must not be chosen at position `len`.
    pub fn denied(&self, len: usize) -> &[u32] {
        self.denied.get(&len).map_or(&[], Vec::as_slice)
    }
}
