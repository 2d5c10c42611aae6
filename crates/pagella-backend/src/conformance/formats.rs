//! Cache formats: each works within the error of its encoding, or is refused.

use super::attention::{Scene, reference};
use super::compare::all_close;
use super::fixture::text;
use super::{Case, Tolerances};
use crate::{Backend, BackendError, KvFormat};

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    vec![
        Case { name: "formats/head_of_64", run: |b, t| check(b, t, 64) },
        Case { name: "formats/head_of_128", run: |b, t| check(b, t, 128) },
        Case { name: "formats/head_of_96", run: |b, t| check(b, t, 96) },
        Case { name: "formats/head_of_40", run: |b, t| check(b, t, 40) },
        Case { name: "formats/the_newest_token_is_read_as_stored", run: newest },
    ]
}

/// Runs `body` with a cache of every format that the backend has for the scene; F16 is a must.
pub(super) fn each_format<B: Backend>(
    backend: &B,
    scene: &Scene,
    mut body: impl FnMut(&Scene, &mut B::Kv) -> Result<(), String>,
) -> Result<(), String> {
    for format in KvFormat::ALL {
        let scene = Scene { format, ..scene.clone() };
        let outcome = match scene.undefined_cache(backend) {
            Err(BackendError::Unsupported { .. }) if format != KvFormat::F16 => Ok(()),
            Err(error) => Err(text(error)),
            Ok(_) => scene.cache(backend).and_then(|mut kv| body(&scene, &mut kv)),
        };
        outcome.map_err(|reason| format!("{}: {reason}", format.name()))?;
    }
    Ok(())
}

/// Unit Gaussian keys and values, in a prompt, a chunk across a page border and decoded tokens.
fn check<B: Backend>(backend: &B, tolerances: &Tolerances, head_dim: usize) -> Result<(), String> {
    let steps = vec![vec![(0, 240), (1, 60)], vec![(1, 1), (0, 20)], vec![(0, 1), (1, 1)]];
    check_scene(backend, tolerances, &Scene::new(4, 2, head_dim, vec![vec![5, 2], vec![0]], steps))
}

/// A scene in every format, against keys and values that were never rounded.
pub(super) fn check_scene<B: Backend>(
    backend: &B,
    tolerances: &Tolerances,
    scene: &Scene,
) -> Result<(), String> {
    each_format(backend, scene, |scene, kv| {
        let limit = tolerances.cache(scene.format);
        for (index, found) in scene.run(backend, kv)?.iter().enumerate() {
            let (q, k, v) = scene.inputs(index);
            let expected = reference(scene, &q, &k, &v, |x| x);
            all_close(&format!("sequence {index}"), &found.out, &expected.out, limit)?;
        }
        Ok(())
    })
}

/// A sequence of one token attends to nothing but its own value: what comes out is the value as
/// stored. A backend that used the value it still had at hand would be exact.
fn newest<B: Backend>(backend: &B, tolerances: &Tolerances) -> Result<(), String> {
    let scene = Scene::new(2, 2, 64, vec![vec![3]], vec![vec![(0, 1)]]);
    each_format(backend, &scene, |scene, kv| {
        let (_, _, v) = scene.inputs(0);
        let found = scene.run(backend, kv)?;
        let exact: Vec<f64> = v.iter().map(|x| f64::from(*x)).collect();
        all_close("value", &found[0].out, &exact, tolerances.cache(scene.format))?;
        let rounded: Vec<f64> = v.iter().map(|x| half::f16::from_f32(*x).to_f64()).collect();
        match scene.format {
            KvFormat::F32 => all_close("stored value", &found[0].out, &exact, 1e-7),
            KvFormat::F16 => all_close("stored value", &found[0].out, &rounded, 1e-7),
            KvFormat::Fp8 => {
                let upper =
                    |x: &f32| half::f16::from_bits(half::f16::from_f32(*x).to_bits() & 0xFF00);
                let truncated: Vec<f64> = v.iter().map(|x| upper(x).to_f64()).collect();
                all_close("stored value", &found[0].out, &truncated, 1e-7)
            }
            _ if all_close("", &found[0].out, &rounded, 1e-3).is_ok() => {
                Err("the newest value comes out as if it had not been encoded".to_owned())
            }
            _ => Ok(()),
        }
    })
}
