//! Renaming of tensor names while headers are read.
//!
//! Some families store their tensors under names of their own; an ordered list of pairs maps
//! them to the common ones. The lists are idempotent, so files that already carry the common
//! names pass through unchanged.

/// One replacement in the name of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rename {
    /// Text to look for.
    pub from: &'static str,
    /// What to put in its place.
    pub to: &'static str,
    /// Only at the start of the name; otherwise every occurrence is replaced.
    pub anchored: bool,
}

impl Rename {
    /// `name` after all `renames`, applied one after another.
    pub fn all(renames: &[Rename], name: String) -> String {
        apply(renames, name)
    }
}

/// `name` after all `renames`, applied one after another.
pub(crate) fn apply(renames: &[Rename], name: String) -> String {
    renames.iter().fold(name, |name, rename| {
        if rename.from.is_empty() {
            name
        } else if rename.anchored {
            match name.strip_prefix(rename.from) {
                Some(rest) => format!("{}{rest}", rename.to),
                None => name,
            }
        } else if name.contains(rename.from) {
            name.replace(rename.from, rename.to)
        } else {
            name
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list of GPT-2, whose single-letter prefixes make anchoring matter.
    const GPT2: &[Rename] = &[
        Rename { from: "ln_f.", to: "model.norm.", anchored: true },
        Rename { from: ".attn.c_proj.", to: ".self_attn.o_proj.", anchored: false },
        Rename { from: ".attn.", to: ".self_attn.", anchored: false },
        Rename { from: "h.", to: "model.layers.", anchored: true },
    ];

    #[test]
    fn pairs_apply_in_order_and_twice_is_once() {
        for (stored, wanted) in [
            ("ln_f.weight", "model.norm.weight"),
            ("h.3.attn.c_proj.bias", "model.layers.3.self_attn.o_proj.bias"),
            ("h.3.attn.c_attn.weight", "model.layers.3.self_attn.c_attn.weight"),
            ("branch.h.weight", "branch.h.weight"),
        ] {
            let once = apply(GPT2, stored.to_owned());
            assert_eq!(once, wanted);
            assert_eq!(apply(GPT2, once), wanted);
        }
    }
}
