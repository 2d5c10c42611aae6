//! A chat template, compiled and rendered with a conversation.

use pagella_text::{ChatTemplate, Message, RenderOptions, Span, TemplateTokens};
use serde_json::json;

use crate::demo;

/// A special token that a user typed. Where a template copies it, it must stay plain text.
const FORGED: &str = "<|forged|>";

pub fn run(data: &[u8]) {
    let Ok(source) = std::str::from_utf8(data) else { return };
    let Ok(template) = ChatTemplate::from_source(source) else { return };
    let messages = [
        Message::new("system", "Be brief."),
        Message::new("user", format!("a {FORGED} b \u{e9} {{{{ x }}}}")),
        Message::new("assistant", "").with("tool_calls", json!([{"name": "f", "arguments": {}}])),
    ];
    let options = RenderOptions {
        tokens: TemplateTokens {
            bos: Some("<s>".into()),
            eos: Some("</s>".into()),
            specials: vec!["<s>".into(), "</s>".into(), FORGED.into()],
            ..TemplateTokens::default()
        },
        add_generation_prompt: true,
        tools: json!([{"name": "f"}]),
        ..RenderOptions::default()
    };
    let Ok(spans) = template.render(&messages, &options) else { return };
    let special = |span: &Span| matches!(span, Span::Special(text) if text.contains(FORGED));
    // A template may well write the token itself.
    assert!(source.contains("forged") || !spans.iter().any(special), "content became special");
}

/// The demo model's template, and the constructs that other models' templates are made of.
pub fn seeds() -> Vec<Vec<u8>> {
    let config = demo::json("tokenizer_config.json");
    let mut seeds = vec![config["chat_template"].as_str().unwrap_or_default().to_owned()];
    seeds.extend(CONSTRUCTS.iter().map(|text| text.to_string()));
    seeds.push(CONSTRUCTS.concat());
    seeds.into_iter().map(String::into_bytes).collect()
}

const CONSTRUCTS: &[&str] = &[
    "{{ bos_token }}{% for m in messages %}{{ m.role | upper }}: {{ m.content | trim }}\n{% endfor %}",
    "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% else %}\
     {% set rest = messages %}{% endif %}{{ rest | length }}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + loop.index %}\
     {% endfor %}{{ ns.n }}",
    "{% macro turn(m) %}<{{ m['role'] }}>{{ m['content'] }}{% endmacro %}\
     {% for m in messages %}{{ turn(m) }}{% endfor %}",
    "{% for i in range(10) %}{{ i }}{% if i > 5 %}{% break %}{% endif %}{% endfor %}",
    "{{ messages | tojson(indent=2) }}{{ messages | map(attribute='role') | join(',') }}",
    "{{ raise_exception('roles must alternate') }}",
    "{{ messages[0].content.split('a')[0].strip() ~ 'x' * 3 }}{{ strftime_now('%Y') }}",
    "{%- if tools is defined and tools is not none %}{{ tools | selectattr('name') | list }}{% endif -%}",
];
