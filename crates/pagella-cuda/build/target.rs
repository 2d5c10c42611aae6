//! Which chips a kernel file is compiled for. Part of the build script, and of `xtask`, which
//! tests it.
//!
//! Ordinary files get machine code for every supported chip and portable code (PTX) for later
//! ones. A file whose opening comment has a line `// targets: sm_90a` uses instructions of that
//! chip only and is compiled for nothing else.

/// Restricts the chips: a list such as `80,90a`. Meant for development; no portable code then.
pub const ARCHS_ENV: &str = "PAGELLA_CUDA_ARCHS";

const MARKER: &str = "// targets:";

/// Machine code of ordinary files. 9.0 without its special instructions.
const CUBINS: &[&str] = &["80", "86", "89", "90", "120"];

/// Portable code of ordinary files, which the driver compiles for chips not listed above.
const PTX: &[&str] = &["80", "90"];

/// One kind of code in a fatbin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Machine code; `90a` is 9.0 with its special instructions.
    Cubin(String),
    Ptx(String),
}

impl Target {
    /// The value of nvcc's `-gencode`.
    pub fn gencode(&self) -> String {
        match self {
            Target::Cubin(chip) => format!("arch=compute_{chip},code=sm_{chip}"),
            Target::Ptx(chip) => format!("arch=compute_{chip},code=compute_{chip}"),
        }
    }

    /// `sm_90a` or `compute_80`, as NVIDIA writes it.
    pub fn name(&self) -> String {
        match self {
            Target::Cubin(chip) => format!("sm_{chip}"),
            Target::Ptx(chip) => format!("compute_{chip}"),
        }
    }
}

/// What a file is compiled for; `archs` is the value of [`ARCHS_ENV`]. Nothing: leave it out.
pub fn of(source: &str, archs: Option<&str>) -> Result<Vec<Target>, String> {
    let marked = marked(source)?;
    let Some(archs) = archs.filter(|archs| !archs.trim().is_empty()) else {
        return Ok(marked.unwrap_or_else(|| {
            let cubins = CUBINS.iter().map(|chip| Target::Cubin((*chip).to_owned()));
            cubins.chain(PTX.iter().map(|chip| Target::Ptx((*chip).to_owned()))).collect()
        }));
    };
    let wanted: Vec<&str> = archs.split([',', ' ', ';']).filter(|a| !a.is_empty()).collect();
    for chip in &wanted {
        if !CUBINS.contains(&number(chip)) {
            return Err(format!("{ARCHS_ENV}: `{chip}` is none of {}", CUBINS.join(", ")));
        }
    }
    let is_wanted = |chip: &str| wanted.iter().any(|w| number(w) == number(chip));
    Ok(match marked {
        Some(targets) => targets
            .into_iter()
            .filter(|target| matches!(target, Target::Cubin(chip) if is_wanted(chip)))
            .collect(),
        None => {
            let chips = CUBINS.iter().filter(|chip| is_wanted(chip));
            chips.map(|chip| Target::Cubin((*chip).to_owned())).collect()
        }
    })
}

/// A chip without the letter of its special instructions.
fn number(chip: &str) -> &str {
    chip.trim_end_matches('a')
}

/// The targets that a file names in its opening comment.
fn marked(source: &str) -> Result<Option<Vec<Target>>, String> {
    let opening = source.lines().take_while(|line| line.starts_with("//"));
    let Some(list) = opening.filter_map(|line| line.strip_prefix(MARKER)).next() else {
        return Ok(None);
    };
    let targets = list.split([',', ' ']).filter(|word| !word.is_empty()).map(|word| {
        let chip = word.strip_prefix("sm_").filter(|chip| CUBINS.contains(&number(chip)));
        let chip = chip.ok_or_else(|| format!("`{MARKER}` names `{word}`, which is no chip"))?;
        Ok(Target::Cubin(chip.to_owned()))
    });
    targets.collect::<Result<_, String>>().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDINARY: &str = "// Norms.\n#include <x>\n// targets: sm_80\n";
    const HOPPER: &str = "// Tiles.\n// targets: sm_90a\n#include <x>\n";

    fn names(source: &str, archs: Option<&str>) -> Vec<String> {
        of(source, archs).unwrap().iter().map(Target::name).collect()
    }

    #[test]
    fn ordinary_files_have_code_for_every_chip_and_marked_ones_for_theirs() {
        let all = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_120", "compute_80", "compute_90"];
        assert_eq!(names(ORDINARY, None), all);
        assert_eq!(names(HOPPER, None), ["sm_90a"]);
        assert_eq!(of(HOPPER, None).unwrap()[0].gencode(), "arch=compute_90a,code=sm_90a");
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
    }

    #[test]
    fn unknown_chips_are_errors() {
        assert!(of(ORDINARY, Some("75")).unwrap_err().contains("`75`"));
        assert!(of("// targets: sm_9\n", None).unwrap_err().contains("`sm_9`"));
    }
}
