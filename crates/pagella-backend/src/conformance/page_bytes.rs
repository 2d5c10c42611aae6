//! `page_bytes`, `read_page` and `write_page`: a page taken out and put back is the same page.

use super::attention::Scene;
use super::compare::same_bits;
use super::fixture::text;
use super::formats::each_format;
use super::pages::{Tokens, append, in_layer, scene, untouched};
use super::{Case, Tolerances};
use crate::Backend;

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    vec![
        Case { name: "page_bytes/a_sequence_goes_on_in_another_cache", run: restore },
        Case { name: "page_bytes/other_pages_stay", run: others },
    ]
}

/// The bytes of a page, of the length that was announced.
fn read<B: Backend>(backend: &B, kv: &B::Kv, page: u32) -> Result<Vec<u8>, String> {
    // What is in the buffer before must not matter.
    let mut bytes = vec![0xAA; 3];
    backend.read_page(kv, page, &mut bytes).map_err(text)?;
    let announced = backend.page_bytes(kv);
    if bytes.len() != announced {
        return Err(format!("page {page} has {} bytes, {announced} announced", bytes.len()));
    }
    Ok(bytes)
}

/// Two pages are read, written to a second cache in other places and continued in each layer.
fn restore<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    restore_of(backend, &scene())
}

/// The same for a layer like that of `scene`.
pub(super) fn restore_of<B: Backend>(backend: &B, scene: &Scene) -> Result<(), String> {
    each_format(backend, scene, |scene: &Scene, kv| {
        let layers = [in_layer(scene, 0), in_layer(scene, 2)];
        let past = [Tokens::new(scene, 10, 300), Tokens::new(scene, 20, 300)];
        let last = Tokens::new(scene, 30, 3);
        for (layer, past) in layers.iter().zip(&past) {
            append(backend, layer, past, 0, &[4, 1], kv)?;
        }
        let mut other = scene.cache(backend)?;
        for (from, to) in [(4, 0), (1, 3)] {
            let bytes = read(backend, kv, from)?;
            backend.write_page(&mut other, to, &bytes).map_err(text)?;
            if read(backend, &other, to)? != bytes {
                return Err(format!("page {from} reads differently as page {to}"));
            }
        }
        for (layer, past) in layers.iter().zip(&past) {
            let found = append(backend, layer, &last, 300, &[0, 3], &mut other)?;
            let expected = untouched(backend, layer, past, &last)?;
            same_bits(&format!("the copy in layer {}", layer.op.layer), &found, &expected)?;
        }
        Ok(())
    })
}

/// Writing a page changes that page alone.
fn others<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    each_format(backend, &scene(), |scene, kv| {
        let tokens = Tokens::new(scene, 10, 700);
        append(backend, scene, &tokens, 0, &[5, 0, 2], kv)?;
        let all =
            |kv: &B::Kv| (0..6).map(|page| read(backend, kv, page)).collect::<Result<Vec<_>, _>>();
        let mut expected = all(kv)?;
        if expected[5] == expected[0] {
            return Err("two pages with different tokens have the same bytes".to_owned());
        }
        expected[5] = expected[0].clone();
        backend.write_page(kv, 5, &expected[0]).map_err(text)?;
        let found = all(kv)?;
        match (0..6).find(|&page| found[page] != expected[page]) {
            Some(page) => Err(format!("page {page} is not as expected after writing page 5")),
            None => Ok(()),
        }
    })
}
