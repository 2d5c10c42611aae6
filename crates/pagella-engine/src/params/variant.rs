//! Spellings of sampling parameters with a meaning of their own, and switches of other programs for
//! what is a value here. They are applied after [`SAMPLING`](super::SAMPLING).

use super::ParamGroup::{Basic, Dry, Penalties, Temperature};
use super::ParamKind::{Flag, Integer, Number};
use super::{Param, Place, SampleOptions};

/// Rows of requests only.
pub const VARIANTS: &[Param] = &[
    Param::of(Integer(-1, i64::MAX), Penalties)
        .named("rep_pen_range", "penalty_range in Kobold's meaning: 0 is all")
        .off(&[-1.0, 0.0])
        .of_param("penalty_range", |o, n| {
            o.penalty_range = (n > 0.0).then_some(n as usize);
        }),
    Param::of(Integer(-1, i64::MAX), Penalties)
        .named("repeat_last_n", "penalty_range in llama.cpp's meaning: 0 is no penalty at all")
        .off(&[-1.0])
        .of_param("penalty_range", |o, n| {
            o.penalty_range = (n >= 0.0).then_some(n as usize);
        }),
    Param::of(Integer(-1, i64::MAX), Dry)
        .named("dry_penalty_last_n", "dry_range in llama.cpp's meaning: 0 is no DRY at all")
        .off(&[-1.0])
        .of_param("dry_range", |o, n| match n > 0.0 {
            true => o.dry_range = n as usize,
            false if n == 0.0 => o.dry_multiplier = 0.0,
            false => o.dry_range = 0,
        }),
    Param::of(Number(0.0, 100.0), Temperature)
        .named("dynatemp_range", "min_temp and max_temp at this distance from the temperature")
        .off(&[0.0])
        .of_param("max_temp", |o, n| {
            // Bounds that were given count.
            if n > 0.0 && !o.has_dynamic_temperature() {
                o.min_temp = (o.temperature - n as f32).max(0.0);
                o.max_temp = o.temperature + n as f32;
            }
        }),
    Param::of(Flag, Temperature)
        .named("dynamic_temperature", "false: min_temp and max_temp do not count")
        .off(&[1.0])
        .of_param("max_temp", |o, on| {
            if on == 0.0 {
                (o.min_temp, o.max_temp) = (0.0, 0.0);
            }
        }),
    Param::of(Flag, Basic)
        .named("do_sample", "false: always the most likely token")
        .off(&[1.0])
        .of_param("temperature", |o, on| {
            if on == 0.0 {
                o.temperature = 0.0;
            }
        }),
];

impl Param {
    const fn of_param(self, of: &'static str, set: fn(&mut SampleOptions, f64)) -> Self {
        self.at(Place::Variant { of, set })
    }
}
