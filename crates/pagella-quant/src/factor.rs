//! What error feedback needs of a Hessian, once for all linears with the same inputs: the order of the
//! rows, and the upper triangle U with `UᵀU = (H + λI)⁻¹` in that order.
//!
//! No inverse is formed. With J reversing the order, `JHJ = VᵀV`, so `H = (JVᵀJ)(JVJ)`: an upper
//! triangle times its transpose, and U is the inverse of that triangle, `U = J V⁻ᵀ J`.

use crate::error::QuantError;
use crate::hessian::Hessian;
use crate::triangle;

/// Times damping is added before a Hessian is given up.
const ATTEMPTS_MAX: u32 = 10;

/// Least damping: what a linear gets that was fed with zeros.
const DAMPING_MIN: f64 = 1e-5;

/// How a Hessian is made fit to be inverted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FactorOptions {
    /// Share of its mean diagonal that is added to its diagonal, and added again after each failure.
    pub damping: f64,
}

impl Default for FactorOptions {
    fn default() -> Self {
        Self { damping: 0.03 }
    }
}

/// The order of the rows, and the triangle of error feedback unless rounding is to be plain.
#[derive(Clone, Debug)]
pub struct Factor {
    perm: Vec<u32>,
    feedback: Option<Vec<f32>>,
    importance: Vec<f32>,
    /// What was added to the diagonal in the end.
    damping: f32,
}

impl Factor {
    /// Orders the rows and factors `hessian`.
    pub fn new(hessian: &Hessian, options: &FactorOptions) -> Result<Self, QuantError> {
        let inputs = hessian.inputs();
        let perm = activation_order(hessian);
        let mean = hessian.diagonal().map(f64::from).sum::<f64>() / inputs.max(1) as f64;
        let step = (options.damping * mean).max(DAMPING_MIN);
        for attempt in 1..=ATTEMPTS_MAX {
            let damping = (step * f64::from(attempt)) as f32;
            let mut values = reversed(hessian, &perm, damping);
            if triangle::cholesky(&mut values, inputs).is_none() {
                continue;
            }
            triangle::invert_transposed(&mut values, inputs);
            if values.iter().all(|value| value.is_finite()) {
                values.reverse();
                let pivots = values.iter().step_by(inputs + 1);
                let importance = pivots.map(|pivot| 1.0 / (pivot * pivot)).collect();
                return Ok(Self { perm, feedback: Some(values), importance, damping });
            }
        }
        let source_name = hessian.source().to_owned();
        let damping = step * f64::from(ATTEMPTS_MAX);
        Err(QuantError::NotInvertible { source_name, attempts: ATTEMPTS_MAX, damping })
    }

    /// The order of the rows alone: linears are rounded without feedback.
    pub fn order_only(hessian: &Hessian) -> Self {
        let perm = activation_order(hessian);
        let diagonal: Vec<f32> = hessian.diagonal().collect();
        // Inputs that were never active still have weights to keep.
        let mean =
            diagonal.iter().map(|x| f64::from(*x)).sum::<f64>() / diagonal.len().max(1) as f64;
        let floor = (FactorOptions::default().damping * mean).max(DAMPING_MIN) as f32;
        let importance = perm.iter().map(|row| diagonal[*row as usize] + floor).collect();
        Self { perm, feedback: None, importance, damping: 0.0 }
    }

    /// Packed row `r` holds input `perm[r]`: the inputs by decreasing activation.
    pub fn perm(&self) -> &[u32] {
        &self.perm
    }

    /// Number of inputs.
    pub fn inputs(&self) -> usize {
        self.perm.len()
    }

    /// What was added to the diagonal.
    pub fn damping(&self) -> f32 {
        self.damping
    }

    /// How much the square of an error in a packed row matters, once the rows after it have made up for
    /// what they can.
    pub(crate) fn importance(&self) -> &[f32] {
        &self.importance
    }

    /// U, row-major in packed order, zero below its diagonal; `None` for plain rounding.
    pub fn triangle(&self) -> Option<&[f32]> {
        self.feedback.as_deref()
    }
}

/// The inputs by decreasing diagonal, equal ones in their order.
fn activation_order(hessian: &Hessian) -> Vec<u32> {
    let diagonal: Vec<f32> = hessian.diagonal().collect();
    let mut perm: Vec<u32> = (0..diagonal.len() as u32).collect();
    perm.sort_by(|a, b| diagonal[*b as usize].total_cmp(&diagonal[*a as usize]));
    perm
}

/// The damped matrix in reversed packed order.
fn reversed(hessian: &Hessian, perm: &[u32], damping: f32) -> Vec<f32> {
    let inputs = hessian.inputs();
    let mut values = Vec::with_capacity(inputs * inputs);
    for (idx, row) in perm.iter().rev().enumerate() {
        let row = &hessian.values()[*row as usize * inputs..][..inputs];
        values.extend(perm.iter().rev().map(|column| row[*column as usize]));
        values[idx * inputs + idx] += damping;
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hessian::HessianSum;
    use crate::random::Random;

    /// Correlated inputs of very different sizes.
    fn hessian(inputs: usize, seed: u64) -> Hessian {
        let mut random = Random::new(seed);
        let sizes: Vec<f32> = random.normal(inputs).into_iter().map(|x| x.exp()).collect();
        let mut sum = HessianSum::new(inputs);
        for _ in 0..2 {
            let mut row = random.normal(2 * inputs * inputs);
            for token in row.chunks_exact_mut(inputs) {
                let common = token[0];
                token.iter_mut().zip(&sizes).for_each(|(x, size)| *x = (*x + common) * size);
            }
            sum.add(&row);
        }
        sum.finish("x").unwrap()
    }

    #[test]
    fn the_triangle_is_a_factor_of_the_inverse() {
        let inputs = 160;
        let hessian = hessian(inputs, 1);
        let factor = Factor::new(&hessian, &FactorOptions::default()).unwrap();
        let u = factor.triangle().unwrap();
        let perm = factor.perm();
        // UᵀU (H + λI) = I, column by column.
        for j in 0..inputs {
            let column: Vec<f64> = (0..inputs)
                .map(|i| {
                    let (row, col) = (perm[i] as usize, perm[j] as usize);
                    let damping = if i == j { f64::from(factor.damping()) } else { 0.0 };
                    f64::from(hessian.values()[row * inputs + col]) + damping
                })
                .collect();
            let upper = |i: usize, k: usize| f64::from(u[i * inputs + k]);
            let half: Vec<f64> =
                (0..inputs).map(|i| (0..inputs).map(|k| upper(i, k) * column[k]).sum()).collect();
            for i in 0..inputs {
                let found: f64 = (0..inputs).map(|k| upper(k, i) * half[k]).sum();
                let expected = if i == j { 1.0 } else { 0.0 };
                assert!((found - expected).abs() < 2e-3, "{i} {j}: {found}");
                assert!(i <= j || u[i * inputs + j] == 0.0);
            }
            assert!(u[j * inputs + j] > 0.0);
        }
    }

    #[test]
    fn the_busiest_inputs_come_first() {
        let hessian = hessian(96, 2);
        let diagonal: Vec<f32> = hessian.diagonal().collect();
        let factor = Factor::order_only(&hessian);
        let sorted: Vec<f32> = factor.perm().iter().map(|row| diagonal[*row as usize]).collect();
        assert!(sorted.is_sorted_by(|a, b| a >= b));
        assert!(factor.triangle().is_none());
    }

    #[test]
    fn dead_and_doubled_inputs_are_damped() {
        let mut random = Random::new(5);
        let mut sum = HessianSum::new(64);
        let mut row = random.normal(16 * 64);
        for token in row.chunks_exact_mut(64) {
            token[3] = token[4];
            token[10..20].fill(0.0);
        }
        sum.add(&row);
        let hessian = sum.finish("x").unwrap();
        assert!(Factor::new(&hessian, &FactorOptions::default()).is_ok());
        let dead = zeros(64).finish("x").unwrap();
        assert!(Factor::new(&dead, &FactorOptions::default()).is_ok());
    }

    fn zeros(inputs: usize) -> HessianSum {
        let mut sum = HessianSum::new(inputs);
        sum.add(&vec![0.0; inputs]);
        sum
    }

    #[test]
    fn a_hessian_that_stays_singular_is_refused_by_name() {
        // Without damping to speak of, one token in many inputs has no inverse.
        let mut sum = HessianSum::new(64);
        sum.add(&[1000.0; 64]);
        let hessian = sum.finish("layers.0.self_attn.q_proj").unwrap();
        let error = Factor::new(&hessian, &FactorOptions { damping: 0.0 }).unwrap_err();
        assert!(error.to_string().contains("layers.0.self_attn.q_proj"), "{error}");
    }
}
