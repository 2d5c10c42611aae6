//! One prompt, one answer: `cargo run --release --example 01_complete`.

use pagella::Engine;

fn main() -> Result<(), pagella::Error> {
    let engine = Engine::open("demo")?;
    let answer = engine.complete("The `map()` method").max_tokens(60).run()?;
    println!("{}", answer.text);
    println!("({:.0} tokens/s)", answer.tokens_per_second());
    Ok(())
}
