//! From a link on the terminal to a key in the browser: a code that is good once, for ten minutes.
//!
//! Whoever reads the terminal of the server is its administrator. The code travels in the part of the
//! link that browsers do not send; the page exchanges it for a key that lives as long as the process.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use blake2::digest::consts::U32;
use blake2::{Blake2b, Digest};
use http::HeaderMap;
use subtle::ConstantTimeEq;

use crate::auth::{Caller, Key, Keys, Role};
use crate::wire::id::random_u128;

/// How long a code is good.
pub const CODE_LIFE: Duration = Duration::from_secs(600);
/// The name of keys that were given for a code, in logs and lists.
const KEY_NAME: &str = "terminal";

struct Code {
    digest: [u8; 32],
    until: Instant,
    used: bool,
}

/// What a code is good for.
#[derive(Debug, PartialEq)]
pub enum Redeemed {
    /// This key.
    Key(String),
    /// Nothing: somebody has its key.
    Used,
    /// Nothing: it was good for [`CODE_LIFE`].
    Old,
    /// Nothing: it is not the one that was offered.
    Unknown,
}

#[derive(Default)]
struct State {
    code: Option<Code>,
    keys: Option<Keys>,
}

/// The code that can be exchanged, and keys that were given for earlier ones.
#[derive(Default)]
pub struct Exchange {
    state: Mutex<State>,
}

fn digest(text: &str) -> [u8; 32] {
    Blake2b::<U32>::digest(text.as_bytes()).into()
}

impl Exchange {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new code, in place of the one before.
    pub fn offer(&self, now: Instant) -> String {
        let code = format!("{:032x}", random_u128());
        self.state().code =
            Some(Code { digest: digest(&code), until: now + CODE_LIFE, used: false });
        code
    }

    /// A key for the code that was offered, once.
    pub fn redeem(&self, given: &str, now: Instant) -> Redeemed {
        let mut state = self.state();
        let is_it = |code: &&mut Code| bool::from(code.digest.ct_eq(&digest(given)));
        match state.code.as_mut().filter(is_it) {
            None => return Redeemed::Unknown,
            Some(code) if code.used => return Redeemed::Used,
            Some(code) if now >= code.until => return Redeemed::Old,
            Some(code) => code.used = true,
        }
        let secret = format!("{:032x}", random_u128());
        let key = Key::new(KEY_NAME, Role::Admin);
        state.keys.get_or_insert_with(Keys::none).add(&secret, key);
        Redeemed::Key(secret)
    }

    /// Who sent these headers, if the key in them was given for a code.
    pub fn identify(&self, headers: &HeaderMap, now: SystemTime) -> Option<Caller> {
        self.state().keys.as_ref()?.identify(headers, now).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(secret: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("x-api-key", secret.parse().unwrap());
        headers
    }

    #[test]
    fn a_code_is_good_once() {
        let (exchange, now) = (Exchange::default(), Instant::now());
        assert_eq!(exchange.redeem("", now), Redeemed::Unknown);
        let code = exchange.offer(now);
        assert_eq!(code.len(), 32);
        assert_eq!(exchange.redeem("0123", now), Redeemed::Unknown, "another code");
        let Redeemed::Key(secret) = exchange.redeem(&code, now) else { panic!("no key") };
        assert_eq!(exchange.redeem(&code, now), Redeemed::Used);
        assert_eq!(exchange.redeem("0123", now), Redeemed::Unknown);
        let caller = exchange.identify(&headers(&secret), SystemTime::now()).unwrap();
        assert_eq!(caller.role(), Role::Admin);
        assert!(exchange.identify(&headers(&code), SystemTime::now()).is_none());
    }

    #[test]
    fn a_code_is_good_for_ten_minutes() {
        let (exchange, now) = (Exchange::default(), Instant::now());
        let code = exchange.offer(now);
        assert_eq!(exchange.redeem(&code, now + CODE_LIFE), Redeemed::Old);
        let code = exchange.offer(now);
        let last = now + CODE_LIFE - Duration::from_secs(1);
        assert!(matches!(exchange.redeem(&code, last), Redeemed::Key(_)));
    }

    #[test]
    fn a_new_code_ends_the_one_before() {
        let (exchange, now) = (Exchange::default(), Instant::now());
        let old = exchange.offer(now);
        let new = exchange.offer(now);
        assert_eq!(exchange.redeem(&old, now), Redeemed::Unknown);
        assert!(matches!(exchange.redeem(&new, now), Redeemed::Key(_)));
    }
}
