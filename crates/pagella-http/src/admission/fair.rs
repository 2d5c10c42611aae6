//! Whose turn it is: every key gets its share of tokens, whatever the others ask for.
//!
//! Deficit round robin. Keys with waiting requests stand in a ring; the one at the front is served as
//! long as its credit covers the next request, then it gets a quantum more and goes to the back. Within
//! a key, higher priority comes first, then whoever came first.

use std::collections::VecDeque;

/// Tokens that a key gains per round.
const QUANTUM_TOKENS: u64 = 4096;
/// Most that a request counts for, so that a round has an end.
const COST_TOKENS_MAX: u64 = 1 << 20;

/// Who waits, and how many may go on.
pub struct Fair<W> {
    ring: VecDeque<Line<W>>,
    free: usize,
    serials: u64,
}

/// Requests of one key.
struct Line<W> {
    key: String,
    credit_tokens: u64,
    waiting: Vec<Waiting<W>>,
}

struct Waiting<W> {
    serial: u64,
    priority: i32,
    cost_tokens: u64,
    waker: W,
}

impl<W> Fair<W> {
    /// So many may go on at once.
    pub fn new(free: usize) -> Self {
        Fair { ring: VecDeque::new(), free, serials: 0 }
    }

    /// A request of a key waits. Returns its number.
    pub fn enter(&mut self, key: &str, priority: i32, cost_tokens: u64, waker: W) -> u64 {
        self.serials += 1;
        let serial = self.serials;
        let cost_tokens = cost_tokens.min(COST_TOKENS_MAX);
        let waiting = Waiting { serial, priority, cost_tokens, waker };
        match self.ring.iter_mut().find(|line| line.key == key) {
            Some(line) => line.waiting.push(waiting),
            None => {
                let line = Line { key: key.to_owned(), credit_tokens: 0, waiting: vec![waiting] };
                self.ring.push_back(line);
            }
        }
        serial
    }

    /// A request does not wait any more. False if its turn had come already.
    pub fn leave(&mut self, serial: u64) -> bool {
        let before: usize = self.ring.iter().map(|line| line.waiting.len()).sum();
        self.ring.iter_mut().for_each(|line| line.waiting.retain(|one| one.serial != serial));
        self.ring.retain(|line| !line.waiting.is_empty());
        self.ring.iter().map(|line| line.waiting.len()).sum::<usize>() < before
    }

    /// One more may go on.
    pub fn release(&mut self) {
        self.free += 1;
    }

    /// Whose turn it is, if anyone may go on and anyone waits.
    pub fn next(&mut self) -> Option<W> {
        if self.free == 0 {
            return None;
        }
        loop {
            let line = self.ring.front_mut()?;
            let first = |one: &(usize, &Waiting<W>)| (-i64::from(one.1.priority), one.1.serial);
            let Some((idx, head)) = line.waiting.iter().enumerate().min_by_key(first) else {
                self.ring.pop_front();
                continue;
            };
            if head.cost_tokens > line.credit_tokens {
                line.credit_tokens += QUANTUM_TOKENS;
                self.ring.rotate_left(1);
                continue;
            }
            line.credit_tokens -= head.cost_tokens;
            let served = line.waiting.remove(idx);
            // Who has nothing left to ask for saves no credit for later.
            if line.waiting.is_empty() {
                self.ring.pop_front();
            }
            self.free -= 1;
            return Some(served.waker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(fair: &mut Fair<String>) -> Vec<String> {
        let mut order = Vec::new();
        fair.release();
        while let Some(name) = fair.next() {
            order.push(name);
            fair.release();
        }
        order
    }

    #[test]
    fn a_key_with_many_requests_does_not_keep_others_waiting() {
        let mut fair = Fair::new(0);
        for i in 0..20 {
            fair.enter("greedy", 0, 4000, format!("g{i}"));
        }
        fair.enter("modest", 0, 4000, "m0".to_owned());
        let order = drain(&mut fair);
        assert!(order.iter().position(|name| name == "m0") <= Some(2), "{order:?}");
        assert_eq!(order.len(), 21);
    }

    #[test]
    fn shares_are_of_tokens_and_not_of_requests() {
        let mut fair = Fair::new(0);
        for i in 0..40 {
            fair.enter("long", 0, 8000, format!("l{i}"));
            fair.enter("short", 0, 1000, format!("s{i}"));
        }
        let order = drain(&mut fair);
        let short = order.iter().take(18).filter(|name| name.starts_with('s')).count();
        assert!((14..=17).contains(&short), "{short} of 18: {order:?}");
    }

    #[test]
    fn within_a_key_priority_comes_first_and_then_age() {
        let mut fair = Fair::new(0);
        for (priority, name) in [(0, "a"), (-1, "b"), (2, "c"), (0, "d")] {
            fair.enter("k", priority, 10, name.to_owned());
        }
        assert_eq!(drain(&mut fair), ["c", "a", "d", "b"]);
    }

    #[test]
    fn who_leaves_is_not_called() {
        let mut fair = Fair::new(1);
        let first = fair.enter("k", 0, u64::MAX, "first".to_owned());
        let second = fair.enter("k", 0, 1, "second".to_owned());
        assert_eq!(fair.next().as_deref(), Some("first"));
        assert_eq!(fair.next(), None, "only one may go on");
        assert!(!fair.leave(first) && fair.leave(second));
        fair.release();
        assert_eq!(fair.next(), None);
    }
}
