//! `logits`: gather, norm, head, scale, soft-cap.

use pagella_arch::NormKind;

use super::compare::{rows_close, same_bits};
use super::fixture::{download, poisoned, step_of, text, upload};
use super::norm_add::weights;
use super::reference::{self, softcap, widen};
use super::{Case, Tolerances, linears, noise};
use crate::{Backend, LogitUse, StepRow};

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    vec![
        Case { name: "logits/gather", run: |b, t| check(b, t, 1.0, None) },
        Case { name: "logits/scale", run: |b, t| check(b, t, 0.0625, None) },
        Case { name: "logits/softcap", run: |b, t| check(b, t, 1.0, Some(2.5)) },
        Case { name: "logits/scale_then_softcap", run: |b, t| check(b, t, 4.0, Some(3.0)) },
        Case { name: "logits/none_wanted", run: none_wanted },
    ]
}

/// Three rows of which the last token, none and the last three tokens are wanted.
fn rows(ids: &[u32]) -> [StepRow<'_>; 3] {
    [
        StepRow::new(&ids[..6], 0, &[0], LogitUse::Choice),
        StepRow::new(&ids[6..8], 9, &[1], LogitUse::None),
        StepRow::new(&ids[8..], 0, &[2], LogitUse::last(3)),
    ]
}
/// Tokens that [`rows`] wants, of twelve.
const WANTED: [usize; 4] = [5, 9, 10, 11];
const TOKENS: usize = 12;

fn check<B: Backend>(
    backend: &B,
    tolerances: &Tolerances,
    scale: f32,
    cap: Option<f32>,
) -> Result<(), String> {
    let step = step_of(backend, &rows(&[0; TOKENS]))?;
    for (kind, bias) in [(NormKind::Rms, false), (NormKind::Layer, true)] {
        for owned in linears::one_of_each() {
            let source = owned.view();
            let (hidden, vocab) = (source.in_features(), source.out_features());
            let norm = weights(51, kind, hidden, bias);
            let x = noise::halves(52, TOKENS * hidden, 2.0);
            let wanted: Vec<f64> =
                WANTED.iter().flat_map(|i| widen(&x[i * hidden..(i + 1) * hidden])).collect();
            let mut expected = reference::linear(&source, &reference::norm(&norm, &wanted));
            expected.iter_mut().for_each(|x| *x = softcap(f64::from(scale) * *x, cap));

            let norm = backend.norm(norm).map_err(text)?;
            let head = backend.linear(&source).map_err(text)?;
            let x = upload(backend, hidden, &x)?;
            let mut out = poisoned(backend, WANTED.len(), vocab)?;
            backend.logits(&step, &x, &norm, &head, scale, cap, &mut out).map_err(text)?;
            let found = download(backend, &out, WANTED.len())?;
            let limit = linears::tolerance(&source, tolerances);
            rows_close("logits", &found, &expected, vocab, limit)?;
        }
    }
    Ok(())
}

/// A step in the middle of a prompt needs no logits: allowed, and nothing is written.
fn none_wanted<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    let step = step_of(backend, &[StepRow::new(&[1, 2], 0, &[0], LogitUse::None)])?;
    let owned = linears::exl2_mixed(3);
    let source = owned.view();
    let (hidden, vocab) = (source.in_features(), source.out_features());
    let norm = backend.norm(weights(51, NormKind::Rms, hidden, false)).map_err(text)?;
    let head = backend.linear(&source).map_err(text)?;
    let x = upload(backend, hidden, &noise::halves(53, 2 * hidden, 1.0))?;
    let before = noise::halves(54, vocab, 1.0);
    let mut out = upload(backend, vocab, &before)?;
    backend.logits(&step, &x, &norm, &head, 1.0, None, &mut out).map_err(text)?;
    same_bits("logits that nobody wanted", &download(backend, &out, 1)?, &before)
}
