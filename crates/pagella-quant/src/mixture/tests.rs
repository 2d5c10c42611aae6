//! Mixtures against all mixtures there are, and against rounding them.

use super::*;
use crate::factor::FactorOptions;
use crate::hessian::HessianSum;
use crate::linear::output_error;
use crate::random::Random;

/// Losses that fall with bits and with the position of the block, and a little with small groups.
fn table(blocks: usize, columns: usize, seed: u64) -> LossTable {
    let mut random = Random::new(seed);
    let sizes: Vec<f64> =
        (0..blocks).map(|at| (1.0 + random.uniform()) / (1.0 + at as f64)).collect();
    let losses = WAYS
        .iter()
        .map(|(bits, rows)| {
            let way = 0.25f64.powi(i32::from(*bits)) * if *rows == 32 { 0.8 } else { 1.0 };
            sizes.iter().map(|size| size * way * (0.9 + 0.2 * random.uniform())).collect()
        })
        .collect();
    LossTable { linear: "w".to_owned(), columns, has_bias: false, losses }
}

/// Every sequence of ways, with full groups unless the way changes.
fn all_mixtures(table: &LossTable, blocks: usize) -> Vec<(u64, f64)> {
    let losses = table.kinds();
    fn walk(
        table: &LossTable,
        losses: &[Vec<f64>],
        blocks: usize,
        path: &mut Vec<usize>,
        found: &mut Vec<(u64, f64)>,
    ) {
        if path.len() == blocks {
            let loss = path.iter().enumerate().map(|(block, way)| losses[*way][block]).sum();
            let mut groups = Vec::new();
            for run in path.chunk_by(|a, b| a == b) {
                let (bits, group_rows) = KINDS[run[0]];
                let rows = run.len() * BLOCK_ROWS;
                let starts = (0..rows).step_by(group_rows);
                groups
                    .extend(starts.map(|at| GroupShape { bits, rows: group_rows.min(rows - at) }));
            }
            let cost = GroupLayout::new(groups).unwrap().cost_bits(table.columns, table.has_bias);
            found.push((cost, loss));
            return;
        }
        for way in path.last().copied().unwrap_or(0)..KINDS.len() {
            path.push(way);
            walk(table, losses, blocks, path, found);
            path.pop();
        }
    }
    let mut found = Vec::new();
    walk(table, &losses, blocks, &mut Vec::new(), &mut found);
    found
}

#[test]
fn no_mixture_is_better_at_any_rate() {
    let blocks = 5;
    let table = table(blocks, 64, 1);
    let all = all_mixtures(&table, blocks);
    for rate in [1e-12, 1e-9, 1e-8, 1e-7, 3e-7, 1e-6, 1e-5, 1e-3] {
        let found = Hull { table: &table, losses: table.kinds() }.best(1.0, rate);
        let value = |cost: u64, loss: f64| loss + rate * cost as f64;
        let least = all.iter().map(|(cost, loss)| value(*cost, *loss)).fold(f64::MAX, f64::min);
        let found = value(found.cost_bits, found.loss);
        assert!((found / least - 1.0).abs() < 1e-12, "{rate}: {found} {least}");
    }
}

#[test]
fn mixtures_go_from_the_cheapest_to_the_finest_and_bend_one_way() {
    let table = table(32, 256, 2);
    let found = table.mixtures().unwrap();
    assert!(found.len() > 30, "{}", found.len());
    let [first, .., last] = &found[..] else { panic!() };
    assert_eq!(first.layout, uniform((2, 128), 1024));
    assert!(last.layout.groups().iter().all(|group| group.bits == 8));
    assert!(found.is_sorted_by(|a, b| a.cost_bits < b.cost_bits && a.loss > b.loss));
    let rates: Vec<f64> = found
        .windows(2)
        .map(|pair| (pair[0].loss - pair[1].loss) / (pair[1].cost_bits - pair[0].cost_bits) as f64)
        .collect();
    assert!(rates.is_sorted_by(|a, b| *a > *b * 0.999_999), "{rates:?}");
    for mixture in &found {
        assert_eq!(mixture.layout.inputs(), 1024);
        assert_eq!(mixture.layout.cost_bits(256, false), mixture.cost_bits);
    }
}

#[test]
fn tables_with_holes_are_refused_by_name() {
    for change in [
        |table: &mut LossTable| table.losses.truncate(9),
        |table: &mut LossTable| table.losses[3].truncate(2),
        |table: &mut LossTable| table.losses[3][2] = f64::NAN,
        |table: &mut LossTable| table.losses.iter_mut().for_each(Vec::clear),
    ] {
        let mut table = table(4, 32, 3);
        change(&mut table);
        assert!(table.mixtures().unwrap_err().to_string().starts_with("`w`"));
    }
}

#[test]
fn what_a_mixture_promises_is_what_rounding_it_loses() {
    let mut random = Random::new(4);
    let (inputs, outputs) = (256, 64);
    let mut sum = HessianSum::new(inputs);
    let mut row = random.normal(2 * inputs * inputs);
    for token in row.chunks_exact_mut(inputs) {
        token.iter_mut().enumerate().for_each(|(at, x)| *x *= (-0.02 * at as f32).exp());
    }
    sum.add(&row);
    let hessian = sum.finish("x").unwrap();
    let factor = Factor::new(&hessian, &FactorOptions::default()).unwrap();
    let weights: Vec<f32> = random.normal(inputs * outputs).iter().map(|x| x * 0.05).collect();
    let weights = WeightMatrix::new("w", inputs, outputs, &weights).unwrap();
    let recipe = Recipe::default();
    let (table, reference) = LossTable::measure(&weights, &factor, false, &recipe).unwrap();
    assert!(
        (table.reference_loss() / reference.block_losses().iter().sum::<f64>() - 1.0).abs() < 1e-9
    );
    let found = table.mixtures().unwrap();
    for mixture in found.iter().step_by(4) {
        let rounded = quantize_linear(&weights, &factor, &mixture.layout, &recipe).unwrap();
        let loss: f64 = rounded.block_losses().iter().sum();
        assert!(
            (loss / mixture.loss - 1.0).abs() < 0.25,
            "{}: {loss} {}",
            mixture.layout,
            mixture.loss
        );
        // The loss is that of the damped Hessian.
        let error = output_error(&weights, &rounded.dequantized(), &hessian).unwrap().absolute;
        assert!(error < loss * 1.001, "{error} {loss}");
    }
}

#[test]
fn what_is_not_measured_lies_between_what_is() {
    let table = table(6, 64, 5);
    let losses = |kind| table.losses_of(kind);
    for block in 0..6 {
        let [small, middle, large] = [32, 64, 128].map(|rows| losses((3, rows))[block]);
        assert!((middle * middle / (small * large) - 1.0).abs() < 1e-12);
        let [fine, coarse] = [32, 128].map(|rows| losses((5, rows))[block]);
        let [small, large] = [32, 128].map(|rows| losses((8, rows))[block]);
        assert!((small / large - (fine / coarse).min(1.0)).abs() < 1e-12);
    }
}
