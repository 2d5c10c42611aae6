//! Which chips a kernel file is compiled for. Part of the build script, and of `xtask`, which
//! tests it.
//!
//! Ordinary files get machine code for every supported chip and portable code (PTX) for later
//! ones. A file that includes the header of one chip's own instructions is compiled for that chip
//! and nothing else.

/// Restricts the code: a list of chips and of portable code such as `90a,compute_80`, or of portable
/// code translated here, such as `compute_80:sm_90`: what a driver would make of it on that chip, so
/// that nothing waits for the driver. Meant for development; what is not named is left out.
pub const ARCHS_ENV: &str = "PAGELLA_CUDA_ARCHS";

/// Headers of instructions that one chip has and later ones do not, and the chip.
const SPECIAL: &[(&str, &str)] = &[("hopper.cuh", "90a")];

/// Machine code of ordinary files, 9.0 without its special instructions; and the portable code that
/// it is made from. Going through that once for several chips saves half of the time; it means that
/// the kernels see `__CUDA_ARCH__` as 800 or 900, nothing else.
///
/// 8.9 runs the code of 8.6, as every chip runs that of an older one of its generation: compiled for
/// both, no instruction of any kernel differed.
const CUBINS: &[(&str, &str)] = &[("80", "80"), ("86", "80"), ("90", "90"), ("120", "90")];

/// Portable code of ordinary files, which the driver compiles for chips not listed above.
const PTX: &[&str] = &["80", "90"];

/// One kind of code in a fatbin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Machine code; `90a` is 9.0 with its special instructions.
    Cubin(String),
    Ptx(String),
    /// Machine code for the second, made from the portable code for the first.
    Translated(String, String),
}

impl Target {
    /// The value of nvcc's `-gencode`.
    pub fn gencode(&self) -> String {
        match self {
            Target::Cubin(chip) => {
                let from = CUBINS.iter().find(|(name, _)| name == chip).map(|(_, from)| *from);
                format!("arch=compute_{},code=sm_{chip}", from.unwrap_or(chip))
            }
            Target::Ptx(chip) => format!("arch=compute_{chip},code=compute_{chip}"),
            Target::Translated(from, chip) => format!("arch=compute_{from},code=sm_{chip}"),
        }
    }

    /// `sm_90a` or `compute_80`, as NVIDIA writes it.
    pub fn name(&self) -> String {
        match self {
            Target::Cubin(chip) => format!("sm_{chip}"),
            Target::Ptx(chip) => format!("compute_{chip}"),
            Target::Translated(from, chip) => format!("compute_{from}:sm_{chip}"),
        }
    }

    /// The reverse of [`Target::name`] for portable code that is translated here.
    fn translated(name: &str) -> Option<Self> {
        let (from, chip) = name.strip_prefix("compute_")?.split_once(":sm_")?;
        let is_known = PTX.contains(&from) && CUBINS.iter().any(|(known, _)| *known == chip);
        is_known.then(|| Target::Translated(from.to_owned(), chip.to_owned()))
    }
}

/// What a file is compiled for; `archs` is the value of [`ARCHS_ENV`]. Nothing: leave it out.
pub fn of(source: &str, archs: Option<&str>) -> Result<Vec<Target>, String> {
    let special = special(source);
    let ordinary = || CUBINS.iter().map(|(chip, _)| *chip).collect();
    let cubins: Vec<&str> = special.map_or_else(ordinary, |chip| vec![chip]);
    let cubins = cubins.into_iter().map(|chip| Target::Cubin(chip.to_owned()));
    let Some(archs) = archs.filter(|archs| !archs.trim().is_empty()) else {
        let portable = if special.is_some() { &[] } else { PTX };
        let portable = portable.iter().map(|chip| Target::Ptx((*chip).to_owned()));
        return Ok(cubins.chain(portable).collect());
    };
    let wanted: Vec<&str> = archs.split([',', ' ', ';']).filter(|a| !a.is_empty()).collect();
    let portable: Vec<String> = PTX.iter().map(|chip| format!("compute_{chip}")).collect();
    for name in &wanted {
        let known = ordinary();
        let is_portable = portable.iter().any(|portable| portable == name);
        if !known.contains(&number(name)) && !is_portable && Target::translated(name).is_none() {
            let known = known.join(", ");
            let portable = portable.join(", ");
            return Err(format!(
                "{ARCHS_ENV}: `{name}` is none of {known}, {portable}, compute_80:sm_90 and the like"
            ));
        }
    }
    let is_wanted = |target: &Target| match target {
        Target::Cubin(chip) => wanted.iter().any(|w| number(w) == number(chip)),
        Target::Ptx(_) | Target::Translated(..) => wanted.contains(&target.name().as_str()),
    };
    let ptx = PTX.iter().filter(|_| special.is_none());
    let ptx = ptx.map(|chip| Target::Ptx((*chip).to_owned()));
    let translated = wanted.iter().filter(|_| special.is_none());
    let translated = translated.filter_map(|name| Target::translated(name));
    Ok(cubins.chain(ptx).chain(translated).filter(is_wanted).collect())
}

/// A chip without the letter of its special instructions.
fn number(chip: &str) -> &str {
    chip.trim_end_matches('a')
}

/// The chip whose own instructions a file uses.
fn special(source: &str) -> Option<&'static str> {
    let includes = source.lines().filter_map(|line| line.trim().strip_prefix("#include \""));
    let headers = includes.filter_map(|rest| rest.split('"').next());
    headers
        .filter_map(|header| SPECIAL.iter().find(|(name, _)| *name == header))
        .map(|(_, chip)| *chip)
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDINARY: &str = "// Norms.\n#include <hopper.cuh>\n#include \"ptx.cuh\"\n";
    const HOPPER: &str = "// Tiles.\n#include \"ptx.cuh\"\n#include \"hopper.cuh\"\n";

    fn names(source: &str, archs: Option<&str>) -> Vec<String> {
        of(source, archs).unwrap().iter().map(Target::name).collect()
    }

    #[test]
    fn ordinary_files_have_code_for_every_chip_and_special_ones_for_theirs() {
        let all = ["sm_80", "sm_86", "sm_90", "sm_120", "compute_80", "compute_90"];
        assert_eq!(names(ORDINARY, None), all);
        assert_eq!(names(HOPPER, None), ["sm_90a"]);
        assert_eq!(of(HOPPER, None).unwrap()[0].gencode(), "arch=compute_90a,code=sm_90a");
        assert_eq!(of(ORDINARY, None).unwrap()[1].gencode(), "arch=compute_80,code=sm_86");
    }

    #[test]
    fn a_restricted_build_takes_what_was_asked_for() {
        for archs in ["90", "90a"] {
            assert_eq!(names(ORDINARY, Some(archs)), ["sm_90"]);
            assert_eq!(names(HOPPER, Some(archs)), ["sm_90a"]);
        }
        assert_eq!(names(ORDINARY, Some("80, 120")), ["sm_80", "sm_120"]);
        assert_eq!(names(HOPPER, Some("80,120")), [""; 0]);
        assert_eq!(names(HOPPER, Some("")), ["sm_90a"]);
        assert_eq!(names(ORDINARY, Some("90a,compute_80")), ["sm_90", "compute_80"]);
        assert_eq!(names(HOPPER, Some("90a,compute_80")), ["sm_90a"]);
        assert_eq!(names(HOPPER, Some("compute_80")), [""; 0]);
        assert_eq!(names(ORDINARY, Some("compute_80:sm_90")), ["compute_80:sm_90"]);
        assert_eq!(names(HOPPER, Some("compute_80:sm_90")), [""; 0]);
        let translated = of(ORDINARY, Some("compute_80:sm_90")).unwrap();
        assert_eq!(translated[0].gencode(), "arch=compute_80,code=sm_90");
    }

    #[test]
    fn unknown_chips_are_errors() {
        for unknown in ["75", "compute_75", "compute_90a", "compute_80:sm_75", "compute_70:sm_90"] {
            assert!(of(ORDINARY, Some(unknown)).unwrap_err().contains(unknown));
        }
    }
}
