//! An answer as it is written: `cargo run --release --example 02_stream`.

use std::io::Write;

use pagella::Engine;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::open("demo")?;
    for record in engine.complete("The `filter()` method").max_tokens(80).stop("\n\n").stream()? {
        let record = record?;
        print!("{}", record.text);
        std::io::stdout().flush()?;
        if let Some(end) = record.eos {
            println!("\n({} tokens, ended by {})", end.new_tokens, end.eos_reason.name());
        }
    }
    Ok(())
}
