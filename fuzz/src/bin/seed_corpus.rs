//! Writes the seeds of every target to `fuzz/corpus/<target>/`, where cargo-fuzz looks for them.

use std::path::Path;

use pagella_fuzz::TARGETS;

fn main() -> std::io::Result<()> {
    for target in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
        std::fs::create_dir_all(&folder)?;
        let seeds = (target.seeds)();
        for (idx, seed) in seeds.iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{idx:02}")), seed)?;
        }
        println!("{:<18} {} seeds", target.name, seeds.len());
    }
    Ok(())
}
