//! Built-in templates, for models without one of their own. Each is one file in `builtin/`.

/// Name and source of every built-in template.
const TEMPLATES: &[(&str, &str)] = &[
    ("chatml", include_str!("builtin/chatml.jinja")),
    ("codellama", include_str!("builtin/llama.jinja")),
    ("cohere", include_str!("builtin/cohere.jinja")),
    ("deepseek", include_str!("builtin/deepseek.jinja")),
    ("gemma", include_str!("builtin/gemma.jinja")),
    ("glm", include_str!("builtin/glm.jinja")),
    ("granite", include_str!("builtin/granite.jinja")),
    ("granite3", include_str!("builtin/granite3.jinja")),
    ("llama", include_str!("builtin/llama.jinja")),
    ("llama3", include_str!("builtin/llama3.jinja")),
    ("nous", include_str!("builtin/nous.jinja")),
    ("openchat", include_str!("builtin/openchat.jinja")),
    ("phi3", include_str!("builtin/phi3.jinja")),
    ("qwq", include_str!("builtin/qwq.jinja")),
    ("raw", include_str!("builtin/raw.jinja")),
    ("solar", include_str!("builtin/solar.jinja")),
    ("zephyr", include_str!("builtin/zephyr.jinja")),
];

/// The source of a built-in template.
pub(super) fn source(name: &str) -> Option<&'static str> {
    TEMPLATES.iter().find(|(n, _)| *n == name).map(|(_, source)| *source)
}

/// All names, sorted.
pub(super) fn names() -> Vec<&'static str> {
    TEMPLATES.iter().map(|(name, _)| *name).collect()
}
