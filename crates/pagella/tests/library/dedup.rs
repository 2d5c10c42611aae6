//! The numbers of the `dedup` example.

#[path = "../../examples/dedup.rs"]
mod example;

/// Most tokens that one conversation adds in one turn: a question, an answer and their marks.
const OWN_TOKENS_MAX: usize = 48;

#[test]
fn a_shared_system_message_is_computed_once_and_second_turns_compute_only_what_is_new() {
    let engine = example::engine().unwrap();
    let mut chats = example::conversations();
    let first = example::ask(&engine, &mut chats, 0).unwrap();
    let system = engine.complete(example::system_message()).prompt_ids().unwrap().len();
    assert!((1400..1900).contains(&system), "{system} tokens");
    let chats_own = chats.len() * OWN_TOKENS_MAX;
    // The message once, and of every conversation only its own.
    assert!(first.computed_tokens >= system, "{} tokens", first.computed_tokens);
    assert!(first.computed_tokens < system + chats_own, "{} tokens", first.computed_tokens);
    assert_eq!(first.pages_shared, system / 256);
    assert_eq!(first.pages_apart, 32 * 7);
    assert!(first.pages_used <= 5 + 2 * 32, "{} pages", first.pages_used);
    let second = example::ask(&engine, &mut chats, 1).unwrap();
    assert!(second.computed_tokens < chats_own, "{} tokens", second.computed_tokens);
    for (before, now) in first.answers.iter().zip(&second.answers) {
        assert!(now.cached_tokens >= before.prompt_tokens - 1, "{}", now.cached_tokens);
    }
    // The same conversations alone, in a fresh cache, get the same answers.
    let alone = example::engine().unwrap();
    for chat in [0, 17, 31] {
        let (last, history) = chats[chat].split_last().unwrap();
        let answer = alone.complete_chat(history.to_vec()).greedy().max_tokens(16).text().unwrap();
        assert_eq!(last.content.as_str(), Some(answer.as_str()));
    }
}
