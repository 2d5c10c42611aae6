//! Thousands of random scripts, split so that they run side by side.

use super::script::play;

#[test]
fn jobs_of_random_scripts_equal_their_solo_runs_first_part() {
    (0..800).for_each(play);
}

#[test]
fn jobs_of_random_scripts_equal_their_solo_runs_second_part() {
    (800..1600).for_each(play);
}

#[test]
fn jobs_of_random_scripts_equal_their_solo_runs_third_part() {
    (1600..2400).for_each(play);
}
