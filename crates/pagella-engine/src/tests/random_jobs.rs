//! Thousands of random scripts, split so that they run side by side.

use std::ops::Range;

use super::script::{Happened, play};

/// Plays scripts and makes sure that everything they are for has happened in them.
fn play_all(scripts: Range<u64>) {
    let mut happened = Happened::default();
    scripts.for_each(|seed| play(seed, &mut happened));
    println!("{happened:?}");
    let Happened { finished, cancelled, preemptions, rewinds, .. } = happened;
    assert!(finished > 1000 && cancelled > 100, "{happened:?}");
    assert!(preemptions > 100 && rewinds > 500, "{happened:?}");
    assert!(happened.defragmentations > 50 && happened.copied_tokens > 10_000, "{happened:?}");
    assert!(happened.cached_tokens > 100_000, "{happened:?}");
    assert!(happened.guided > 100 && happened.healed > 100, "{happened:?}");
    assert!(happened.accepted > 5_000 && happened.rejected > 5_000, "{happened:?}");
    assert!(happened.constrained > 100, "{happened:?}");
    assert!(happened.adapted > 300 && happened.adapted_accepted > 1_000, "{happened:?}");
    assert!(happened.narrowed_rows > 10_000 && happened.undecided_rows > 1_000, "{happened:?}");
}

#[test]
fn jobs_of_random_scripts_equal_their_solo_runs_first_part() {
    play_all(0..800);
}

#[test]
fn jobs_of_random_scripts_equal_their_solo_runs_second_part() {
    play_all(800..1600);
}

#[test]
fn jobs_of_random_scripts_equal_their_solo_runs_third_part() {
    play_all(1600..2400);
}
