//! Crates depend downwards only. The arrows stand here once and are compared with the manifests.

use super::{Finding, Tree};

/// What one of our crates may know of the others.
struct Arrows {
    name: &'static str,
    /// Allowed in every kind of dependency.
    may_use: &'static [&'static str],
    /// Allowed in tests in addition.
    tests_may_use: &'static [&'static str],
}

/// Top to bottom as in ARCHITECTURE.md, without the prefix `pagella-`.
const ARROWS: &[Arrows] = &[
    Arrows {
        name: "pagella",
        may_use: &[
            "server",
            "quant",
            "conversation",
            "engine",
            "model",
            "cpu",
            "cuda",
            "backend",
            "formats",
            "arch",
            "text",
        ],
        tests_may_use: &[],
    },
    Arrows {
        name: "pagella-server",
        may_use: &["http", "conversation", "engine", "backend", "text"],
        tests_may_use: &["model", "cpu", "arch"],
    },
    Arrows { name: "pagella-http", may_use: &["backend", "text"], tests_may_use: &[] },
    Arrows { name: "pagella-conversation", may_use: &["engine", "text"], tests_may_use: &[] },
    Arrows {
        name: "pagella-engine",
        may_use: &["model", "backend", "arch", "text"],
        tests_may_use: &["cpu", "cuda", "formats"],
    },
    Arrows {
        name: "pagella-quant",
        may_use: &["model", "backend", "formats", "arch", "text"],
        tests_may_use: &["cpu"],
    },
    Arrows {
        name: "pagella-model",
        may_use: &["backend", "formats", "arch"],
        tests_may_use: &["cpu", "cuda"],
    },
    Arrows {
        name: "pagella-cuda",
        may_use: &["backend", "formats", "arch"],
        tests_may_use: &["cpu"],
    },
    Arrows { name: "pagella-cpu", may_use: &["backend", "formats", "arch"], tests_may_use: &[] },
    Arrows { name: "pagella-backend", may_use: &["formats", "arch"], tests_may_use: &[] },
    Arrows { name: "pagella-formats", may_use: &[], tests_may_use: &[] },
    Arrows { name: "pagella-arch", may_use: &[], tests_may_use: &[] },
    Arrows { name: "pagella-text", may_use: &[], tests_may_use: &[] },
];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, text) in tree.texts() {
        let Some(name) = crate_name(&file.path) else { continue };
        let Some(arrows) = ARROWS.iter().find(|arrows| arrows.name == name) else {
            let message = format!("`{name}` has no place in the layers: add it to ARROWS");
            findings.push(Finding::file(&file.path, message));
            continue;
        };
        for dependency in dependencies(text) {
            let in_tests = dependency.for_tests && arrows.tests_may_use.contains(&dependency.name);
            if !arrows.may_use.contains(&dependency.name) && !in_tests {
                let message = format!("`{name}` may not know `pagella-{}`", dependency.name);
                findings.push(Finding::at(&file.path, dependency.line, message));
            }
        }
    }
    findings
}

/// The folder name of a crate manifest, which is also the crate's name.
fn crate_name(path: &str) -> Option<&str> {
    path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml").filter(|name| !name.contains('/'))
}

/// A dependency on one of our crates.
struct Dependency<'a> {
    /// Without the prefix `pagella-`.
    name: &'a str,
    line: usize,
    for_tests: bool,
}

/// Our crates among the dependencies of a manifest, of every kind and for every platform.
/// Reads sections and keys line by line; the manifests use no other form.
fn dependencies(manifest: &str) -> Vec<Dependency<'_>> {
    let mut found = Vec::new();
    let mut section = "";
    for (idx, line) in manifest.lines().enumerate() {
        let line = line.trim();
        // Either the key of a section of dependencies, or the section `[dependencies.pagella-x]`.
        let key = if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']');
            section.rsplit_once("dependencies.").map_or("", |(_, key)| key)
        } else if section.ends_with("dependencies") {
            line
        } else {
            ""
        };
        let Some(rest) = key.strip_prefix("pagella-") else { continue };
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '-').unwrap_or(rest.len());
        let for_tests = section.contains("dev-dependencies");
        found.push(Dependency { name: &rest[..end], line: idx + 1, for_tests });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, manifest: &str) -> Vec<String> {
        let path = format!("crates/{name}/Cargo.toml");
        check(&Tree::of(&[(&path, manifest)])).into_iter().map(|f| f.to_string()).collect()
    }

    #[test]
    fn an_upward_arrow_is_found_in_every_form() {
        let expected = "`pagella-text` may not know `pagella-model`";
        for manifest in [
            "[dependencies]\npagella-model.workspace = true\n",
            "[dependencies]\npagella-model = { path = \"../pagella-model\" }\n",
            "[package]\n[dependencies.pagella-model]\npath = \"x\"\n",
            "[dev-dependencies]\npagella-model.workspace = true\n",
            "[build-dependencies]\npagella-model = \"1\"\n",
            "[target.'cfg(unix)'.dependencies]\npagella-model = \"1\"\n",
        ] {
            let found = found("pagella-text", manifest);
            assert!(found.len() == 1 && found[0].ends_with(expected), "{manifest}: {found:?}");
        }
    }

    #[test]
    fn a_backend_may_stand_in_tests_only() {
        let cpu = "pagella-cpu.workspace = true\n";
        assert!(found("pagella-model", &format!("[dev-dependencies]\n{cpu}")).is_empty());
        assert_eq!(found("pagella-model", &format!("[dependencies]\n{cpu}")).len(), 1);
    }

    #[test]
    fn a_crate_outside_the_layers_is_found() {
        assert_eq!(found("pagella-extra", "[dependencies]\n").len(), 1);
    }

    #[test]
    fn the_allowed_arrows_have_no_circle() {
        for (idx, arrows) in ARROWS.iter().enumerate() {
            for used in arrows.may_use {
                let name = format!("pagella-{used}");
                let below = ARROWS.iter().position(|a| a.name == name).unwrap();
                assert!(below > idx, "{} uses {name}, which stands above it", arrows.name);
            }
        }
    }
}
