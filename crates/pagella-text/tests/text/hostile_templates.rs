//! Templates that try to run for ever, fill memory, overflow the stack or reach outside end with an
//! error, soon.
use std::time::{Duration, Instant};

use pagella_text::{
    ChatTemplate, Message, RenderOptions, TemplateLimits, TextError, spans_to_string,
};

/// Generous for a busy machine; the limit itself is two seconds.
const PATIENCE: Duration = Duration::from_secs(20);

fn render(source: &str) -> Result<usize, TextError> {
    let start = Instant::now();
    let talk = [Message::new("user", "hello"), Message::new("assistant", "there")];
    let result = ChatTemplate::from_source(source)
        .and_then(|t| t.render(&talk, &RenderOptions::default()))
        .map(|spans| spans.iter().map(|s| s.as_str().len()).sum());
    assert!(start.elapsed() < PATIENCE, "{source} took {:?}", start.elapsed());
    result
}

#[track_caller]
fn check_limit(source: &str) {
    let result = render(source);
    let limited = matches!(result, Err(TextError::TemplateLimit { .. }));
    assert!(limited, "{}: {result:?}", &source[..source.len().min(100)]);
}

#[track_caller]
fn check_error(source: &str) {
    let result = render(source);
    assert!(result.is_err(), "{}: {result:?}", &source[..source.len().min(100)]);
}

#[test]
fn nested_loops_run_out_of_steps() {
    let r = "range(90000)";
    check_limit(&format!("{{% for a in {r} %}}{{% for b in {r} %}}{{% endfor %}}{{% endfor %}}"));
    check_error("{% for a in range(1000000000) %}{% endfor %}");
    check_error("{% for a in range(9223372036854775807, -9223372036854775807, -1) %}{% endfor %}");
}

#[test]
fn strings_cannot_double_for_ever() {
    let double = |step: &str| {
        format!(
            "{{% set ns = namespace(x='ab') %}}{{% for i in range(60) %}}{step}{{% endfor %}}{{{{ ns.x|length }}}}"
        )
    };
    check_limit(&double("{% set ns.x = ns.x ~ ns.x %}"));
    check_limit(&double("{% set ns.x = ns.x + ns.x %}"));
    check_limit(&double("{% set ns.x = ns.x * 2 %}"));
    check_limit(&double("{% set ns.x = ns.x.replace('a', ns.x) %}"));
    check_limit(&double("{% set ns.x = ns.x|replace('a', ns.x) %}"));
    check_limit(&double("{% set ns.x = [ns.x, ns.x]|join %}"));
    check_limit(&double("{% set ns.x = ns.x.join([ns.x, ns.x]) %}"));
    check_limit(&double("{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}"));
    check_limit(&double("{% set ns.x = ns.x|tojson|tojson %}{% set ns.x = ns.x ~ ns.x %}"));
    check_limit("{{ 'x' * 999999999 }}");
    check_limit("{{ ['x' * 90000000, 'x' * 90000000]|length }}");
    check_limit("{{ 'x'|indent(999999999) }}");
    check_limit("{{ 'x\ny'|indent(width=999999999) }}");
}

#[test]
fn lists_cannot_double_for_ever() {
    let double = |step: &str| {
        format!(
            "{{% set ns = namespace(x=[1,2]) %}}{{% for i in range(60) %}}{step}{{% endfor %}}{{{{ ns.x|length }}}}"
        )
    };
    check_limit(&double("{% set ns.x = ns.x + ns.x %}"));
    check_limit(&double("{% set ns.x = ns.x * 3 %}"));
    check_limit(&double("{% set ns.x = [ns.x, ns.x] %}"));
    check_error(&double("{% set ns.x = [ns.x, ns.x]|sum(start=[]) %}"));
    check_limit(&double("{% set ns.x = {'a': ns.x, 'b': ns.x} %}"));
    let big = "{% set s = 'x' * 30000000 %}{% set l = [s] * 900000 %}{{ l|sort|length }}";
    check_limit(big);
}

#[test]
fn raw_text_in_captures_is_counted() {
    let text = "x".repeat(100_000);
    let body =
        format!("{{% set y %}}{{% for i in range(90000) %}}{text}{{% endfor %}}{{% endset %}}");
    check_limit(&body);
    check_limit(&format!("{{% for i in range(90000) %}}{text}{{% endfor %}}"));
}

#[test]
fn recursion_ends() {
    check_error("{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}");
    check_error("{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(0) }}");
    check_error("{% for a in [[1]] recursive %}{{ loop([a]) }}{% endfor %}");
    check_error("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}");
    check_error("{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns == ns }}");
    check_limit(
        "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}",
    );
}

#[test]
fn deep_sources_do_not_overflow_the_stack() {
    for (open, close) in [("(", ")"), ("[", "]"), ("not ", ""), ("-", ""), ("x.", "x"), ("1~", "1")]
    {
        let n = 200_000 / (open.len() + close.len());
        check_error(&format!("{{{{ {}x{} }}}}", open.repeat(n), close.repeat(n)));
    }
    check_error(&format!("{{{{ 'x'{} }}}}", "|upper".repeat(30_000)));
    check_error(&"{% if x %}".repeat(20_000));
    let ladder = format!("{{% if x %}}{}{{% endif %}}", "{% elif x %}".repeat(15_000));
    assert_eq!(render(&ladder).ok(), Some(0));
    let nest: String = (0..10_000).map(|_| "{% set x = [x] %}").collect();
    check_limit(&nest);
    // As long as a source may be.
    check_error(&"{% if x %}".repeat(100_000));
    let ladder = format!("{{% if x %}}{}{{% endif %}}", "{% elif x %}".repeat(85_000));
    assert_eq!(render(&ladder).ok(), Some(0));
    check_error(&format!("{{{{ 'x'{} }}}}", "|upper".repeat(170_000)));
    check_error(&" ".repeat(1_100_000));
}

#[test]
fn long_work_in_few_steps_runs_out_of_time() {
    let big = "{% set a = 'x' * 30000000 %}{% set b = a ~ 'y' %}{% set c = a ~ 'z' %}";
    check_limit(&format!(
        "{big}{{% for i in range(90000) %}}{{% if b == c %}}{{% endif %}}{{% endfor %}}"
    ));
    check_limit(&format!("{big}{}", "{% if b == c %}{% endif %}".repeat(9_000)));
    check_limit(&format!(
        "{big}{{% for i in range(90000) %}}{{% if 'y' in c %}}{{% endif %}}{{% endfor %}}"
    ));
}

#[test]
fn tojson_arguments_are_bounded() {
    check_error("{{ messages|tojson(indent=1000000000) }}");
    check_error("{{ messages|tojson(indent=-1) }}");
    check_error("{{ messages|tojson(separators=('a',)) }}");
    assert!(render("{{ messages|tojson(indent='  ') }}").is_ok());
}

#[test]
fn a_template_has_no_host() {
    for source in [
        "{% include 'x' %}",
        "{% import 'x' as y %}",
        "{% extends 'x' %}",
        "{% block a %}{% endblock %}",
        "{{ cycler('a') }}",
        "{{ lipsum() }}",
        "{{ self.x() }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ debug() }}",
        "{{ open('/etc/passwd') }}",
        "{{ '{:9999999999}'.format(1) }}",
        "{{ range.__class__() }}",
    ] {
        check_error(source);
    }
}

#[test]
fn broken_sources_are_errors() {
    for source in [
        "{{",
        "{% for %}",
        "{% endif %}",
        "{{ 1 + }}",
        "{# open",
        "{% generation %}",
        "{{ x|nope }}",
    ] {
        check_error(source);
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(300))]

    #[test]
    fn random_templates_never_panic(
        parts in proptest::collection::vec(proptest::sample::select(vec![
            "{{", "}}", "{%", "%}", "{#", "#}", "-", " ", "\n", "x", "messages", "[", "]", "(", ")",
            "[0]", ".content", "|", "tojson", "trim", "'a'", "1", "*", "~", "+", "==", " in ", " if ",
            " for m in messages ", " endfor ", " endif ", " set x = ", "{{ m }}", "{% generation %}",
            "{% endgeneration %}", "é", "\u{F0000}", "{% raw %}", "{% endraw %}", "::", "[::-1]",
        ]), 0..24),
    ) {
        if let Err(error) = render(&parts.concat()) {
            let panicked = error.to_string().contains("panicked");
            proptest::prop_assert!(!panicked, "{:?}: {}", parts, error);
        }
    }
}

/// Renders one message with a template, within limits.
fn within(source: &str, limits: TemplateLimits) -> Result<String, TextError> {
    let options = RenderOptions { limits, ..RenderOptions::default() };
    let template = ChatTemplate::from_source_within(source, &limits)?;
    template.render(&[Message::new("user", "hello")], &options).map(|s| spans_to_string(&s))
}

#[test]
fn each_limit_holds_exactly() {
    let usual = TemplateLimits::default();
    let limit = |result: Result<String, TextError>| match result {
        Ok(_) => None,
        Err(TextError::TemplateLimit { what, limit, .. }) => Some((what, limit)),
        Err(other) => panic!("{other}"),
    };
    // Output: one below, at, one above.
    for (n, expected) in [(9, None), (10, None), (11, Some(("output", 10)))] {
        let limits = TemplateLimits { output_bytes_max: 10, ..usual };
        let source = "x".repeat(n);
        assert_eq!(limit(within(&source, limits)), expected, "{n}");
        // Captured on the way.
        let source = format!("{{% set x %}}{source}{{% endset %}}{{{{ x }}}}");
        assert_eq!(limit(within(&source, limits)), expected, "{n} captured");
    }
    let source = format!("{{{{ '{}'|length }}}}", "x".repeat(10));
    let limits = TemplateLimits { source_bytes_max: source.len(), ..usual };
    for less in [0, 1] {
        let limits = TemplateLimits { source_bytes_max: limits.source_bytes_max - less, ..limits };
        assert_eq!(within(&source, limits).is_ok(), less == 0);
    }
    // Calls of macros inside each other.
    let source = "{% macro m(n) %}{% if n > 1 %}{{ m(n - 1) }}{% endif %}.{% endmacro %}{{ m(N) }}";
    for most in [3, 64, TemplateLimits::RECURSION_MAX] {
        let limits = TemplateLimits { recursion_max: most, ..usual };
        let calls = |n: usize| limit(within(&source.replace('N', &n.to_string()), limits));
        assert_eq!((calls(most - 1), calls(most)), (None, None), "{most}");
        assert_eq!(calls(most + 1), Some(("recursion", most as u64)));
    }
    // Steps: some number of them suffices, and none less does.
    let source = "{% for i in range(100) %}{{ i }}{% endfor %}";
    let fits = |steps| within(source, TemplateLimits { steps_max: steps, ..usual }).is_ok();
    let enough = (1..).find(|steps| fits(*steps)).unwrap();
    assert!(enough > 100 && fits(enough + 1) && !fits(enough - 1));
    let steps = TemplateLimits { steps_max: enough - 1, ..usual };
    assert_eq!(limit(within(source, steps)), Some(("step", enough - 1)));
    let none = TemplateLimits { time_max: Duration::ZERO, ..usual };
    assert_eq!(limit(within(source, none)), Some(("time (in milliseconds)", 0)));
}
