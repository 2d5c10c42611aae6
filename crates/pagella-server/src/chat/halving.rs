//! How much of a conversation's beginning has to give way so that the rest fits.

/// Looks for the fewest pieces that suffice. The more is left out, the shorter: so it is found by
/// halving.
pub struct Halving {
    too_few: usize,
    enough: usize,
}

impl Halving {
    /// None of `most` pieces is too few, and all of them are enough.
    pub fn new(most: usize) -> Self {
        Halving { too_few: 0, enough: most }
    }

    /// The number that is to be tried next; `None` when it is found.
    pub fn next(&self) -> Option<usize> {
        let open = self.enough.saturating_sub(self.too_few) > 1;
        open.then(|| usize::midpoint(self.too_few, self.enough))
    }

    /// What came of trying a number.
    pub fn tried(&mut self, number: usize, fits: bool) {
        match fits {
            true => self.enough = number,
            false => self.too_few = number,
        }
    }

    /// The number that was found.
    pub fn found(&self) -> usize {
        self.enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_that_suffice_are_found() {
        for most in 1..20 {
            for needed in 1..=most {
                let mut halving = Halving::new(most);
                while let Some(number) = halving.next() {
                    halving.tried(number, number >= needed);
                }
                assert_eq!(halving.found(), needed, "of {most}");
            }
        }
        assert_eq!(Halving::new(0).found(), 0);
    }
}
