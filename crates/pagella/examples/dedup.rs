//! 32 conversations over one long system message: `cargo run --release --example dedup`.
//!
//! Without sharing, every conversation would need its own copy of the system message in the cache.
//! With it, the message is computed once, its pages are used by all, and only what differs is new; the
//! second turn of each conversation computes nothing but the new question.

use pagella::{Completion, Engine, Message};

/// Conversations.
const CHATS: usize = 32;
/// Tokens of a page of the cache.
const PAGE_TOKENS: usize = 256;
/// Longest answer, in tokens.
const ANSWER_TOKENS: usize = 16;

/// What one turn of all conversations cost.
pub struct Turn {
    /// The answers, in the order of the conversations.
    pub answers: Vec<Completion>,
    /// Prompt tokens of all conversations together.
    pub prompt_tokens: usize,
    /// Those that were computed; the others were shared or cached.
    pub computed_tokens: usize,
    /// Most pages in use at a time.
    pub pages_used: usize,
    /// Of these, most in use by more than one conversation.
    pub pages_shared: usize,
    /// Pages that as many separate caches would need.
    pub pages_apart: usize,
}

/// A system message of about 1,500 tokens.
pub fn system_message() -> String {
    let rules = (1..=73).map(|n| {
        format!(
            "Rule {n}: explain the web in short sentences, and name the method or element first.\n"
        )
    });
    rules.collect()
}

/// All conversations, waiting for their first question.
pub fn conversations() -> Vec<Vec<Message>> {
    vec![vec![Message::new("system", system_message())]; CHATS]
}

/// The question of one conversation in one turn.
pub fn question(chat: usize, turn: usize) -> String {
    const SUBJECTS: [&str; 8] =
        ["map()", "filter()", "flex", "grid", "fetch()", "Promise", "a canvas", "a form"];
    format!("Question {}.{}: what is {}?", chat + 1, turn + 1, SUBJECTS[chat % SUBJECTS.len()])
}

/// Asks every conversation its next question, all at once.
pub fn ask(
    engine: &Engine,
    chats: &mut [Vec<Message>],
    turn: usize,
) -> Result<Turn, pagella::Error> {
    for (idx, chat) in chats.iter_mut().enumerate() {
        chat.push(Message::new("user", question(idx, turn)));
    }
    let before = engine.stats()?;
    let (mut pages_used, mut pages_shared) = (0, 0);
    let prompt =
        |chat: &Vec<Message>| engine.complete_chat(chat.clone()).greedy().max_tokens(ANSWER_TOKENS);
    let prompts: Vec<_> = chats.iter().map(prompt).collect();
    let batch = engine.batch(prompts);
    let mut answers = vec![None; chats.len()];
    for item in batch {
        let record = item.record?;
        // While they write: all prompts are there, and all pages.
        if !record.token_ids.is_empty() {
            let pages = engine.stats()?.pages;
            pages_used = pages_used.max(pages.referenced);
            pages_shared = pages_shared.max(pages.shared);
        }
        if let Some(done) = record.eos {
            answers[item.prompt] = Some(*done);
        }
    }
    let answers: Vec<Completion> = answers.into_iter().flatten().collect();
    for (chat, answer) in chats.iter_mut().zip(&answers) {
        chat.push(Message::new("assistant", answer.text.clone()));
    }
    let pages = |done: &Completion| (done.prompt_tokens + done.new_tokens).div_ceil(PAGE_TOKENS);
    Ok(Turn {
        prompt_tokens: answers.iter().map(|done| done.prompt_tokens).sum(),
        computed_tokens: (engine.stats()?.prefill_tokens - before.prefill_tokens) as usize,
        pages_used,
        pages_shared,
        pages_apart: answers.iter().map(pages).sum(),
        answers,
    })
}

/// A cache far too small for 32 copies of the system message.
pub fn engine() -> Result<Engine, pagella::Error> {
    Engine::builder("demo").cache_tokens(128 * PAGE_TOKENS).open()
}

#[allow(dead_code, reason = "a test includes this file and has no use for its main function")]
fn main() -> Result<(), pagella::Error> {
    let engine = engine()?;
    let mut chats = conversations();
    for turn in 0..2 {
        let cost = ask(&engine, &mut chats, turn)?;
        println!("turn {}: {} conversations", turn + 1, cost.answers.len());
        println!("  prompt tokens           {:6}", cost.prompt_tokens);
        println!("  of these computed       {:6}", cost.computed_tokens);
        println!("  shared or cached        {:6}", cost.prompt_tokens - cost.computed_tokens);
        println!("  pages in use at most    {:6}", cost.pages_used);
        println!("  of these shared         {:6}", cost.pages_shared);
        println!("  pages without sharing   {:6}", cost.pages_apart);
    }
    Ok(())
}
