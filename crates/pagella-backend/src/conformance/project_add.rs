//! `project_add`: linears that end in the residual stream.

use super::compare::rows_close;
use super::fixture::{download, step, text, upload};
use super::reference::{self, widen};
use super::{Case, Tolerances, linears, noise};
use crate::Backend;

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    vec![
        Case { name: "project_add/plain_sum", run: |b, t| check(b, t, 1.0, false) },
        Case { name: "project_add/scaled", run: |b, t| check(b, t, 0.21, false) },
        Case { name: "project_add/bias_is_scaled_too", run: |b, t| check(b, t, -1.75, true) },
    ]
}

fn check<B: Backend>(
    backend: &B,
    tolerances: &Tolerances,
    scale: f32,
    with_bias: bool,
) -> Result<(), String> {
    for owned in linears::one_of_each() {
        let source = owned.view();
        let source = if with_bias { linears::with_bias(source) } else { source };
        let (inputs, outputs) = (source.in_features(), source.out_features());
        let linear = backend.linear(&source).map_err(text)?;
        for tokens in [1, 3, 20] {
            let x = noise::halves(31, tokens * inputs, 1.0);
            let residual = noise::halves(32, tokens * outputs, 2.0);
            let product = reference::linear(&source, &widen(&x));
            let pairs = residual.iter().zip(&product);
            let expected: Vec<f64> =
                pairs.map(|(r, y)| f64::from(*r) + f64::from(scale) * y).collect();

            let step = step(backend, tokens)?;
            let x = upload(backend, inputs, &x)?;
            let mut residual = upload(backend, outputs, &residual)?;
            backend.project_add(&step, &x, &linear, scale, &mut residual).map_err(text)?;
            let found = download(backend, &residual, tokens)?;
            let limit = linears::tolerance(&source, tolerances);
            let what = format!("residual after {:?} of {tokens} tokens", source.kind());
            rows_close(&what, &found, &expected, outputs, limit)?;
        }
    }
    Ok(())
}
