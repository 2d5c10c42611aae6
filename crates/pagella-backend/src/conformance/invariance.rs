//! Same row, same bits: whatever else is in the step, however the prompt was cut.

use pagella_arch::{Activation, NormKind, RopeSpec, RopeStyle};
use pagella_formats::OwnedLinear;

use super::attention::{Scene, Sequence};
use super::compare::same_bits;
use super::fixture::{download, poisoned, step, step_of, text, upload};
use super::formats::each_format;
use super::norm_add::weights;
use super::{Case, Tolerances, linears, noise, project};
use crate::{Backend, LogitUse, StepRow};

/// Tokens of the largest step; its first tokens must not notice the others.
const TOKENS_MAX: usize = 70;
/// Smaller steps, on both sides of where backends switch kernels.
const TOKENS: [usize; 8] = [1, 2, 3, 4, 7, 16, 33, 64];

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    vec![
        Case { name: "invariance/project", run: projected },
        Case { name: "invariance/linears_beside_each_other", run: beside },
        Case { name: "invariance/project_add", run: added },
        Case { name: "invariance/norm_add_and_activate", run: elementwise },
        Case { name: "invariance/logits", run: logits },
        Case { name: "invariance/attention_of_a_chunked_prompt", run: chunks },
        Case { name: "invariance/attention_beside_other_rows", run: neighbours },
        Case { name: "invariance/two_runs", run: repetition },
    ]
}

/// Linears of every kind, with a norm.
fn projected<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    let owned = linears::one_of_each();
    let sources: Vec<_> = owned.iter().map(OwnedLinear::view).collect();
    let loaded = project::load(backend, &sources)?;
    let norm = backend.norm(weights(1, NormKind::Rms, 512, false)).map_err(text)?;
    let x = noise::halves(2, TOKENS_MAX * 512, 1.0);
    let all = project::run(backend, &sources, &loaded, Some(&norm), &x)?;
    for tokens in TOKENS {
        // The last rows, so that a row changes its place as well.
        let part = &x[(TOKENS_MAX - tokens) * 512..];
        let found = project::run(backend, &sources, &loaded, Some(&norm), part)?;
        for ((found, all), source) in found.iter().zip(&all).zip(&sources) {
            let what = format!("{:?}, {tokens} of {TOKENS_MAX} tokens", source.kind());
            let expected = &all[(TOKENS_MAX - tokens) * source.out_features()..];
            same_bits(&what, found, expected)?;
        }
    }
    Ok(())
}

/// A linear alone and together with others.
fn beside<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    let owned = linears::one_of_each();
    let sources: Vec<_> = owned.iter().map(OwnedLinear::view).collect();
    let loaded = project::load(backend, &sources)?;
    for tokens in [1, 9] {
        let x = noise::halves(3, tokens * 512, 1.0);
        let together = project::run(backend, &sources, &loaded, None, &x)?;
        for (i, together) in together.iter().enumerate() {
            let alone = project::run(backend, &sources[i..=i], &loaded[i..=i], None, &x)?.concat();
            same_bits(&format!("{:?} alone", sources[i].kind()), &alone, together)?;
        }
    }
    Ok(())
}

fn added<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    for owned in linears::one_of_each() {
        let source = owned.view();
        let (inputs, outputs) = (source.in_features(), source.out_features());
        let linear = backend.linear(&source).map_err(text)?;
        let x = noise::halves(4, TOKENS_MAX * inputs, 1.0);
        let before = noise::halves(5, TOKENS_MAX * outputs, 1.0);
        let run = |tokens: usize| {
            let step = step(backend, tokens)?;
            let x = upload(backend, inputs, &x[..tokens * inputs])?;
            let mut residual = upload(backend, outputs, &before[..tokens * outputs])?;
            backend.project_add(&step, &x, &linear, 0.3, &mut residual).map_err(text)?;
            download(backend, &residual, tokens)
        };
        let all = run(TOKENS_MAX)?;
        for tokens in TOKENS {
            let what = format!("{:?}, {tokens} of {TOKENS_MAX} tokens", source.kind());
            same_bits(&what, &run(tokens)?, &all[..tokens * outputs])?;
        }
    }
    Ok(())
}

fn elementwise<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    let width = 200;
    let norm = backend.norm(weights(6, NormKind::Layer, width, true)).map_err(text)?;
    let x = noise::halves(7, TOKENS_MAX * width, 1.0);
    let before = noise::halves(8, TOKENS_MAX * width, 1.0);
    let run = |tokens: usize| {
        let step = step(backend, tokens)?;
        let x = upload(backend, width, &x[..tokens * width])?;
        let mut y = upload(backend, width, &before[..tokens * width])?;
        backend.norm_add(&step, &x, &norm, 0.7, &mut y).map_err(text)?;
        backend.activate(&step, Activation::Silu, &mut y, Some(&x)).map_err(text)?;
        download(backend, &y, tokens)
    };
    let all = run(TOKENS_MAX)?;
    for tokens in TOKENS {
        same_bits(&format!("{tokens} tokens"), &run(tokens)?, &all[..tokens * width])?;
    }
    Ok(())
}

/// The logits of the last token, alone and among others.
fn logits<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    let ids = [0; TOKENS_MAX];
    for owned in linears::one_of_each() {
        let source = owned.view();
        let (hidden, vocab) = (source.in_features(), source.out_features());
        let norm = backend.norm(weights(9, NormKind::Rms, hidden, false)).map_err(text)?;
        let head = backend.linear(&source).map_err(text)?;
        let x = noise::halves(10, TOKENS_MAX * hidden, 1.0);
        let run = |wanted: usize| {
            let row = StepRow::new(&ids, 0, &[0], LogitUse::last(wanted));
            let step = step_of(backend, &[row])?;
            let x = upload(backend, hidden, &x)?;
            let mut out = poisoned(backend, wanted, vocab)?;
            backend.logits(&step, &x, &norm, &head, 0.5, Some(3.0), &mut out).map_err(text)?;
            download(backend, &out, wanted)
        };
        let all = run(TOKENS_MAX)?;
        for wanted in TOKENS {
            let expected = &all[(TOKENS_MAX - wanted) * vocab..];
            same_bits(&format!("{:?}, {wanted} logits", source.kind()), &run(wanted)?, expected)?;
        }
    }
    Ok(())
}

/// A rotated layer with grouped queries.
fn scene(pages: Vec<Vec<u32>>, steps: Vec<Vec<(usize, usize)>>) -> Scene {
    let mut scene = Scene::new(4, 2, 64, pages, steps);
    scene.rope = Some(RopeSpec {
        style: RopeStyle::Neox,
        rotary_dim: 64,
        inv_freq: (0..32).map(|i| 0.75f32.powi(i)).collect(),
        attention_factor: 1.0,
        position_offset: 0,
    });
    scene
}

/// One chunk, many chunks, token by token: queries and attention keep their bits.
fn chunks<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    cut_into_chunks(backend, &scene(Vec::new(), Vec::new()))
}

/// The same for a layer like that of `scene`.
pub(super) fn cut_into_chunks<B: Backend>(backend: &B, scene: &Scene) -> Result<(), String> {
    const PROMPT: usize = 290;
    let sequences = vec![Sequence { seed: 100, pages: vec![4, 2] }];
    let whole = Scene { sequences, steps: vec![vec![(0, PROMPT)]], ..scene.clone() };
    each_format(backend, &whole, |whole, kv| {
        for window in [None, Some(100)] {
            let mut whole = whole.clone();
            whole.op.window = window;
            let expected = whole.run(backend, kv)?;
            for chunk in [1, 2, 31, 64, 250] {
                let firsts = (0..PROMPT).step_by(chunk);
                let steps = firsts.map(|first| vec![(0, chunk.min(PROMPT - first))]).collect();
                // Fresh: what the whole prompt left behind must not help.
                let mut kv = whole.cache(backend)?;
                let cut = Scene { steps, ..whole.clone() };
                let found = cut.run(backend, &mut kv)?;
                let what = |of| format!("{of} in chunks of {chunk}, window {window:?}");
                same_bits(&what("queries"), &found[0].q, &expected[0].q)?;
                same_bits(&what("attention"), &found[0].out, &expected[0].out)?;
            }
        }
        Ok(())
    })
}

/// Sequences together in ragged steps, and each alone, on other pages.
fn neighbours<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    beside_other_rows(backend, &scene(Vec::new(), Vec::new()))
}

/// The same for a layer like that of `scene`.
pub(super) fn beside_other_rows<B: Backend>(backend: &B, scene: &Scene) -> Result<(), String> {
    let pages = [(100, vec![4, 2]), (110, vec![7]), (120, vec![0, 5])];
    let sequences = pages.map(|(seed, pages)| Sequence { seed, pages }).to_vec();
    let steps = vec![
        vec![(0, 200), (1, 1)],
        vec![(2, 259), (1, 17), (0, 80)],
        vec![(0, 1), (2, 1), (1, 1)],
        vec![(1, 1), (0, 1)],
    ];
    each_format(backend, &Scene { sequences, steps, ..scene.clone() }, |together, kv| {
        let expected = together.run(backend, kv)?;
        for (index, expected) in expected.iter().enumerate() {
            let rows = together.steps.iter().flatten().filter(|(row, _)| *row == index);
            let steps = rows.map(|(_, tokens)| vec![(0, *tokens)]).collect();
            let seed = together.sequences[index].seed;
            let sequences = vec![Sequence { seed, pages: vec![3, 1] }];
            let alone = Scene { steps, sequences, ..together.clone() };
            let mut kv = alone.cache(backend)?;
            let found = alone.run(backend, &mut kv)?;
            let what = |of| format!("{of} of sequence {index} alone");
            same_bits(&what("queries"), &found[0].q, &expected.q)?;
            same_bits(&what("attention"), &found[0].out, &expected.out)?;
        }
        Ok(())
    })
}

/// The same work twice: nothing depends on timing.
fn repetition<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    let owned = linears::one_of_each();
    let sources: Vec<_> = owned.iter().map(OwnedLinear::view).collect();
    let loaded = project::load(backend, &sources)?;
    let x = noise::halves(11, 5 * 512, 1.0);
    let scene = scene(vec![vec![1, 0, 3]], vec![vec![(0, 600)], vec![(0, 1)]]);
    let once = || -> Result<(Vec<f32>, Vec<f32>), String> {
        let products = project::run(backend, &sources, &loaded, None, &x)?.concat();
        let mut kv = scene.cache(backend)?;
        let mut outputs = scene.run(backend, &mut kv)?;
        Ok((products, outputs.pop().map(|output| output.out).unwrap_or_default()))
    };
    let first = once()?;
    for _ in 0..5 {
        let again = once()?;
        same_bits("linears", &again.0, &first.0)?;
        same_bits("attention", &again.1, &first.1)?;
    }
    Ok(())
}
