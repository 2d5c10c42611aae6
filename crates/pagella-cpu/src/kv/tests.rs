//! Appending, copying and the size of the cache; what comes out of it is in `round_trip`.

mod round_trip;

use pagella_arch::{NormKind, RopeSpec, RopeStyle};
use pagella_backend::{AttentionOp, KvFormat, KvLayer, LogitUse, NormWeights, StepRow};

use super::*;
use crate::Tensor;
use crate::ops::norm::{CpuNorm, norm_row};
use crate::ops::rope::CpuRope;
use crate::simd::Isa;
use crate::threads::Pool;

fn op(heads: usize, kv_heads: usize, head_dim: usize) -> AttentionOp {
    AttentionOp { scale: 1.0, ..AttentionOp::plain(1, heads, kv_heads, head_dim) }
}

fn spec(op: &AttentionOp, format: KvFormat, pages: usize) -> KvSpec {
    let layer = KvLayer::plain(op.kv_heads, op.head_dim);
    KvSpec { layers: vec![KvLayer::plain(1, 64), layer], format, pages }
}

fn tensor(rows: usize, width: usize, seed: usize) -> Tensor {
    let mut tensor = Tensor::new(rows, width).unwrap();
    for (i, x) in tensor.data.iter_mut().enumerate() {
        *x = ((i * 7919 + seed * 131) % 4001) as f32 / 800.0 - 2.5;
    }
    tensor
}

fn halves(bytes: &[u8]) -> Vec<f32> {
    let half = |b: &[u8]| half::f16::from_le_bytes([b[0], b[1]]).to_f32();
    bytes.chunks_exact(2).map(half).collect()
}

/// Key and value of one head of one token.
fn stored_f16(kv: &KvPages, page: usize, head: usize, token: usize) -> (Vec<f32>, Vec<f32>) {
    let layer = &kv.layers[1];
    let width = layer.head_dim;
    let keys = halves(&layer.keys.elements.bytes[layer.keys.elements.slot(page, head)]);
    let stored = layer.values.as_ref().unwrap();
    let values = halves(&stored.elements.bytes[stored.elements.slot(page, head)]);
    let key = (0..width).map(|d| keys[d * PAGE_TOKENS + token]).collect();
    (key, values[token * width..(token + 1) * width].to_vec())
}

fn rounded(x: &[f32]) -> Vec<f32> {
    x.iter().map(|&x| half::f16::from_f32(x).to_f32()).collect()
}

#[test]
fn the_cache_takes_the_bytes_it_announces() {
    for format in KvFormat::ALL {
        for (heads, head_dim) in [(4, 64), (2, 96), (3, 128)] {
            let spec = spec(&op(heads, heads, head_dim), format, 3);
            let kv = KvPages::new(&spec).unwrap();
            assert_eq!(kv.page_bytes(), spec.bytes_per_token() * PAGE_TOKENS);
            let planes = kv.layers.iter().flat_map(LayerPages::planes);
            assert_eq!(planes.map(|p| p.bytes.len()).sum::<usize>(), spec.bytes());
        }
    }
}

#[test]
fn heads_that_cannot_be_quantised_are_refused() {
    for (kv_heads, head_dim, fits) in
        [(1, 64, true), (2, 96, true), (1, 96, false), (8, 80, false), (8, 40, false)]
    {
        for format in KvFormat::ALL {
            let mut spec = spec(&op(kv_heads, kv_heads, head_dim), format, 1);
            spec.layers.remove(0);
            match KvPages::new(&spec) {
                Ok(_) => assert!(fits || format.name().starts_with("fp")),
                Err(BackendError::Unsupported { what, .. }) => {
                    assert!(!fits && what.contains(&head_dim.to_string()), "{what}");
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
}

#[test]
fn a_new_token_leaves_the_bytes_of_all_others() {
    for format in KvFormat::ALL {
        for (head_dim, kv_heads) in [(64, 2), (96, 2)] {
            let op = op(kv_heads, kv_heads, head_dim);
            let run = |chunks: &[usize]| {
                let mut kv = KvPages::new(&spec(&op, format, 2)).unwrap();
                let mut past = 0;
                for &new in chunks {
                    let ids = vec![0; new];
                    let row = StepRow::new(&ids, past, &[1, 0], LogitUse::None);
                    let plan = StepPlan::new(&[row]).unwrap();
                    let width = kv_heads * head_dim;
                    let part = |seed| {
                        let mut rows = Tensor::new(new, width).unwrap();
                        let all = tensor(300, width, seed);
                        rows.data.copy_from_slice(&all.data[past * width..(past + new) * width]);
                        rows
                    };
                    let (mut q, mut k, mut v) = (part(1), part(2), part(3));
                    let pool = Pool::new(2, None);
                    let isa = Isa::best();
                    append(isa, &pool, &plan, &op, None, None, &mut q, &mut k, &mut v, &mut kv)
                        .unwrap();
                    past += new;
                }
                let bytes = kv.layers[1].planes().flat_map(|p| p.bytes.to_vec());
                bytes.collect::<Vec<u8>>()
            };
            let whole = run(&[300]);
            assert!(whole == run(&[1, 99, 155, 2, 43]), "{} {head_dim}", format.name());
        }
    }
}

#[test]
fn tokens_land_in_their_pages_for_every_head_size_and_chunk() {
    for (head_dim, kv_heads) in [(40, 1), (64, 2), (80, 3), (128, 2)] {
        let op = op(2 * kv_heads, kv_heads, head_dim);
        for (past, new) in [(0, 1), (0, 300), (250, 10), (255, 1), (256, 17), (3, 600)] {
            let mut kv = KvPages::new(&spec(&op, KvFormat::F16, 6)).unwrap();
            let pages = [4, 1, 5, 0];
            let ids = vec![0; new];
            let row = StepRow::new(&ids, past, &pages, LogitUse::None);
            let plan = StepPlan::new(&[row]).unwrap();
            let (mut q, mut k, mut v) = (
                tensor(new, op.heads * head_dim, 1),
                tensor(new, kv_heads * head_dim, 2),
                tensor(new, kv_heads * head_dim, 3),
            );
            let pool = Pool::new(3, None);
            let isa = Isa::best();
            append(isa, &pool, &plan, &op, None, None, &mut q, &mut k, &mut v, &mut kv).unwrap();
            for i in 0..new {
                let (page, place) = ((past + i) / PAGE_TOKENS, (past + i) % PAGE_TOKENS);
                for head in 0..kv_heads {
                    let at = head * head_dim..(head + 1) * head_dim;
                    let (key, value) = stored_f16(&kv, pages[page] as usize, head, place);
                    assert_eq!(key, rounded(&k.row(i)[at.clone()]));
                    assert_eq!(value, rounded(&v.row(i)[at]));
                }
            }
            let written: usize =
                kv.layers[1].keys.elements.bytes.iter().filter(|&&b| b != 0).count();
            assert!(written <= 2 * new * kv_heads * head_dim, "nothing else is written");
            assert_eq!(*q.data, *tensor(new, op.heads * head_dim, 1).data);
        }
    }
}

#[test]
fn heads_are_clipped_then_normed_then_rotated() {
    let (head_dim, isa) = (48, Isa::best());
    let mut op = op(4, 2, head_dim);
    op.clip_qkv = Some(1.5);
    let weight: Vec<f32> = (0..head_dim).map(|i| 0.5 + i as f32 / 50.0).collect();
    let norm = |weight: Vec<f32>| {
        CpuNorm::new(NormWeights { kind: NormKind::Rms, eps: 1e-6, weight, bias: None }).unwrap()
    };
    let own: Vec<f32> = (0..2 * head_dim).map(|i| 1.0 + i as f32 / 99.0).collect();
    let (q_norm, k_norm) = (norm(weight.clone()), norm(own.clone()));
    let rotary = RopeSpec {
        style: RopeStyle::Neox,
        rotary_dim: 16,
        inv_freq: (0..8).map(|i| 0.5f32.powi(i)).collect(),
        attention_factor: 1.0,
        position_offset: 0,
    };
    let rope = CpuRope::new(&rotary, 1024).unwrap();
    let row = StepRow::new(&[1, 2, 3], 700, &[0, 1, 2], LogitUse::None);
    let plan = StepPlan::new(&[row]).unwrap();
    let expected = |x: &Tensor, i: usize, head: usize, norm: Option<&CpuNorm>| -> Vec<f32> {
        let x = &x.row(i)[head * head_dim..(head + 1) * head_dim];
        let clipped: Vec<f32> = x.iter().map(|x| x.clamp(-1.5, 1.5)).collect();
        let Some(norm) = norm else { return clipped };
        let mut y = vec![0.0; head_dim];
        norm_row(isa, norm, &clipped, &mut y);
        for j in 0..8 {
            let angle = f64::from((700 + i) as f32 * rotary.inv_freq[j]);
            let (sin, cos) = (angle.sin() as f32, angle.cos() as f32);
            let (a, b) = (y[j], y[j + 8]);
            (y[j], y[j + 8]) = ((-b).mul_add(sin, a * cos), a.mul_add(sin, b * cos));
        }
        y
    };
    let first = tensor(3, 4 * head_dim, 1);
    let (keys, values) = (tensor(3, 2 * head_dim, 2), tensor(3, 2 * head_dim, 3));
    for isa in Isa::available() {
        let mut kv = KvPages::new(&spec(&op, KvFormat::F16, 3)).unwrap();
        let (mut q, mut k, mut v) =
            (tensor(3, 4 * head_dim, 1), tensor(3, 2 * head_dim, 2), tensor(3, 2 * head_dim, 3));
        let norms = Some((&q_norm, &k_norm));
        let pool = Pool::new(1, None);
        append(isa, &pool, &plan, &op, norms, Some(&rope), &mut q, &mut k, &mut v, &mut kv)
            .unwrap();
        for i in 0..3 {
            for head in 0..4 {
                let at = head * head_dim..(head + 1) * head_dim;
                assert_eq!(q.row(i)[at], expected(&first, i, head, Some(&q_norm)));
            }
            for head in 0..2 {
                let part = norm(own[head * head_dim..(head + 1) * head_dim].to_vec());
                let (key, value) = stored_f16(&kv, 2, head, 700 % PAGE_TOKENS + i);
                assert_eq!(key, rounded(&expected(&keys, i, head, Some(&part))));
                assert_eq!(value, rounded(&expected(&values, i, head, None)));
            }
        }
    }
}

/// Everything the cache holds of one token and layer, plane by plane.
fn token_bytes(layer: &LayerPages, page: usize, token: usize) -> Vec<u8> {
    let heads = layer.kv_heads;
    let mut all = Vec::new();
    for plane in layer.planes() {
        for slot in (0..heads).map(|head| plane.slot(page, head)) {
            all.extend(plane.token_bytes(slot, token));
        }
    }
    all
}

#[test]
fn pages_and_prefixes_are_copied_in_all_layers_and_formats() {
    for format in KvFormat::ALL {
        let mut kv = KvPages::new(&spec(&op(2, 2, 32), format, 4)).unwrap();
        for (i, plane) in kv.layers.iter_mut().flat_map(LayerPages::planes_mut).enumerate() {
            plane.bytes.iter_mut().enumerate().for_each(|(j, b)| *b = (j * 31 + j / 251 + i) as u8);
        }
        let page = |kv: &KvPages, page| -> Vec<Vec<u8>> {
            let token = |t| kv.layers.iter().flat_map(|l| token_bytes(l, page, t)).collect();
            (0..PAGE_TOKENS).map(token).collect()
        };
        let before: Vec<_> = (0..4).map(|p| page(&kv, p)).collect();
        assert_ne!(before[0], before[1]);
        kv.copy_pages(&[(3, 1), (0, 3)]).unwrap();
        kv.copy_page_prefix(0, 2, 100).unwrap();
        assert_eq!(page(&kv, 0), before[0]);
        assert_eq!(page(&kv, 1), before[3]);
        assert_eq!(page(&kv, 3), before[0]);
        assert_eq!(page(&kv, 2)[..100], before[0][..100]);
        assert_eq!(page(&kv, 2)[100..], before[2][100..]);
        assert!(kv.copy_pages(&[(0, 4)]).is_err());
        assert!(kv.copy_page_prefix(0, 1, 257).is_err());
    }
}

#[test]
fn two_rows_may_not_write_one_page() {
    let op = op(2, 2, 32);
    let mut kv = KvPages::new(&spec(&op, KvFormat::F16, 4)).unwrap();
    let mut run = |second: &[u32]| {
        let rows = [
            StepRow::new(&[1], 256, &[0, 1], LogitUse::None),
            StepRow::new(&[1], 256, second, LogitUse::None),
        ];
        let plan = StepPlan::new(&rows).unwrap();
        let [mut q, mut k, mut v] = [0; 3].map(|_| Tensor::new(2, 64).unwrap());
        let pool = Pool::new(1, None);
        append(Isa::best(), &pool, &plan, &op, None, None, &mut q, &mut k, &mut v, &mut kv)
    };
    assert!(run(&[0, 2]).is_ok(), "old pages may be shared");
    assert!(matches!(run(&[3, 1]), Err(BackendError::Size { what: "pages to write", .. })));
    assert!(matches!(run(&[0, 4]), Err(BackendError::Size { what: "cache pages", .. })));
}
