//! `mix_experts`: routing, every kind of weights, every number of experts and rows.
//!
//! A backend that has no experts refuses them, and passes.

mod adapted;
mod layer;

use pagella_arch::{Activation, ExpertGroups, GroupRank, NormKind, RouterScore, Weigh};
use pagella_formats::synthetic::{RowOrder, exl2, gptq, plain_f16};
use pagella_formats::{Linear, OwnedLinear};

use super::compare::{rows_close, same_bits};
use super::fixture::{download, refused_size, step, text, upload};
use super::norm_add::weights;
use super::reference;
use super::{Case, Tolerances, noise};
use crate::{Backend, MoeOp};
use layer::{Layer, Loaded};

/// New tokens: backends switch kernels in between, and experts get from no rows to many.
const TOKENS: [usize; 5] = [1, 2, 4, 5, 33];

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    vec![
        Case { name: "experts/top_2_of_8", run: |b, t| routing(b, t, 8, 2, true) },
        Case { name: "experts/top_2_of_8_as_they_are", run: |b, t| routing(b, t, 8, 2, false) },
        Case { name: "experts/top_1_of_4", run: |b, t| routing(b, t, 4, 1, false) },
        Case { name: "experts/top_4_of_16", run: |b, t| routing(b, t, 16, 4, true) },
        Case { name: "experts/top_4_of_60", run: |b, t| routing(b, t, 60, 4, false) },
        Case { name: "experts/top_8_of_128", run: |b, t| routing(b, t, 128, 8, true) },
        Case { name: "experts/all_of_3", run: |b, t| routing(b, t, 3, 3, false) },
        Case { name: "experts/sigmoid", run: sigmoid },
        Case { name: "experts/selection_bias", run: selection_bias },
        Case { name: "experts/groups", run: groups },
        Case { name: "experts/weighed_inputs", run: weighed_inputs },
        Case { name: "experts/clamped_swiglu", run: clamped },
        Case { name: "experts/every_kind_of_weights", run: kinds },
        Case { name: "experts/biases_and_activation", run: biases },
        Case { name: "experts/without_norm", run: without_norm },
        Case { name: "experts/of_equal_logits_the_lower_id", run: ties },
        Case { name: "experts/all_rows_take_the_same", run: crowd },
        Case { name: "experts/many_rows", run: many_rows },
        Case { name: "experts/odd_widths", run: odd_widths },
        Case { name: "experts/neighbours_do_not_matter", run: neighbours },
        Case {
            name: "experts/neighbours_do_not_matter_whatever_the_weights",
            run: quantised_neighbours,
        },
        Case { name: "experts/two_layers_share_the_room", run: two_layers },
        Case { name: "experts/sizes", run: sizes },
        Case { name: "experts/adapters", run: adapted::check },
    ]
}

/// Experts with this activation and nothing special else.
pub(super) fn plain_op(act: Activation) -> MoeOp {
    MoeOp { act, ..Layer::plain(2, 1).op }
}

/// Rows of `hidden` after the op.
fn run<B: Backend>(
    backend: &B,
    layer: &Loaded<B>,
    rows: &[f32],
    hidden: usize,
) -> Result<Vec<f32>, String> {
    let tokens = rows.len() / hidden;
    let step = step(backend, tokens)?;
    let mut residual = upload(backend, hidden, rows)?;
    let Loaded { norm, router, experts } = layer;
    backend.mix_experts(&step, norm.as_ref(), router, experts, &mut residual).map_err(text)?;
    download(backend, &residual, tokens)
}

/// What the op adds to rows of `hidden`: the rows themselves would hide its errors.
fn added<B: Backend>(
    backend: &B,
    layer: &Loaded<B>,
    rows: &[f32],
    hidden: usize,
) -> Result<Vec<f32>, String> {
    let after = run(backend, layer, rows, hidden)?;
    Ok(after.iter().zip(rows).map(|(after, before)| after - before).collect())
}

/// Compares steps of every length in [`TOKENS`] with the reference.
fn check<B: Backend>(backend: &B, tolerances: &Tolerances, layer: &Layer) -> Result<(), String> {
    let rows_max = TOKENS.into_iter().max().unwrap_or(1);
    let Some(loaded) = layer.load(backend, rows_max)? else { return Ok(()) };
    for tokens in TOKENS {
        check_rows(backend, tolerances, layer, &loaded, &layer.clear_rows(tokens as u64, tokens))?;
    }
    Ok(())
}

fn check_rows<B: Backend>(
    backend: &B,
    tolerances: &Tolerances,
    layer: &Layer,
    loaded: &Loaded<B>,
    rows: &[f32],
) -> Result<(), String> {
    let hidden = layer.op.hidden;
    let found = added(backend, loaded, rows, hidden)?;
    let expected: Vec<f64> = rows.chunks(hidden).flat_map(|row| layer.addition(row)).collect();
    let what = format!(
        "{} of {} experts, {} rows",
        layer.op.experts_per_token,
        layer.op.experts,
        rows.len() / hidden
    );
    rows_close(&what, &found, &expected, hidden, layer.tolerance(tolerances))
}

fn routing<B: Backend>(
    backend: &B,
    tolerances: &Tolerances,
    experts: usize,
    experts_per_token: usize,
    renormalize: bool,
) -> Result<(), String> {
    let mut layer = Layer::plain(experts, experts_per_token);
    layer.op.renormalize = renormalize;
    check(backend, tolerances, &layer)
}

fn sigmoid<B: Backend>(backend: &B, tolerances: &Tolerances) -> Result<(), String> {
    for renormalize in [false, true] {
        let mut layer = Layer::plain(16, 3);
        layer.op.score = RouterScore::Sigmoid;
        layer.op.renormalize = renormalize;
        check(backend, tolerances, &layer)?;
    }
    Ok(())
}

/// Biases that move the choice and not the weights.
fn selection_bias<B: Backend>(backend: &B, tolerances: &Tolerances) -> Result<(), String> {
    for (score, size) in [(RouterScore::Sigmoid, 0.5), (RouterScore::Softmax, 0.1)] {
        let mut layer = Layer::plain(16, 3);
        (layer.op.score, layer.op.routing.selection_bias) = (score, true);
        layer.op.routing.weight_scale = 1.5;
        layer.selection_bias = Some(noise::halves(71, 16, size));
        check(backend, tolerances, &layer)?;
    }
    Ok(())
}

fn groups<B: Backend>(backend: &B, tolerances: &Tolerances) -> Result<(), String> {
    for (rank, taken, bias) in
        [(GroupRank::TwoBest, 2, true), (GroupRank::TwoBest, 1, false), (GroupRank::Best, 2, false)]
    {
        let mut layer = Layer::plain(16, 3);
        layer.op.score = RouterScore::Sigmoid;
        layer.op.routing.groups = Some(ExpertGroups { count: 4, taken, rank });
        layer.op.routing.selection_bias = bias;
        layer.selection_bias = bias.then(|| noise::halves(72, 16, 0.5));
        check(backend, tolerances, &layer)?;
    }
    Ok(())
}

fn weighed_inputs<B: Backend>(backend: &B, tolerances: &Tolerances) -> Result<(), String> {
    for experts_per_token in [1, 2] {
        let mut layer = Layer::plain(8, experts_per_token);
        (layer.op.score, layer.op.renormalize) = (RouterScore::Sigmoid, false);
        layer.op.routing.weigh = Weigh::Input;
        check(backend, tolerances, &layer)?;
    }
    Ok(())
}

fn clamped<B: Backend>(backend: &B, tolerances: &Tolerances) -> Result<(), String> {
    let mut layer = Layer::plain(5, 2);
    (layer.op.act, layer.with_bias) = (Activation::ClampedSwiglu { limit: 0.75 }, true);
    check(backend, tolerances, &layer)
}

/// Experts of different widths and kinds side by side in one layer.
fn quantised_layer(hidden: usize, inner: usize) -> Layer {
    let quantised = |inputs: usize, outputs: usize, seed: u64| match seed % 4 {
        0 => exl2(inputs, outputs, &[(6, 0.25, 32), (4, 0.5, 64), (3, 0.25, 64)], seed),
        1 => exl2(inputs, outputs, &[(5, 0.5, 32), (2, 0.5, 32)], seed),
        2 => gptq(inputs, outputs, 32, RowOrder::Shuffled, seed),
        _ => gptq(inputs, outputs, 32, RowOrder::Sequential, seed),
    };
    let mut layer = Layer::plain(8, 2);
    (layer.op.hidden, layer.op.inner) = (hidden, inner);
    layer.norm = Some(weights(61, NormKind::Rms, hidden, false));
    layer.router = plain_f16(hidden, 8, 1000);
    let expert = |e: u64| {
        let (gate, up) = (quantised(hidden, inner, 3 * e), quantised(hidden, inner, 3 * e + 1));
        [gate, up, quantised(inner, hidden, e)]
    };
    layer.experts = (0..8).map(expert).collect();
    layer
}

fn kinds<B: Backend>(backend: &B, tolerances: &Tolerances) -> Result<(), String> {
    check(backend, tolerances, &quantised_layer(256, 192))
}

/// Enough rows for experts to have more than any tile holds.
fn many_rows<B: Backend>(backend: &B, tolerances: &Tolerances) -> Result<(), String> {
    for (experts, experts_per_token) in [(3, 3), (4, 2), (16, 4), (128, 8)] {
        let layer = Layer::plain(experts, experts_per_token);
        let Some(loaded) = layer.load(backend, 300)? else { return Ok(()) };
        for tokens in [9, 65, 300] {
            let rows = layer.clear_rows(tokens as u64, tokens);
            check_rows(backend, tolerances, &layer, &loaded, &rows)?;
        }
    }
    Ok(())
}

/// Widths that no vector and no slice divides.
fn odd_widths<B: Backend>(backend: &B, tolerances: &Tolerances) -> Result<(), String> {
    for (hidden, inner) in [(70, 42), (64, 36), (100, 75)] {
        let mut layer = Layer::plain(6, 2);
        (layer.op.hidden, layer.op.inner) = (hidden, inner);
        layer.norm = Some(weights(61, NormKind::Rms, hidden, false));
        layer.router = plain_f16(hidden, 6, 1000);
        let gate = |seed: u64| plain_f16(hidden, inner, seed);
        let expert = |e: u64| [gate(3 * e), gate(3 * e + 1), plain_f16(inner, hidden, 3 * e + 2)];
        layer.experts = (1..=6).map(expert).collect();
        check(backend, tolerances, &layer)?;
    }
    Ok(())
}

fn biases<B: Backend>(backend: &B, tolerances: &Tolerances) -> Result<(), String> {
    for act in [Activation::GeluTanh, Activation::Relu2] {
        let mut layer = Layer::plain(5, 2);
        (layer.op.act, layer.with_bias) = (act, true);
        layer.norm = Some(weights(61, NormKind::Layer, 64, true));
        check(backend, tolerances, &layer)?;
    }
    Ok(())
}

fn without_norm<B: Backend>(backend: &B, tolerances: &Tolerances) -> Result<(), String> {
    check(backend, tolerances, &Layer { norm: None, ..Layer::plain(8, 3) })
}

/// A router that has every logit several times: expert `e` has that of expert `e % 4`.
fn ties<B: Backend>(backend: &B, tolerances: &Tolerances) -> Result<(), String> {
    let rows = Layer::plain(4, 1).clear_rows(7, 9);
    for (copies, experts_per_token) in [(2, 1), (3, 2), (4, 3)] {
        let layer = Layer::plain(4 * copies, experts_per_token);
        let Some(mut loaded) = layer.load(backend, 9)? else { return Ok(()) };
        let four = plain_f16(64, 4, 1000);
        let Linear::Plain(mut router) = four.view() else { return Err("a plain router".into()) };
        let data = router.data.repeat(copies);
        (router.data, router.out_features) = (&data, 4 * copies);
        router.ranges = vec![std::ops::Range { start: 0, end: 4 * copies }];
        let router = Linear::Plain(router);
        loaded.router = backend.linear(&router).map_err(text)?;
        let logits = |row| reference::linear(&router, &layer.normed(row));
        let expected: Vec<f64> =
            rows.chunks(64).flat_map(|row| layer.addition_of(row, &logits(row))).collect();
        let found = added(backend, &loaded, &rows, 64)?;
        let what = format!("{experts_per_token} of {copies} times 4 logits");
        rows_close(&what, &found, &expected, 64, layer.tolerance(tolerances))?;
    }
    Ok(())
}

/// Rows that all take the same experts, so that most experts get nothing and some get everything.
fn crowd<B: Backend>(backend: &B, tolerances: &Tolerances) -> Result<(), String> {
    let layer = Layer::plain(16, 2);
    let Some(loaded) = layer.load(backend, 40)? else { return Ok(()) };
    for tokens in [3, 40] {
        let rows = layer.clear_rows(3, 1).repeat(tokens);
        check_rows(backend, tolerances, &layer, &loaded, &rows)?;
    }
    Ok(())
}

/// Same row, same bits: alone, in any company, at any place.
fn neighbours<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    const ROWS: usize = 70;
    for (experts, experts_per_token) in [(8, 2), (128, 8)] {
        let layer = Layer::plain(experts, experts_per_token);
        let Some(loaded) = layer.load(backend, ROWS)? else { return Ok(()) };
        // Any rows: even a choice on the edge must not depend on others.
        let rows = noise::halves(9, ROWS * 64, 1.0);
        let all = run(backend, &loaded, &rows, 64)?;
        for tokens in [1, 2, 3, 5, 16, 33, 69] {
            for first in [0, ROWS - tokens] {
                let part = first * 64..(first + tokens) * 64;
                let found = run(backend, &loaded, &rows[part.clone()], 64)?;
                let what = format!("{tokens} of {ROWS} rows from {first}, {experts} experts");
                same_bits(&what, &found, &all[part])?;
            }
        }
        let again = run(backend, &loaded, &rows, 64)?;
        same_bits("once more", &again, &all)?;
    }
    Ok(())
}

/// The same with weights of all kinds, in several segments, and steps that use every kernel.
fn quantised_neighbours<B: Backend>(backend: &B, tolerances: &Tolerances) -> Result<(), String> {
    const ROWS: usize = 300;
    // Neither width is a multiple of 64. Five of eight: experts have nearly as many rows as there are.
    let mut layer = quantised_layer(608, 352);
    layer.op.experts_per_token = 5;
    let hidden = layer.op.hidden;
    let Some(loaded) = layer.load(backend, ROWS)? else { return Ok(()) };
    let rows = layer.clear_rows(9, ROWS);
    let all = run(backend, &loaded, &rows, hidden)?;
    for tokens in [1, 2, 7, 8, 9, 24, 33, 65, 128, 299] {
        let first = (37 * tokens) % (ROWS - tokens);
        let part = first * hidden..(first + tokens) * hidden;
        let found = run(backend, &loaded, &rows[part.clone()], hidden)?;
        same_bits(&format!("{tokens} of {ROWS} rows from {first}"), &found, &all[part])?;
    }
    check_rows(backend, tolerances, &layer, &loaded, &rows[..2 * hidden])
}

/// Rows of experts of a real model's size have the same bits alone and in steps of every size. `rows`
/// repeats its rows, however many are asked for.
pub(super) fn same_in_every_step<B: Backend>(
    backend: &B,
    (hidden, inner): (usize, usize),
    experts_per_token: usize,
    steps: &[usize],
    rows: impl Fn(usize) -> Vec<f32>,
) -> Result<(), String> {
    let mut layer = quantised_layer(hidden, inner);
    layer.op.experts_per_token = experts_per_token;
    let most = steps.iter().copied().max().unwrap_or(1);
    let Some(loaded) = layer.load(backend, most)? else { return Ok(()) };
    let all = rows(most);
    let expected = run(backend, &loaded, &all, hidden)?;
    for n in steps.iter().copied().chain([1]) {
        let found = run(backend, &loaded, &all[..n * hidden], hidden)?;
        same_bits(&format!("{n} rows"), &found, &expected[..n * hidden])?;
    }
    Ok(())
}

/// Layers of different size and number of experts, in turns.
fn two_layers<B: Backend>(backend: &B, tolerances: &Tolerances) -> Result<(), String> {
    let (many, few) = (Layer::plain(60, 4), Layer::plain(3, 2));
    let (Some(loaded_many), Some(loaded_few)) = (many.load(backend, 5)?, few.load(backend, 33)?)
    else {
        return Ok(());
    };
    for tokens in [5, 2, 1] {
        let rows = many.clear_rows(11, tokens);
        check_rows(backend, tolerances, &many, &loaded_many, &rows)?;
        let rows = few.clear_rows(12, 33);
        check_rows(backend, tolerances, &few, &loaded_few, &rows)?;
    }
    Ok(())
}

fn sizes<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    let layer = Layer::plain(4, 2);
    let Some(mut loaded) = layer.load(backend, 5)? else { return Ok(()) };
    for experts_per_token in [0, 5] {
        let op = MoeOp { experts_per_token, ..layer.op };
        refused_size("experts per token", backend.experts(&op, 5))?;
    }
    let load = |linear: &OwnedLinear| backend.linear(&linear.view()).map_err(text);
    let [gate, up, down] = &layer.experts[0];
    let wide = plain_f16(64, 56, 1);
    let result = backend.add_expert(&mut loaded.experts, load(gate)?, load(up)?, load(down)?);
    refused_size("one expert too many", result)?;
    let mut some = backend.experts(&layer.op, 5).map_err(text)?;
    for (what, [gate, up, down]) in [
        ("a wide gate", [&wide, up, down]),
        ("a wide up", [gate, &wide, down]),
        ("a down that is an up", [gate, up, up]),
    ] {
        let result = backend.add_expert(&mut some, load(gate)?, load(up)?, load(down)?);
        refused_size(what, result)?;
    }
    backend.add_expert(&mut some, load(gate)?, load(up)?, load(down)?).map_err(text)?;

    let (five, six) = (step(backend, 5)?, step(backend, 6)?);
    let tensor = |rows: usize, width: usize| {
        backend.write(rows, width, &vec![1.0; rows * width]).map_err(text)
    };
    let narrow = backend.norm(weights(1, NormKind::Rms, 32, false)).map_err(text)?;
    let (few, deep) = (load(&plain_f16(64, 3, 1))?, load(&plain_f16(32, 4, 1))?);
    let Loaded { norm, router, experts } = &loaded;
    let run = |step: &B::Step, norm, router, experts: &B::Experts, mut rows: B::Tensor| {
        backend.mix_experts(step, norm, router, experts, &mut rows)
    };
    let norm = norm.as_ref();
    refused_size("a layer not yet full", run(&five, norm, router, &some, tensor(5, 64)?))?;
    refused_size("a wide residual", run(&five, norm, router, experts, tensor(5, 72)?))?;
    refused_size("a short residual", run(&five, norm, router, experts, tensor(4, 64)?))?;
    refused_size("a narrow norm", run(&five, Some(&narrow), router, experts, tensor(5, 64)?))?;
    refused_size("a router of three", run(&five, norm, &few, experts, tensor(5, 64)?))?;
    refused_size("a narrow router", run(&five, norm, &deep, experts, tensor(5, 64)?))?;
    run(&five, norm, router, experts, tensor(5, 64)?).map_err(text)?;
    // Room may have been made for more, by another layer.
    match run(&six, norm, router, experts, tensor(6, 64)?) {
        Ok(()) => Ok(()),
        other => refused_size("more rows than asked for", other),
    }
}
