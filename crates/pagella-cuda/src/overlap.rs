//! Which kernels start while the ones before them still run.
//!
//! Such a kernel fetches what nobody writes, its weights, and then waits for the end of the kernels
//! before it. A kernel that is launched this way without waiting would read what is not there yet,
//! so the list below and the calls in the sources must agree; a test compares them.
//!
//! Only kernels that begin long before they need their input gain by it. Small ones lose, as what
//! they read then queues behind weights that are fetched ahead.

/// Beginnings of the names of kernels that call `wait_for_earlier_kernels` in every thread.
const WAITING: &[&str] = &["pg_adapt_", "pg_gemv_", "pg_moe_down_1", "pg_moe_gate_up_1", "pg_prep"];

/// First architecture whose code has the wait; in code made from instructions for earlier ones it
/// is left out.
const FIRST_ARCHITECTURE: i32 = 90;

/// Whether a kernel may start before the ones before it have ended. `binary` and `ptx` are the
/// architectures that its code is for and was made from, e.g. 90.
pub(crate) fn may_overlap(name: &str, binary: i32, ptx: i32) -> bool {
    binary.min(ptx) >= FIRST_ARCHITECTURE && WAITING.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Names of the kernels of a source file: what begins with `pg_` where kernels are defined.
    fn kernels(source: &str) -> Vec<&str> {
        let is_definition =
            |line: &&str| line.contains("__global__") || line.trim_start().starts_with("PG_");
        let defined = |line: &str| -> Option<usize> { line.find("pg_") };
        source
            .lines()
            .filter(is_definition)
            .filter_map(|line| defined(line).map(|at| &line[at..]))
            .map(|rest| {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                &rest[..end.unwrap_or(rest.len())]
            })
            .collect()
    }

    #[test]
    fn kernels_wait_where_the_list_says_so() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
        let mut seen = 0;
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "cu") {
                continue;
            }
            let source = std::fs::read_to_string(&path).unwrap();
            let waits = source.contains("wait_for_earlier_kernels();");
            for name in kernels(&source) {
                assert_eq!(may_overlap(name, 90, 90), waits, "{name} in {}", path.display());
                seen += usize::from(waits);
            }
        }
        assert!(seen >= WAITING.len(), "{seen} kernels of {} beginnings", WAITING.len());
    }

    #[test]
    fn code_without_the_wait_never_overlaps() {
        assert!(may_overlap("pg_gemv_1", 90, 90));
        assert!(!may_overlap("pg_gemv_1", 120, 80));
        assert!(!may_overlap("pg_gemv_1", 89, 89));
        assert!(!may_overlap("pg_copy_pages", 90, 90));
    }
}
