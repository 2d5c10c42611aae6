//! A conversation that remembers: `cargo run --release --example 04_chat`.

use std::io::{BufRead, Write};

use pagella::Engine;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::open("demo")?;
    let mut chat = engine.chat().system("You explain the web.").max_tokens(200);
    for line in std::io::stdin().lock().lines() {
        for event in chat.send(line?)? {
            print!("{}", event?.text);
            std::io::stdout().flush()?;
        }
        println!();
    }
    Ok(())
}
