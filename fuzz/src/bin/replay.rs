//! Runs one target on one file: `replay TARGET FILE`.

use std::process::ExitCode;

use pagella_fuzz::TARGETS;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, file] = &args[..] else {
        eprintln!("usage: replay TARGET FILE");
        return ExitCode::from(2);
    };
    let Some(target) = TARGETS.iter().find(|target| target.name == name) else {
        eprintln!("no target is called `{name}`");
        return ExitCode::from(2);
    };
    match std::fs::read(file) {
        Ok(data) => {
            (target.run)(&data);
            println!("{name}: {} bytes passed", data.len());
            ExitCode::SUCCESS
        }
        Err(err) => {
            eprintln!("cannot read {file}: {err}");
            ExitCode::from(2)
        }
    }
}
