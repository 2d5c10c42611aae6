//! Every reference case, evaluated from its [`ModelSpec`] alone, must give the logits of
//! transformers.
//!
//! The evaluation is naive and in f64: it exists to prove that the specs say the right thing, apart
//! from any backend.

mod support;

#[allow(dead_code, reason = "shared with other crates' tests")]
#[path = "../../../testdata/families/recipe.rs"]
mod recipe;

use pagella_arch::*;
use support::{Case, cases};

/// Largest difference allowed, relative to the largest logit of the case. The reference ran in f32:
/// its own rounding reaches 5e-6 here.
const TOLERANCE: f64 = 1e-5;

type Rows = Vec<Vec<f64>>;

#[test]
fn every_case_gives_the_logits_of_transformers() {
    let cases = cases();
    assert!(cases.len() >= 18, "only {} cases found", cases.len());
    for case in cases {
        let difference = difference(&case, &case.spec);
        println!("{:30} {difference:.2e}", case.name);
        assert!(difference < TOLERANCE, "{}: relative difference {difference:.2e}", case.name);
    }
}

#[test]
fn a_window_that_is_off_by_one_would_be_noticed() {
    let mut n_windowed = 0;
    for case in cases() {
        let mut spec = case.spec.clone();
        let windows = spec.layers.iter_mut().filter_map(|layer| layer.attn.window.as_mut());
        if windows.map(|window| *window += 1).count() > 0 {
            n_windowed += 1;
            let difference = difference(&case, &spec);
            assert!(difference > 100.0 * TOLERANCE, "{}: {difference:.2e}", case.name);
        }
    }
    assert!(n_windowed >= 6, "only {n_windowed} cases have windows");
}

/// Largest difference from the stored logits, relative to the largest of them.
fn difference(case: &Case, spec: &ModelSpec) -> f64 {
    let got = Reference { case, spec }.logits();
    let largest = case.logits.iter().fold(0.0, |m: f32, l| m.max(l.abs()));
    let worst = case.rows.iter().enumerate().flat_map(|(r, row)| {
        let want = &case.logits[r * spec.vocab..(r + 1) * spec.vocab];
        got[*row].iter().zip(want).map(|(g, w)| (g - f64::from(*w)).abs())
    });
    worst.fold(0.0, f64::max) / f64::from(largest)
}

#[test]
fn the_recipe_gives_the_pinned_values() {
    let path = support::testdata().join("families/recipe.json");
    let text = std::fs::read_to_string(path).expect("recipe.json exists");
    let pins: Vec<serde_json::Value> = serde_json::from_str(&text).expect("valid JSON");
    assert!(!pins.is_empty());
    for pin in pins {
        let name = pin["name"].as_str().expect("a name");
        let number = |key: &str| pin[key].as_f64().expect("a number");
        let kind = recipe::Kind::of(name, number("fan_in") as usize, number("norm_centre") as f32);
        let values = recipe::values(name, number("len") as usize, kind);
        let first: Vec<f64> = values.iter().take(8).map(|v| f64::from(*v)).collect();
        assert_eq!(serde_json::json!(first), pin["first"], "{name}");
        assert_eq!(values.iter().map(|v| f64::from(*v)).sum::<f64>(), number("sum"), "{name}");
    }
}

struct Reference<'a> {
    case: &'a Case,
    spec: &'a ModelSpec,
}

impl Reference<'_> {
    fn logits(&self) -> Rows {
        let spec = self.spec;
        let embedding = self.tensor(&format!("{}.weight", spec.embed.name), spec.hidden);
        let embed = |id: &usize| {
            let row = &embedding[id * spec.hidden..(id + 1) * spec.hidden];
            row.iter().map(|v| v * f64::from(spec.embed.scale)).collect()
        };
        let mut x: Rows = self.case.input_ids.iter().map(embed).collect();
        for layer in &spec.layers {
            assert_eq!(layer.order, BlockOrder::Sequential);
            let h = self.optional_norm(&x, layer.attn_pre_norm.as_ref());
            let h = self.attention(&h, &layer.attn);
            let h = self.optional_norm(&h, layer.attn_post_norm.as_ref());
            add(&mut x, &h, layer.branch_scale);
            let h = self.optional_norm(&x, layer.mlp_pre_norm.as_ref());
            let h = self.mlp(&h, &layer.mlp);
            let h = self.optional_norm(&h, layer.mlp_post_norm.as_ref());
            add(&mut x, &h, layer.branch_scale);
        }
        let x = self.norm(&x, &spec.final_norm);
        let logits = self.linear(&x, &spec.head.linear);
        let finish = |l: f64| cap(l * f64::from(spec.head.scale), spec.head.softcap);
        logits.into_iter().map(|row| row.into_iter().map(finish).collect()).collect()
    }

    /// A tensor of the recipe; `fan_in` is the length of its rows.
    fn tensor(&self, name: &str, fan_in: usize) -> Vec<f64> {
        let shape = self.case.tensors.get(name).expect("the state dict has it");
        let dims = shape.as_array().expect("a shape").iter().map(|d| d.as_u64().expect("a size"));
        let len = dims.product::<u64>() as usize;
        let kind = recipe::Kind::of(name, fan_in, self.case.norm_centre);
        recipe::values(name, len, kind).into_iter().map(f64::from).collect()
    }

    /// Rows of a linear's weight with their biases, from the fused tensor if the case has one.
    fn linear(&self, x: &Rows, linear: &LinearSpec) -> Rows {
        let has = |base: &String| self.case.tensors.contains_key(&format!("{base}.weight"));
        let (base, rows): (_, Vec<usize>) = match &linear.fused {
            Some(fused) if has(&fused.base) => {
                (&fused.base, fused.rows.iter().cloned().flatten().collect())
            }
            _ => {
                let base = linear.bases.iter().find(|base| has(base)).expect("one name exists");
                (base, (0..linear.out_features).collect())
            }
        };
        let width = linear.in_features;
        let weight = self.tensor(&format!("{base}.weight"), width);
        let bias_name = format!("{base}.bias");
        let has_bias = self.case.tensors.contains_key(&bias_name);
        assert_eq!(has_bias, linear.bias == BiasRule::Required, "{bias_name}");
        let bias = has_bias.then(|| self.tensor(&bias_name, 1));
        assert_eq!(rows.len(), linear.out_features, "{base}");
        let output = |x: &Vec<f64>| {
            let of_row = |r: &usize| {
                let bias = bias.as_ref().map_or(0.0, |bias| bias[*r]);
                dot(x, &weight[r * width..(r + 1) * width]) + bias
            };
            rows.iter().map(of_row).collect()
        };
        x.iter().map(output).collect()
    }

    fn optional_norm(&self, x: &Rows, norm: Option<&NormSpec>) -> Rows {
        norm.map_or_else(|| x.clone(), |norm| self.norm(x, norm))
    }

    /// Normalises each run of `norm.width` elements.
    fn norm(&self, x: &Rows, norm: &NormSpec) -> Rows {
        assert_eq!(norm.kind, NormKind::Rms);
        let weight = self.tensor(&format!("{}.weight", norm.bases[0]), 1);
        let normalise = |part: &[f64]| -> Vec<f64> {
            let mean_square = dot(part, part) / part.len() as f64;
            let inverse = 1.0 / (mean_square + f64::from(norm.eps)).sqrt();
            let scaled = part.iter().zip(&weight);
            scaled.map(|(v, w)| v * inverse * (w + f64::from(norm.offset))).collect()
        };
        x.iter().map(|row| row.chunks(norm.width).flat_map(normalise).collect()).collect()
    }

    fn attention(&self, x: &Rows, attn: &AttentionSpec) -> Rows {
        let (mut q, mut k) = (self.linear(x, &attn.q), self.linear(x, &attn.k));
        let v = self.linear(x, &attn.v);
        if let Some(norm) = &attn.qk_norm {
            (q, k) = (self.norm(&q, &norm.q), self.norm(&k, &norm.k));
        }
        let rope = &self.spec.ropes[attn.rope.expect("all cases rotate")];
        for rows in [&mut q, &mut k] {
            for (position, row) in rows.iter_mut().enumerate() {
                row.chunks_mut(attn.head_dim).for_each(|head| rotate(head, rope, position));
            }
        }
        let d = attn.head_dim;
        let output = |i: usize| {
            let first = attn.window.map_or(0, |window| (i + 1).saturating_sub(window));
            let head = |h: usize| {
                let kv = h / (attn.heads / attn.kv_heads) * d;
                let query = &q[i][h * d..(h + 1) * d];
                let score = |j: usize| {
                    cap(dot(query, &k[j][kv..kv + d]) * f64::from(attn.scale), attn.softcap)
                };
                let weights = softmax((first..=i).map(score).collect());
                let element =
                    |e: usize| weights.iter().zip(first..=i).map(|(w, j)| w * v[j][kv + e]).sum();
                (0..d).map(element).collect::<Vec<f64>>()
            };
            (0..attn.heads).flat_map(head).collect()
        };
        let mixed: Rows = (0..x.len()).map(output).collect();
        self.linear(&mixed, &attn.o)
    }

    fn mlp(&self, x: &Rows, mlp: &MlpSpec) -> Rows {
        match mlp {
            MlpSpec::Gated { gate, up, down, act } => self.gated(x, [gate, up, down], *act),
            MlpSpec::Moe(moe) => self.experts(x, moe),
            MlpSpec::Plain { .. } => unreachable!("no case has a plain MLP"),
        }
    }

    fn gated(&self, x: &Rows, [gate, up, down]: [&LinearSpec; 3], act: Activation) -> Rows {
        let (gate, up) = (self.linear(x, gate), self.linear(x, up));
        let inner = gate
            .iter()
            .zip(&up)
            .map(|(gate, up)| gate.iter().zip(up).map(|(g, u)| activate(act, *g) * u).collect());
        self.linear(&inner.collect(), down)
    }

    /// Every expert on every row; those that a row did not choose count nothing in it.
    fn experts(&self, x: &Rows, moe: &MoeSpec) -> Rows {
        assert_eq!(moe.score, RouterScore::Softmax);
        let weights: Rows = self
            .linear(x, &moe.router)
            .into_iter()
            .map(|logits| {
                let mut weights = softmax(logits);
                let mut sorted = weights.clone();
                sorted.sort_by(|a, b| b.total_cmp(a));
                let last = sorted[moe.experts_per_token - 1];
                weights.iter_mut().for_each(|w| *w = if *w < last { 0.0 } else { *w });
                let sum: f64 = weights.iter().sum();
                let divisor = if moe.renormalize { sum } else { 1.0 };
                weights.into_iter().map(|w| w / divisor).collect()
            })
            .collect();
        let mut mixed = vec![vec![0.0; self.spec.hidden]; x.len()];
        for (e, expert) in moe.experts.iter().enumerate() {
            let out = self.gated(x, expert.each_ref(), moe.act);
            for ((mixed, out), weights) in mixed.iter_mut().zip(&out).zip(&weights) {
                mixed.iter_mut().zip(out).for_each(|(m, o)| *m += weights[e] * o);
            }
        }
        mixed
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(x: &mut Rows, branch: &Rows, scale: f32) {
    for (x, branch) in x.iter_mut().zip(branch) {
        x.iter_mut().zip(branch).for_each(|(x, b)| *x += b * f64::from(scale));
    }
}

fn cap(value: f64, softcap: Option<f32>) -> f64 {
    softcap.map_or(value, |cap| f64::from(cap) * (value / f64::from(cap)).tanh())
}

fn softmax(scores: Vec<f64>) -> Vec<f64> {
    let largest = scores.iter().copied().fold(f64::MIN, f64::max);
    let exponentials: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
    let total: f64 = exponentials.iter().sum();
    exponentials.iter().map(|e| e / total).collect()
}

fn rotate(head: &mut [f64], rope: &RopeSpec, position: usize) {
    let half = rope.rotary_dim / 2;
    assert_eq!(rope.inv_freq.len(), half);
    for (j, freq) in rope.inv_freq.iter().enumerate() {
        // The product in f32, as transformers does it.
        let angle = (position as f32 + rope.position_offset as f32) * freq;
        let (sin, cos) = f64::from(angle).sin_cos();
        let factor = f64::from(rope.attention_factor);
        let (a, b) = match rope.style {
            RopeStyle::Neox => (j, j + half),
            RopeStyle::GptJ => (2 * j, 2 * j + 1),
        };
        (head[a], head[b]) =
            ((head[a] * cos - head[b] * sin) * factor, (head[b] * cos + head[a] * sin) * factor);
    }
}

fn activate(act: Activation, x: f64) -> f64 {
    match act {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        }
        other => unreachable!("no case uses {other:?}"),
    }
}
