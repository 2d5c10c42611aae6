//! The formats in which models write calls, and which of them a template asks for.

mod bare;
mod json;
mod marked;
mod tags;

use super::syntax::Syntax;

pub use bare::GENERIC;

/// Every format, those with the more particular signs first.
const ALL: &[&Syntax] = &[
    &tags::QWEN3_CODER,
    &tags::GLM,
    &tags::MINIMAX_M2,
    &marked::MISTRAL_CALL_ID,
    &marked::MISTRAL_ARGS,
    &json::MISTRAL,
    &marked::DEEPSEEK_V3,
    &marked::DEEPSEEK_V31,
    &marked::KIMI_K2,
    &marked::GEMMA_4,
    &json::COMMAND_R,
    &json::PHI_4,
    &json::GRANITE,
    &json::HERMES,
    &marked::FUNCTIONARY_V31,
    &bare::PYTHONIC,
    &bare::LLAMA_3,
    &bare::GENERIC,
];

/// Calls in channels, as gpt-oss writes them: answers are taken apart by their channels
/// (`reasoning/channels.rs`), and nothing is left for a parser.
pub const HARMONY: Syntax =
    Syntax { name: "harmony", signs: &[&["<|channel|>", "<|message|>"]], ..Syntax::PLAIN };

/// Formats that are known and cannot be read yet: name and signs in a template.
const UNREAD: &[(&str, &[&str])] = &[("functionary-v3.2", &[">>>", "recipient"])];

/// What a name or a template stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Found {
    /// A format.
    Format(&'static Syntax),
    /// One that cannot be read yet.
    Unread(&'static str),
    /// Nothing that is known.
    Nothing,
}

/// The format of this name.
pub fn named(name: &str) -> Found {
    let called = |syntax: &&&Syntax| syntax.name == name || syntax.aliases.contains(&name);
    if let Some(syntax) = ALL.iter().chain(&[&HARMONY]).find(called) {
        return Found::Format(syntax);
    }
    let unread = UNREAD.iter().find(|(unread, _)| *unread == name);
    unread.map_or(Found::Nothing, |(name, _)| Found::Unread(name))
}

/// The format that a template asks for.
pub fn in_template(source: &str) -> Found {
    let has = |signs: &&[&str]| signs.iter().all(|sign| source.contains(sign));
    if let Some((name, _)) = UNREAD.iter().find(|(_, signs)| has(signs)) {
        return Found::Unread(name);
    }
    let asked = [&HARMONY].iter().chain(ALL).find(|syntax| syntax.signs.iter().any(&has));
    asked.map_or(Found::Nothing, |syntax| Found::Format(syntax))
}

/// The names of all formats.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|syntax| syntax.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_in(source: &str) -> &'static str {
        match in_template(source) {
            Found::Format(syntax) => syntax.name,
            Found::Unread(name) => name,
            Found::Nothing => "nothing",
        }
    }

    #[test]
    fn templates_show_their_format() {
        for (source, name) in [
            ("<tool_call>\n{\"name\": <function-name>, \"arguments\": …}\n</tool_call>", "hermes"),
            ("<tool_call>\n<function=x>\n<parameter=y>\n", "qwen3-coder"),
            ("<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>", "glm-4.5"),
            ("[TOOL_CALLS] [", "mistral"),
            ("[TOOL_CALLS]name[ARGS]{", "mistral-args"),
            ("[TOOL_CALLS]name[CALL_ID]x[ARGS]{", "mistral-call-id"),
            ("<｜tool▁calls▁begin｜>…```json", "deepseek-v3"),
            ("<｜tool▁calls▁begin｜>…", "deepseek-v3.1"),
            ("<|python_tag|> {\"name\": function name, \"parameters\": …}", "llama-3"),
            ("[func_name1(params_name1=params_value1)]", "pythonic"),
            ("<|START_ACTION|>", "command-r"),
            ("<minimax:tool_call>", "minimax-m2"),
            ("<|tool_calls_section_begin|><|tool_call_begin|>", "kimi-k2"),
            ("'<|tool_call>call:' + function['name'] + '{'", "gemma-4"),
            ("message.recipient … >>>all", "functionary-v3.2"),
            ("<function=example>{…}</function>", "functionary-v3.1"),
            ("<|start|>assistant<|channel|>final<|message|>", "harmony"),
            ("{{ bos_token }}{% for message in messages %}", "nothing"),
        ] {
            assert_eq!(name_in(source), name, "{source}");
        }
    }

    #[test]
    fn names_and_other_names_are_unique() {
        let spellings = |syntax: &&'static Syntax| {
            [syntax.name].into_iter().chain(syntax.aliases.iter().copied())
        };
        let mut all: Vec<&str> = ALL.iter().flat_map(spellings).collect();
        all.extend(UNREAD.iter().map(|(name, _)| *name));
        for name in &all {
            assert_eq!(all.iter().filter(|other| *other == name).count(), 1, "{name}");
            assert_ne!(named(name), Found::Nothing);
        }
    }
}
