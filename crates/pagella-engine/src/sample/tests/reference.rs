//! The sampler again, without any thought of speed: every step over the whole row, sorted, in f64.
//!
//! Covers the default order with settings that act on probabilities. Kept apart from the steps on
//! purpose: it shares no code with them.

use crate::sample::SampleOptions;

type List = Vec<(u32, f64)>;

/// The final distribution, most likely first.
pub fn distribution(o: &SampleOptions, logits: &[f32], mu: f64) -> List {
    let late = o.temperature_last || o.max_temp > o.min_temp;
    let t = if late { 1.0 } else { f64::from(o.temperature) };
    let max = logits.iter().fold(f64::NEG_INFINITY, |m, l| m.max(f64::from(*l)));
    let log = |d: f64| match f64::from(o.smoothing_factor) {
        0.0 => d / t,
        s => {
            let curve = f64::from(o.smoothing_curve);
            s / t * (-(3.0 - curve) / 2.0 * d * d + (curve - 1.0) / 2.0 * d * d * d)
        }
    };
    let finite = (0u32..).zip(logits).filter(|(_, l)| **l > f32::NEG_INFINITY);
    let mut list: List = finite.map(|(id, l)| (id, log(f64::from(*l) - max).exp())).collect();
    normalise(&mut list);
    if t < 0.01 {
        list.truncate(1);
    }
    if o.top_k > 0 {
        list.truncate(o.top_k.max(o.min_keep));
        normalise(&mut list);
    }
    if inside(o.top_p) {
        let n = prefix(&list, f64::from(o.top_p));
        list.truncate(n.max(o.min_keep));
        normalise(&mut list);
    }
    let floor = f64::from(o.top_a) * list[0].1 * list[0].1;
    at_least(&mut list, floor, o.min_keep);
    if inside(o.min_p) {
        let floor = f64::from(o.min_p) * list[0].1;
        at_least(&mut list, floor, o.min_keep);
    }
    if inside(o.typical) {
        let h = entropy(&list);
        let mut order = list.clone();
        order.sort_by(|a, b| (-a.1.ln() - h).abs().total_cmp(&(-b.1.ln() - h).abs()));
        let n = prefix(&order, f64::from(o.typical));
        order.truncate(n.max(o.min_keep));
        list = order;
        normalise(&mut list);
    }
    at_least(&mut list, f64::from(o.epsilon_cutoff), o.min_keep);
    if o.mirostat {
        at_least(&mut list, (-mu).exp2(), o.min_keep);
    }
    if late {
        let share = entropy(&list) / (list.len() as f64).ln().max(1e-300);
        let t = match o.max_temp > o.min_temp {
            true => {
                let reach = f64::from(o.max_temp - o.min_temp);
                f64::from(o.min_temp) + reach * share.powf(f64::from(o.temp_exponent))
            }
            false => f64::from(o.temperature),
        };
        let top = list[0].1;
        list.iter_mut().for_each(|c| c.1 = ((c.1 / top).ln() / t).exp());
        normalise(&mut list);
    }
    if o.xtc_probability > 0.0 {
        let likely = list.iter().filter(|c| c.1 >= f64::from(o.xtc_threshold)).count();
        let (excluded, rest) = list.split_at_mut(likely.saturating_sub(1));
        let x: f64 = excluded.iter().map(|c| c.1).sum();
        let q = f64::from(o.xtc_probability);
        excluded.iter_mut().for_each(|c| c.1 *= 1.0 - q);
        rest.iter_mut().for_each(|c| c.1 *= 1.0 + q * x / (1.0 - x));
        list.retain(|c| c.1 > 0.0);
        normalise(&mut list);
    }
    list
}

/// The entry that the draw falls on.
pub fn pick(list: &List, r: f64) -> (u32, f64) {
    let mut sum = 0.0;
    let crossing = list.iter().find(|c| {
        sum += c.1;
        sum > r
    });
    *crossing.unwrap_or(&list[list.len() - 1])
}

/// How close the draw is to a boundary between two entries.
pub fn distance_to_boundary(list: &List, r: f64) -> f64 {
    let mut sum = 0.0;
    list.iter().fold(1.0, |least: f64, c| {
        sum += c.1;
        least.min((sum - r).abs())
    })
}

fn inside(share: f32) -> bool {
    share > 0.0 && share < 1.0
}

fn normalise(list: &mut List) {
    let sum: f64 = list.iter().map(|c| c.1).sum();
    list.iter_mut().for_each(|c| c.1 /= sum);
    list.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
}

fn prefix(list: &List, mass: f64) -> usize {
    let mut sum = 0.0;
    let crossing = list.iter().position(|c| {
        sum += c.1;
        sum >= mass
    });
    crossing.map_or(list.len(), |at| at + 1)
}

fn at_least(list: &mut List, floor: f64, min_keep: usize) {
    let n = list.iter().filter(|c| c.1 >= floor).count();
    list.truncate(n.max(min_keep).max(1));
    normalise(list);
}

fn entropy(list: &List) -> f64 {
    -list.iter().map(|c| c.1 * c.1.ln()).sum::<f64>()
}
