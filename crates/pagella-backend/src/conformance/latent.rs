//! Latent attention: `append_latent` and `attend` where values are the first elements of the keys,
//! against f64, in every cache format, and with the same bits however it is cut.
//!
//! A backend that has none of it refuses it before anything is laid out.

use pagella_arch::{NormKind, RopeStyle};

use super::attention::{Scene, check, rope};
use super::fixture::{poisoned, refused_size, step, text};
use super::formats::check_scene;
use super::invariance::{beside_other_rows, cut_into_chunks};
use super::norm_add::weights;
use super::page_bytes::restore_of;
use super::pages::{copies_of, prefixes_of};
use super::{Case, Tolerances};
use crate::{AttentionOp, Backend, BackendError, KvFormat, KvLayer, KvSpec, KvValues};

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    use RopeStyle::{GptJ, Neox};
    vec![
        Case { name: "latent/one_head", run: |b, t| exact(b, t, &prompt(1, 64, 64, GptJ)) },
        Case { name: "latent/odd_heads", run: |b, t| exact(b, t, &prompt(5, 128, 64, GptJ)) },
        Case { name: "latent/odd_sizes", run: |b, t| exact(b, t, &prompt(7, 39, 14, Neox)) },
        Case { name: "latent/narrow_tail", run: |b, t| exact(b, t, &prompt(6, 40, 24, GptJ)) },
        Case { name: "latent/as_deepseek", run: |b, t| exact(b, t, &prompt(16, 512, 64, GptJ)) },
        Case { name: "latent/128_heads", run: |b, t| exact(b, t, &prompt(128, 512, 64, GptJ)) },
        Case { name: "latent/pages_and_steps", run: |b, t| exact(b, t, &several()) },
        Case { name: "latent/long_past", run: |b, t| exact(b, t, &long()) },
        Case { name: "latent/factor_and_scale", run: |b, t| exact(b, t, &stretched()) },
        Case {
            name: "latent/every_format",
            run: |b, t| accepted(b, &formats(6, 128), |scene| check_scene(b, t, scene)),
        },
        Case {
            name: "latent/every_format_of_a_narrow_latent",
            run: |b, t| accepted(b, &formats(5, 96), |scene| check_scene(b, t, scene)),
        },
        Case {
            name: "latent/every_format_as_deepseek",
            run: |b, t| accepted(b, &formats(16, 512), |scene| check_scene(b, t, scene)),
        },
        Case {
            name: "latent/a_chunked_prompt",
            run: |b, _| accepted(b, &scene(5, 64), |scene| cut_into_chunks(b, scene)),
        },
        Case {
            name: "latent/beside_other_rows",
            run: |b, _| accepted(b, &scene(20, 64), |scene| beside_other_rows(b, scene)),
        },
        Case {
            name: "latent/copies_of_pages",
            run: |b, _| accepted(b, &scene(3, 64), |scene| copies_of(b, scene)),
        },
        Case {
            name: "latent/prefixes_of_pages",
            run: |b, _| accepted(b, &scene(3, 64), |scene| prefixes_of(b, scene)),
        },
        Case {
            name: "latent/bytes_of_pages",
            run: |b, _| accepted(b, &scene(3, 64), |scene| restore_of(b, scene)),
        },
        Case { name: "latent/wrong_sizes", run: sizes },
    ]
}

/// Runs `body`, unless the backend refuses the scene.
fn accepted<B: Backend>(
    backend: &B,
    scene: &Scene,
    body: impl FnOnce(&Scene) -> Result<(), String>,
) -> Result<(), String> {
    match backend.accept_attention(&scene.op, false) {
        Err(BackendError::Unsupported { .. }) => Ok(()),
        other => {
            other.map_err(text)?;
            body(scene)
        }
    }
}

fn exact<B: Backend>(backend: &B, tolerances: &Tolerances, scene: &Scene) -> Result<(), String> {
    accepted(backend, scene, |scene| check(backend, tolerances, scene))
}

/// A layer of entries of `rank + rotary_dim` elements.
fn layer(heads: usize, rank: usize, rotary_dim: usize, style: RopeStyle) -> Scene {
    let mut scene = Scene::new(heads, 1, rank + rotary_dim, Vec::new(), Vec::new());
    scene.op.values = KvValues::InKeys(rank);
    scene.latent_norm = Some(weights(63, NormKind::Rms, rank, false));
    scene.rope = Some(rope(style, rotary_dim));
    scene
}

/// A layer that fits every format.
fn scene(heads: usize, rank: usize) -> Scene {
    layer(heads, rank, 64, RopeStyle::GptJ)
}

/// The layer with these sequences and steps.
fn with(scene: &Scene, pages: Vec<Vec<u32>>, steps: Vec<Vec<(usize, usize)>>) -> Scene {
    let AttentionOp { heads, head_dim, .. } = scene.op;
    let Scene { sequences, steps, .. } = Scene::new(heads, 1, head_dim, pages, steps);
    Scene { sequences, steps, ..scene.clone() }
}

/// One prompt in one page, and a token after it.
fn prompt(heads: usize, rank: usize, rotary_dim: usize, style: RopeStyle) -> Scene {
    let steps = vec![vec![(0, 37)], vec![(0, 1)]];
    with(&layer(heads, rank, rotary_dim, style), vec![vec![2]], steps)
}

/// Sequences that end one before, at and one behind a page's end, and then grow across it.
fn several() -> Scene {
    let pages = vec![vec![5, 0], vec![3, 1], vec![2, 6]];
    let mut steps = vec![vec![(0, 255), (1, 256), (2, 257)]];
    steps.extend([vec![(0, 1), (1, 1), (2, 1)], vec![(2, 1), (0, 1)], vec![(1, 1), (0, 2)]]);
    with(&scene(3, 64), pages, steps)
}

/// A past of several spans, decoded and continued by a chunk.
fn long() -> Scene {
    let steps = vec![vec![(0, 1200)], vec![(0, 1)], vec![(0, 1)], vec![(0, 9)]];
    with(&scene(18, 64), vec![vec![7, 2, 4, 0, 5]], steps)
}

/// A factor on sin and cos, and a scale of scores that is not the root of anything here.
fn stretched() -> Scene {
    let mut scene = prompt(4, 64, 32, RopeStyle::GptJ);
    scene.op.scale = 0.17;
    if let Some(rope) = &mut scene.rope {
        rope.attention_factor = 1.19;
    }
    scene
}

/// A prompt, a chunk across a page border and decoded tokens. The norm leaves unit Gaussian data as
/// it is.
fn formats(heads: usize, rank: usize) -> Scene {
    let steps = vec![vec![(0, 240), (1, 60)], vec![(1, 1), (0, 20)], vec![(0, 1), (1, 1)]];
    let tail = if rank.is_multiple_of(64) { 64 } else { 32 };
    let scene = layer(heads, rank, tail, RopeStyle::GptJ);
    let mut scene = with(&scene, vec![vec![5, 2], vec![0]], steps);
    if let Some(norm) = &mut scene.latent_norm {
        norm.weight.fill(1.0);
    }
    scene
}

/// Rows that do not fit the op, and ops that do not fit the cache.
fn sizes<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    const TOKENS: usize = 3;
    let scene = prompt(4, 64, 64, RopeStyle::GptJ);
    accepted(backend, &scene, |scene| {
        let op = &AttentionOp { layer: 0, ..scene.op.clone() };
        let layers = vec![KvLayer { kv_heads: 1, head_dim: 128, values: op.values }];
        let spec = KvSpec { layers, format: KvFormat::F16, pages: 2 };
        let mut kv = backend.kv(&spec).map_err(text)?;
        let step = step(backend, TOKENS)?;
        let norm = |width| backend.norm(weights(1, NormKind::Rms, width, false)).map_err(text);
        let table = |dim| backend.rope(&rope(RopeStyle::GptJ, dim), 512).map_err(text);
        let mut append = |op: &AttentionOp, norm_of, rope_of, q_of, entry_of| {
            let (norm, rope) = (norm(norm_of)?, table(rope_of)?);
            let mut q = poisoned(backend, TOKENS, q_of)?;
            let mut entry = poisoned(backend, TOKENS, entry_of)?;
            Ok::<_, String>(
                backend.append_latent(&step, op, &norm, &rope, &mut q, &mut entry, &mut kv),
            )
        };
        let far = AttentionOp { layer: 1, ..op.clone() };
        let other = AttentionOp { values: KvValues::InKeys(96), ..op.clone() };
        refused_size("a layer beyond the last", append(&far, 64, 64, 512, 128)?)?;
        refused_size("values of another width", append(&other, 96, 32, 512, 128)?)?;
        refused_size("a narrow norm", append(op, 32, 64, 512, 128)?)?;
        refused_size("a narrow rotation", append(op, 64, 32, 512, 128)?)?;
        refused_size("narrow queries", append(op, 64, 64, 384, 128)?)?;
        refused_size("narrow entries", append(op, 64, 64, 512, 64)?)?;
        append(op, 64, 64, 512, 128)?.map_err(text)?;
        let attend = |op: &AttentionOp, q_of, out_of| {
            let q = poisoned(backend, TOKENS, q_of)?;
            let mut out = poisoned(backend, TOKENS, out_of)?;
            Ok::<_, String>(backend.attend(&step, op, None, &q, &kv, &mut out))
        };
        refused_size("values of another width", attend(&other, 512, 4 * 96)?)?;
        refused_size("narrow queries", attend(op, 384, 256)?)?;
        refused_size("outputs as wide as keys", attend(op, 512, 512)?)
    })
}
