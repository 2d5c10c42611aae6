//! The Rust files that carry compiled kernels into the crate, written to `OUT_DIR`:
//!
//! - `kernels.rs`: `MODULES`, name and fatbin of every file, each fatbin aligned to 16 bytes;
//! - `targets.rs`: `TOOLKIT`, the compiler's version, and `TARGETS`, what each file has code for;
//! - `ptxas.rs`: `LOGS`, what the compiler said of each file, for the test of resources.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::compile::Kernel;

/// Tables of a build with kernels. The results are copied beside them: the folder they were
/// compiled in is shared, and another build may tidy it up.
pub fn write(out_dir: &Path, toolkit: (u32, u32), kernels: &[Kernel]) -> Result<(), String> {
    let mut modules = String::from(
        "/// Puts its content where the driver wants a fatbin.\n\
         #[repr(C, align(16))]\nstruct Aligned<T: ?Sized>(T);\n\n\
         /// Name and fatbin of every kernel file.\n\
         pub static MODULES: &[(&str, &[u8])] = &[\n",
    );
    let mut targets = targets_head(toolkit);
    let mut logs = String::from(LOGS_HEAD);
    for kernel in kernels {
        let name = &kernel.name;
        let (fatbin, log) = (format!("{name}.fatbin"), format!("{name}.log"));
        for (from, to) in [(&kernel.fatbin, &fatbin), (&kernel.log, &log)] {
            let copied = fs::copy(from, out_dir.join(to));
            copied.map_err(|err| format!("cannot copy {}: {err}", from.display()))?;
        }
        let names: Vec<String> = kernel.targets.iter().map(|target| target.name()).collect();
        let add = |text: &mut String, line: String| {
            let _ = writeln!(text, "    {line},");
        };
        let place = |file: &str| format!("concat!(env!(\"OUT_DIR\"), \"/{file}\")");
        let bytes = format!(
            "&{{ static M: &Aligned<[u8]> = &Aligned(*include_bytes!({})); M }}.0",
            place(&fatbin)
        );
        add(&mut modules, format!("({name:?}, {bytes})"));
        add(&mut targets, format!("({name:?}, &{names:?})"));
        add(&mut logs, format!("({name:?}, include_str!({}))", place(&log)));
    }
    save(out_dir, [modules, targets, logs].map(|table| table + "];\n"))
}

/// Tables of a build without kernels.
pub fn write_empty(out_dir: &Path) -> Result<(), String> {
    let modules = "/// None.\npub static MODULES: &[(&str, &[u8])] = &[\n".to_owned();
    let tables = [modules, targets_head((0, 0)), LOGS_HEAD.to_owned()];
    save(out_dir, tables.map(|table| table + "];\n"))
}

const LOGS_HEAD: &str = "/// Name of every kernel file and what the compiler said of it.\n\
                         pub static LOGS: &[(&str, &str)] = &[\n";

fn targets_head((major, minor): (u32, u32)) -> String {
    format!(
        "/// Version of the compiler, (0, 0) without one.\n\
         pub const TOOLKIT: (u32, u32) = ({major}, {minor});\n\n\
         /// Name of every kernel file and what it has code for: `sm_90a`, `compute_80`.\n\
         pub static TARGETS: &[(&str, &[&str])] = &[\n"
    )
}

fn save(out_dir: &Path, [modules, targets, logs]: [String; 3]) -> Result<(), String> {
    for (file, text) in [("kernels.rs", modules), ("targets.rs", targets), ("ptxas.rs", logs)] {
        let path = out_dir.join(file);
        fs::write(&path, text).map_err(|err| format!("cannot write {}: {err}", path.display()))?;
    }
    Ok(())
}
