//! What the modules of an adapter are in a model.
//!
//! Names are those of the spec: a module is found by the base name of a linear, or as the fused
//! tensor that holds several, after the renames of the family. Its first half is then shared, and the
//! rows of the second go where the rows of the fused weight go.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use pagella_arch::{Extra, FusedSpec, LinearSpec, MlpSpec, ModelSpec};
use pagella_backend::{BackendError, LowRank, TableDtype, TableSource};
use pagella_formats::{
    Adapter, AdapterModule, Dtype, FormatError, Linear, LowRankPair, PlainLinear, Rename,
    TensorView,
};

use super::place::Place;
use crate::error::ModelError;

/// Elements of the vectors that backends compute with.
const VECTOR: usize = 16;

/// An adapter whose every tensor has its place in a model; the values are in memory and finite.
#[derive(Clone, Debug)]
pub struct BoundAdapter {
    parts: Vec<AdapterPart>,
    ignored: usize,
}

/// One thing that an adapter changes.
#[derive(Clone, Debug)]
pub struct AdapterPart {
    pub(crate) change: Change,
}

#[derive(Clone)]
pub(crate) enum Change {
    LowRank(Place, LowRank),
    Head(OwnedHead),
    Embedding(TableSource),
}

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::LowRank(place, pair) => write!(f, "{place:?} with rank {}", pair.rank),
            Self::Head(head) => write!(f, "a head of {} outputs", head.vocab),
            Self::Embedding(table) => write!(f, "an embedding of {} rows", table.rows),
        }
    }
}

/// A head in the place of the model's own.
#[derive(Clone)]
pub(crate) struct OwnedHead {
    bytes: Arc<Vec<u8>>,
    dtype: Dtype,
    hidden: usize,
    vocab: usize,
}

impl OwnedHead {
    /// As a linear that a backend can lay out.
    pub(crate) fn view(&self) -> Linear<'_> {
        let whole = std::ops::Range { start: 0, end: self.vocab };
        Linear::Plain(PlainLinear {
            name: "lm_head".to_owned(),
            in_features: self.hidden,
            out_features: self.vocab,
            dtype: self.dtype,
            transposed: false,
            data: &self.bytes,
            stride: self.hidden,
            ranges: vec![whole],
            bias: None,
            tensors: Vec::new(),
        })
    }
}

/// What a part changes; an adapter changes it once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Changed {
    Sum(Place),
    Head,
    Embedding,
}

impl AdapterPart {
    fn changed(&self) -> Changed {
        match self.change {
            Change::LowRank(place, _) => Changed::Sum(place),
            Change::Head(_) => Changed::Head,
            Change::Embedding(_) => Changed::Embedding,
        }
    }

    /// Bytes of its values as they are stored.
    pub fn bytes(&self) -> u64 {
        match &self.change {
            Change::LowRank(_, pair) => pair.bytes() as u64,
            Change::Head(head) => head.bytes.len() as u64,
            Change::Embedding(table) => (table.rows * table.width * table.dtype.bytes()) as u64,
        }
    }

    /// Bytes of its values beside the weights: widths are rounded up to whole vectors.
    pub(crate) fn laid_out_bytes(&self) -> u64 {
        let Change::LowRank(_, pair) = &self.change else { return self.bytes() };
        let wide = |width: usize| width.next_multiple_of(VECTOR);
        let LowRank { in_features, out_features, rank, dtype, .. } = *pair;
        ((in_features * wide(rank) + rank * wide(out_features)) * dtype.bytes()) as u64
    }

    /// Which layer it changes; `None` for the embedding and the head.
    pub(crate) fn layer(&self) -> Option<usize> {
        match self.change {
            Change::LowRank(Place::Layer { layer, .. } | Place::Expert { layer, .. }, _) => {
                Some(layer)
            }
            _ => None,
        }
    }

    /// Whether it replaces the embedding.
    pub(crate) fn is_embedding(&self) -> bool {
        matches!(self.change, Change::Embedding(_))
    }

    /// Inputs and outputs of what it changes.
    pub(crate) fn shape(&self) -> (usize, usize) {
        match &self.change {
            Change::LowRank(_, pair) => (pair.in_features, pair.out_features),
            Change::Head(head) => (head.hidden, head.vocab),
            Change::Embedding(table) => (table.width, table.rows),
        }
    }

    /// Refuses a part that was bound for another model.
    pub(crate) fn expect_in(&self, spec: &ModelSpec) -> Result<(), ModelError> {
        let of = |linear: &LinearSpec| (linear.in_features, linear.out_features);
        let shape = match &self.change {
            Change::LowRank(place, _) => place.linear(spec).map(of),
            Change::Head(_) => Some(of(&spec.head.linear)),
            Change::Embedding(_) => Some((spec.hidden, spec.vocab)),
        };
        let found = self.shape();
        match shape {
            Some(shape) if shape == found => Ok(()),
            other => {
                let (expected, found) = (other.unwrap_or_default(), found);
                let (what, (expected, found)) = match expected.0 == found.0 {
                    true => ("outputs of an adapter's part", (expected.1, found.1)),
                    false => ("inputs of an adapter's part", (expected.0, found.0)),
                };
                Err(BackendError::Size { what, expected, found }.into())
            }
        }
    }
}

impl BoundAdapter {
    /// Opens the adapter in `dir` and binds it.
    pub fn open(dir: &Path, spec: &ModelSpec) -> Result<Self, ModelError> {
        Self::bind(&Adapter::open(dir)?, spec)
    }

    /// Bytes of the values of the adapter in `dir`, by its header: it takes at least as many once it is
    /// bound.
    pub fn stored_bytes(dir: &Path) -> Result<u64, ModelError> {
        let adapter = Adapter::open(dir)?;
        let bytes = |tensor: &TensorView<'_>| tensor.data.len() as u64;
        let of_module = |module: AdapterModule<'_>| {
            let pair = module.low_rank.as_ref().map_or(0, |pair| bytes(&pair.a) + bytes(&pair.b));
            pair + module.full.as_ref().map_or(0, bytes)
        };
        let modules = adapter.modules().map(|module| Ok(of_module(module?)));
        modules.sum()
    }

    /// Finds the place of everything that the adapter changes.
    pub fn bind(adapter: &Adapter, spec: &ModelSpec) -> Result<Self, ModelError> {
        let binder = Binder { adapter, spec, linears: linears_by_name(spec) };
        let (mut parts, mut ignored) = (Vec::new(), 0);
        let mut changed: HashMap<Changed, String> = HashMap::new();
        for module in adapter.modules() {
            let (module, before) = (module?, parts.len());
            ignored += usize::from(!binder.bind(&module, &mut parts)?);
            for part in &parts[before..] {
                // A slot holds one change of a linear, so another one would be lost.
                if let Some(other) = changed.insert(part.changed(), module.path.to_owned()) {
                    let problem = format!(
                        "which is a linear that {other:?} changes as well: merge the two, or leave one out"
                    );
                    return Err(binder.refused(module.path, problem));
                }
            }
        }
        if parts.is_empty() {
            return Err(binder.refused("", "it changes nothing of the text model"));
        }
        binder.expect_complete(&changed)?;
        Ok(Self { parts, ignored })
    }

    /// An adapter that changes these.
    pub(super) fn of_parts(parts: Vec<AdapterPart>) -> Self {
        Self { parts, ignored: 0 }
    }

    /// What it changes, one after the other.
    pub fn parts(&self) -> &[AdapterPart] {
        &self.parts
    }

    /// Bytes of all values as they are stored.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(AdapterPart::bytes).sum()
    }

    /// Modules that no text goes through, such as those for images.
    pub fn ignored_modules(&self) -> usize {
        self.ignored
    }

    /// Whether it brings an embedding or a head of its own.
    pub fn replaces_weights(&self) -> bool {
        self.parts.iter().any(|part| !matches!(part.change, Change::LowRank(..)))
    }
}

/// A linear under a name: all of it, or as part of a fused tensor.
struct Named<'a> {
    label: String,
    /// `None`: adapters cannot change it.
    place: Option<Place>,
    linear: &'a LinearSpec,
    fused: Option<&'a FusedSpec>,
}

/// All linears by their names.
fn linears_by_name(spec: &ModelSpec) -> HashMap<&str, Vec<Named<'_>>> {
    let mut by_name: HashMap<&str, Vec<Named<'_>>> = HashMap::new();
    for (index, layer) in spec.layers.iter().enumerate() {
        let is_plain = matches!(layer.mlp, MlpSpec::Plain { .. });
        for (label, linear) in layer.linear_specs() {
            let place = Place::in_layer(index, &label, is_plain);
            note(&mut by_name, format!("layers.{index}.{label}"), place, linear, None);
        }
    }
    // A head that may use the embedding's weights is still another module.
    let place = Some(Place::Head).filter(|_| !spec.head.normalize_rows);
    let embed = Some(spec.embed.name.as_str());
    note(&mut by_name, "head".to_owned(), place, &spec.head.linear, embed);
    by_name
}

fn note<'a>(
    by_name: &mut HashMap<&'a str, Vec<Named<'a>>>,
    label: String,
    place: Option<Place>,
    linear: &'a LinearSpec,
    except: Option<&str>,
) {
    for base in linear.bases.iter().filter(|base| Some(base.as_str()) != except) {
        let named = Named { label: label.clone(), place, linear, fused: None };
        by_name.entry(base).or_default().push(named);
    }
    if let Some(fused) = &linear.fused {
        let named = Named { label, place, linear, fused: Some(fused) };
        by_name.entry(&fused.base).or_default().push(named);
    }
}

struct Binder<'a> {
    adapter: &'a Adapter,
    spec: &'a ModelSpec,
    linears: HashMap<&'a str, Vec<Named<'a>>>,
}

impl Binder<'_> {
    fn refused(&self, module: &str, problem: impl Into<String>) -> ModelError {
        ModelError::AdapterMismatch {
            path: self.adapter.source().to_owned(),
            module: module.to_owned(),
            problem: problem.into(),
        }
    }

    /// Refuses an adapter that lists what the model has and whose file has nothing of it: an upload that
    /// was cut would otherwise answer like a weaker adapter.
    fn expect_complete(&self, changed: &HashMap<Changed, String>) -> Result<(), ModelError> {
        let ends = |name: &str, ending: &str| {
            let rest = name.strip_suffix(ending);
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        let (pairs, saved) = self.adapter.absent();
        // Experts may be fused in one program and apart in another, and are then not among the pairs.
        let lacks = |named: &Named<'_>| match named.place {
            Some(Place::Expert { .. }) | None => false,
            Some(place) => !changed.contains_key(&Changed::Sum(place)),
        };
        let lacks_pair = |ending: &&String| {
            let named = self.linears.iter().filter(|(name, _)| ends(name, ending));
            let mut named = named.flat_map(|(_, linears)| linears);
            named.any(lacks)
        };
        let embedding = changed.contains_key(&Changed::Embedding);
        let head = changed.contains_key(&Changed::Head);
        let bases = &self.spec.head.linear.bases;
        let tied = bases.contains(&self.spec.embed.name);
        let lacks_whole = |ending: &&String| {
            let of_head = bases.iter().any(|base| ends(base, ending));
            (ends(&self.spec.embed.name, ending) && !embedding)
                || (of_head && !head && !(tied && embedding))
        };
        let absent = pairs.iter().find(lacks_pair).or_else(|| saved.iter().find(lacks_whole));
        match absent {
            None => Ok(()),
            Some(name) => {
                let problem = "which adapter_config.json lists and the file has nothing of: download the adapter again";
                Err(self.refused(name, problem))
            }
        }
    }

    /// Binds one module. `false`: no text goes through it.
    fn bind(
        &self,
        module: &AdapterModule<'_>,
        parts: &mut Vec<AdapterPart>,
    ) -> Result<bool, ModelError> {
        let rules = self.spec.renames.iter();
        let renames: Vec<Rename> = rules
            .map(|rule| Rename { from: rule.from, to: rule.to, anchored: rule.anchored })
            .collect();
        // Rules look at whole names, up to the dot before their last part.
        let full = Rename::all(&renames, format!("{}.weight", module.path));
        let name = full.strip_suffix(".weight").unwrap_or(&full);
        if name == self.spec.embed.name {
            return self.bind_embedding(module, parts).map(|()| true);
        }
        let Some(linears) = self.linears.get(name) else {
            let extra = self.spec.extras(&[full.as_str()]);
            if let [(_, Extra::Known(_))] = extra[..] {
                return Ok(false);
            }
            let problem =
                "which this model does not have as a linear: the adapter is for another model";
            return Err(self.refused(module.path, problem));
        };
        if let Some(full) = &module.full {
            self.bind_full(module.path, full, linears, parts)?;
        }
        let Some(pair) = &module.low_rank else { return Ok(true) };
        let (a, b) = (pair.a.to_finite_f32()?, pair.b.to_finite_f32()?);
        for named in linears {
            let Some(place) = named.place else {
                let problem = format!(
                    "({}), which adapters cannot change here: merge it into the model",
                    named.label
                );
                return Err(self.refused(module.path, problem));
            };
            let b = self.rows(module.path, named, pair, &b)?;
            let change = Change::LowRank(place, self.low_rank(module.path, named, pair, &a, b)?);
            parts.push(AdapterPart { change });
        }
        for half in [&pair.a, &pair.b] {
            self.adapter.release(half);
        }
        Ok(true)
    }

    /// The rows of a second half that belong to a linear.
    fn rows(
        &self,
        module: &str,
        named: &Named<'_>,
        pair: &LowRankPair<'_>,
        b: &[f32],
    ) -> Result<Vec<f32>, ModelError> {
        let Some(fused) = named.fused else { return Ok(b.to_vec()) };
        if fused.slab.is_some() {
            let problem = "which is a stack of experts: adapters for it are not supported, merge it into the model";
            return Err(self.refused(module, problem));
        }
        if pair.out_features() != fused.total_out {
            return Err(
                wrong_shape(&pair.b, format!("[{}, {}]", fused.total_out, pair.rank)).into()
            );
        }
        let rows = fused.rows.iter().flat_map(|range| range.clone().step_by(fused.step.max(1)));
        // Every row of the spec is within the fused tensor, whose height was compared above.
        Ok(rows.flat_map(|row| b.iter().skip(row * pair.rank).take(pair.rank)).copied().collect())
    }

    fn low_rank(
        &self,
        module: &str,
        named: &Named<'_>,
        pair: &LowRankPair<'_>,
        a: &[f32],
        b: Vec<f32>,
    ) -> Result<LowRank, ModelError> {
        let LinearSpec { in_features, out_features, .. } = *named.linear;
        if pair.in_features() != in_features {
            return Err(wrong_shape(&pair.a, format!("[{}, {in_features}]", pair.rank)).into());
        }
        if b.len() != out_features * pair.rank {
            return Err(wrong_shape(&pair.b, format!("[{out_features}, {}]", pair.rank)).into());
        }
        if !pair.scale.is_finite() {
            return Err(self.refused(module, "has a scale that is not finite: it is damaged"));
        }
        let dtype = match (pair.a.dtype, pair.b.dtype) {
            (Dtype::F16, Dtype::F16) => TableDtype::F16,
            (Dtype::BF16, Dtype::BF16) => TableDtype::BF16,
            _ => TableDtype::F32,
        };
        let (rank, scale, a) = (pair.rank, pair.scale, a.to_vec());
        Ok(LowRank { in_features, out_features, rank, a, b, dtype, scale })
    }

    /// A full weight: only a head has one.
    fn bind_full(
        &self,
        module: &str,
        full: &TensorView<'_>,
        linears: &[Named<'_>],
        parts: &mut Vec<AdapterPart>,
    ) -> Result<(), ModelError> {
        let [Named { place: Some(Place::Head), linear, fused: None, .. }] = linears else {
            let problem = "as a whole weight: only the head and the embedding can be replaced, merge the adapter into the model";
            return Err(self.refused(module, problem));
        };
        let (hidden, vocab) = (linear.in_features, linear.out_features);
        if full.shape != [vocab, hidden] {
            return Err(self.resized(full, vocab, hidden));
        }
        full.to_finite_f32()?;
        let head =
            OwnedHead { bytes: Arc::new(full.data.to_vec()), dtype: full.dtype, hidden, vocab };
        parts.push(AdapterPart { change: Change::Head(head) });
        self.adapter.release(full);
        Ok(())
    }

    fn bind_embedding(
        &self,
        module: &AdapterModule<'_>,
        parts: &mut Vec<AdapterPart>,
    ) -> Result<(), ModelError> {
        if module.low_rank.is_some() {
            let problem = "which is the embedding: low-rank pairs for it are not supported, use modules_to_save";
            return Err(self.refused(module.path, problem));
        }
        let Some(full) = &module.full else { return Ok(()) };
        let (rows, width) = (self.spec.vocab, self.spec.hidden);
        if full.shape != [rows, width] {
            return Err(self.resized(full, rows, width));
        }
        full.to_finite_f32()?;
        let dtype = match full.dtype {
            Dtype::F32 => TableDtype::F32,
            Dtype::BF16 => TableDtype::BF16,
            _ => TableDtype::F16,
        };
        let bytes = Arc::new(full.data.to_vec());
        parts.push(AdapterPart {
            change: Change::Embedding(TableSource { bytes, dtype, rows, width }),
        });
        self.adapter.release(full);
        Ok(())
    }

    /// A head or embedding of another vocabulary.
    fn resized(&self, full: &TensorView<'_>, vocab: usize, hidden: usize) -> ModelError {
        wrong_shape(full, format!("[{vocab}, {hidden}], the vocabulary of the model,")).into()
    }
}

fn wrong_shape(tensor: &TensorView<'_>, expected: String) -> FormatError {
    FormatError::WrongShape {
        path: tensor.file.to_owned(),
        tensor: tensor.name.to_owned(),
        expected,
        found: tensor.shape.to_vec(),
    }
}
