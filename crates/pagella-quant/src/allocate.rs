//! Who gets how many bits: one option for every slot, least total error within a budget.
//!
//! This is the multiple-choice knapsack. Lagrange's multiplier gives a bound that no choice can beat
//! and, following it, a choice close to it; an exact search through what could still be better closes
//! the gap. The search keeps the states that no other state beats, in the order of the slots, so the
//! result is the same everywhere. Budgets are never exceeded.

use crate::error::QuantError;

/// States that the exact search keeps at most, in all and per slot; when there are more, the result may
/// miss the optimum, but never by more than `error - error_bound`.
const STATES_MAX: usize = 4_000_000;
const STATES_PER_SLOT_MAX: usize = 20_000;
/// States per slot that it keeps in any case.
const STATES_MIN: usize = 64;

/// One way to store what a slot stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlotOption {
    /// Bits it takes.
    pub cost_bits: u64,
    /// What it adds to the total error; not negative.
    pub error: f64,
}

/// Linears that get their bits together.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// What messages call it.
    pub name: String,
    /// Weights it has, as far as the budget counts them.
    pub weights: u64,
    /// What can be chosen; at least one.
    pub options: Vec<SlotOption>,
}

/// An option for every slot.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    /// Index of the option of each slot.
    pub choices: Vec<usize>,
    /// Bits of all of them, within the budget.
    pub cost_bits: u64,
    /// Error of all of them.
    pub error: f64,
    /// No choice within the budget has less error than this.
    pub error_bound: f64,
}

/// How many bits there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// For every weight of every slot.
    pub bits_per_weight: f64,
    /// On top of that, for a slot whose weights are not counted, such as the output head.
    pub extra_bits: u64,
}

/// Chooses the options of least error within the budget.
pub fn allocate(slots: &[Slot], budget: &Budget) -> Result<Allocation, QuantError> {
    let Budget { bits_per_weight: bits, extra_bits } = *budget;
    let weights: u64 = slots.iter().map(|slot| slot.weights).sum();
    let fronts = slots.iter().map(Front::new).collect::<Result<Vec<_>, _>>()?;
    let smallest: u64 = fronts.iter().map(|front| front.cheapest().cost).sum();
    let largest: u64 = fronts.iter().map(|front| front.best().cost).sum();
    let average = |cost: u64| (cost as f64 - extra_bits as f64) / weights.max(1) as f64;
    let (lowest, highest) = (average(smallest), average(largest));
    // NaN is in no range.
    if !(lowest..=highest).contains(&bits) {
        return Err(QuantError::Unreachable { bits, smallest: lowest, largest: highest });
    }
    // At the ends of the range the product may be rounded to the wrong side.
    let budget = (bits * weights as f64).floor() as u64 + extra_bits;
    Ok(solve(&fronts, budget.clamp(smallest, largest)))
}

/// An option that no other option of its slot beats.
#[derive(Clone, Copy, Debug)]
struct Point {
    cost: u64,
    error: f64,
    option: usize,
}

/// The unbeaten options of a slot: costs increase, errors decrease.
#[derive(Debug)]
struct Front {
    points: Vec<Point>,
    /// Indices of the points on the lower convex hull.
    hull: Vec<usize>,
}

impl Front {
    fn new(slot: &Slot) -> Result<Self, QuantError> {
        let fault = |fault: &str| {
            Err(QuantError::Slot { slot: slot.name.clone(), fault: fault.to_owned() })
        };
        if slot.options.iter().any(|option| !(option.error >= 0.0 && option.error.is_finite())) {
            return fault("an option has an error that is negative or not finite");
        }
        let mut points: Vec<Point> = slot
            .options
            .iter()
            .enumerate()
            .map(|(option, SlotOption { cost_bits, error })| Point {
                cost: *cost_bits,
                error: *error,
                option,
            })
            .collect();
        points.sort_by(|a, b| a.cost.cmp(&b.cost).then(a.error.total_cmp(&b.error)));
        let mut least = f64::INFINITY;
        points.retain(|point| {
            let is_better = point.error < least;
            least = least.min(point.error);
            is_better
        });
        if points.is_empty() {
            return fault("there is no option to choose");
        }
        let hull = hull(&points);
        Ok(Self { points, hull })
    }

    fn cheapest(&self) -> Point {
        self.points[0]
    }

    fn best(&self) -> Point {
        self.points[self.points.len() - 1]
    }

    /// Steps along the hull.
    fn steps(&self, slot: usize) -> impl Iterator<Item = Step> + '_ {
        self.hull.windows(2).map(move |pair| {
            let (from, to) = (self.points[pair[0]], self.points[pair[1]]);
            let cost = to.cost - from.cost;
            let gain = from.error - to.error;
            Step { slot, to: pair[1], cost, gain, rate: gain / cost as f64 }
        })
    }
}

/// From one point of a hull to the next.
struct Step {
    slot: usize,
    to: usize,
    cost: u64,
    gain: f64,
    /// Error saved per bit; along a hull it decreases.
    rate: f64,
}

/// Indices of the points on the lower convex hull.
fn hull(points: &[Point]) -> Vec<usize> {
    let mut hull: Vec<usize> = Vec::new();
    for (idx, point) in points.iter().enumerate() {
        while let [.., a, b] = hull[..] {
            let slope =
                |from: Point, to: Point| (from.error - to.error) / (to.cost - from.cost) as f64;
            if slope(points[a], points[b]) > slope(points[b], *point) {
                break;
            }
            hull.pop();
        }
        hull.push(idx);
    }
    hull
}

/// A choice of points.
#[derive(Clone, Debug)]
struct Choice {
    points: Vec<usize>,
    cost: u64,
    error: f64,
}

impl Choice {
    fn of(fronts: &[Front], points: Vec<usize>) -> Self {
        let chosen = || fronts.iter().zip(&points).map(|(front, point)| front.points[*point]);
        let (cost, error) =
            (chosen().map(|point| point.cost).sum(), chosen().map(|point| point.error).sum());
        Self { points, cost, error }
    }
}

fn solve(fronts: &[Front], budget: u64) -> Allocation {
    let (greedy, rate) = greedy(fronts, budget);
    let bound = bound(fronts, budget, rate);
    let found = search(fronts, budget, rate, &greedy).unwrap_or(greedy);
    let option = |(front, point): (&Front, &usize)| front.points[*point].option;
    Allocation {
        choices: fronts.iter().zip(&found.points).map(option).collect(),
        cost_bits: found.cost,
        error: found.error,
        error_bound: bound.min(found.error),
    }
}

/// Takes the steps that save most per bit, and of what follows the first that does not fit whatever
/// fits; with the rate of that step, which is Lagrange's multiplier.
fn greedy(fronts: &[Front], budget: u64) -> (Choice, f64) {
    let mut steps: Vec<Step> =
        fronts.iter().enumerate().flat_map(|(slot, front)| front.steps(slot)).collect();
    // Stable, so that the steps of one slot stay in their order.
    steps.sort_by(|a, b| b.rate.total_cmp(&a.rate));
    let mut points = vec![0; fronts.len()];
    let mut stopped = vec![false; fronts.len()];
    let mut cost: u64 = fronts.iter().map(|front| front.cheapest().cost).sum();
    let mut rate = 0.0;
    for step in &steps {
        let fits = cost + step.cost <= budget;
        if !fits && rate == 0.0 {
            rate = step.rate;
        }
        if !fits || stopped[step.slot] {
            stopped[step.slot] = true;
            continue;
        }
        debug_assert!(step.gain >= 0.0);
        points[step.slot] = step.to;
        cost += step.cost;
    }
    (Choice::of(fronts, points), rate)
}

/// The least of `error + rate · cost` of a slot.
fn least(front: &Front, rate: f64) -> f64 {
    let values = front.points.iter().map(|point| point.error + rate * point.cost as f64);
    values.fold(f64::INFINITY, f64::min)
}

/// What Lagrange's relaxation says that every choice within the budget has at least.
fn bound(fronts: &[Front], budget: u64, rate: f64) -> f64 {
    let least: f64 = fronts.iter().map(|front| least(front, rate)).sum();
    (least - rate * budget as f64).max(0.0)
}

/// A partial choice: what it costs, and by how much it is above the bound.
#[derive(Clone, Copy)]
struct State {
    cost: u64,
    excess: f64,
    point: usize,
    parent: usize,
}

/// The best choice whose error is less than that of `known`, if there is one.
fn search(fronts: &[Front], budget: u64, rate: f64, known: &Choice) -> Option<Choice> {
    // Every choice costs `bound + excess + rate · (budget − cost)`, where every slot adds to the excess.
    let gap = known.error - bound_unclamped(fronts, budget, rate);
    let rest: Vec<u64> = fronts
        .iter()
        .rev()
        .scan(0, |sum, front| {
            let before = *sum;
            *sum += front.cheapest().cost;
            Some(before)
        })
        .collect();
    let states_max = (STATES_MAX / fronts.len().max(1)).clamp(STATES_MIN, STATES_PER_SLOT_MAX);
    let mut levels: Vec<Vec<State>> = Vec::with_capacity(fronts.len());
    let mut states = vec![State { cost: 0, excess: 0.0, point: 0, parent: 0 }];
    for (front, rest) in fronts.iter().zip(rest.iter().rev()) {
        let base = least(front, rate);
        let mut next = Vec::new();
        for (parent, state) in states.iter().enumerate() {
            for (point, Point { cost, error, .. }) in front.points.iter().enumerate() {
                let cost_after = state.cost + cost;
                let excess = state.excess + (error + rate * *cost as f64 - base);
                if cost_after + rest <= budget && excess < gap {
                    next.push(State { cost: cost_after, excess, point, parent });
                }
            }
        }
        states = unbeaten(next, rate, states_max);
        levels.push(states.clone());
    }
    let total = |state: &State| state.excess + rate * (budget - state.cost) as f64;
    let best =
        (0..states.len()).min_by(|a, b| total(&states[*a]).total_cmp(&total(&states[*b])))?;
    let mut points = vec![0; fronts.len()];
    let mut at = best;
    for (point, level) in points.iter_mut().zip(&levels).rev() {
        *point = level[at].point;
        at = level[at].parent;
    }
    let found = Choice::of(fronts, points);
    (found.error < known.error).then_some(found)
}

fn bound_unclamped(fronts: &[Front], budget: u64, rate: f64) -> f64 {
    fronts.iter().map(|front| least(front, rate)).sum::<f64>() - rate * budget as f64
}

/// The states that no cheaper state beats in error so far, `excess - rate · cost`; the most promising
/// if there are too many.
fn unbeaten(mut states: Vec<State>, rate: f64, states_max: usize) -> Vec<State> {
    let error = |state: &State| state.excess - rate * state.cost as f64;
    states.sort_by(|a, b| a.cost.cmp(&b.cost).then(error(a).total_cmp(&error(b))));
    let mut least = f64::INFINITY;
    states.retain(|state| {
        let is_better = error(state) < least;
        least = least.min(error(state));
        is_better
    });
    if states.len() > states_max {
        states.sort_by(|a, b| a.excess.total_cmp(&b.excess));
        states.truncate(states_max);
        states.sort_by_key(|state| state.cost);
    }
    states
}

#[cfg(test)]
mod tests;
