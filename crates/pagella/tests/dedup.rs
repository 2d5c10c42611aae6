//! The numbers of the `dedup` example.

// Helpers of tests fail by panicking, like the tests themselves.
#![allow(clippy::unwrap_used)]

#[path = "../examples/dedup.rs"]
mod dedup;

#[test]
fn a_shared_system_message_is_computed_once_and_second_turns_compute_only_what_is_new() {
    let engine = dedup::engine().unwrap();
    let mut chats = dedup::conversations();
    let first = dedup::ask(&engine, &mut chats, 0).unwrap();
    let system = engine.complete(dedup::system_message()).prompt_ids().unwrap().len();
    assert!((1400..1900).contains(&system), "{system} tokens");
    let own: usize = first.answers.iter().map(|done| done.prompt_tokens - system / 256 * 256).sum();
    // The message once; of every conversation at most what follows its whole pages.
    assert!(first.computed_tokens <= system + own, "{} tokens", first.computed_tokens);
    assert!(first.computed_tokens < first.prompt_tokens / 4, "{} tokens", first.computed_tokens);
    assert!(first.pages_shared >= system / 256, "{} pages", first.pages_shared);
    assert!(first.pages_used < first.pages_apart / 2, "{} pages", first.pages_used);
    let second = dedup::ask(&engine, &mut chats, 1).unwrap();
    for (before, now) in first.answers.iter().zip(&second.answers) {
        // What was written last was never fed, and a page of less than 16 new tokens is not copied.
        assert!(now.cached_tokens + 24 >= before.prompt_tokens, "{}", now.cached_tokens);
    }
    // The same conversations alone, in a fresh cache, get the same answers.
    let alone = dedup::engine().unwrap();
    for chat in [0, 17, 31] {
        let (last, history) = chats[chat].split_last().unwrap();
        let answer = alone.complete_chat(history.to_vec()).greedy().max_tokens(16).text().unwrap();
        assert_eq!(last.content.as_str(), Some(answer.as_str()));
    }
}
