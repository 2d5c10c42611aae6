//! What a device has given out of its memory, and how much it may give.
//!
//! Weights, activations and caches hold a [`Claim`] each, which returns its bytes when they go. So
//! several devices can be made of one machine, each with a share of its memory that really ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pagella_backend::BackendError;

/// The memory of a CPU device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuMemory {
    /// All that it may give; `None`: whatever the machine has.
    pub limit_bytes: Option<u64>,
    /// What is given out now.
    pub taken_bytes: u64,
    /// How much was missing when it last refused; 0 if it never has.
    pub missed_bytes: u64,
}

/// The books of one device.
#[derive(Debug)]
pub(crate) struct Account {
    limit_bytes: u64,
    taken_bytes: AtomicU64,
    missed_bytes: AtomicU64,
}

impl Account {
    pub(crate) fn new(limit_bytes: Option<u64>) -> Arc<Self> {
        let limit_bytes = limit_bytes.unwrap_or(u64::MAX);
        Arc::new(Account { limit_bytes, taken_bytes: 0.into(), missed_bytes: 0.into() })
    }

    pub(crate) fn memory(&self) -> CpuMemory {
        CpuMemory {
            limit_bytes: Some(self.limit_bytes).filter(|bytes| *bytes < u64::MAX),
            taken_bytes: self.taken_bytes.load(Ordering::Relaxed),
            missed_bytes: self.missed_bytes.load(Ordering::Relaxed),
        }
    }

    /// Takes `bytes`, or says that they are not there.
    pub(crate) fn claim(
        self: &Arc<Self>,
        bytes: usize,
        what: &'static str,
    ) -> Result<Claim, BackendError> {
        let mut claim = Claim { account: Some(self.clone()), bytes: 0 };
        claim.grow_to(bytes, what)?;
        Ok(claim)
    }

    fn take(&self, bytes: u64) -> Result<(), u64> {
        let add = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= self.limit_bytes);
        let taken = self.taken_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        taken.map(drop).map_err(|taken| taken.saturating_add(bytes) - self.limit_bytes)
    }
}

/// Bytes of an account, until it is dropped. The default is none, of no account.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    account: Option<Arc<Account>>,
    bytes: u64,
}

impl Claim {
    /// A claim of nothing that can grow.
    pub(crate) fn empty(account: &Arc<Account>) -> Self {
        Claim { account: Some(account.clone()), bytes: 0 }
    }

    /// Has it hold at least `bytes`.
    pub(crate) fn grow_to(&mut self, bytes: usize, what: &'static str) -> Result<(), BackendError> {
        let more = (bytes as u64).saturating_sub(self.bytes);
        if let (Some(account), true) = (&self.account, more > 0) {
            account.take(more).map_err(|missed| {
                account.missed_bytes.store(missed, Ordering::Relaxed);
                BackendError::OutOfMemory { what, bytes }
            })?;
            self.bytes += more;
        }
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.taken_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_end_at_the_limit_and_come_back() {
        let account = Account::new(Some(100));
        let mut first = account.claim(60, "test").unwrap();
        assert!(account.claim(41, "test").is_err());
        assert_eq!(
            account.memory(),
            CpuMemory { limit_bytes: Some(100), taken_bytes: 60, missed_bytes: 1 }
        );
        let second = account.claim(40, "test").unwrap();
        assert!(first.grow_to(61, "test").is_err());
        drop(second);
        first.grow_to(100, "test").unwrap();
        first.grow_to(7, "test").unwrap();
        assert_eq!(account.memory().taken_bytes, 100);
        drop(first);
        assert_eq!(account.memory().taken_bytes, 0);
        assert!(account.claim(usize::MAX, "test").is_err());
        assert!(Account::new(None).claim(1 << 40, "test").is_ok());
    }
}
