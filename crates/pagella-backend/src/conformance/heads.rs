//! `project_heads`: a linear for every head, against f64, and with the same bits in any company.

use super::compare::{rows_close, same_bits};
use super::fixture::{download, poisoned, refused_size, step, text, upload};
use super::{Case, Tolerances, noise};
use crate::{Backend, BackendError, HeadWeights, TableDtype};

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    use TableDtype::{BF16, F16, F32};
    vec![
        Case { name: "heads/f16", run: |b, t| check(b, t, &Shape::new(5, 32, 64, 64, F16)) },
        Case { name: "heads/bf16", run: |b, t| check(b, t, &Shape::new(4, 64, 48, 0, BF16)) },
        Case { name: "heads/f32", run: |b, t| check(b, t, &Shape::new(2, 48, 80, 16, F32)) },
        Case { name: "heads/odd_sizes", run: |b, t| check(b, t, &Shape::new(7, 21, 39, 14, F16)) },
        Case {
            name: "heads/into_latent",
            run: |b, t| check(b, t, &Shape::new(3, 128, 512, 64, F16)),
        },
        Case {
            name: "heads/out_of_latent",
            run: |b, t| check(b, t, &Shape::new(3, 512, 128, 0, F16)),
        },
        Case { name: "heads/many", run: |b, t| check(b, t, &Shape::new(128, 32, 64, 8, F16)) },
        Case { name: "heads/wrong_sizes", run: sizes },
    ]
}

/// Tokens of the largest step.
const TOKENS_MAX: usize = 70;
/// Smaller steps, on both sides of where backends switch kernels.
const TOKENS: [usize; 7] = [1, 2, 5, 8, 16, 17, 33];

/// Heads and their sizes.
struct Shape {
    heads: usize,
    inputs: usize,
    outputs: usize,
    rest: usize,
    dtype: TableDtype,
}

impl Shape {
    fn new(heads: usize, inputs: usize, outputs: usize, rest: usize, dtype: TableDtype) -> Self {
        Shape { heads, inputs, outputs, rest, dtype }
    }

    /// Weights that their type holds exactly.
    fn weights(&self) -> HeadWeights {
        let narrow = |x: f32| match self.dtype {
            TableDtype::F16 => half::f16::from_f32(x).to_f32(),
            TableDtype::BF16 => half::bf16::from_f32(x).to_f32(),
            TableDtype::F32 => x,
        };
        let scale = 1.0 / (self.inputs as f32).sqrt();
        let values = noise::gaussian(31, self.heads * self.outputs * self.inputs);
        HeadWeights {
            heads: self.heads,
            in_features: self.inputs,
            out_features: self.outputs,
            values: values.into_iter().map(|x| narrow(x * scale)).collect(),
            dtype: self.dtype,
        }
    }

    fn x_width(&self) -> usize {
        self.heads * (self.inputs + self.rest)
    }

    fn out_width(&self) -> usize {
        self.heads * (self.outputs + self.rest)
    }

    /// What comes out of rows.
    fn expected(&self, weights: &HeadWeights, x: &[f32]) -> Vec<f64> {
        let mut out = Vec::new();
        for (index, head) in x.chunks(self.inputs + self.rest).enumerate() {
            let size = self.outputs * self.inputs;
            let matrix = &weights.values[index % self.heads * size..][..size];
            let (inputs, rest) = head.split_at(self.inputs);
            for row in matrix.chunks(self.inputs) {
                out.push(row.iter().zip(inputs).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum());
            }
            out.extend(rest.iter().map(|x| f64::from(*x)));
        }
        out
    }
}

fn check<B: Backend>(backend: &B, tolerances: &Tolerances, shape: &Shape) -> Result<(), String> {
    let weights = shape.weights();
    let linear = match backend.head_linear(&weights) {
        Err(BackendError::Unsupported { .. }) => return Ok(()),
        other => other.map_err(text)?,
    };
    if backend.head_linear_bytes(&linear) < weights.values.len() {
        return Err("fewer bytes than weights".to_owned());
    }
    let x = noise::halves(32, TOKENS_MAX * shape.x_width(), 1.0);
    let run = |tokens: usize| {
        let step = step(backend, tokens)?;
        let x = upload(backend, shape.x_width(), &x[x.len() - tokens * shape.x_width()..])?;
        let mut out = poisoned(backend, tokens, shape.out_width())?;
        backend.project_heads(&step, &x, &linear, &mut out).map_err(text)?;
        download(backend, &out, tokens)
    };
    let all = run(TOKENS_MAX)?;
    let expected = shape.expected(&weights, &x);
    let limit = tolerances.plain_linear;
    rows_close("heads", &all, &expected, shape.out_width(), limit)?;
    // What passes through is not touched.
    let (width, outputs) = (shape.outputs + shape.rest, shape.outputs);
    let passed = |values: &[f32]| -> Vec<f32> {
        values.chunks(width).flat_map(|head| head[outputs..].to_vec()).collect()
    };
    let given: Vec<f32> = x
        .chunks(shape.inputs + shape.rest)
        .flat_map(|head| head[shape.inputs..].to_vec())
        .collect();
    same_bits("the rest of heads", &passed(&all), &given)?;
    for tokens in TOKENS {
        let found = run(tokens)?;
        let expected = &all[all.len() - tokens * shape.out_width()..];
        same_bits(&format!("{tokens} of {TOKENS_MAX} tokens"), &found, expected)?;
    }
    Ok(())
}

fn sizes<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    let shape = Shape::new(4, 32, 16, 8, TableDtype::F16);
    let linear = match backend.head_linear(&shape.weights()) {
        Err(BackendError::Unsupported { .. }) => return Ok(()),
        other => other.map_err(text)?,
    };
    let step = step(backend, 3)?;
    let run = |x: usize, out: usize| {
        let x = poisoned(backend, 3, x)?;
        let mut out = poisoned(backend, 3, out)?;
        Ok::<_, String>(backend.project_heads(&step, &x, &linear, &mut out))
    };
    let (x, out) = (shape.x_width(), shape.out_width());
    refused_size("heads that take no equal share", run(x + 2, out)?)?;
    refused_size("heads narrower than their linears", run(4 * 31, out)?)?;
    refused_size("another rest", run(x, out - 4)?)?;
    let mut short = HeadWeights { heads: 4, ..shape.weights() };
    short.values.pop();
    refused_size("too few weights", backend.head_linear(&short))?;
    run(x, out)?.map_err(text)
}
