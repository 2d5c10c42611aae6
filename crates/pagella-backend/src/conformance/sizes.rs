//! A wrong size is `BackendError::Size`: no panic, no silent reading beyond an end.

use std::sync::Arc;

use pagella_arch::{Activation, NormKind, QkNormOrder, QkNormSpan, RopeSpec, RopeStyle};

use super::fixture::{poisoned, refused_size, step, step_of, text};
use super::norm_add::weights;
use super::{Case, Tolerances, linears};
use crate::{
    AttentionOp, Backend, KvFormat, KvLayer, KvSpec, KvValues, LogitUse, NormWeights, PAGE_TOKENS,
    Projection, StepRow, TableDtype, TableSource,
};

/// New tokens of the step.
const TOKENS: usize = 5;

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    vec![
        Case { name: "sizes/write_and_read", run: transfers },
        Case { name: "sizes/sources", run: sources },
        Case { name: "sizes/embed", run: embed },
        Case { name: "sizes/project", run: project },
        Case { name: "sizes/project_add", run: project_add },
        Case { name: "sizes/norm_add_and_activate", run: elementwise },
        Case { name: "sizes/logits", run: logits },
        Case { name: "sizes/append", run: append },
        Case { name: "sizes/attend", run: attend },
        Case { name: "sizes/heads", run: heads },
        Case { name: "sizes/pages", run: pages },
    ]
}

/// A tensor that is too short for the step, whatever spare rows others have.
fn short<B: Backend>(backend: &B, width: usize) -> Result<B::Tensor, String> {
    let values = vec![1.0; (TOKENS - 1) * width];
    backend.write(TOKENS - 1, width, &values).map_err(text)
}

fn transfers<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    refused_size("too few values", backend.write(2, 64, &[1.0; 127]))?;
    refused_size("too many values", backend.write(2, 64, &[1.0; 129]))?;
    let tensor = backend.write(2, 64, &[1.0; 128]).map_err(text)?;
    refused_size("too many rows to read", backend.read(&tensor, 3, &mut Vec::new()))?;
    let allocated = backend.tensor(4, 64).map_err(text)?;
    let mut values = Vec::new();
    backend.read(&allocated, 4, &mut values).map_err(text)?;
    if values.len() != 4 * 64 {
        return Err(format!("4 rows of 64 elements read as {} elements", values.len()));
    }
    refused_size("too many rows of a fresh tensor", backend.read(&allocated, 5, &mut values))
}

/// What is loaded: tables, norms, frequencies.
fn sources<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    let table = |bytes: usize| {
        let bytes = Arc::new(vec![0u8; bytes]);
        backend.table(TableSource { bytes, dtype: TableDtype::F16, rows: 3, width: 64 })
    };
    refused_size("a table that ends early", table(3 * 64 * 2 - 1))?;
    refused_size("a table that goes on", table(3 * 64 * 2 + 2))?;
    let norm = weights(1, NormKind::Layer, 64, false);
    refused_size("a short bias", backend.norm(NormWeights { bias: Some(vec![1.0; 63]), ..norm }))?;
    let rope = RopeSpec {
        style: RopeStyle::Neox,
        rotary_dim: 64,
        inv_freq: vec![0.5; 31],
        attention_factor: 1.0,
        position_offset: 0,
    };
    refused_size("too few frequencies", backend.rope(&rope, 100))
}

fn embed<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    let table = |rows: usize, width: usize| {
        let bytes = Arc::new(vec![0x11u8; rows * width * 2]);
        let source = TableSource { bytes, dtype: TableDtype::F16, rows, width };
        backend.table(source).map_err(text)
    };
    let at = |ids: &[u32], past: usize| {
        step_of(backend, &[StepRow::new(ids, past, &[0], LogitUse::None)])
    };
    let words = table(10, 64)?;
    let step = at(&[0, 9, 3, 3, 3], 0)?;
    let mut out = poisoned(backend, TOKENS, 64)?;
    let mut wide = poisoned(backend, TOKENS, 96)?;
    refused_size("a wider output", backend.embed(&step, &words, 1.0, None, &mut wide))?;
    let mut few = short(backend, 64)?;
    refused_size("a short output", backend.embed(&step, &words, 1.0, None, &mut few))?;
    let beyond = at(&[0, 10], 0)?;
    refused_size("an id beyond the table", backend.embed(&beyond, &words, 1.0, None, &mut out))?;
    let positions = table(7, 64)?;
    let late = at(&[1, 2, 3], 5)?;
    let result = backend.embed(&late, &words, 1.0, Some(&positions), &mut out);
    refused_size("a position beyond the table", result)?;
    let narrow = table(7, 32)?;
    let result = backend.embed(&step, &words, 1.0, Some(&narrow), &mut out);
    refused_size("narrower positions", result)
}

fn project<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    let step = step(backend, TOKENS)?;
    for owned in linears::one_of_each() {
        let source = owned.view();
        let (inputs, outputs) = (source.in_features(), source.out_features());
        let linear = &backend.linear(&source).map_err(text)?;
        let x = poisoned(backend, TOKENS, inputs)?;
        let run = |x: &B::Tensor, norm: Option<&B::Norm>, out: &mut B::Tensor| {
            backend.project(&step, x, norm, &mut [Projection { linear, out }])
        };
        let mut out = poisoned(backend, TOKENS, outputs)?;
        refused_size(
            "a narrow input",
            run(&poisoned(backend, TOKENS, inputs - 32)?, None, &mut out),
        )?;
        refused_size("a short input", run(&short(backend, inputs)?, None, &mut out))?;
        refused_size("a wide output", run(&x, None, &mut poisoned(backend, TOKENS, outputs + 8)?))?;
        refused_size("a short output", run(&x, None, &mut short(backend, outputs)?))?;
        let norm = backend.norm(weights(1, NormKind::Rms, inputs - 32, false)).map_err(text)?;
        refused_size("a narrow norm", run(&x, Some(&norm), &mut out))?;
    }
    Ok(())
}

fn project_add<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    let step = step(backend, TOKENS)?;
    for owned in linears::one_of_each() {
        let source = owned.view();
        let (inputs, outputs) = (source.in_features(), source.out_features());
        let linear = backend.linear(&source).map_err(text)?;
        let x = poisoned(backend, TOKENS, inputs)?;
        let run =
            |x: &B::Tensor, out: &mut B::Tensor| backend.project_add(&step, x, &linear, 1.0, out);
        let mut out = poisoned(backend, TOKENS, outputs)?;
        refused_size("a narrow input", run(&poisoned(backend, TOKENS, inputs - 32)?, &mut out))?;
        refused_size("a short input", run(&short(backend, inputs)?, &mut out))?;
        refused_size("a wide residual", run(&x, &mut poisoned(backend, TOKENS, outputs + 8)?))?;
        refused_size("a short residual", run(&x, &mut short(backend, outputs)?))?;
    }
    Ok(())
}

fn elementwise<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    let step = step(backend, TOKENS)?;
    let norm = backend.norm(weights(1, NormKind::Rms, 64, false)).map_err(text)?;
    let mut full = poisoned(backend, TOKENS, 64)?;
    let other = poisoned(backend, TOKENS, 64)?;
    let (mut few, mut wide) = (short(backend, 64)?, poisoned(backend, TOKENS, 96)?);
    let add = |x: &B::Tensor, y: &mut B::Tensor| backend.norm_add(&step, x, &norm, 1.0, y);
    refused_size("a short residual", add(&other, &mut few))?;
    refused_size("a wide residual", add(&other, &mut wide))?;
    refused_size("a short norm input", add(&few, &mut full))?;
    refused_size("a wide norm input", add(&wide, &mut full))?;
    let other_wide = poisoned(backend, TOKENS, 96)?;
    refused_size("a narrow norm", add(&other_wide, &mut wide))?;
    let act = Activation::Silu;
    refused_size("a short gate", backend.activate(&step, act, &mut few, Some(&full)))?;
    refused_size("a short gate alone", backend.activate(&step, act, &mut few, None))?;
    refused_size("a short up", backend.activate(&step, act, &mut full, Some(&few)))?;
    refused_size("a wide up", backend.activate(&step, act, &mut full, Some(&wide)))
}

fn logits<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    let ids = [0; TOKENS];
    let step = step_of(backend, &[StepRow::new(&ids, 0, &[0], LogitUse::last(TOKENS))])?;
    for owned in linears::one_of_each() {
        let source = owned.view();
        let (hidden, vocab) = (source.in_features(), source.out_features());
        let head = backend.linear(&source).map_err(text)?;
        let norm = backend.norm(weights(1, NormKind::Rms, hidden, false)).map_err(text)?;
        let narrow = backend.norm(weights(1, NormKind::Rms, hidden - 32, false)).map_err(text)?;
        let x = poisoned(backend, TOKENS, hidden)?;
        let run = |x: &B::Tensor, norm: &B::Norm, out: &mut B::Tensor| {
            backend.logits(&step, x, norm, &head, 1.0, None, out)
        };
        let mut out = poisoned(backend, TOKENS, vocab)?;
        refused_size("short hidden rows", run(&short(backend, hidden)?, &norm, &mut out))?;
        let thin = poisoned(backend, TOKENS, hidden - 32)?;
        refused_size("narrow hidden rows", run(&thin, &norm, &mut out))?;
        refused_size("narrow rows and norm", run(&thin, &narrow, &mut out))?;
        refused_size("a narrow norm", run(&x, &narrow, &mut out))?;
        refused_size("too few logit rows", run(&x, &norm, &mut short(backend, vocab)?))?;
        refused_size("wide logits", run(&x, &norm, &mut poisoned(backend, TOKENS, vocab + 8)?))?;
    }
    Ok(())
}

const OP: AttentionOp = AttentionOp {
    layer: 0,
    heads: 4,
    kv_heads: 2,
    head_dim: 64,
    values: KvValues::Stored,
    scale: 0.125,
    softcap: None,
    window: None,
    chunk: None,
    clip_qkv: None,
    qk_norm_span: QkNormSpan::Head,
    qk_norm_order: QkNormOrder::BeforeRope,
    query_growth: None,
};

/// A cache of two pages that fits [`OP`].
fn cache<B: Backend>(backend: &B) -> Result<B::Kv, String> {
    let layers = vec![KvLayer::plain(OP.kv_heads, OP.head_dim)];
    backend.kv(&KvSpec { layers, format: KvFormat::F16, pages: 2 }).map_err(text)
}

/// Ops that do not fit the cache, with the widths of their queries and keys.
fn misfits() -> [(&'static str, AttentionOp); 3] {
    [
        ("a layer beyond the last", AttentionOp { layer: 1, ..OP }),
        ("other key heads", AttentionOp { kv_heads: 4, ..OP }),
        ("another head size", AttentionOp { head_dim: 32, ..OP }),
    ]
}

/// Pages that do not exist.
fn far_page<B: Backend>(backend: &B) -> Result<B::Step, String> {
    step_of(backend, &[StepRow::new(&[0; TOKENS], 0, &[2], LogitUse::None)])
}

fn append<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    let mut kv = cache(backend)?;
    let near = step(backend, TOKENS)?;
    let (q_width, kv_width) = (OP.heads * OP.head_dim, OP.kv_heads * OP.head_dim);
    let fit = [q_width, kv_width, kv_width];
    let tensors = |widths: [usize; 3]| -> Result<[B::Tensor; 3], String> {
        let [q, k, v] = widths;
        Ok([
            poisoned(backend, TOKENS, q)?,
            poisoned(backend, TOKENS, k)?,
            poisoned(backend, TOKENS, v)?,
        ])
    };
    let mut run = |step: &B::Step, op: &AttentionOp, tensors: [B::Tensor; 3]| {
        let [mut q, mut k, mut v] = tensors;
        backend.append(step, op, None, None, &mut q, &mut k, &mut v, &mut kv)
    };
    for (what, change) in [("queries", 0), ("keys", 1), ("values", 2)] {
        let mut widths = fit;
        widths[change] += OP.head_dim;
        refused_size(&format!("wide {what}"), run(&near, &OP, tensors(widths)?))?;
        let mut few = tensors(fit)?;
        few[change] = short(backend, fit[change])?;
        refused_size(&format!("short {what}"), run(&near, &OP, few))?;
    }
    for (what, op) in misfits() {
        let (q, kv) = (op.heads * op.head_dim, op.kv_heads * op.head_dim);
        refused_size(what, run(&near, &op, tensors([q, kv, kv])?))?;
    }
    refused_size("a page beyond the cache", run(&far_page(backend)?, &OP, tensors(fit)?))?;

    let norm = |width: usize| backend.norm(weights(1, NormKind::Rms, width, false)).map_err(text);
    let (right, wrong) = (norm(OP.head_dim)?, norm(OP.head_dim + 32)?);
    for norms in [(&wrong, &right), (&right, &wrong)] {
        let [mut q, mut k, mut v] = tensors(fit)?;
        let result = backend.append(&near, &OP, Some(norms), None, &mut q, &mut k, &mut v, &mut kv);
        refused_size("a norm of another head size", result)?;
    }
    let rope = RopeSpec {
        style: RopeStyle::Neox,
        rotary_dim: OP.head_dim + 2,
        inv_freq: vec![0.5; OP.head_dim / 2 + 1],
        attention_factor: 1.0,
        position_offset: 0,
    };
    let rope = backend.rope(&rope, 100).map_err(text)?;
    let [mut q, mut k, mut v] = tensors(fit)?;
    let result = backend.append(&near, &OP, None, Some(&rope), &mut q, &mut k, &mut v, &mut kv);
    refused_size("a rotation wider than a head", result)
}

fn attend<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    let kv = cache(backend)?;
    let near = step(backend, TOKENS)?;
    let width = OP.heads * OP.head_dim;
    let full = || poisoned(backend, TOKENS, width);
    let wide = || poisoned(backend, TOKENS, width + OP.head_dim);
    let run = |step: &B::Step, op: &AttentionOp, q: &B::Tensor, mut out: B::Tensor| {
        backend.attend(step, op, None, q, &kv, &mut out)
    };
    let q = full()?;
    refused_size("wide queries", run(&near, &OP, &wide()?, full()?))?;
    refused_size("short queries", run(&near, &OP, &short(backend, width)?, full()?))?;
    refused_size("a wide output", run(&near, &OP, &q, wide()?))?;
    refused_size("a short output", run(&near, &OP, &q, short(backend, width)?))?;
    for (what, op) in misfits() {
        let width = op.heads * op.head_dim;
        let q = poisoned(backend, TOKENS, width)?;
        refused_size(what, run(&near, &op, &q, poisoned(backend, TOKENS, width)?))?;
    }
    refused_size("a page beyond the cache", run(&far_page(backend)?, &OP, &q, full()?))
}

/// Query heads that cannot be shared out over the key heads.
fn heads<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    let mut kv = cache(backend)?;
    let step = step(backend, TOKENS)?;
    for heads in [1, 3, 5] {
        let op = AttentionOp { heads, ..OP };
        let (q_width, kv_width) = (heads * op.head_dim, op.kv_heads * op.head_dim);
        let mut q = poisoned(backend, TOKENS, q_width)?;
        let mut k = poisoned(backend, TOKENS, kv_width)?;
        let mut v = poisoned(backend, TOKENS, kv_width)?;
        let result = backend.append(&step, &op, None, None, &mut q, &mut k, &mut v, &mut kv);
        refused_size(&format!("append with {heads} heads over 2"), result)?;
        let mut out = poisoned(backend, TOKENS, q_width)?;
        let result = backend.attend(&step, &op, None, &q, &kv, &mut out);
        refused_size(&format!("attend with {heads} heads over 2"), result)?;
    }
    Ok(())
}

fn pages<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    let mut kv = cache(backend)?;
    refused_size("copying from beyond", backend.copy_pages(&mut kv, &[(0, 1), (2, 0)]))?;
    refused_size("copying to beyond", backend.copy_pages(&mut kv, &[(0, 2)]))?;
    refused_size("a prefix from beyond", backend.copy_page_prefix(&mut kv, 2, 0, 1))?;
    refused_size("a prefix to beyond", backend.copy_page_prefix(&mut kv, 0, 2, 1))?;
    let result = backend.copy_page_prefix(&mut kv, 0, 1, PAGE_TOKENS + 1);
    refused_size("a prefix longer than a page", result)?;
    let mut bytes = Vec::new();
    refused_size("reading beyond", backend.read_page(&kv, 2, &mut bytes))?;
    backend.read_page(&kv, 1, &mut bytes).map_err(text)?;
    refused_size("writing beyond", backend.write_page(&mut kv, 2, &bytes))?;
    for wrong in [0, bytes.len() - 1, bytes.len() + 1] {
        let result = backend.write_page(&mut kv, 1, &vec![0; wrong]);
        refused_size(&format!("{wrong} bytes for a page of {}", bytes.len()), result)?;
    }
    Ok(())
}
