//! Tensors of a checkpoint that no part of the model takes.

use std::collections::{BTreeMap, HashSet};

use pagella_arch::{Extra, ModelSpec};
use pagella_formats::{Checkpoint, Linear, other_kinds};

use crate::error::{LISTED_MAX, ModelError};
use crate::weights::find_norm;

/// Tensors of one kind that nothing takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusedTensors {
    /// What they are.
    pub kind: Extra,
    /// Their names, sorted, after the renames of the family.
    pub names: Vec<String>,
    /// Bytes of them in the files.
    pub bytes: u64,
}

/// Collects what is taken while a checkpoint is surveyed.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    names: HashSet<String>,
    /// The formats that are used and not used of linears stored in two, with the first of these linears
    /// and how many they are.
    passed_over: BTreeMap<(&'static str, &'static str), (String, usize)>,
}

impl Taken {
    /// Everything but the linears; those are in the files, which was checked.
    pub fn new(checkpoint: &Checkpoint, spec: &ModelSpec) -> Self {
        let mut taken = Self::default();
        let norms = spec.norm_specs().filter_map(|(_, norm)| find_norm(checkpoint, norm));
        let tables = [Some(spec.embed.name.as_str()), spec.embed.positions.as_deref()];
        let vectors = spec.vector_specs().map(|(_, base, _)| base);
        for base in norms.chain(vectors) {
            taken.names.extend([format!("{base}.weight"), format!("{base}.bias"), base.to_owned()]);
        }
        // Rows of a table are looked up: nothing is added to them.
        for base in tables.into_iter().flatten() {
            taken.names.extend([format!("{base}.weight"), base.to_owned()]);
        }
        taken
    }

    /// A linear that was read: all its tensors, also a bias of zeros, and those of the formats in which
    /// it is stored, too, which are said to be passed over.
    pub fn add(&mut self, checkpoint: &Checkpoint, linear: &Linear<'_>) {
        self.names.extend(linear.kind().tensor_names(linear.name()));
        for other in other_kinds(checkpoint, linear) {
            self.names.extend(other.tensor_names(linear.name()));
            let entry = self.passed_over.entry((linear.kind().name(), other.name()));
            entry.or_insert_with(|| (linear.name().to_owned(), 0)).1 += 1;
        }
    }

    /// Sentences about weights that are there in two formats.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        self.passed_over.iter().map(|((kind, other), (first, count))| {
            let more = match count - 1 {
                0 => String::new(),
                1 => " and 1 more linear".to_owned(),
                more => format!(" and {more} more linears"),
            };
            format!("`{first}`{more}: stored as {kind} and as {other}, of which {kind} is used")
        })
    }

    /// What is left, by kind.
    pub fn rest(&self, checkpoint: &Checkpoint, spec: &ModelSpec) -> Vec<UnusedTensors> {
        let names: Vec<&str> =
            checkpoint.names().filter(|name| !self.names.contains(*name)).collect();
        let mut kinds: BTreeMap<Extra, UnusedTensors> = BTreeMap::new();
        for (name, kind) in spec.extras(&names) {
            let entry = kinds.entry(kind);
            let unused =
                entry.or_insert_with(|| UnusedTensors { kind, names: Vec::new(), bytes: 0 });
            unused.bytes += checkpoint.tensor(name).map_or(0, |tensor| tensor.data.len() as u64);
            unused.names.push(name.to_owned());
        }
        kinds.into_values().collect()
    }
}

/// Refuses files with tensors that the model should have taken.
pub(crate) fn refuse(checkpoint: &Checkpoint, unused: &[UnusedTensors]) -> Result<(), ModelError> {
    let Some(own) = unused.iter().find(|unused| unused.kind == Extra::Own) else {
        return Ok(());
    };
    Err(ModelError::UnusedTensors {
        dir: checkpoint.source().to_owned(),
        unused: own.names.iter().take(LISTED_MAX).cloned().collect(),
        total: own.names.len(),
    })
}
