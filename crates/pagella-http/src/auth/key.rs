//! Keys in memory, and finding the one that a request carries.

use std::sync::Arc;
use std::time::SystemTime;

use blake2::digest::consts::U32;
use blake2::digest::{KeyInit, Mac};
use blake2::{Blake2b, Blake2bMac, Digest};
use http::{HeaderMap, header};
use subtle::{Choice, ConstantTimeEq};

use crate::wire::error::{ApiError, Code};
use crate::wire::id::random_bytes;

/// What a key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Ask the model.
    Api,
    /// Everything.
    Admin,
}

impl Role {
    /// The name in files and answers.
    pub fn name(self) -> &'static str {
        match self {
            Role::Api => "api",
            Role::Admin => "admin",
        }
    }
}

/// With whom a key shares cached pages, where keys are kept apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheScope {
    /// With nobody.
    Own,
    /// With everyone who says so.
    Shared,
    /// With the keys of the same group.
    Group(String),
}

/// A key without its secret.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// For logs and lists; unique.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// Requests that run at once; 0 is any number.
    pub max_concurrent: usize,
    /// Requests that wait.
    pub max_queued: usize,
    /// Most tokens of an answer; 0 is any number.
    pub max_tokens: usize,
    /// Tokens per minute, prompt and answer; 0 is any number.
    pub tokens_per_minute: u64,
    /// Which models it sees; `*` stands for any text.
    pub models: Vec<String>,
    /// Added to the priority of its requests.
    pub priority: i32,
    /// With whom it shares cached pages.
    pub cache: CacheScope,
    /// When it ends.
    pub expires: Option<SystemTime>,
}

impl Key {
    /// A key without limits.
    pub fn new(name: impl Into<String>, role: Role) -> Self {
        Key {
            name: name.into(),
            role,
            max_concurrent: 0,
            max_queued: 256,
            max_tokens: 0,
            tokens_per_minute: 0,
            models: vec!["*".to_owned()],
            priority: 0,
            cache: CacheScope::Own,
            expires: None,
        }
    }

    /// Whether a model is among those it sees.
    pub fn sees(&self, model: &str) -> bool {
        self.models.iter().any(|pattern| glob(pattern.as_bytes(), model.as_bytes()))
    }
}

/// Whether `text` matches a pattern in which `*` stands for any text.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    // Where the last `*` was, and how much of the text it takes.
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(byte) if *byte == text[t] => (p, t) = (p + 1, t + 1),
            _ => match &mut star {
                Some((at, taken)) => {
                    *taken += 1;
                    (p, t) = (*at + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// Who asks.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The key; a made-up one where keys are not asked for.
    pub key: Arc<Key>,
}

impl Caller {
    /// Whoever comes, where keys are not asked for.
    pub fn open() -> Self {
        Caller { key: Arc::new(Key::new("open", Role::Admin)) }
    }

    /// Whoever comes, on routes that are public.
    pub fn nobody() -> Self {
        Caller { key: Arc::new(Key::new("-", Role::Api)) }
    }

    /// What the caller may do.
    pub fn role(&self) -> Role {
        self.key.role
    }
}

/// Whether headers name a key, right or wrong.
pub fn carries_key(headers: &HeaderMap) -> bool {
    [header::AUTHORIZATION.as_str(), "x-api-key", "x-admin-key"]
        .into_iter()
        .any(|name| headers.contains_key(name))
}

struct Entry {
    digest: [u8; 32],
    key: Arc<Key>,
}

/// All keys. Secrets are kept as digests under a key of this process.
pub struct Keys {
    process_key: [u8; 32],
    entries: Vec<Entry>,
}

impl Keys {
    /// No key at all.
    pub fn none() -> Self {
        Keys { process_key: random_bytes(), entries: Vec::new() }
    }

    /// Adds a key by its secret.
    pub fn add(&mut self, secret: &str, key: Key) {
        self.add_hashed(Blake2b::<U32>::digest(secret.as_bytes()).into(), key);
    }

    /// Adds a key by the BLAKE2b-256 hash of its secret.
    pub fn add_hashed(&mut self, hash: [u8; 32], key: Key) {
        let digest = self.digest(&hash);
        self.entries.push(Entry { digest, key: Arc::new(key) });
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn digest(&self, hash: &[u8; 32]) -> [u8; 32] {
        let mac = Blake2bMac::<U32>::new_from_slice(&self.process_key);
        let mut mac = mac.expect("32 bytes are a key of BLAKE2b");
        mac.update(hash);
        mac.finalize().into_bytes().into()
    }

    /// The entry of a secret. Looks at every entry and every byte, whatever matches.
    fn find(&self, secret: &str) -> Option<&Arc<Key>> {
        let digest = self.digest(&Blake2b::<U32>::digest(secret.as_bytes()).into());
        let mut found = None;
        for (idx, entry) in self.entries.iter().enumerate() {
            let same: Choice = entry.digest.ct_eq(&digest);
            if bool::from(same) {
                found = Some(idx);
            }
        }
        found.map(|idx| &self.entries[idx].key)
    }

    /// Who sent these headers. With several keys the highest role counts; a key that is wrong does
    /// not spoil one that is right.
    pub fn identify(&self, headers: &HeaderMap, now: SystemTime) -> Result<Caller, ApiError> {
        let bearer = headers.get_all(header::AUTHORIZATION).iter().filter_map(|value| {
            let (scheme, secret) = value.to_str().ok()?.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
        });
        let named = ["x-api-key", "x-admin-key"].into_iter();
        let named = named.flat_map(|name| headers.get_all(name).iter());
        let given: Vec<&str> =
            bearer.chain(named.filter_map(|value| value.to_str().ok())).collect();
        if given.is_empty() {
            let message = "this route needs a key: send it as `Authorization: Bearer KEY`";
            return Err(ApiError::new(Code::MissingApiKey, message));
        }
        let found: Vec<&Arc<Key>> = given.iter().filter_map(|secret| self.find(secret)).collect();
        let is_valid = |key: &&&Arc<Key>| key.expires.is_none_or(|expires| now < expires);
        match found.iter().filter(is_valid).max_by_key(|key| key.role) {
            Some(key) => Ok(Caller { key: Arc::clone(key) }),
            None if found.is_empty() => {
                let message = "the key is not known here: check it, or ask who runs the server";
                Err(ApiError::new(Code::InvalidApiKey, message))
            }
            None => {
                let message = "the key has expired: ask who runs the server for a new one";
                Err(ApiError::new(Code::KeyExpired, message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        list.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn keys() -> Keys {
        let mut keys = Keys::none();
        keys.add("api-secret", Key::new("alice", Role::Api));
        keys.add("admin-secret", Key::new("root", Role::Admin));
        let past = SystemTime::now() - Duration::from_secs(1);
        keys.add("old-secret", Key { expires: Some(past), ..Key::new("old", Role::Admin) });
        keys
    }

    fn who(list: &[(&'static str, &str)]) -> Result<String, Code> {
        let found = keys().identify(&headers(list), SystemTime::now());
        found.map(|caller| caller.key.name.clone()).map_err(|error| error.code)
    }

    #[test]
    fn the_role_belongs_to_the_key_and_not_to_the_header() {
        for name in ["x-api-key", "x-admin-key"] {
            assert_eq!(who(&[(name, "api-secret")]).as_deref(), Ok("alice"));
            assert_eq!(who(&[(name, "admin-secret")]).as_deref(), Ok("root"));
        }
        assert_eq!(who(&[("authorization", "bEaReR api-secret")]).as_deref(), Ok("alice"));
        let both = [("x-api-key", "api-secret"), ("authorization", "Bearer admin-secret")];
        assert_eq!(who(&both).as_deref(), Ok("root"));
        let one_wrong = [("x-api-key", "api-secret"), ("x-admin-key", "wrong")];
        assert_eq!(who(&one_wrong).as_deref(), Ok("alice"));
    }

    #[test]
    fn what_is_no_key_is_told_apart() {
        assert_eq!(who(&[]), Err(Code::MissingApiKey));
        assert_eq!(who(&[("authorization", "Basic api-secret")]), Err(Code::MissingApiKey));
        assert_eq!(who(&[("x-api-key", "")]), Err(Code::InvalidApiKey));
        assert_eq!(who(&[("x-api-key", "api-secre")]), Err(Code::InvalidApiKey));
        assert_eq!(who(&[("x-api-key", "old-secret")]), Err(Code::KeyExpired));
    }

    /// The comparison is of digests under a random key, so how many leading bytes of a guess are
    /// right has no influence on where the first difference of the compared bytes is.
    #[test]
    fn key_compare_constant_time() {
        let keys = keys();
        let digest = |text: &str| keys.digest(&Blake2b::<U32>::digest(text.as_bytes()).into());
        let stored = digest("api-secret");
        for guess in ["api-secreX", "api-secXXX", "aXXXXXXXXX", "XXXXXXXXXX", "a", ""] {
            let same = digest(guess).iter().zip(&stored).filter(|(a, b)| a == b).count();
            assert!(same < 8, "{guess}: {same} of 32 bytes agree");
        }
        assert_ne!(Keys::none().digest(&[0; 32]), Keys::none().digest(&[0; 32]));
    }

    /// Nanoseconds that `compare` takes, in two classes that come in random order.
    fn times(samples: usize, mut compare: impl FnMut(bool)) -> [Vec<f64>; 2] {
        let (mut classes, mut random) = ([Vec::new(), Vec::new()], 0x9e37_79b9_7f4a_7c15_u64);
        for _ in 0..samples {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let late = random >> 63 == 1;
            let begun = std::time::Instant::now();
            compare(late);
            classes[usize::from(late)].push(begun.elapsed().as_nanos() as f64);
        }
        classes
    }

    /// Welch's t between two classes of times, without the slowest tenth: those were interrupted.
    fn welch(classes: &[Vec<f64>; 2]) -> f64 {
        let mut all: Vec<f64> = classes.concat();
        all.sort_by(f64::total_cmp);
        let most = all[all.len() * 9 / 10];
        let [a, b] = classes.each_ref().map(|times| {
            let kept: Vec<f64> = times.iter().copied().filter(|time| *time <= most).collect();
            let n = kept.len() as f64;
            let mean = kept.iter().sum::<f64>() / n;
            let spread = kept.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / (n - 1.0);
            (mean, spread / n)
        });
        (a.0 - b.0).abs() / (a.1 + b.1).sqrt()
    }

    /// How long a wrong guess takes does not tell how much of it is right. Classes come in random
    /// order, so a busy machine disturbs both alike; a true difference shows in every attempt.
    #[test]
    #[ignore = "a measurement: run it alone on a quiet machine"]
    fn key_compare_constant_time_by_statistics() {
        const SAMPLES: usize = 1_000_000;
        const LEAKS: f64 = 10.0;
        let mut keys = Keys::none();
        for i in 0..100 {
            keys.add(&format!("secret-of-a-key-{i:03}"), Key::new("k", Role::Api));
        }
        let find = |late: bool| {
            let guess = if late { "secret-of-a-key-00X" } else { "Xecret-of-a-key-000" };
            assert!(keys.find(std::hint::black_box(guess)).is_none());
        };
        let tells_nothing = (0..3).any(|_| welch(&times(SAMPLES, find)) < LEAKS);
        assert!(tells_nothing, "the time of a guess tells how much of it is right");
        // The same finds a comparison that ends at the first difference.
        let (stored, mut early, mut late) = ([0u8; 512], [0u8; 512], [0u8; 512]);
        (early[0], late[511]) = (1, 1);
        let naive = |is_late: bool| {
            let guess = std::hint::black_box(if is_late { &late } else { &early });
            let differs = |(a, b): (&u8, &u8)| std::hint::black_box(a != b);
            assert!(stored.iter().zip(guess).any(differs));
        };
        let found = welch(&times(SAMPLES / 10, naive));
        assert!(found > LEAKS, "t = {found}");
    }

    #[test]
    fn patterns_say_which_models_are_seen() {
        let key = |models: &[&str]| Key {
            models: models.iter().map(|m| (*m).to_owned()).collect(),
            ..Key::new("k", Role::Api)
        };
        assert!(key(&["*"]).sees("anything/at-all"));
        assert!(key(&["qwen*", "llama-*-8b"]).sees("llama-3.1-8b"));
        assert!(!key(&["qwen*", "llama-*-8b"]).sees("llama-3.1-70b"));
        assert!(!key(&[]).sees("demo") && key(&["demo"]).sees("demo"));
        assert!(!key(&["demo"]).sees("demo2") && !key(&["a*b*c"]).sees("abab"));
    }
}
