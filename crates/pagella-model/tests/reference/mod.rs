//! A backend that does everything the obvious way, in f32 with f64 sums: the oracle of the tests.
//!
//! Weights are dequantised by the formats crate when they are laid out. Keys and values are stored
//! as binary16 or, to compare with programs that do not round them, as f32.

mod kv;
mod math;
mod matrix;

use half::f16;
use kv::{Kv, positions, slot};
use math::{activate, cap, dot, gated, growth, norm_row, rotate, route, softmax};
use matrix::Matrix;
use pagella_arch::{Activation, QkNormOrder, QkNormSpan, RopeSpec, Weigh};
use pagella_backend::{
    AttentionOp, Backend, BackendError, Guess, HeadWeights, HostGuesses, KvFormat, KvSpec,
    KvValues, MoeOp, NarrowAsk, NarrowRow, NoSlots, NormWeights, PAGE_TOKENS, Projection, StepPlan,
    TableDtype, TableSource, narrow_plain,
};
use pagella_formats::Linear;

/// The obvious backend.
#[derive(Clone, Copy, Debug)]
pub struct ReferenceBackend;

/// A dequantised linear.
pub struct Dense {
    in_features: usize,
    /// `[out, in]`.
    rows: Vec<f32>,
    bias: Option<Vec<f32>>,
    out_features: usize,
}

impl Dense {
    fn apply(&self, x: &[f32]) -> Vec<f32> {
        let product = self.rows.chunks_exact(self.in_features).map(|row| dot(row, x));
        let mut out: Vec<f32> = product.map(|sum| sum as f32).collect();
        if let Some(bias) = &self.bias {
            out.iter_mut().zip(bias).for_each(|(out, bias)| *out += bias);
        }
        out
    }
}

/// The experts of a layer: gate, up and down of each.
pub struct Experts {
    op: MoeOp,
    experts: Vec<[Dense; 3]>,
    selection_bias: Option<Vec<f32>>,
}

/// `[in, out]` to `[out, in]`.
fn transposed(values: &[f32], in_features: usize, out_features: usize) -> Vec<f32> {
    let column = |out: usize| (0..in_features).map(move |i| values[i * out_features + out]);
    (0..out_features).flat_map(column).collect()
}

impl Backend for ReferenceBackend {
    type Tensor = Matrix;
    type Linear = Dense;
    type Experts = Experts;
    type HeadLinear = HeadWeights;
    type Norm = NormWeights;
    type Table = TableSource;
    type Rope = RopeSpec;
    type Vector = Vec<f32>;
    type Kv = Kv;
    type Step = StepPlan;
    type Recordings = ();
    type Guesses = HostGuesses;
    type Slots = NoSlots;

    fn name(&self) -> &'static str {
        "reference"
    }

    fn describe(&self) -> String {
        "reference".to_owned()
    }

    fn tensor(&self, rows: usize, width: usize) -> Result<Matrix, BackendError> {
        Ok(Matrix { width, data: vec![f32::NAN; rows * width] })
    }

    fn linear(&self, source: &Linear<'_>) -> Result<Dense, BackendError> {
        let (in_features, out_features) = (source.in_features(), source.out_features());
        let rows = transposed(&source.values(), in_features, out_features);
        let bias = source.bias().map(<[f32]>::to_vec);
        Ok(Dense { in_features, rows, bias, out_features })
    }

    fn head_linear(&self, source: &HeadWeights) -> Result<HeadWeights, BackendError> {
        Ok(source.clone())
    }

    fn experts(&self, op: &MoeOp, _rows: usize) -> Result<Experts, BackendError> {
        Ok(Experts { op: *op, experts: Vec::new(), selection_bias: None })
    }

    fn accept_attention(&self, _op: &AttentionOp, _has_sinks: bool) -> Result<(), BackendError> {
        Ok(())
    }

    fn accept_experts(&self, _op: &MoeOp, _weighed: bool) -> Result<(), BackendError> {
        Ok(())
    }

    fn bias_selection(&self, experts: &mut Experts, bias: Vec<f32>) -> Result<(), BackendError> {
        experts.selection_bias = Some(bias);
        Ok(())
    }

    fn vector(&self, values: &[f32]) -> Result<Vec<f32>, BackendError> {
        Ok(values.to_vec())
    }

    fn add_expert(
        &self,
        experts: &mut Experts,
        gate: Dense,
        up: Dense,
        down: Dense,
    ) -> Result<(), BackendError> {
        experts.experts.push([gate, up, down]);
        Ok(())
    }

    fn norm(&self, weights: NormWeights) -> Result<NormWeights, BackendError> {
        Ok(weights)
    }

    fn table(&self, source: TableSource) -> Result<TableSource, BackendError> {
        let bytes = source.rows * source.width * source.dtype.bytes();
        let found = source.bytes.as_ref().as_ref().len();
        if found != bytes {
            return Err(BackendError::Size { what: "table", expected: bytes, found });
        }
        Ok(source)
    }

    fn rope(&self, spec: &RopeSpec, _context: usize) -> Result<RopeSpec, BackendError> {
        Ok(spec.clone())
    }

    fn kv(&self, spec: &KvSpec) -> Result<Kv, BackendError> {
        if !matches!(spec.format, KvFormat::F32 | KvFormat::F16) {
            return Err(BackendError::unsupported(
                self.name(),
                spec.format.name().to_owned(),
                "use fp32 or fp16",
            ));
        }
        let layer = |kv: &pagella_backend::KvLayer| {
            let width = kv.kv_heads * kv.head_dim;
            let matrix =
                |width| Matrix { width, data: vec![f32::NAN; spec.pages * PAGE_TOKENS * width] };
            // Values in keys have no room of their own.
            let values = if kv.values == KvValues::Stored { width } else { 0 };
            [matrix(width), matrix(values)]
        };
        let layers = spec.layers.iter().map(layer).collect();
        Ok(Kv { layers, pages: spec.pages, format: spec.format })
    }

    fn linear_bytes(&self, linear: &Dense) -> usize {
        4 * (linear.rows.len() + linear.bias.as_ref().map_or(0, Vec::len))
    }

    fn begin(&self, plan: &StepPlan) -> Result<StepPlan, BackendError> {
        Ok(plan.clone())
    }

    fn embed(
        &self,
        step: &StepPlan,
        table: &TableSource,
        scale: f32,
        positions_table: Option<&TableSource>,
        out: &mut Matrix,
    ) -> Result<(), BackendError> {
        step.expect_ids()?;
        out.expect("embedding", step.tokens(), table.width)?;
        let rows = out.rows_mut(step.tokens());
        for ((row, id), (_, position)) in rows.zip(step.ids()).zip(positions(step)) {
            for (i, value) in row.iter_mut().enumerate() {
                *value = scale * element(table, *id as usize, i);
                if let Some(table) = positions_table {
                    *value += element(table, position, i);
                }
            }
        }
        Ok(())
    }

    fn project(
        &self,
        step: &StepPlan,
        x: &Matrix,
        norm: Option<&NormWeights>,
        projections: &mut [Projection<'_, Self>],
    ) -> Result<(), BackendError> {
        for (i, row) in x.rows(step.tokens()).enumerate() {
            let mut row = row.to_vec();
            if let Some(norm) = norm {
                norm_row(&mut row, norm, 0);
            }
            for Projection { linear, out } in projections.iter_mut() {
                out.expect("projection", step.tokens(), linear.out_features)?;
                x.expect("input of a projection", step.tokens(), linear.in_features)?;
                let at = i * out.width..(i + 1) * out.width;
                out.data[at].copy_from_slice(&linear.apply(&row));
            }
        }
        Ok(())
    }

    fn project_add(
        &self,
        step: &StepPlan,
        x: &Matrix,
        linear: &Dense,
        scale: f32,
        residual: &mut Matrix,
    ) -> Result<(), BackendError> {
        x.expect("input of a projection", step.tokens(), linear.in_features)?;
        residual.expect("residual", step.tokens(), linear.out_features)?;
        for (x, sum) in x.rows(step.tokens()).zip(residual.rows_mut(step.tokens())) {
            sum.iter_mut().zip(linear.apply(x)).for_each(|(sum, value)| *sum += scale * value);
        }
        Ok(())
    }

    fn norm_add(
        &self,
        step: &StepPlan,
        x: &Matrix,
        norm: &NormWeights,
        scale: f32,
        residual: &mut Matrix,
    ) -> Result<(), BackendError> {
        residual.expect("residual", step.tokens(), x.width)?;
        for (x, sum) in x.rows(step.tokens()).zip(residual.rows_mut(step.tokens())) {
            let mut normed = x.to_vec();
            norm_row(&mut normed, norm, 0);
            sum.iter_mut().zip(normed).for_each(|(sum, value)| *sum += scale * value);
        }
        Ok(())
    }

    fn append(
        &self,
        step: &StepPlan,
        op: &AttentionOp,
        qk_norm: Option<(&NormWeights, &NormWeights)>,
        rope: Option<&RopeSpec>,
        q: &mut Matrix,
        k: &mut Matrix,
        v: &mut Matrix,
        kv: &mut Kv,
    ) -> Result<(), BackendError> {
        let t = step.tokens();
        q.expect("queries", t, op.heads * op.head_dim)?;
        k.expect("keys", t, op.kv_heads * op.head_dim)?;
        v.expect("values", t, op.kv_heads * op.head_dim)?;
        if let Some(clip) = op.clip_qkv {
            let all = [&mut *q, &mut *k, &mut *v].into_iter().flat_map(|m| m.rows_mut(t).flatten());
            all.for_each(|value| *value = value.clamp(-clip, clip));
        }
        let queries = &mut *q;
        let norms = [qk_norm.map(|(q, _)| q), qk_norm.map(|(_, k)| k)];
        for (matrix, norm) in [queries, &mut *k].into_iter().zip(norms) {
            for (row, (_, position)) in matrix.rows_mut(t).zip(positions(step)) {
                if let (Some(norm), QkNormSpan::Token) = (norm, op.qk_norm_span) {
                    norm_row(row, norm, 0);
                }
                let norm = norm.filter(|_| op.qk_norm_span == QkNormSpan::Head);
                for (head, part) in row.chunks_exact_mut(op.head_dim).enumerate() {
                    if let (Some(norm), QkNormOrder::BeforeRope) = (norm, op.qk_norm_order) {
                        norm_row(part, norm, head);
                    }
                    if let Some(rope) = rope {
                        rotate(part, rope, position);
                    }
                    if let (Some(norm), QkNormOrder::AfterRope) = (norm, op.qk_norm_order) {
                        norm_row(part, norm, head);
                    }
                }
            }
        }
        if let Some(of) = &op.query_growth {
            for (row, (_, position)) in q.rows_mut(t).zip(positions(step)) {
                row.iter_mut().for_each(|value| *value *= growth(of, position));
            }
        }
        kv.store(step, op.layer, &[k, v])
    }

    fn append_latent(
        &self,
        step: &StepPlan,
        op: &AttentionOp,
        norm: &NormWeights,
        rope: &RopeSpec,
        q: &mut Matrix,
        entry: &mut Matrix,
        kv: &mut Kv,
    ) -> Result<(), BackendError> {
        let t = step.tokens();
        q.expect("queries", t, op.heads * op.head_dim)?;
        entry.expect("entries", t, op.head_dim)?;
        for (row, (_, position)) in entry.rows_mut(t).zip(positions(step)) {
            let (latent, key) = row.split_at_mut(op.value_dim());
            norm_row(latent, norm, 0);
            rotate(key, rope, position);
        }
        for (row, (_, position)) in q.rows_mut(t).zip(positions(step)) {
            for head in row.chunks_exact_mut(op.head_dim) {
                rotate(&mut head[op.value_dim()..], rope, position);
            }
        }
        kv.store(step, op.layer, &[entry])
    }

    fn project_heads(
        &self,
        step: &StepPlan,
        x: &Matrix,
        linear: &HeadWeights,
        out: &mut Matrix,
    ) -> Result<(), BackendError> {
        let HeadWeights { heads, in_features, out_features, ref values, .. } = *linear;
        let taken = x.width / heads;
        let given = taken - in_features + out_features;
        out.expect("output of heads", step.tokens(), heads * given)?;
        for (x, out) in x.rows(step.tokens()).zip(out.rows_mut(step.tokens())) {
            let pairs = x.chunks_exact(taken).zip(out.chunks_exact_mut(given));
            let matrices = values.chunks_exact(in_features * out_features);
            for ((x, out), matrix) in pairs.zip(matrices) {
                let (x, rest) = x.split_at(in_features);
                let (outputs, passed) = out.split_at_mut(out_features);
                for (out, row) in outputs.iter_mut().zip(matrix.chunks_exact(in_features)) {
                    *out = dot(row, x) as f32;
                }
                passed.copy_from_slice(rest);
            }
        }
        Ok(())
    }

    fn attend(
        &self,
        step: &StepPlan,
        op: &AttentionOp,
        sinks: Option<&Vec<f32>>,
        q: &Matrix,
        kv: &Kv,
        out: &mut Matrix,
    ) -> Result<(), BackendError> {
        let (t, d, value_dim) = (step.tokens(), op.head_dim, op.value_dim());
        out.expect("attention output", t, op.heads * value_dim)?;
        let [keys, values] = &kv.layers[op.layer];
        let values = if op.values == KvValues::Stored { values } else { keys };
        let part = |m: &Matrix, at: usize, head: usize| -> Vec<f32> {
            m.data[at * m.width + head * d..][..d].to_vec()
        };
        for ((q, out), (row, position)) in q.rows(t).zip(out.rows_mut(t)).zip(positions(step)) {
            let first = op.window.map_or(0, |window| (position + 1).saturating_sub(window));
            let first = first.max(op.chunk.map_or(0, |chunk| position / chunk * chunk));
            let slots: Vec<usize> = (first..=position).map(|p| slot(step, row, p)).collect();
            for (head, (q, out)) in
                q.chunks_exact(d).zip(out.chunks_exact_mut(value_dim)).enumerate()
            {
                let kv_head = head / (op.heads / op.kv_heads);
                let score = |at: &usize| {
                    cap(dot(q, &part(keys, *at, kv_head)) * f64::from(op.scale), op.softcap)
                };
                // A sink is one more score, which brings no value.
                let sink = sinks.map(|sinks| f64::from(sinks[head]));
                let weights = softmax(slots.iter().map(score).chain(sink).collect());
                let mut sum = vec![0.0f64; value_dim];
                for (weight, at) in weights.iter().zip(&slots) {
                    let value = part(values, *at, kv_head);
                    sum.iter_mut().zip(value).for_each(|(s, v)| *s += weight * f64::from(v));
                }
                out.iter_mut().zip(sum).for_each(|(out, sum)| *out = sum as f32);
            }
        }
        Ok(())
    }

    fn activate(
        &self,
        step: &StepPlan,
        act: Activation,
        gate: &mut Matrix,
        up: Option<&Matrix>,
    ) -> Result<(), BackendError> {
        let t = step.tokens();
        if let Some(up) = up {
            up.expect("up projection", t, gate.width)?;
        }
        let n = t * gate.width;
        for (i, value) in gate.data[..n].iter_mut().enumerate() {
            *value = match up {
                Some(up) => gated(act, *value, up.data[i]),
                None => activate(act, f64::from(*value)) as f32,
            };
        }
        Ok(())
    }

    fn gate(&self, step: &StepPlan, gate: &Matrix, x: &mut Matrix) -> Result<(), BackendError> {
        let part = x.width / gate.width;
        for (gate, row) in gate.rows(step.tokens()).zip(x.rows_mut(step.tokens())) {
            for (j, value) in row.iter_mut().enumerate() {
                *value = (f64::from(*value) / (1.0 + f64::from(-gate[j / part]).exp())) as f32;
            }
        }
        Ok(())
    }

    fn mix_experts(
        &self,
        step: &StepPlan,
        norm: Option<&NormWeights>,
        router: &Dense,
        layer: &Experts,
        residual: &mut Matrix,
    ) -> Result<(), BackendError> {
        let op = &layer.op;
        assert_eq!(layer.experts.len(), op.experts);
        residual.expect("residual", step.tokens(), op.hidden)?;
        for row in residual.rows_mut(step.tokens()) {
            let mut x = row.to_vec();
            if let Some(norm) = norm {
                norm_row(&mut x, norm, 0);
            }
            let mut sum = vec![0.0f64; op.hidden];
            let bias = layer.selection_bias.as_deref();
            for (id, weight) in route(op, bias, &router.apply(&x)) {
                let [gate, up, down] = &layer.experts[id];
                let (x, weight) = match op.routing.weigh {
                    Weigh::Output => (x.clone(), weight),
                    Weigh::Input => (x.iter().map(|x| x * weight as f32).collect(), 1.0),
                };
                let pairs = gate.apply(&x).into_iter().zip(up.apply(&x));
                let inner: Vec<f32> = pairs.map(|(gate, up)| gated(op.act, gate, up)).collect();
                let out = down.apply(&inner);
                sum.iter_mut().zip(out).for_each(|(sum, y)| *sum += weight * f64::from(y));
            }
            row.iter_mut()
                .zip(sum)
                .for_each(|(row, sum)| *row += (f64::from(op.scale) * sum) as f32);
        }
        Ok(())
    }

    fn logits(
        &self,
        step: &StepPlan,
        x: &Matrix,
        norm: &NormWeights,
        head: &Dense,
        scale: f32,
        softcap: Option<f32>,
        out: &mut Matrix,
    ) -> Result<(), BackendError> {
        out.expect("logits", step.logit_tokens().len(), head.out_features)?;
        for (token, out) in step.logit_tokens().iter().zip(out.data.chunks_exact_mut(out.width)) {
            let mut row = x.data[*token as usize * x.width..][..x.width].to_vec();
            norm_row(&mut row, norm, 0);
            for (out, logit) in out.iter_mut().zip(head.apply(&row)) {
                *out = cap(f64::from(logit) * f64::from(scale), softcap) as f32;
            }
        }
        Ok(())
    }

    fn guess(
        &self,
        step: &StepPlan,
        logits: &Matrix,
        vocab: usize,
        guesses: &mut HostGuesses,
    ) -> Result<(), BackendError> {
        guesses.push(step, &logits.data, logits.width, vocab)
    }

    fn feed(&self, step: &mut StepPlan, guesses: &HostGuesses) -> Result<(), BackendError> {
        guesses.feed(step)
    }

    fn read_guesses(
        &self,
        guesses: &mut HostGuesses,
        out: &mut Vec<Guess>,
    ) -> Result<(), BackendError> {
        guesses.take(out);
        Ok(())
    }

    fn copy_pages(&self, kv: &mut Kv, moves: &[(u32, u32)]) -> Result<(), BackendError> {
        moves.iter().try_for_each(|(from, to)| self.copy_page_prefix(kv, *from, *to, PAGE_TOKENS))
    }

    fn copy_page_prefix(
        &self,
        kv: &mut Kv,
        from: u32,
        to: u32,
        tokens: usize,
    ) -> Result<(), BackendError> {
        for matrix in kv.layers.iter_mut().flatten() {
            let page = PAGE_TOKENS * matrix.width;
            let begin = from as usize * page;
            let source = begin..begin + tokens * matrix.width;
            matrix.data.copy_within(source, to as usize * page);
        }
        Ok(())
    }

    fn page_bytes(&self, kv: &Kv) -> usize {
        kv.page_bytes()
    }

    fn read_page(&self, kv: &Kv, page: u32, out: &mut Vec<u8>) -> Result<(), BackendError> {
        kv.read_page(page, out)
    }

    fn write_page(&self, kv: &mut Kv, page: u32, bytes: &[u8]) -> Result<(), BackendError> {
        kv.write_page(page, bytes)
    }

    fn write(&self, rows: usize, width: usize, values: &[f32]) -> Result<Matrix, BackendError> {
        assert_eq!(values.len(), rows * width);
        Ok(Matrix { width, data: values.to_vec() })
    }

    fn read(&self, tensor: &Matrix, rows: usize, out: &mut Vec<f32>) -> Result<(), BackendError> {
        out.clear();
        out.extend_from_slice(&tensor.data[..rows * tensor.width]);
        Ok(())
    }

    fn narrows(&self) -> bool {
        true
    }

    fn narrow(
        &self,
        logits: &Matrix,
        asks: &[NarrowAsk<'_>],
        out: &mut Vec<NarrowRow>,
    ) -> Result<(), BackendError> {
        out.resize_with(asks.len(), NarrowRow::default);
        for (ask, row) in asks.iter().zip(out) {
            ask.check(logits.data.len() / logits.width, logits.width)?;
            let values = &logits.data[ask.row * logits.width..][..logits.width];
            narrow_plain(values, ask, row);
        }
        Ok(())
    }
}

/// One element of a table.
fn element(table: &TableSource, row: usize, column: usize) -> f32 {
    let bytes = table.bytes.as_ref().as_ref();
    let size = table.dtype.bytes();
    let at = &bytes[(row * table.width + column) * size..][..size];
    match table.dtype {
        TableDtype::F16 => f16::from_le_bytes([at[0], at[1]]).to_f32(),
        TableDtype::BF16 => half::bf16::from_le_bytes([at[0], at[1]]).to_f32(),
        TableDtype::F32 => f32::from_le_bytes([at[0], at[1], at[2], at[3]]),
    }
}
