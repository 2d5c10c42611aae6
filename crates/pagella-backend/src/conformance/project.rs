//! `project`: every kind of weights, bias, norms, several linears on one input.

use pagella_arch::NormKind;
use pagella_formats::synthetic::{RowOrder, plain_f16};
use pagella_formats::{Dtype, Linear, OwnedLinear};

use super::compare::rows_close;
use super::fixture::{download, poisoned, step, text, upload};
use super::linears::{self, exl2_of, gptq_of};
use super::norm_add::weights;
use super::reference::{self, widen};
use super::{Case, Tolerances, noise};
use crate::{Backend, NormWeights, Projection};

/// New tokens: one, two, an odd few, a chunk. Backends switch kernels in between.
const TOKENS: [usize; 4] = [1, 2, 7, 37];

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    let mut cases = single_weights();
    cases.extend([
        Case { name: "project/bias", run: bias },
        Case { name: "project/fused_parts", run: fused_parts },
        Case { name: "project/rms_norm", run: |b, t| normed(b, t, NormKind::Rms, false) },
        Case { name: "project/layer_norm", run: |b, t| normed(b, t, NormKind::Layer, true) },
        Case { name: "project/several_linears_on_one_input", run: several },
        Case { name: "project/outliers", run: outliers },
    ]);
    cases
}

/// One linear of every kind of weights.
fn single_weights<B: Backend>() -> Vec<Case<B>> {
    vec![
        Case { name: "project/exl2_2bit", run: |b, t| single(b, t, &exl2_of(2)) },
        Case { name: "project/exl2_3bit", run: |b, t| single(b, t, &exl2_of(3)) },
        Case { name: "project/exl2_4bit", run: |b, t| single(b, t, &exl2_of(4)) },
        Case { name: "project/exl2_5bit", run: |b, t| single(b, t, &exl2_of(5)) },
        Case { name: "project/exl2_6bit", run: |b, t| single(b, t, &exl2_of(6)) },
        Case { name: "project/exl2_8bit", run: |b, t| single(b, t, &exl2_of(8)) },
        Case { name: "project/exl2_mixed", run: |b, t| single(b, t, &linears::exl2_mixed(9)) },
        Case {
            name: "project/gptq_sequential",
            run: |b, t| single(b, t, &gptq_of(128, RowOrder::Sequential)),
        },
        Case {
            name: "project/gptq_small_groups",
            run: |b, t| single(b, t, &gptq_of(32, RowOrder::Sequential)),
        },
        Case {
            name: "project/gptq_one_group",
            run: |b, t| single(b, t, &gptq_of(512, RowOrder::Sequential)),
        },
        Case {
            name: "project/gptq_act_order",
            run: |b, t| single(b, t, &gptq_of(64, RowOrder::Shuffled)),
        },
        Case { name: "project/f16", run: |b, t| single(b, t, &plain_f16(256, 80, 1)) },
        Case { name: "project/f16_odd_shape", run: |b, t| single(b, t, &plain_f16(72, 11, 2)) },
        Case { name: "project/f16_transposed", run: |b, t| plain(b, t, Dtype::F16, true) },
        Case { name: "project/bf16", run: |b, t| plain(b, t, Dtype::BF16, false) },
        Case { name: "project/f32", run: |b, t| plain(b, t, Dtype::F32, false) },
        Case { name: "project/f32_transposed", run: |b, t| plain(b, t, Dtype::F32, true) },
    ]
}

/// Uploaded linears that share their input.
pub(super) fn load<B: Backend>(
    backend: &B,
    sources: &[Linear<'_>],
) -> Result<Vec<B::Linear>, String> {
    sources.iter().map(|source| backend.linear(source).map_err(text)).collect()
}

/// Outputs of `linears`, `[tokens, out_features]` each. `x`: `[tokens, in_features]`.
pub(super) fn run<B: Backend>(
    backend: &B,
    sources: &[Linear<'_>],
    linears: &[B::Linear],
    norm: Option<&B::Norm>,
    x: &[f32],
) -> Result<Vec<Vec<f32>>, String> {
    let width = sources.first().map_or(1, Linear::in_features);
    let tokens = x.len() / width;
    let step = step(backend, tokens)?;
    let x = upload(backend, width, x)?;
    let outs = sources.iter().map(|source| poisoned(backend, tokens, source.out_features()));
    let mut outs = outs.collect::<Result<Vec<_>, _>>()?;
    let pairs = linears.iter().zip(&mut outs);
    let mut projections: Vec<_> = pairs.map(|(linear, out)| Projection { linear, out }).collect();
    backend.project(&step, &x, norm, &mut projections).map_err(text)?;
    outs.iter().map(|out| download(backend, out, tokens)).collect()
}

/// Runs linears on steps of all lengths in [`TOKENS`]; compares each linear's outputs, together.
fn check<B: Backend>(
    backend: &B,
    tolerances: &Tolerances,
    sources: &[Linear<'_>],
    norm: Option<NormWeights>,
    x: impl Fn(usize) -> Vec<f32>,
) -> Result<(), String> {
    let linears = load(backend, sources)?;
    let loaded = norm.clone().map(|norm| backend.norm(norm)).transpose().map_err(text)?;
    let width = sources.first().map_or(1, Linear::in_features);
    let mut outputs = vec![(Vec::new(), Vec::new()); sources.len()];
    for tokens in TOKENS {
        let x = x(tokens * width);
        let found = run(backend, sources, &linears, loaded.as_ref(), &x)?;
        let x = widen(&x);
        let x = norm.as_ref().map_or_else(|| x.clone(), |norm| reference::norm(norm, &x));
        for ((outputs, found), source) in outputs.iter_mut().zip(found).zip(sources) {
            outputs.0.extend(found);
            outputs.1.extend(reference::linear(source, &x));
        }
    }
    for (index, ((found, expected), source)) in outputs.iter().zip(sources).enumerate() {
        let what = format!("linear {index} in steps of {TOKENS:?} tokens");
        let limit = linears::tolerance(source, tolerances);
        rows_close(&what, found, expected, source.out_features(), limit)?;
    }
    Ok(())
}

/// Unit Gaussian inputs.
fn ordinary(len: usize) -> Vec<f32> {
    noise::halves(len as u64, len, 1.0)
}

fn single<B: Backend>(
    backend: &B,
    tolerances: &Tolerances,
    linear: &OwnedLinear,
) -> Result<(), String> {
    check(backend, tolerances, &[linear.view()], None, ordinary)
}

fn plain<B: Backend>(
    backend: &B,
    tolerances: &Tolerances,
    dtype: Dtype,
    transposed: bool,
) -> Result<(), String> {
    let data = linears::plain_bytes(dtype);
    check(backend, tolerances, &[linears::plain(&data, dtype, transposed)], None, ordinary)
}

fn bias<B: Backend>(backend: &B, tolerances: &Tolerances) -> Result<(), String> {
    for linear in linears::one_of_each() {
        check(backend, tolerances, &[linears::with_bias(linear.view())], None, ordinary)?;
    }
    Ok(())
}

fn fused_parts<B: Backend>(backend: &B, tolerances: &Tolerances) -> Result<(), String> {
    let whole = [
        linears::exl2_mixed(9),
        gptq_of(64, RowOrder::Shuffled),
        gptq_of(64, RowOrder::Sequential),
        plain_f16(256, 80, 1),
    ];
    for linear in &whole {
        check(backend, tolerances, &[linears::fused_parts(linear.view())], None, ordinary)?;
    }
    Ok(())
}

fn normed<B: Backend>(
    backend: &B,
    tolerances: &Tolerances,
    kind: NormKind,
    with_bias: bool,
) -> Result<(), String> {
    for linear in linears::one_of_each() {
        let norm = weights(21, kind, linear.view().in_features(), with_bias);
        check(backend, tolerances, &[linear.view()], Some(norm), |len| {
            noise::halves(len as u64, len, 3.0)
        })?;
    }
    Ok(())
}

/// Linears of different kinds, so that backends cannot prepare the input once for all.
fn several<B: Backend>(backend: &B, tolerances: &Tolerances) -> Result<(), String> {
    let owned = linears::one_of_each();
    let mut sources: Vec<_> = owned.iter().map(OwnedLinear::view).collect();
    sources.extend(owned.iter().map(|linear| linears::with_bias(linear.view())));
    let norm = weights(23, NormKind::Rms, 512, false);
    check(backend, tolerances, &sources, None, ordinary)?;
    check(backend, tolerances, &sources, Some(norm), ordinary)
}

/// A few inputs are a hundred times as large as the others, as real activations have them.
fn outliers<B: Backend>(backend: &B, tolerances: &Tolerances) -> Result<(), String> {
    let spiked = |len| {
        let spike = |(i, x)| if i % 97 == 5 { 128.0 * x } else { x };
        ordinary(len).into_iter().enumerate().map(spike).collect()
    };
    for linear in linears::one_of_each() {
        check(backend, tolerances, &[linear.view()], None, spiked)?;
    }
    Ok(())
}
