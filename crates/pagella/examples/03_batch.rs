//! Several prompts at once: `cargo run --release --example 03_batch`.
//!
//! They are computed together, what they have in common once, and each answer is the one the prompt
//! would get alone.

use pagella::Engine;

fn main() -> Result<(), pagella::Error> {
    let engine = Engine::open("demo")?;
    let methods = ["push()", "reverse()", "sort()", "map()"];
    let ask = |method| {
        let prompt = format!("Arrays have many methods.\n\n## Array.prototype.{method}\n\n");
        engine.complete(prompt).greedy().max_tokens(30)
    };
    let answers = engine.generate(methods.map(ask))?;
    for (method, answer) in methods.iter().zip(answers) {
        println!("{method} ({} tokens): {}\n", answer.new_tokens, answer.text.trim());
    }
    Ok(())
}
