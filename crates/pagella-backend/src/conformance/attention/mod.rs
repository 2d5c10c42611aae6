//! `append` and `attend`: heads, masks, rotations, pages, against f64.
//!
//! Keys and values of the reference are rounded to binary16, as the cache stores them.

mod reference;
mod scene;

pub(super) use reference::attention as reference;
pub(super) use scene::{Row, Scene, Sequence};

use pagella_arch::{NormKind, QkNormOrder, QkNormSpan, QueryGrowth, RopeSpec, RopeStyle};

use super::compare::rows_close;
use super::fixture::text;
use super::norm_add::weights;
use super::{Case, Tolerances};
use crate::{Backend, BackendError, NormWeights};

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    let mut cases = vec![
        Case { name: "attend/one_head_each", run: |b, t| check(b, t, &prompt(2, 2, 64)) },
        Case { name: "attend/grouped_queries", run: |b, t| check(b, t, &prompt(8, 2, 64)) },
        Case { name: "attend/odd_group", run: |b, t| check(b, t, &prompt(6, 2, 64)) },
        Case { name: "attend/one_key_head", run: |b, t| check(b, t, &prompt(5, 1, 64)) },
        Case { name: "attend/head_of_40", run: |b, t| check(b, t, &prompt(4, 2, 40)) },
        Case { name: "attend/head_of_128", run: |b, t| check(b, t, &prompt(4, 2, 128)) },
        Case { name: "attend/scale", run: |b, t| check(b, t, &scale()) },
        Case { name: "attend/softcap", run: |b, t| check(b, t, &softcap()) },
        Case { name: "attend/page_borders", run: |b, t| check(b, t, &page_borders()) },
        Case { name: "attend/prompts_and_decoding_together", run: |b, t| check(b, t, &ragged()) },
        Case { name: "attend/three_pages", run: |b, t| check(b, t, &three_pages()) },
        Case { name: "attend/window_of_1", run: |b, t| check(b, t, &window(1)) },
        Case { name: "attend/window_of_5", run: |b, t| check(b, t, &window(5)) },
        Case { name: "attend/window_of_a_page", run: |b, t| check(b, t, &window(256)) },
        Case { name: "attend/window_beyond_a_page", run: |b, t| check(b, t, &window(263)) },
    ];
    cases.extend(append_cases());
    cases.extend(special_cases());
    cases
}

/// What not every backend has: it does it right, or refuses it before anything is laid out.
fn special_cases<B: Backend>() -> Vec<Case<B>> {
    vec![
        Case { name: "attend/sinks", run: |b, t| check_special(b, t, &sinks(&page_borders())) },
        Case {
            name: "attend/sinks_and_window",
            run: |b, t| check_special(b, t, &sinks(&window(5))),
        },
        Case { name: "attend/chunks_of_7", run: |b, t| check_special(b, t, &chunks(7)) },
        Case { name: "attend/chunks_beyond_a_page", run: |b, t| check_special(b, t, &chunks(300)) },
        Case { name: "append/norm_of_all_heads", run: |b, t| check_special(b, t, &token_normed()) },
        Case { name: "append/rope_then_norm", run: |b, t| check_special(b, t, &rope_then_norm()) },
        Case { name: "append/growing_queries", run: |b, t| check_special(b, t, &growing()) },
    ]
}

/// [`check`], unless the backend refuses the scene.
fn check_special<B: Backend>(
    backend: &B,
    tolerances: &Tolerances,
    scene: &Scene,
) -> Result<(), String> {
    match backend.accept_attention(&scene.op, scene.sinks.is_some()) {
        Err(BackendError::Unsupported { .. }) => Ok(()),
        other => {
            other.map_err(text)?;
            check(backend, tolerances, scene)
        }
    }
}

fn append_cases<B: Backend>() -> Vec<Case<B>> {
    use RopeStyle::{GptJ, Neox};
    vec![
        Case { name: "append/rope_neox", run: |b, t| check(b, t, &rotated(Neox, 64, 64)) },
        Case { name: "append/rope_gptj", run: |b, t| check(b, t, &rotated(GptJ, 128, 128)) },
        Case { name: "append/rope_neox_partial", run: |b, t| check(b, t, &rotated(Neox, 40, 24)) },
        Case { name: "append/rope_gptj_partial", run: |b, t| check(b, t, &rotated(GptJ, 64, 20)) },
        Case { name: "append/rope_factor_and_offset", run: |b, t| check(b, t, &stretched()) },
        Case { name: "append/rms_norm", run: |b, t| check(b, t, &normed(NormKind::Rms, 1, 1)) },
        Case {
            name: "append/layer_norm_of_every_head",
            run: |b, t| check(b, t, &normed(NormKind::Layer, 4, 2)),
        },
        Case { name: "append/clip", run: |b, t| check(b, t, &clipped()) },
        Case { name: "append/clip_then_norm_then_rope", run: |b, t| check(b, t, &everything()) },
    ]
}

/// Runs a scene; compares rotated queries and outputs of all its sequences.
pub(super) fn check<B: Backend>(
    backend: &B,
    tolerances: &Tolerances,
    scene: &Scene,
) -> Result<(), String> {
    let mut kv = scene.cache(backend)?;
    let found = scene.run(backend, &mut kv)?;
    let width = scene.op.heads * scene.op.head_dim;
    let out_width = scene.op.heads * scene.op.value_dim();
    let limit = match (&scene.qk_norm, &scene.rope) {
        (None, None) => tolerances.attention,
        _ => tolerances.attention_of_computed_keys,
    };
    for (index, found) in found.iter().enumerate() {
        let (q, k, v) = scene.inputs(index);
        let expected = reference(scene, &q, &k, &v, |x| half::f16::from_f64(x).to_f64());
        let what = |of: &str| format!("{of} of sequence {index}");
        rows_close(&what("queries"), &found.q, &expected.q, width, tolerances.rotation)?;
        rows_close(&what("attention"), &found.out, &expected.out, out_width, limit)?;
    }
    Ok(())
}

/// A logit per head that takes its share: below, among and above the scores.
fn sinks(scene: &Scene) -> Scene {
    let sink = |head: usize| [-3.0, 0.5, 2.0, 9.0][head % 4];
    Scene { sinks: Some((0..scene.op.heads).map(sink).collect()), ..scene.clone() }
}

/// Chunks while they fill, and when whole pages are behind them.
fn chunks(positions: usize) -> Scene {
    let mut scene = window(1);
    (scene.op.window, scene.op.chunk) = (None, Some(positions));
    scene
}

fn token_normed() -> Scene {
    let mut scene = rotated(RopeStyle::Neox, 40, 40);
    scene.op.qk_norm_span = QkNormSpan::Token;
    scene.qk_norm = Some(norms(NormKind::Rms, 4, 2, 40));
    scene
}

fn rope_then_norm() -> Scene {
    let mut scene = rotated(RopeStyle::Neox, 64, 32);
    scene.op.qk_norm_order = QkNormOrder::AfterRope;
    scene.qk_norm = Some(norms(NormKind::Rms, 1, 1, 64));
    scene
}

/// Several steps of growth within a page.
fn growing() -> Scene {
    let mut scene = two_steps(4, 2, 64);
    scene.op.query_growth = Some(QueryGrowth { length: 50, offset: 1, weight: 0.1 });
    scene
}

/// One prompt in one page.
fn prompt(heads: usize, kv_heads: usize, head_dim: usize) -> Scene {
    Scene::new(heads, kv_heads, head_dim, vec![vec![2]], vec![vec![(0, 37)]])
}

/// A scale that is not the root of the head size, as some families have it.
fn scale() -> Scene {
    let mut scene = prompt(4, 2, 64);
    scene.op.scale = 0.25;
    scene
}

/// Scores well above the cap.
fn softcap() -> Scene {
    let mut scene = prompt(4, 2, 64);
    (scene.op.scale, scene.op.softcap) = (0.5, Some(1.5));
    scene
}

/// Sequences that end one before, at and one behind a page's end, and then grow across it.
fn page_borders() -> Scene {
    let pages = vec![vec![5, 0], vec![3, 1], vec![2, 6]];
    let mut steps = vec![vec![(0, 255), (1, 256), (2, 257)]];
    steps.extend([vec![(0, 1), (1, 1), (2, 1)], vec![(2, 1), (0, 1)], vec![(1, 1), (0, 2)]]);
    Scene::new(2, 1, 40, pages, steps)
}

/// Rows come, go and change their order; pages are in no order.
fn ragged() -> Scene {
    let pages = vec![vec![3], vec![0], vec![4], vec![1]];
    let steps = vec![
        vec![(0, 19), (1, 1)],
        vec![(1, 1), (2, 33), (0, 1)],
        vec![(0, 1), (1, 1), (2, 1), (3, 7)],
        vec![(3, 2), (2, 1), (1, 40), (0, 1)],
    ];
    Scene::new(4, 2, 64, pages, steps)
}

/// A longer past, decoded and continued by a chunk.
fn three_pages() -> Scene {
    let steps = vec![vec![(0, 510)], vec![(0, 1)], vec![(0, 1)], vec![(0, 1)], vec![(0, 9)]];
    Scene::new(2, 2, 64, vec![vec![7, 2, 4]], steps)
}

/// A window while it fills, while it slides, and when whole pages have left it.
fn window(keys: usize) -> Scene {
    let steps = vec![vec![(0, 300), (1, 3)], vec![(1, 4), (0, 1)], vec![(0, 220)], vec![(0, 1)]];
    let mut scene = Scene::new(2, 1, 40, vec![vec![4, 0, 2], vec![1]], steps);
    scene.op.window = Some(keys);
    scene
}

/// Two chunks of one sequence, the second across a page border, and another one beside it.
fn two_steps(heads: usize, kv_heads: usize, head_dim: usize) -> Scene {
    let steps = vec![vec![(0, 250), (1, 2)], vec![(1, 1), (0, 10)]];
    Scene::new(heads, kv_heads, head_dim, vec![vec![3, 1], vec![0]], steps)
}

/// A rotary table with the usual geometric frequencies.
pub(super) fn rope(style: RopeStyle, rotary_dim: usize) -> RopeSpec {
    let frequency = |i: usize| 10_000f32.powf(-2.0 * i as f32 / rotary_dim as f32);
    RopeSpec {
        style,
        rotary_dim,
        inv_freq: (0..rotary_dim / 2).map(frequency).collect(),
        attention_factor: 1.0,
        position_offset: 0,
    }
}

fn rotated(style: RopeStyle, head_dim: usize, rotary_dim: usize) -> Scene {
    let mut scene = two_steps(4, 2, head_dim);
    scene.rope = Some(rope(style, rotary_dim));
    scene
}

fn stretched() -> Scene {
    let mut scene = rotated(RopeStyle::Neox, 64, 64);
    if let Some(rope) = &mut scene.rope {
        (rope.attention_factor, rope.position_offset) = (1.19, 1);
    }
    scene
}

/// Norms with weights for `q_parts` query heads and `k_parts` key heads; 1: the same for all.
fn norms(kind: NormKind, q_parts: usize, k_parts: usize, dim: usize) -> (NormWeights, NormWeights) {
    (weights(61, kind, q_parts * dim, false), weights(62, kind, k_parts * dim, false))
}

fn normed(kind: NormKind, q_parts: usize, k_parts: usize) -> Scene {
    let mut scene = prompt(4, 2, 64);
    scene.qk_norm = Some(norms(kind, q_parts, k_parts, 64));
    scene
}

fn clipped() -> Scene {
    let mut scene = prompt(4, 2, 64);
    scene.op.clip_qkv = Some(0.75);
    scene
}

/// The three in their order; in any other one the result differs.
fn everything() -> Scene {
    let mut scene = rotated(RopeStyle::GptJ, 64, 48);
    scene.op.clip_qkv = Some(1.25);
    scene.qk_norm = Some(norms(NormKind::Rms, 4, 2, 64));
    scene
}
