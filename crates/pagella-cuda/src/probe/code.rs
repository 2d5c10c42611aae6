//! Which of the compiled code runs on a device.

include!(concat!(env!("OUT_DIR"), "/targets.rs"));

/// The oldest chips that the kernels are written for.
pub(super) const CAPABILITY_MIN: (u32, u32) = (8, 0);

/// How a build runs on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    /// With machine code made for it, or for an older chip of the same generation.
    Machine(&'static str),
    /// With portable code, which the driver compiles when it is first loaded. That takes a while
    /// once; the driver keeps the result.
    Portable(&'static str),
    /// Not at all.
    None,
}

/// What this build has for a device, under a driver that offers CUDA `cuda`.
pub(super) fn for_device(capability: (u32, u32), cuda: (u32, u32)) -> Code {
    best(TARGETS, capability, cuda >= TOOLKIT)
}

/// Whether a kernel file has code that a chip could run: all have, except those with the special
/// instructions of another chip.
pub(crate) fn has_code(file: &str, (major, minor): (u32, u32)) -> bool {
    let targets = TARGETS.iter().find(|(name, _)| *name == file).map_or(&[][..], |(_, t)| *t);
    let special = format!("sm_{major}{minor}a");
    targets.iter().any(|target| chip(target).is_some() || *target == special)
}

/// The code that is common to all files; files for one chip with special instructions do not count,
/// because others do the same work. Drivers older than the compiler do not read its portable code.
fn best(
    files: &'static [(&'static str, &'static [&'static str])],
    capability: (u32, u32),
    reads_portable: bool,
) -> Code {
    let mut found = None;
    for (_, targets) in files.iter().filter(|(_, t)| t.iter().any(|name| chip(name).is_some())) {
        let of_file = best_of_file(targets, capability, reads_portable);
        // The worst file decides.
        let keep = matches!((&found, &of_file), (Some(Code::Portable(_)), Code::Machine(_)));
        match of_file {
            Code::None => return Code::None,
            of_file if !keep => found = Some(of_file),
            _ => {}
        }
    }
    found.unwrap_or(Code::None)
}

fn best_of_file(
    targets: &'static [&'static str],
    capability: (u32, u32),
    reads_portable: bool,
) -> Code {
    // What is behind the colon counts: `compute_80:sm_90` is machine code.
    let kind = |name: &'static str| name.rsplit(':').next().unwrap_or(name);
    let fitting = |prefix: &str, fits: &dyn Fn((u32, u32)) -> bool| {
        let with_prefix = targets.iter().filter(|name| kind(name).starts_with(prefix));
        let chips = with_prefix.filter_map(|name| Some((chip(name)?, *name)));
        chips.filter(|(chip, _)| fits(*chip)).max().map(|(_, name)| name)
    };
    let same_generation = |chip: (u32, u32)| chip.0 == capability.0 && chip <= capability;
    if let Some(name) = fitting("sm_", &same_generation) {
        return Code::Machine(name);
    }
    match fitting("compute_", &|chip| chip <= capability) {
        Some(name) if reads_portable => Code::Portable(name),
        _ => Code::None,
    }
}

/// `sm_120` and `compute_120` are 12.0; `None` for chips with special instructions (`sm_90a`).
fn chip(target: &str) -> Option<(u32, u32)> {
    let number: u32 = target.rsplit('_').next()?.parse().ok()?;
    Some((number / 10, number % 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: &[(&str, &[&str])] = &[
        ("norm", &["sm_80", "sm_86", "sm_90", "sm_120", "compute_80", "compute_90"]),
        ("tile", &["sm_90a"]),
    ];

    #[test]
    fn machine_code_runs_on_its_generation_and_portable_code_on_later_ones() {
        for (capability, code) in [
            ((7, 5), Code::None),
            ((8, 0), Code::Machine("sm_80")),
            ((8, 7), Code::Machine("sm_86")),
            ((9, 0), Code::Machine("sm_90")),
            ((10, 3), Code::Portable("compute_90")),
            ((12, 1), Code::Machine("sm_120")),
        ] {
            assert_eq!(best(FILES, capability, true), code, "{capability:?}");
        }
        assert_eq!(best(FILES, (10, 3), false), Code::None);
        assert_eq!(best(&[], (9, 0), true), Code::None);
    }

    #[test]
    fn translated_portable_code_is_machine_code_of_its_chip() {
        const TRANSLATED: &[(&str, &[&str])] = &[("norm", &["compute_80:sm_90"])];
        let code = best(TRANSLATED, (9, 0), false);
        assert_eq!(code, Code::Machine("compute_80:sm_90"));
        assert_eq!(best(TRANSLATED, (12, 0), true), Code::None);
    }

    #[test]
    fn the_worst_file_decides() {
        const MIXED: &[(&str, &[&str])] =
            &[("a", &["sm_80", "sm_90"]), ("b", &["sm_80", "compute_80"]), ("c", &["sm_90"])];
        assert_eq!(best(MIXED, (8, 0), true), Code::None);
        assert_eq!(best(MIXED, (9, 0), true), Code::Portable("compute_80"));
    }
}
