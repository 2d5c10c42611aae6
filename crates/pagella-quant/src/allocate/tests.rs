//! Choices against all choices there are, against the bound, and on what ExLlamaV2 measured.

use super::*;
use crate::measurement::{Measurement, ModuleMeasurement};
use crate::random::Random;

fn slot(weights: u64, options: &[(u64, f64)]) -> Slot {
    let option =
        |(cost_bits, error): &(u64, f64)| SlotOption { cost_bits: *cost_bits, error: *error };
    Slot { name: "s".to_owned(), weights, options: options.iter().map(option).collect() }
}

fn allocate_bits(slots: &[Slot], bits_per_weight: f64) -> Result<Allocation, QuantError> {
    allocate(slots, &Budget { bits_per_weight, extra_bits: 0 })
}

/// Slots whose errors fall with their costs, more or less.
fn random_slots(random: &mut Random, n_slots: usize, n_options: usize) -> Vec<Slot> {
    (0..n_slots)
        .map(|_| {
            let weights = 1000 + (random.uniform() * 9000.0) as u64;
            let sensitivity = random.uniform().powi(3);
            let options: Vec<(u64, f64)> = (0..n_options)
                .map(|_| {
                    let bits = 2.0 + 6.0 * random.uniform();
                    let noise = 0.8 + 0.4 * random.uniform();
                    ((bits * weights as f64) as u64, sensitivity * noise * 0.25f64.powf(bits))
                })
                .collect();
            slot(weights, &options)
        })
        .collect()
}

fn range(slots: &[Slot]) -> (f64, f64) {
    let weights: u64 = slots.iter().map(|slot| slot.weights).sum();
    let message = allocate_bits(slots, -1.0).unwrap_err();
    let QuantError::Unreachable { smallest, largest, .. } = message else { panic!("{message}") };
    assert!(weights > 0 && smallest < largest);
    (smallest, largest)
}

/// The least error of all choices within a budget.
fn brute_force(slots: &[Slot], budget: u64) -> f64 {
    let mut choices = vec![(0u64, 0.0f64)];
    for slot in slots {
        choices = choices
            .iter()
            .flat_map(|(cost, error)| {
                slot.options.iter().map(move |o| (cost + o.cost_bits, error + o.error))
            })
            .collect();
    }
    let within = choices.into_iter().filter(|(cost, _)| *cost <= budget);
    within.map(|(_, error)| error).fold(f64::INFINITY, f64::min)
}

#[test]
fn no_choice_within_the_budget_is_better() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let slots = random_slots(&mut random, 6, 5);
        let weights: u64 = slots.iter().map(|slot| slot.weights).sum();
        let (smallest, largest) = range(&slots);
        let bits = smallest + random.uniform() * (largest - smallest);
        let found = allocate_bits(&slots, bits).unwrap();
        let budget = (bits * weights as f64) as u64;
        let expected = brute_force(&slots, budget);
        assert!((found.error - expected).abs() <= 1e-12 * expected, "{seed}: {found:?} {expected}");
        assert!(found.cost_bits <= budget && found.error_bound <= found.error * (1.0 + 1e-12));
    }
}

#[test]
fn the_sums_are_those_of_the_choices() {
    let mut random = Random::new(1);
    let slots = random_slots(&mut random, 40, 12);
    let found = allocate_bits(&slots, 4.0).unwrap();
    let chosen = || slots.iter().zip(&found.choices).map(|(slot, choice)| slot.options[*choice]);
    assert_eq!(chosen().map(|option| option.cost_bits).sum::<u64>(), found.cost_bits);
    let error: f64 = chosen().map(|option| option.error).sum();
    assert!((error / found.error - 1.0).abs() < 1e-12);
}

#[test]
fn a_larger_budget_never_makes_it_worse_and_none_is_exceeded() {
    let mut random = Random::new(2);
    let slots = random_slots(&mut random, 64, 19);
    let weights: u64 = slots.iter().map(|slot| slot.weights).sum();
    let (smallest, largest) = range(&slots);
    let mut last = f64::INFINITY;
    for step in 0..=80 {
        let bits = smallest + (largest - smallest) * f64::from(step) / 80.0;
        let found = allocate_bits(&slots, bits).unwrap();
        assert!(found.cost_bits as f64 <= bits * weights as f64 * (1.0 + 1e-12));
        assert!(found.error <= last * (1.0 + 1e-12), "{bits}");
        last = found.error;
    }
}

#[test]
fn hundreds_of_slots_come_within_a_thousandth_of_the_bound_and_use_the_budget() {
    let mut random = Random::new(3);
    let slots = random_slots(&mut random, 300, 24);
    let weights: u64 = slots.iter().map(|slot| slot.weights).sum();
    for bits in [2.5, 3.0, 4.0, 5.0, 6.0] {
        let found = allocate_bits(&slots, bits).unwrap();
        assert!(found.error - found.error_bound <= 1e-3 * found.error, "{bits}: {found:?}");
        assert!(found.cost_bits as f64 >= 0.99 * bits * weights as f64, "{bits}");
    }
}

#[test]
fn at_the_ends_everything_is_cheapest_or_best() {
    let mut random = Random::new(4);
    let slots = random_slots(&mut random, 10, 8);
    let (smallest, largest) = range(&slots);
    let cheapest = allocate_bits(&slots, smallest).unwrap();
    let best = allocate_bits(&slots, largest).unwrap();
    for (slot, (cheap, good)) in slots.iter().zip(cheapest.choices.iter().zip(&best.choices)) {
        let costs = slot.options.iter().map(|option| option.cost_bits);
        let errors = slot.options.iter().map(|option| option.error);
        assert_eq!(Some(slot.options[*cheap].cost_bits), costs.min());
        assert_eq!(slot.options[*good].error, errors.fold(f64::INFINITY, f64::min));
    }
}

#[test]
fn what_cannot_be_reached_names_what_can() {
    let slots = [slot(100, &[(200, 0.5), (800, 0.1)]), slot(100, &[(300, 0.5), (900, 0.1)])];
    for bits in [2.4, 8.6, f64::NAN, f64::INFINITY] {
        let message = allocate_bits(&slots, bits).unwrap_err().to_string();
        assert!(message.contains("2.5000 to 8.5000"), "{message}");
    }
    assert_eq!(allocate_bits(&slots, 2.5).unwrap().choices, [0, 0]);
    assert_eq!(allocate_bits(&slots, 8.5).unwrap().choices, [1, 1]);
}

#[test]
fn a_slot_without_usable_options_is_refused_by_name() {
    for options in [&[][..], &[(1, f64::NAN)], &[(1, -0.1)], &[(1, f64::INFINITY)]] {
        let message = allocate_bits(&[slot(1, options)], 1.0).unwrap_err().to_string();
        assert!(message.starts_with("`s`"), "{message}");
    }
}

#[test]
fn extra_bits_are_for_all_slots_and_do_not_count_as_bits_per_weight() {
    let head = slot(0, &[(300, 9.0), (900, 1.0)]);
    let slots = [slot(100, &[(200, 0.5), (800, 0.1)]), head];
    let budget = |bits_per_weight, extra_bits| Budget { bits_per_weight, extra_bits };
    let found = allocate(&slots, &budget(2.0, 900)).unwrap();
    assert_eq!((found.choices, found.cost_bits), (vec![0, 1], 1100));
    assert_eq!(allocate(&slots, &budget(5.0, 600)).unwrap().choices, [0, 1]);
    let message = allocate(&slots, &budget(1.0, 300)).unwrap_err().to_string();
    assert!(message.contains("2.0000 to 14.0000"), "{message}");
}

/// A model of hidden size 384 with 12,582,912 weights in its layers.
#[test]
fn what_exllamav2_measured_is_allocated_within_the_budget_and_close_to_the_bound() {
    let shared = std::env::var_os("PAGELLA_SHARED").map(std::path::PathBuf::from);
    let near = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let path = shared.unwrap_or(near).join("golden/exllamav2-measurement.json");
    if !path.exists() {
        println!("SKIPPED: {} (shared data not found)", path.display());
        return;
    }
    let slot = |(name, module): &(String, ModuleMeasurement)| {
        let ModuleMeasurement::Candidates(list) = module else { return None };
        let is_attention = name.ends_with("self_attn");
        let weights = if is_attention { 384 * 384 * 2 + 384 * 128 * 2 } else { 384 * 1024 * 3 };
        let option = |found: &crate::measurement::MeasuredCandidate| SlotOption {
            cost_bits: found.total_bits,
            error: 1.0 - found.accuracy,
        };
        Some(Slot { name: name.clone(), weights, options: list.iter().map(option).collect() })
    };
    let measured = Measurement::load(&path).unwrap();
    let slots: Vec<Slot> = measured.modules.iter().filter_map(slot).collect();
    assert_eq!(slots.iter().map(|slot| slot.weights).sum::<u64>(), 12_582_912);
    for bits in [2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0] {
        let found = allocate_bits(&slots, bits).unwrap();
        let achieved = found.cost_bits as f64 / 12_582_912.0;
        assert!(achieved <= bits && achieved > 0.99 * bits, "{bits}: {achieved}");
        assert!(found.error < 1.02 * found.error_bound, "{bits}: {found:?}");
    }
}
