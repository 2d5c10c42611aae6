//! Verdicts: is an output close enough to its reference, or equal to another output.

/// How much worse than the whole a single row may be: short rows scatter.
const ROW_SCATTER: f64 = 2.0;

/// The relative RMS error is within `limit`, and that of every row of `width` elements within
/// twice of it, so that one bad row does not drown in good ones.
pub(super) fn rows_close(
    what: &str,
    found: &[f32],
    expected: &[f64],
    width: usize,
    limit: f64,
) -> Result<(), String> {
    complete(what, found, expected.len(), width)?;
    for (row, (f, e)) in found.chunks(width).zip(expected.chunks(width)).enumerate() {
        close(&format!("{what}, row {row}"), f, e, ROW_SCATTER * limit)?;
    }
    close(what, found, expected, limit)
}

/// All rows together are within a relative RMS error of `limit`.
pub(super) fn all_close(
    what: &str,
    found: &[f32],
    expected: &[f64],
    limit: f64,
) -> Result<(), String> {
    complete(what, found, expected.len(), expected.len().max(1))?;
    close(what, found, expected, limit)
}

fn close(what: &str, found: &[f32], expected: &[f64], limit: f64) -> Result<(), String> {
    let error = relative_rms(found, expected);
    if !exceeds(error, limit) {
        return Ok(());
    }
    let at = worst(found, expected);
    Err(format!(
        "{what}: relative RMS error {error:.2e}, at most {limit:.1e} is accepted; worst at {at}: \
         found {}, expected {}",
        found[at], expected[at]
    ))
}

/// No element is off by more than `limit`, relative to it or to the RMS of its row.
pub(super) fn elements_close(
    what: &str,
    found: &[f32],
    expected: &[f64],
    width: usize,
    limit: f64,
) -> Result<(), String> {
    complete(what, found, expected.len(), width)?;
    for (row, (f, e)) in found.chunks(width).zip(expected.chunks(width)).enumerate() {
        let rms = (e.iter().map(|e| e * e).sum::<f64>() / e.len() as f64).sqrt();
        for (at, (f, e)) in f.iter().zip(e).enumerate() {
            let error = (f64::from(*f) - e).abs() / e.abs().max(rms);
            if exceeds(error, limit) {
                return Err(format!(
                    "{what}: row {row}, element {at} is {f}, expected {e}: relative error \
                     {error:.2e}, at most {limit:.1e} is accepted"
                ));
            }
        }
    }
    Ok(())
}

/// Two outputs are equal bit for bit.
pub(super) fn same_bits(what: &str, found: &[f32], expected: &[f32]) -> Result<(), String> {
    complete(what, found, expected.len(), expected.len().max(1))?;
    let differs = |(f, e): (&f32, &f32)| f.to_bits() != e.to_bits();
    match found.iter().zip(expected).position(differs) {
        None => Ok(()),
        Some(at) => Err(format!(
            "{what}: element {at} of {} is {:?} instead of {:?}; bits must not differ",
            expected.len(),
            found[at],
            expected[at]
        )),
    }
}

/// The output is as long as its reference and was written everywhere.
fn complete(what: &str, found: &[f32], expected: usize, width: usize) -> Result<(), String> {
    if found.len() != expected {
        return Err(format!("{what}: {} elements, expected {expected}", found.len()));
    }
    match found.iter().position(|x| !x.is_finite()) {
        None => Ok(()),
        Some(at) => Err(format!(
            "{what}: row {}, element {} is {}: never written, or made from something that was not",
            at / width,
            at % width,
            found[at]
        )),
    }
}

/// `error > limit`, and true for NaN.
fn exceeds(error: f64, limit: f64) -> bool {
    error.is_nan() || error > limit
}

/// A reference of zeros cannot be met relatively: any error is infinite then.
fn relative_rms(found: &[f32], expected: &[f64]) -> f64 {
    let error: f64 = found.iter().zip(expected).map(|(f, e)| (f64::from(*f) - e).powi(2)).sum();
    let size: f64 = expected.iter().map(|e| e * e).sum();
    if error == 0.0 { 0.0 } else { (error / size).sqrt() }
}

/// Index of the largest difference.
fn worst(found: &[f32], expected: &[f64]) -> usize {
    let difference = |at: &usize| (f64::from(found[*at]) - expected[*at]).abs();
    (0..found.len()).max_by(|a, b| difference(a).total_cmp(&difference(b))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_errors_pass_and_large_ones_do_not() {
        let expected = [3.0, 4.0, 6.0, 8.0];
        assert!(all_close("x", &[3.0, 4.0, 6.0, 8.01], &expected, 0.9e-3).is_ok());
        assert!(all_close("x", &[3.0, 4.0, 6.0, 8.01], &expected, 0.8e-3).is_err());
        assert!(rows_close("x", &[3.0, 4.0, 6.0, 8.01], &expected, 2, 0.9e-3).is_ok());
        assert!(rows_close("x", &[3.0, 4.0, 6.0, 8.01], &expected, 2, 0.8e-3).is_err());
        // Only the small row is off: little of the whole, much of the row.
        assert!(all_close("x", &[3.0, 4.01, 60.0, 80.0], &[3.0, 4.0, 60.0, 80.0], 5e-4).is_ok());
        assert!(
            rows_close("x", &[3.0, 4.01, 60.0, 80.0], &[3.0, 4.0, 60.0, 80.0], 2, 5e-4).is_err()
        );
        assert!(elements_close("x", &[3.0, 4.0, 6.0, 8.01], &expected, 2, 1.3e-3).is_ok());
        assert!(elements_close("x", &[3.0, 4.0, 6.0, 8.01], &expected, 2, 1.2e-3).is_err());
    }

    #[test]
    fn what_was_not_written_or_is_missing_is_found() {
        assert!(rows_close("x", &[1.0, f32::NAN], &[1.0, 1.0], 2, 1.0).is_err());
        assert!(elements_close("x", &[1.0], &[1.0, 1.0], 2, 1.0).is_err());
        assert!(same_bits("x", &[f32::NAN], &[f32::NAN]).is_err());
        assert!(rows_close("x", &[1e-9], &[0.0], 1, 1.0).is_err());
    }

    #[test]
    fn zeros_of_different_sign_have_different_bits() {
        assert!(same_bits("x", &[0.0, 1.0], &[0.0, 1.0]).is_ok());
        assert!(same_bits("x", &[0.0, 1.0], &[-0.0, 1.0]).is_err());
    }
}
