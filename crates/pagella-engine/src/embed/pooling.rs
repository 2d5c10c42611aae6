//! How the hidden states of a text become one vector.

/// Which hidden states of a text count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The average of all.
    Mean,
    /// That of the first token.
    First,
    /// That of the last token.
    Last,
}

impl Pooling {
    /// Every kind.
    pub const ALL: [Pooling; 3] = [Pooling::Mean, Pooling::First, Pooling::Last];

    /// The name in files and requests.
    pub fn name(self) -> &'static str {
        match self {
            Pooling::Mean => "mean",
            Pooling::First => "cls",
            Pooling::Last => "last",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|pooling| pooling.name() == name)
    }
}

/// The vector of one text while its hidden states come, chunk by chunk.
///
/// Sums are taken in f64 and in the order of the tokens, so chunks do not matter.
pub(super) struct Pool {
    pooling: Pooling,
    sum: Vec<f64>,
    rows: usize,
}

impl Pool {
    pub fn new(pooling: Pooling) -> Self {
        Pool { pooling, sum: Vec::new(), rows: 0 }
    }

    /// Adds the hidden states of the next tokens, `[tokens, hidden]`.
    pub fn add(&mut self, states: &[f32], hidden: usize) {
        for state in states.chunks_exact(hidden.max(1)) {
            let counts = match self.pooling {
                Pooling::Mean => true,
                Pooling::First => self.rows == 0,
                Pooling::Last => {
                    self.sum.clear();
                    true
                }
            };
            self.rows += 1;
            if !counts {
                continue;
            }
            self.sum.resize(hidden, 0.0);
            for (sum, value) in self.sum.iter_mut().zip(state) {
                *sum += f64::from(*value);
            }
        }
    }

    /// The vector.
    pub fn finish(self) -> Vec<f32> {
        let n = match self.pooling {
            Pooling::Mean => self.rows.max(1) as f64,
            Pooling::First | Pooling::Last => 1.0,
        };
        self.sum.into_iter().map(|sum| (sum / n) as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_do_not_matter() {
        let states = [1.0, 10.0, 3.0, 20.0, 8.0, 60.0];
        for (pooling, expected) in [
            (Pooling::Mean, [4.0, 30.0]),
            (Pooling::First, [1.0, 10.0]),
            (Pooling::Last, [8.0, 60.0]),
        ] {
            for cut in [0, 2, 4, 6] {
                let mut pool = Pool::new(pooling);
                pool.add(&states[..cut], 2);
                pool.add(&states[cut..], 2);
                assert_eq!(pool.finish(), expected, "{pooling:?} {cut}");
            }
            assert_eq!(Pooling::from_name(pooling.name()), Some(pooling));
        }
    }
}
