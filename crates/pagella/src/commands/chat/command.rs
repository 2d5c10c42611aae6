//! Lines that start with a slash: one table of commands, from which help and parsing follow.

/// What a line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Help,
    Clear,
    System(String),
    Reasoning(String),
    Regenerate,
    Edit(String),
    Undo,
    Save(String),
    Load(String),
    Set(String),
    Stats,
    Exit,
}

struct Command {
    name: &'static str,
    /// How its argument is shown; empty when it takes none.
    argument: &'static str,
    help: &'static str,
    make: fn(String) -> Action,
}

const COMMANDS: &[Command] = &[
    Command { name: "help", argument: "", help: "show this", make: |_| Action::Help },
    Command {
        name: "clear",
        argument: "",
        help: "forget the conversation, keep the system message",
        make: |_| Action::Clear,
    },
    Command {
        name: "system",
        argument: "[TEXT]",
        help: "set the system message; without text, remove it",
        make: Action::System,
    },
    Command {
        name: "reasoning",
        argument: "[show|hide]",
        help: "show what the model thought; show or fold it from now on",
        make: Action::Reasoning,
    },
    Command {
        name: "regen",
        argument: "",
        help: "answer the last question again",
        make: |_| Action::Regenerate,
    },
    Command {
        name: "edit",
        argument: "[TEXT]",
        help: "change the last question and ask again",
        make: Action::Edit,
    },
    Command {
        name: "undo",
        argument: "",
        help: "take back the last question and its answer",
        make: |_| Action::Undo,
    },
    Command {
        name: "save",
        argument: "FILE",
        help: "write the conversation to a file",
        make: Action::Save,
    },
    Command {
        name: "load",
        argument: "FILE",
        help: "continue a conversation from a file",
        make: Action::Load,
    },
    Command {
        name: "set",
        argument: "[NAME VALUE]",
        help: "change a setting; without arguments, show them",
        make: Action::Set,
    },
    Command {
        name: "stats",
        argument: "",
        help: "counts and speeds of the last answer",
        make: |_| Action::Stats,
    },
    Command { name: "exit", argument: "", help: "end (also Ctrl-D)", make: |_| Action::Exit },
];

/// Understands a command line, without its slash.
pub fn parse(line: &str) -> Result<Action, String> {
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let argument = argument.trim();
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        return Err(format!("there is no command /{name}: /help lists them"));
    };
    if command.argument.is_empty() && !argument.is_empty() {
        return Err(format!("/{name} takes no argument"));
    }
    if !command.argument.is_empty() && !command.argument.starts_with('[') && argument.is_empty() {
        return Err(format!("/{name} needs an argument: /{name} {}", command.argument));
    }
    Ok((command.make)(argument.to_owned()))
}

/// The table, for people.
pub fn help() -> String {
    let left = |c: &Command| format!("/{} {}", c.name, c.argument).trim_end().to_owned();
    let width = COMMANDS.iter().map(|c| left(c).len()).max().unwrap_or(0);
    let mut text: String =
        COMMANDS.iter().map(|c| format!("  {:width$}  {}\n", left(c), c.help)).collect();
    text.push_str("  A line that ends with \\ continues on the next. Ctrl-C stops an answer.");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_understood() {
        assert_eq!(parse("help"), Ok(Action::Help));
        assert_eq!(parse("system  be brief "), Ok(Action::System("be brief".into())));
        assert_eq!(parse("system"), Ok(Action::System(String::new())));
        assert_eq!(parse("save my chat.json"), Ok(Action::Save("my chat.json".into())));
        assert_eq!(parse("set top_k 5"), Ok(Action::Set("top_k 5".into())));
    }

    #[test]
    fn mistakes_are_explained() {
        assert!(parse("hepl").unwrap_err().contains("/help"));
        assert!(parse("save").unwrap_err().contains("FILE"));
        assert!(parse("clear all").unwrap_err().contains("no argument"));
        assert!(parse("").is_err());
    }

    #[test]
    fn help_lists_every_command_once() {
        for command in COMMANDS {
            assert_eq!(help().matches(&format!("  /{}", command.name)).count(), 1);
        }
    }
}
