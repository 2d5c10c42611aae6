//! How fast text becomes ids, in megabytes per second on one core, and how long a tokenizer takes to
//! load.
//!
//! ```text
//! cargo bench -p pagella-text --bench encode [-- PART_OF_A_NAME]
//! ```
//!
//! Two vocabularies: the one of the demo model, and one of 256,000 pieces made here from it, with the
//! pattern of Llama 3, whose merges go on as they do in a large vocabulary. Ordinary text are the documents
//! of this repository; then come texts that are hard on one stage or another. Best of several runs.

use std::collections::HashSet;
use std::path::Path;
use std::time::Instant;

use pagella_text::Tokenizer;
use serde_json::{Value, json};

/// Bytes of every text.
const TEXT_BYTES: usize = 1 << 20;
/// Pieces of the large vocabulary.
const LARGE: usize = 256_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let demo = std::fs::read(root.join("models/demo/tokenizer.json"))?;
    let large = serde_json::to_vec(&enlarged(&serde_json::from_slice(&demo)?)?)?;
    let mut tokenizers = Vec::new();
    for (name, json) in [("demo", &demo), ("256k", &large)] {
        let seconds = best(5, || Tokenizer::from_json_bytes(json).is_ok());
        println!("load {name:<22} {:>8.1} ms  {} bytes", seconds * 1e3, json.len());
        tokenizers.push((name, Tokenizer::from_json_bytes(json)?));
    }
    println!("{:<22} {:>9} {:>9}   MB/s", "", "demo", "256k");
    for (name, text) in texts(&root)? {
        if only.as_deref().is_some_and(|only| !name.contains(only)) {
            continue;
        }
        let mut speeds = Vec::new();
        for (_, tokenizer) in &tokenizers {
            let seconds = best(3, || tokenizer.encode_text(&text).is_ok_and(|ids| !ids.is_empty()));
            speeds.push(text.len() as f64 / seconds / 1e6);
        }
        println!("{name:<22} {:>9.1} {:>9.1}", speeds[0], speeds[1]);
    }
    Ok(())
}

/// The least seconds of several runs, each of which must succeed.
fn best(runs: usize, mut run: impl FnMut() -> bool) -> f64 {
    let time = |_| {
        let start = Instant::now();
        let good = std::hint::black_box(run());
        if good { start.elapsed().as_secs_f64() } else { f64::NAN }
    };
    (0..runs).map(time).fold(f64::INFINITY, f64::min)
}

/// Numbers that look random, the same ones every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) as f64 / (1u64 << 53) as f64 * n as f64) as usize
    }
}

/// The demo's tokenizer with many more pieces, joined from two known ones each.
fn enlarged(demo: &Value) -> Result<Value, Box<dyn std::error::Error>> {
    let mut file = demo.clone();
    let model = file.get_mut("model").ok_or("no model")?;
    let vocab = model.get("vocab").and_then(Value::as_object).ok_or("no vocabulary")?;
    let mut pieces: Vec<(String, u64)> =
        vocab.iter().filter_map(|(piece, id)| Some((piece.clone(), id.as_u64()?))).collect();
    pieces.sort_by_key(|(_, id)| *id);
    let mut next = pieces.iter().map(|(_, id)| id + 1).max().unwrap_or(0) + 1_000;
    let mut known: HashSet<String> = pieces.iter().map(|(piece, _)| piece.clone()).collect();
    let mut merges: Vec<Value> =
        model.get("merges").and_then(Value::as_array).ok_or("no merges")?.clone();
    // Pieces that are whole words or their ends, so that joining them gives some, too.
    let is_word = |piece: &str| piece.chars().all(|c| c.is_alphabetic());
    let mut joined: Vec<String> =
        pieces.iter().filter(|(piece, _)| is_word(piece)).map(|(piece, _)| piece.clone()).collect();
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    while pieces.len() < LARGE {
        let (left, right) = (dice.below(joined.len()), dice.below(joined.len()));
        let (left, right) = (joined[left].clone(), joined[right].clone());
        let whole = format!("{left}{right}");
        if right.starts_with('Ġ') || whole.len() > 24 || !known.insert(whole.clone()) {
            continue;
        }
        merges.push(json!([left, right]));
        pieces.push((whole.clone(), next));
        joined.push(whole);
        next += 1;
    }
    let in_order = pieces.into_iter().map(|(piece, id)| (piece, id.into()));
    model["vocab"] = Value::Object(in_order.collect());
    // Both spellings of merges are read; all of one file have the same.
    let written = |merge: &Value| match merge {
        Value::String(pair) => {
            let (left, right) = pair.split_once(' ').unwrap_or((pair, ""));
            json!([left, right])
        }
        pair => pair.clone(),
    };
    model["merges"] = merges.iter().map(written).collect();
    Ok(file)
}

/// Names and texts: ordinary ones, then others.
fn texts(root: &Path) -> Result<Vec<(&'static str, String)>, Box<dyn std::error::Error>> {
    let mut prose = String::new();
    for name in ["ARCHITECTURE.md", "docs/running.md", "docs/serving.md", "docs/quantizing.md"] {
        if let Ok(text) = std::fs::read_to_string(root.join(name)) {
            prose.push_str(&text);
        }
    }
    let code = std::fs::read_to_string(root.join("crates/pagella-text/src/tokenizer.rs"))?;
    let fill = |text: &str| text.repeat(TEXT_BYTES.div_ceil(text.len().max(1)));
    let mut dice = Dice(88_172_645_463_325_252);
    let mut random = |from: &str, groups: &[usize]| {
        let letters: Vec<char> = from.chars().collect();
        let mut text = String::new();
        while text.len() < TEXT_BYTES {
            let group = groups.get(dice.below(groups.len())).copied().unwrap_or(TEXT_BYTES);
            for _ in 0..group.min(TEXT_BYTES) {
                text.push(letters[dice.below(letters.len())]);
                if text.len() >= TEXT_BYTES {
                    break;
                }
            }
            if !groups.is_empty() {
                text.push(' ');
            }
        }
        text
    };
    let latin = "abcdefghijklmnopqrstuvwxyz";
    let cjk: String = ('\u{4e00}'..'\u{5e00}').collect();
    Ok(vec![
        ("prose", fill(&prose)),
        ("code", fill(&code)),
        ("unlike words", random(latin, &[2, 3, 4, 5, 6, 7, 8, 9, 12])),
        ("words of 40 letters", random(latin, &[40])),
        ("words of 2,000", random(latin, &[2_000])),
        ("one word", random(latin, &[])),
        ("one letter", fill("a")),
        ("one space", fill(" ")),
        ("spaces and letters", fill("   a")),
        ("line ends", fill("\n")),
        ("tabs", fill("\t")),
        ("digits", random("0123456789", &[])),
        ("one digit", fill("7")),
        ("punctuation", random("!?.,;:-_#'\"()[]{}<>/\\|@$%&*+=~^`", &[])),
        ("one stop", fill(".")),
        ("apostrophes", fill("'s'll'")),
        ("chinese", random(&cjk, &[])),
        ("chinese, few signs", random("\u{7684}\u{4e00}\u{662f}\u{4e0d}\u{4e86}\u{4eba}", &[])),
        ("cyrillic", random("абвгдежзийклмнопрстуфхцчшщыэюя", &[3, 5, 6, 8])),
        ("emoji", random("😀😂🥲👩👨👧🏽🇩🇪❤🔥", &[])),
        ("joined emoji", fill("👩\u{200d}👩\u{200d}👧\u{fe0f}")),
        ("combining marks", fill("e\u{301}\u{302}\u{303}")),
        ("any characters", random("aé字😀 \n7.\u{a0}\u{3000}\u{301}Ω", &[])),
    ])
}
