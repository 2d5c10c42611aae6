//! The pages of one layer, in any format.

use std::cell::RefCell;
use std::ops::Range;

use pagella_backend::{BackendError, KvFormat, KvLayer, KvValues, PAGE_TOKENS};

use super::code::{Bits, ROTATION, SCALED, UNROTATE, rotate_row};
use super::coded::{Ahead, Pass};
use super::f32;
use super::narrow::Widen;
use super::plane::{Order, Plane};
use super::quantized::{KeyPanel, Panel, Slot, ValuePanel, unrotate_keys};
use super::transpose::transpose;
use crate::simd::{Isa, LANES};

thread_local! {
    /// Panels of two heads that are rotated together.
    static PAIR: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// How elements are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KvElement {
    F32,
    F16,
    F8,
    Code(Bits),
}

/// Keys or values of one layer.
pub(crate) struct Store {
    /// Floating-point elements, or codes.
    pub(crate) elements: Plane,
    /// Width of the codes and their scales; absent for floating point.
    pub(crate) code: Option<(Bits, Plane)>,
}

impl Store {
    fn new(
        pages: usize,
        layer: &KvLayer,
        element: KvElement,
        tokens_inner: bool,
    ) -> Result<Self, BackendError> {
        let KvLayer { kv_heads, head_dim, .. } = *layer;
        let order = |unit_bytes| match tokens_inner {
            true => Order::TokenInner { unit_bytes },
            false => Order::TokenOuter,
        };
        let plane = |bytes, order| Plane::new(pages, kv_heads, bytes, order);
        let float =
            |bytes| Ok(Store { elements: plane(bytes * head_dim, order(bytes))?, code: None });
        let bits = match element {
            KvElement::F32 => return float(4),
            KvElement::F16 => return float(2),
            KvElement::F8 => return float(1),
            KvElement::Code(bits) => bits,
        };
        let scales = plane(2 * head_dim / SCALED, Order::TokenInner { unit_bytes: 2 })?;
        let elements = plane(bits.bytes(head_dim), order(4))?;
        Ok(Store { elements, code: Some((bits, scales)) })
    }

    fn planes(&self) -> impl Iterator<Item = &Plane> {
        std::iter::once(&self.elements).chain(self.code.as_ref().map(|(_, scales)| scales))
    }

    fn planes_mut(&mut self) -> impl Iterator<Item = &mut Plane> {
        std::iter::once(&mut self.elements).chain(self.code.as_mut().map(|(_, scales)| scales))
    }
}

/// The pages of one layer.
pub(crate) struct LayerPages {
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) keys: Store,
    /// Absent where values are in the keys.
    pub(crate) values: Option<Store>,
    /// How many elements of the keys are values then.
    in_keys: usize,
    /// How keys are stored; values differ at most in the width of their codes.
    pub(crate) element: KvElement,
}

impl LayerPages {
    pub(super) fn new(
        layer: &KvLayer,
        format: KvFormat,
        pages: usize,
    ) -> Result<Self, BackendError> {
        let KvLayer { kv_heads, head_dim, .. } = *layer;
        let in_keys = match layer.values {
            KvValues::InKeys(elements) if kv_heads != 1 || elements > head_dim => {
                let (expected, found) = (head_dim, kv_heads * elements);
                return Err(BackendError::Size { what: "values in keys", expected, found });
            }
            KvValues::InKeys(elements) => elements,
            KvValues::Stored => 0,
        };
        let (keys, values) = match format {
            KvFormat::F32 => (KvElement::F32, KvElement::F32),
            KvFormat::F16 => (KvElement::F16, KvElement::F16),
            KvFormat::Fp8 => (KvElement::F8, KvElement::F8),
            KvFormat::Q8 => (KvElement::Code(Bits::Eight), KvElement::Code(Bits::Eight)),
            KvFormat::K8V4 => (KvElement::Code(Bits::Eight), KvElement::Code(Bits::Four)),
            KvFormat::Q4 => (KvElement::Code(Bits::Four), KvElement::Code(Bits::Four)),
        };
        let fits =
            head_dim.is_multiple_of(SCALED) && (kv_heads * head_dim).is_multiple_of(ROTATION);
        if matches!(keys, KvElement::Code(_)) && !fits {
            return Err(BackendError::unsupported(
                "cpu",
                format!("a {} cache for {kv_heads} heads of {head_dim} elements", format.name()),
                format!(
                    "quantised caches need heads of a multiple of {SCALED} elements, \
                     {ROTATION} in all; use {}",
                    KvFormat::F16.name()
                ),
            ));
        }
        Ok(LayerPages {
            kv_heads,
            head_dim,
            keys: Store::new(pages, layer, keys, true)?,
            values: match layer.values {
                KvValues::Stored => Some(Store::new(pages, layer, values, false)?),
                KvValues::InKeys(_) => None,
            },
            in_keys,
            element: keys,
        })
    }

    /// Every plane, in the order in which a page is read and written.
    pub(crate) fn planes(&self) -> impl Iterator<Item = &Plane> {
        self.keys.planes().chain(self.values.iter().flat_map(Store::planes))
    }

    /// The same, to be changed.
    pub(crate) fn planes_mut(&mut self) -> impl Iterator<Item = &mut Plane> {
        self.keys.planes_mut().chain(self.values.iter_mut().flat_map(Store::planes_mut))
    }

    /// Where values are.
    pub(crate) fn place_of_values(&self) -> KvValues {
        match self.values {
            Some(_) => KvValues::Stored,
            None => KvValues::InKeys(self.in_keys),
        }
    }

    /// Whether slots hold plain binary16.
    pub(crate) fn is_f16(&self) -> bool {
        self.element == KvElement::F16
    }

    /// Whether slots hold codes.
    fn is_coded(&self) -> bool {
        matches!(self.element, KvElement::Code(_))
    }

    /// Whether panels hold rotated heads: then queries must be rotated before they meet the keys,
    /// and outputs afterwards. Not so when blocks cross the border between two heads.
    pub(crate) fn is_rotated(&self) -> bool {
        self.is_coded() && self.head_dim.is_multiple_of(ROTATION)
    }

    /// Heads whose elements are quantised together.
    pub(super) fn heads_together(&self) -> usize {
        if !self.is_coded() || self.is_rotated() { 1 } else { 2 }
    }

    /// Widens the first `tokens` tokens of a head and page into panels: keys `[D][256]`, values
    /// `[256][step]`, where `step` is their width rounded up to whole vectors, or to whole blocks
    /// where they are in rotated keys. Elements beyond those are not meaningful.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn widen(
        &self,
        isa: Isa,
        page: usize,
        head: usize,
        tokens: usize,
        keys: &mut [f32],
        values: &mut [f32],
        step: usize,
    ) {
        if let (KvElement::Code(_), false) = (self.element, self.is_rotated()) {
            return self.decode_pair(isa, page, head, tokens, keys, values);
        }
        self.widen_keys(isa, page, head, tokens, keys);
        match &self.values {
            Some(store) => self.widen_values(isa, store, page, head, tokens, values),
            None => transpose(keys, step.min(self.head_dim), tokens, values, step),
        }
    }

    fn widen_keys(&self, isa: Isa, page: usize, head: usize, tokens: usize, keys: &mut [f32]) {
        let slot = self.keys.elements.slot_ptr(page, head);
        let (width, step) = (self.head_dim, PAGE_TOKENS);
        match self.element {
            KvElement::F32 => f32::copy_keys(slot.cast(), width, tokens, keys),
            KvElement::F16 => isa.run(Widen::<u16> {
                source: slot.cast(),
                source_step: step,
                target: keys,
                target_step: step,
                rows: width,
                width: tokens,
            }),
            KvElement::F8 => isa.run(Widen::<u8> {
                source: slot,
                source_step: step,
                target: keys,
                target_step: step,
                rows: width,
                width: tokens,
            }),
            KvElement::Code(_) => self.decode_keys(isa, page, head, 0..tokens, keys, step),
        }
    }

    fn widen_values(
        &self,
        isa: Isa,
        store: &Store,
        page: usize,
        head: usize,
        tokens: usize,
        values: &mut [f32],
    ) {
        let slot = store.elements.slot_ptr(page, head);
        let width = self.head_dim;
        let target_step = width.next_multiple_of(LANES);
        match self.element {
            KvElement::F32 => f32::copy_values(slot.cast(), width, tokens, values),
            KvElement::F16 => isa.run(Widen::<u16> {
                source: slot.cast(),
                source_step: width,
                target: values,
                target_step,
                rows: tokens,
                width,
            }),
            KvElement::F8 => isa.run(Widen::<u8> {
                source: slot,
                source_step: width,
                target: values,
                target_step,
                rows: tokens,
                width,
            }),
            KvElement::Code(_) => self.decode_values(isa, page, head, 0..tokens, values, width),
        }
    }

    /// Decodes `tokens`, from a multiple of 16 on, of a quantised head and page into
    /// `[D][step]`, still rotated.
    pub(crate) fn decode_keys(
        &self,
        isa: Isa,
        page: usize,
        head: usize,
        tokens: Range<usize>,
        panel: &mut [f32],
        step: usize,
    ) {
        let slot = self.slot(&self.keys, page, head, tokens);
        isa.run(KeyPanel(Panel { slot, panel, step }));
    }

    /// The same for values, into `[tokens][step]`.
    pub(crate) fn decode_values(
        &self,
        isa: Isa,
        page: usize,
        head: usize,
        tokens: Range<usize>,
        panel: &mut [f32],
        step: usize,
    ) {
        let Some(values) = &self.values else { unreachable!("values are in the keys") };
        let slot = self.slot(values, page, head, tokens);
        isa.run(ValuePanel(Panel { slot, panel, step }));
    }

    /// Keys of quantised tokens and the queries `a` to multiply them with; the values come next.
    pub(crate) fn key_pass(
        &self,
        page: usize,
        head: usize,
        tokens: Range<usize>,
        a: *const f32,
        out: *mut f32,
    ) -> Pass {
        let Some(values) = &self.values else { unreachable!("values are in the keys") };
        let slot = self.slot(&self.keys, page, head, tokens);
        Pass { slot, a, out, out_step: PAGE_TOKENS, ahead: self.ahead(values, page, head) }
    }

    /// Quantised values and their exponentials `a`; outputs go to `out`, so many elements apart. Then
    /// come the keys of page `next`.
    pub(crate) fn value_pass(
        &self,
        page: usize,
        head: usize,
        tokens: Range<usize>,
        a: *const f32,
        (out, out_step): (*mut f32, usize),
        next: usize,
    ) -> Pass {
        let Some(values) = &self.values else { unreachable!("values are in the keys") };
        let slot = self.slot(values, page, head, tokens);
        Pass { slot, a, out, out_step, ahead: self.ahead(&self.keys, next, head) }
    }

    fn ahead(&self, store: &Store, page: usize, head: usize) -> Ahead {
        let Slot { codes, scales, bits, width, .. } = self.slot(store, page, head, 0..0);
        Ahead { codes, scales, bytes: bits.bytes(width * PAGE_TOKENS) }
    }

    /// A slot of a quantised store.
    fn slot(&self, store: &Store, page: usize, head: usize, tokens: Range<usize>) -> Slot {
        let (bits, scales) = match &store.code {
            Some((bits, scales)) => (*bits, scales.slot_ptr(page, head)),
            None => unreachable!("floating-point slots have no codes"),
        };
        let codes = store.elements.slot_ptr(page, head);
        Slot { codes, scales: scales.cast(), bits, width: self.head_dim, tokens }
    }

    /// Decodes `head` together with the one it shares rotation blocks with, and keeps it.
    fn decode_pair(
        &self,
        isa: Isa,
        page: usize,
        head: usize,
        tokens: usize,
        keys: &mut [f32],
        values: &mut [f32],
    ) {
        let (width, first, odd) = (self.head_dim, head / 2 * 2, head % 2);
        let step = 2 * width;
        PAIR.with_borrow_mut(|pair| {
            pair.resize(pair.len().max(step * PAGE_TOKENS), 0.0);
            let pair = &mut pair[..step * PAGE_TOKENS];
            for (i, half) in pair.chunks_exact_mut(width * PAGE_TOKENS).enumerate() {
                self.decode_keys(isa, page, first + i, 0..tokens, half, PAGE_TOKENS);
            }
            unrotate_keys(pair, tokens);
            keys.copy_from_slice(&pair[odd * width * PAGE_TOKENS..][..width * PAGE_TOKENS]);
            for i in 0..2 {
                let half = &mut pair[i * width..];
                self.decode_values(isa, page, first + i, 0..tokens, half, step);
            }
            for (row, out) in
                pair.chunks_exact_mut(step).zip(values.chunks_exact_mut(width)).take(tokens)
            {
                rotate_row(isa, row, UNROTATE);
                out.copy_from_slice(&row[odd * width..][..width]);
            }
        });
    }
}
