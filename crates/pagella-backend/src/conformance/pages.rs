//! `copy_pages`, `copy_page_prefix` and shared pages, as attention sees them.
//!
//! Nothing here looks at bytes: a sequence put together from copies must give the same bits as one
//! whose tokens were appended where they are read.

use super::attention::{Row, Scene};
use super::compare::same_bits;
use super::fixture::text;
use super::formats::each_format;
use super::{Case, Tolerances, noise};
use crate::{Backend, PAGE_TOKENS};

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    vec![
        Case { name: "pages/copies_hold_all_layers", run: copies },
        Case { name: "pages/copies_are_independent", run: independence },
        Case { name: "pages/prefix_replaces_only_the_first_tokens", run: prefixes },
        Case { name: "pages/two_sequences_share_a_page", run: sharing },
        Case { name: "pages/rewound_tokens_are_replaced", run: rewinding },
    ]
}

/// Grouped queries, a plain layer.
pub(super) fn scene() -> Scene {
    Scene::new(4, 2, 64, Vec::new(), Vec::new())
}

/// The same scene in another layer of the cache.
pub(super) fn in_layer(scene: &Scene, layer: usize) -> Scene {
    let mut scene = scene.clone();
    scene.op.layer = layer;
    scene
}

/// Tokens: queries, keys and values, back to back.
#[derive(Clone)]
pub(super) struct Tokens {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    count: usize,
}

impl Tokens {
    pub(super) fn new(scene: &Scene, seed: u64, count: usize) -> Self {
        let (q_len, kv_len) = (
            count * scene.op.heads * scene.op.head_dim,
            count * scene.op.kv_heads * scene.op.head_dim,
        );
        Tokens {
            q: noise::halves(seed, q_len, 1.0),
            k: noise::gaussian(seed + 1, kv_len),
            v: noise::gaussian(seed + 2, kv_len),
            count,
        }
    }

    /// Tokens `from..to`.
    fn part(&self, from: usize, to: usize) -> Self {
        let cut = |x: &[f32]| {
            let width = x.len() / self.count;
            x[from * width..to * width].to_vec()
        };
        Tokens { q: cut(&self.q), k: cut(&self.k), v: cut(&self.v), count: to - from }
    }

    fn then(&self, other: &Tokens) -> Self {
        let join = |a: &[f32], b: &[f32]| [a, b].concat();
        Tokens {
            q: join(&self.q, &other.q),
            k: join(&self.k, &other.k),
            v: join(&self.v, &other.v),
            count: self.count + other.count,
        }
    }

    fn row<'a>(&'a self, past: usize, pages: &'a [u32]) -> Row<'a> {
        Row { q: &self.q, k: &self.k, v: &self.v, past, pages }
    }
}

/// Appends tokens of one sequence; their attention.
pub(super) fn append<B: Backend>(
    backend: &B,
    scene: &Scene,
    tokens: &Tokens,
    past: usize,
    pages: &[u32],
    kv: &mut B::Kv,
) -> Result<Vec<f32>, String> {
    let mut outputs = scene.layer(backend)?.run(backend, &[tokens.row(past, pages)], kv)?;
    Ok(outputs.pop().map(|output| output.out).unwrap_or_default())
}

/// Attention of `last` after `past`, in a fresh cache where nothing was ever copied.
pub(super) fn untouched<B: Backend>(
    backend: &B,
    scene: &Scene,
    past: &Tokens,
    last: &Tokens,
) -> Result<Vec<f32>, String> {
    let mut kv = scene.cache(backend)?;
    append(backend, scene, past, 0, &[6, 7], &mut kv)?;
    append(backend, scene, last, past.count, &[6, 7], &mut kv)
}

/// Both pages of a sequence are copied; the copy is continued in each layer.
fn copies<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    copies_of(backend, &scene())
}

/// The same for a layer like that of `scene`.
pub(super) fn copies_of<B: Backend>(backend: &B, scene: &Scene) -> Result<(), String> {
    each_format(backend, scene, |scene, kv| {
        let layers = [in_layer(scene, 0), in_layer(scene, 2)];
        let past = [Tokens::new(scene, 10, 300), Tokens::new(scene, 20, 300)];
        let last = Tokens::new(scene, 30, 3);
        for (layer, past) in layers.iter().zip(&past) {
            append(backend, layer, past, 0, &[4, 1], kv)?;
        }
        backend.copy_pages(kv, &[(4, 0), (1, 3)]).map_err(text)?;
        for (layer, past) in layers.iter().zip(&past) {
            let found = append(backend, layer, &last, 300, &[0, 3], kv)?;
            let expected = untouched(backend, layer, past, &last)?;
            same_bits(&format!("the copy in layer {}", layer.op.layer), &found, &expected)?;
        }
        Ok(())
    })
}

/// Original and copy are continued differently; neither disturbs the other. No moves: no change.
fn independence<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    each_format(backend, &scene(), |scene, kv| {
        let past = Tokens::new(scene, 10, 100);
        let (one, other) = (Tokens::new(scene, 40, 20), Tokens::new(scene, 50, 20));
        append(backend, scene, &past, 0, &[2], kv)?;
        backend.copy_pages(kv, &[(2, 5)]).map_err(text)?;
        backend.copy_pages(kv, &[]).map_err(text)?;
        append(backend, scene, &one.part(0, 19), 100, &[5], kv)?;
        append(backend, scene, &other.part(0, 19), 100, &[2], kv)?;
        for (what, tokens, page) in [("copy", &one, 5), ("original", &other, 2)] {
            let last = tokens.part(19, 20);
            let found = append(backend, scene, &last, 119, &[page], kv)?;
            let expected = untouched(backend, scene, &past.then(&tokens.part(0, 19)), &last)?;
            same_bits(what, &found, &expected)?;
        }
        Ok(())
    })
}

/// The head of one page over the head of another; the rest of the target stays.
fn prefixes<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    prefixes_of(backend, &scene())
}

/// The same for a layer like that of `scene`.
pub(super) fn prefixes_of<B: Backend>(backend: &B, scene: &Scene) -> Result<(), String> {
    each_format(backend, scene, |scene, kv| {
        let source = Tokens::new(scene, 60, PAGE_TOKENS);
        let target = Tokens::new(scene, 70, 200);
        let last = Tokens::new(scene, 80, 1);
        append(backend, scene, &source, 0, &[2], kv)?;
        for count in [0, 1, 31, 100, 199] {
            append(backend, scene, &target, 0, &[5], kv)?;
            backend.copy_page_prefix(kv, 2, 5, count).map_err(text)?;
            let found = append(backend, scene, &last, 200, &[5], kv)?;
            let mixed = source.part(0, count).then(&target.part(count, 200));
            let expected = untouched(backend, scene, &mixed, &last)?;
            same_bits(&format!("after a prefix of {count} tokens"), &found, &expected)?;
        }
        backend.copy_page_prefix(kv, 2, 3, PAGE_TOKENS).map_err(text)?;
        let found = append(backend, scene, &last, PAGE_TOKENS, &[3, 0], kv)?;
        same_bits("after a whole page", &found, &untouched(backend, scene, &source, &last)?)
    })
}

/// Two rows of one step read the same first page and write their own second ones.
fn sharing<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    each_format(backend, &scene(), |scene, kv| {
        let past = Tokens::new(scene, 10, PAGE_TOKENS);
        let ends = [Tokens::new(scene, 40, 3), Tokens::new(scene, 50, 1)];
        append(backend, scene, &past, 0, &[3], kv)?;
        let rows = [ends[0].row(PAGE_TOKENS, &[3, 0]), ends[1].row(PAGE_TOKENS, &[3, 5])];
        let found = scene.layer(backend)?.run(backend, &rows, kv)?;
        for (found, end) in found.iter().zip(&ends) {
            let expected = untouched(backend, scene, &past, end)?;
            same_bits("a sequence on a shared page", &found.out, &expected)?;
        }
        Ok(())
    })
}

/// A sequence is cut back, as after a rejected draft, and goes on differently.
fn rewinding<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    each_format(backend, &scene(), |scene, kv| {
        let past = Tokens::new(scene, 10, 270);
        let last = Tokens::new(scene, 40, 2);
        append(backend, scene, &past, 0, &[3, 6], kv)?;
        for kept in [259, 256, 250, 1] {
            let found = append(backend, scene, &last, kept, &[3, 6], kv)?;
            let expected = untouched(backend, scene, &past.part(0, kept), &last)?;
            same_bits(&format!("after {kept} kept tokens"), &found, &expected)?;
        }
        Ok(())
    })
}
