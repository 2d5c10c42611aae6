//! Completions and manual pages, made from the same definitions as the command line.

use crate::support::{pagella, text};

/// Commands as the program lists them.
fn commands() -> Vec<String> {
    let help = pagella(&["--help"]).out;
    let list = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let names = list.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help").map(str::to_owned).collect()
}

#[test]
fn completions_of_every_shell_know_every_command() {
    let commands = commands();
    assert!(commands.len() > 10, "{commands:?}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = pagella(&["completions", shell]);
        assert_eq!(script.code, 0, "{}", script.err);
        for name in commands.iter().map(String::as_str).chain(["max-new-tokens", "disable-auth"]) {
            assert!(script.out.contains(name), "{shell} does not know {name}");
        }
    }
    assert_eq!(pagella(&["completions", "tcsh"]).code, 2);
}

#[test]
#[cfg(unix)]
fn bash_completes_with_the_script() {
    let script = pagella(&["completions", "bash"]).out;
    let ask = format!(
        "{script}\nCOMP_WORDS=(pagella run --save-s); COMP_CWORD=2\n\
         _pagella pagella --save-s run\nprintf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let Ok(bash) = std::process::Command::new("bash").arg("-c").arg(ask).output() else {
        eprintln!("SKIPPED: no bash");
        return;
    };
    assert_eq!(String::from_utf8_lossy(&bash.stdout), "--save-sequence\n");
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = tempfile::tempdir().unwrap();
    let man = dir.path().join("share/man1");
    let said = pagella(&["man", text(&man)]);
    assert_eq!((said.code, said.out.as_str()), (0, ""), "{}", said.err);
    for name in commands() {
        let page = std::fs::read_to_string(man.join(format!("pagella-{name}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{name}");
    }
    let page = std::fs::read_to_string(man.join("pagella-run.1")).unwrap();
    assert!(page.contains("save\\-sequence") && page.contains("PAGELLA_MODEL"));
    assert!(man.join("pagella.1").is_file() && man.join("pagella-config-check.1").is_file());
    std::fs::write(dir.path().join("file"), "").unwrap();
    let blocked = pagella(&["man", text(&dir.path().join("file"))]);
    assert!(blocked.error(1).contains("file"), "{}", blocked.err);
}
