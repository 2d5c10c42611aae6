//! Several prompts, one after another: `cargo run --release --example 03_batch`.
//!
//! What two prompts have in common is computed once.

use pagella::Engine;

fn main() -> Result<(), pagella::Error> {
    let engine = Engine::open("demo")?;
    let subject =
        "In JavaScript, arrays have many methods. Here is one of them:\n\n## Array.prototype.";
    for method in ["push()", "reverse()", "sort()"] {
        let answer = engine.complete(format!("{subject}{method}")).greedy().max_tokens(30).run()?;
        println!("{method} ({} tokens cached): {}\n", answer.cached_tokens, answer.text.trim());
    }
    Ok(())
}
