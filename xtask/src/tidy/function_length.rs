//! A function has at most 70 lines, from its `fn` to its closing brace; tests may be longer.
//!
//! Works on the text as rustfmt leaves it, not on syntax: a function ends at the first line that is
//! its own indentation and a brace. That is exact except inside multi-line string literals.

use super::{Finding, Tree};

const LINES_MAX: usize = 70;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, text) in tree.texts() {
        if file.extension() != "rs" || file.is_test() {
            continue;
        }
        for function in functions(text) {
            if function.n_lines > LINES_MAX {
                let Function { name, line, n_lines } = function;
                let message = format!("`{name}` has {n_lines} lines, the limit is {LINES_MAX}");
                findings.push(Finding::at(&file.path, line, message));
            }
        }
    }
    findings
}

struct Function<'a> {
    name: &'a str,
    /// Line of the `fn`, counted from 1.
    line: usize,
    n_lines: usize,
}

/// Every function with a body, outside `#[cfg(test)]` modules.
fn functions(text: &str) -> Vec<Function<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    let mut idx = 0;
    while idx < lines.len() {
        if lines[idx].trim() == "#[cfg(test)]" {
            idx = after_test_item(&lines, idx);
            continue;
        }
        if let Some(name) = function_name(lines[idx])
            && let Some(open) = body_start(&lines, idx)
        {
            let end = closing_line(&lines, open, indentation(lines[idx]));
            found.push(Function { name, line: idx + 1, n_lines: end - idx + 1 });
        }
        idx += 1;
    }
    found
}

/// The name in a line that declares a function.
fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    loop {
        if let Some(after) = rest.strip_prefix("fn ") {
            let end = after.find(|c: char| !c.is_alphanumeric() && c != '_')?;
            return Some(&after[..end]);
        }
        let (word, after) = rest.split_once(' ')?;
        let modifier = matches!(word, "pub" | "const" | "async" | "unsafe" | "extern" | "default");
        if !modifier && !word.starts_with("pub(") && !word.starts_with('"') {
            return None;
        }
        rest = after;
    }
}

/// The line on which the body opens, for a body of several lines; `None` for one-liners and for
/// declarations without a body.
fn body_start(lines: &[&str], from: usize) -> Option<usize> {
    for (offset, line) in lines[from..].iter().enumerate() {
        let code = line.split(" //").next().unwrap_or(line).trim_end();
        if code.ends_with('{') {
            return Some(from + offset);
        }
        if code.ends_with(';') || code.ends_with('}') {
            return None;
        }
    }
    None
}

/// The line of the brace that closes what opened at `open`.
fn closing_line(lines: &[&str], open: usize, indentation: usize) -> usize {
    let closes = |line: &&str| {
        self::indentation(line) == indentation && matches!(line.trim(), "}" | "};" | "},")
    };
    let offset = lines[open + 1..].iter().position(closes);
    offset.map_or(lines.len() - 1, |offset| open + 1 + offset)
}

/// The line after the item that a `#[cfg(test)]` at `attribute` guards.
pub(super) fn after_test_item(lines: &[&str], attribute: usize) -> usize {
    match body_start(lines, attribute + 1) {
        Some(open) => closing_line(lines, open, indentation(lines[attribute])) + 1,
        None => attribute + 1,
    }
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function of exactly `n_lines` lines.
    fn function(name: &str, n_lines: usize, indentation: &str) -> String {
        let body = format!("{indentation}    step();\n").repeat(n_lines - 2);
        format!(
            "{indentation}pub(crate) const fn {name}(a: u8) -> [u8; 2] {{\n{body}{indentation}}}\n"
        )
    }

    #[test]
    fn the_line_after_the_last_allowed_one_is_found() {
        let text = function("fits", LINES_MAX, "") + &function("long", LINES_MAX + 1, "    ");
        let expected = format!("`long` has {} lines, the limit is {LINES_MAX}", LINES_MAX + 1);
        let findings = check(&Tree::of(&[("a.rs", &text), ("tests/a.rs", &text)]));
        assert_eq!(findings, [Finding::at("a.rs", LINES_MAX + 1, expected)]);
    }

    #[test]
    fn test_modules_do_not_count_but_what_follows_does() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function("t", 200, "    "));
        let text = tests + &function("long", 100, "");
        let names: Vec<_> = functions(&text).into_iter().map(|f| (f.name, f.n_lines)).collect();
        assert_eq!(names, [("long", 100)]);
    }

    #[test]
    fn declarations_and_one_liners_have_no_body_to_measure() {
        let text = "trait T {\n    fn a(&self);\n    fn b() -> u8 { 1 }\n    fn c(\n        x: u8,\n    ) -> u8 {\n        x\n    }\n}\n";
        let names: Vec<_> = functions(text).into_iter().map(|f| (f.name, f.n_lines)).collect();
        assert_eq!(names, [("c", 5)]);
    }

    #[test]
    fn a_module_of_tests_in_its_own_file_hides_nothing() {
        let text = "#[cfg(test)]\nmod tests;\n".to_owned() + &function("long", 100, "");
        assert_eq!(functions(&text).len(), 1);
    }
}
