//! Joining of the page's sources: `ui/tests/bundle.mjs` says the same in the language of its tests,
//! which hold the sources to the rules that make something this simple right.

/// The files that a manifest lists, in order.
pub fn manifest(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

/// Modules as one script: without their imports, without the word `export`, without comments that
/// have lines of their own.
pub fn script(modules: &[String]) -> String {
    let is_import = |line: &str| line.starts_with("import {") && line.contains("} from '");
    let mut joined = String::new();
    for line in modules.iter().flat_map(|text| without_comments(text)) {
        if is_import(line) {
            continue;
        }
        joined.push_str(line.strip_prefix("export ").unwrap_or(line));
        joined.push('\n');
    }
    joined
}

/// Styles as one style, without comments that have lines of their own.
pub fn style(sheets: &[String]) -> String {
    let lines = sheets.iter().flat_map(|text| without_comments(text));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Lines that are not comments and not empty.
fn without_comments(text: &str) -> Vec<&str> {
    let mut in_comment = false;
    let is_code = |line: &&str| {
        let trimmed = line.trim();
        if in_comment || trimmed.starts_with("/*") {
            in_comment = !trimmed.ends_with("*/");
            return false;
        }
        !trimmed.is_empty() && !trimmed.starts_with("//")
    };
    text.lines().filter(is_code).collect()
}

/// The page with the names of the joined files in place of those of development.
pub fn page(html: &str, style: &str, script: &str) -> Result<String, String> {
    let mut page = html.to_owned();
    for (name, joined) in [("app.css", style), ("app.js", script)] {
        let reference = format!("\"ui/{name}\"");
        if page.matches(&reference).count() != 1 {
            return Err(format!("ui/index.html must name {reference} once"));
        }
        page = page.replace(&reference, &format!("\"ui/{joined}\""));
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_become_one_script() {
        let first = "// What it is.\n\nexport const a = 1; // kept\n".to_owned();
        let second = "import { a } from './a.js';\n/**\n * Twice.\n */\nexport function b() {\n  // Why.\n  return `export ${a}`;\n}\n";
        let joined = script(&[first, second.to_owned()]);
        assert_eq!(joined, "const a = 1; // kept\nfunction b() {\n  return `export ${a}`;\n}\n");
    }

    #[test]
    fn a_page_that_names_other_files_is_refused() {
        let html = "<link href=\"ui/app.css\"><script src=\"ui/app.js\">";
        let page_ = page(html, "s.css", "s.js").unwrap();
        assert_eq!(page_, "<link href=\"ui/s.css\"><script src=\"ui/s.js\">");
        assert!(page("<link href=\"ui/app.css\">", "s.css", "s.js").is_err());
    }
}
