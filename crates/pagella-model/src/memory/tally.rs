//! The books kept while linears are found or laid out.

use pagella_arch::MoeSpec;
use pagella_formats::{Linear, LinearKind};

use super::{KindShare, MemoryReport, WeightShare};
use crate::weights::LinearUse;

/// What a token does not read of a layer's experts, which take `bytes` together.
pub(crate) fn idle_bytes(moe: &MoeSpec, bytes: u64) -> u64 {
    let experts = moe.experts.len() as u64;
    let idle = experts.saturating_sub(moe.experts_per_token as u64);
    bytes * idle / experts.max(1)
}

/// Sums over what was laid out so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Bytes in the backend's layout.
    pub device_bytes: u64,
    /// Bytes of tables that stay mapped.
    pub mapped_bytes: u64,
    /// Bytes in the backend's layout that a token does not read.
    pub idle_bytes: u64,
    layers: WeightShare,
    head: WeightShare,
    kinds: Vec<KindShare>,
}

impl Tally {
    /// Counts a linear that takes `device_bytes` in the backend's layout.
    pub(crate) fn add_linear(&mut self, linear: &Linear<'_>, usage: LinearUse, device_bytes: u64) {
        let params = linear.in_features() as u64 * linear.out_features() as u64;
        self.add(linear.kind(), usage, params, linear.weight_bytes());
        self.device_bytes += device_bytes;
    }

    /// Counts a linear by its numbers.
    pub(crate) fn add(&mut self, kind: LinearKind, usage: LinearUse, params: u64, bytes: u64) {
        match usage {
            LinearUse::Layer | LinearUse::Router => self.layers.add(params, bytes),
            LinearUse::Head => self.head.add(params, bytes),
        }
        let known = self.kinds.iter().position(|share| share.kind == kind);
        let index = known.unwrap_or_else(|| {
            self.kinds.push(KindShare { kind, count: 0, share: WeightShare::default() });
            self.kinds.len() - 1
        });
        if let Some(entry) = self.kinds.get_mut(index) {
            entry.count += 1;
            entry.share.add(params, bytes);
        }
    }

    /// The report, with the given scratch.
    pub(crate) fn report(self, scratch_bytes: u64) -> MemoryReport {
        MemoryReport {
            weights_bytes: self.device_bytes,
            token_bytes: self.device_bytes.saturating_sub(self.idle_bytes),
            mapped_bytes: self.mapped_bytes,
            scratch_bytes,
            layers: self.layers,
            head: self.head,
            kinds: self.kinds,
        }
    }
}
