//! Every key of the server's configuration as a flag: `--section.key VALUE`, and shorter where only
//! one section has the key.

use std::path::PathBuf;
use std::sync::OnceLock;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use pagella_server::config::{Config, Setting, Source, entries};

use crate::output;
use crate::usage::Usage;

/// What was said on the command line, by key.
#[derive(Clone, Debug, Default)]
pub struct ConfigFlags {
    /// The file that was named.
    pub file: Option<PathBuf>,
    /// `section.key` and text.
    pub values: Vec<(String, String)>,
}

impl ConfigFlags {
    /// Where values are looked for.
    pub fn source(&self) -> Source {
        Source::of_process(self.file.clone(), self.values.clone())
    }

    /// Reads everything and says what an operator should know. What is wrong is wrong usage.
    pub fn load(&self) -> anyhow::Result<(Source, Config)> {
        let source = self.source();
        let config = source.load().map_err(|error| Usage::error(error.to_string()))?;
        for warning in &config.warnings {
            output::note(&format!("warning: {warning}"));
        }
        Ok((source, config))
    }
}

/// A key with its names as a flag, made once because flags need names that stay.
struct Named {
    setting: &'static Setting,
    path: String,
    /// Shorter names, where no other key has them.
    short: Vec<String>,
}

fn named() -> &'static [Named] {
    static NAMES: OnceLock<Vec<Named>> = OnceLock::new();
    NAMES.get_or_init(|| {
        let built = || entries().filter(|setting| setting.built);
        let name = |setting: &'static Setting| {
            let alone = built().filter(|other| other.key == setting.key).count() == 1;
            let mut short: Vec<String> = setting.flag.map(str::to_owned).into_iter().collect();
            if alone {
                short.extend([setting.key.to_owned(), setting.key.replace('_', "-")]);
            }
            short.dedup();
            Named { setting, path: setting.path(), short }
        };
        built().map(name).collect()
    })
}

impl Args for ConfigFlags {
    fn augment_args(command: Command) -> Command {
        let mut command = command.arg(
            Arg::new("config")
                .long("config")
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf))
                .help("Configuration [default: config.toml here, if there is one]"),
        );
        let mut taken: Vec<String> = Vec::new();
        for arg in command.get_arguments() {
            let names = arg.get_long().into_iter().chain(arg.get_all_aliases().unwrap_or_default());
            taken.extend(names.map(str::to_owned));
        }
        for Named { setting, path, short } in named() {
            let free: Vec<&str> = short
                .iter()
                .map(String::as_str)
                .filter(|name| !taken.iter().any(|t| t == name))
                .collect();
            taken.extend(free.iter().map(|name| (*name).to_owned()));
            // Its own name, or else the one with dashes, as other flags have them.
            let own = setting.flag.filter(|name| free.contains(name));
            let short = own.or(free.last().copied());
            // What people look for first, `-h` shows under its short name.
            let long = short.filter(|_| setting.common).unwrap_or(path);
            let others = free.into_iter().chain([path.as_str()]).filter(|name| *name != long);
            let mut arg = Arg::new(path.as_str())
                .long(long)
                .aliases(others.collect::<Vec<_>>())
                .help(help(setting))
                .help_heading("Configuration")
                .hide_short_help(!setting.common)
                .value_name("VALUE")
                .action(if setting.is_list() { ArgAction::Append } else { ArgAction::Set });
            if setting.is_switch() {
                // Without a value it is a yes.
                let values = clap::builder::PossibleValuesParser::new(["true", "false"]);
                arg = arg.value_parser(values).num_args(0..=1).default_missing_value("true");
            }
            command = command.arg(arg);
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// The sentence of a key with its default, from the declaration that sets it.
fn help(setting: &Setting) -> String {
    match setting.default.as_str() {
        "" => setting.doc.to_owned(),
        default => format!("{} [default: {default}]", setting.doc),
    }
}

impl FromArgMatches for ConfigFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags =
            ConfigFlags { file: matches.get_one::<PathBuf>("config").cloned(), values: Vec::new() };
        for Named { setting, path, .. } in named() {
            let Some(given) = matches.get_many::<String>(path) else { continue };
            let given: Vec<&str> = given.map(String::as_str).collect();
            let text = match given.as_slice() {
                // A list in one piece may be one of TOML.
                [one] => (*one).to_owned(),
                several => several.join(","),
            };
            debug_assert!(setting.is_list() || given.len() == 1);
            flags.values.push((path.clone(), text));
        }
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[arg(long)]
        rope_scale: Option<f32>,
        #[command(flatten)]
        config: ConfigFlags,
    }

    fn parse(args: &[&str]) -> Vec<(String, String)> {
        let all = std::iter::once("x").chain(args.iter().copied());
        Cli::try_parse_from(all).unwrap().config.values
    }

    #[test]
    fn keys_are_flags_under_all_their_names() {
        let port = [("network.port".to_owned(), "7".to_owned())];
        assert_eq!(parse(&["--network.port", "7"]), port);
        assert_eq!(parse(&["--port=7"]), port);
        let open = [("network.disable_auth".to_owned(), "true".to_owned())];
        assert_eq!(parse(&["--disable-auth"]), open);
        assert_eq!(parse(&["--disable_auth", "true"]), open);
        let hosts = [("network.hosts".to_owned(), "a,b".to_owned())];
        assert_eq!(parse(&["--allow-host", "a", "--allow-host", "b"]), hosts);
        assert!(Cli::try_parse_from(["x", "--network.prot", "7"]).is_err());
    }

    #[test]
    fn flags_that_a_command_has_stay_its_own() {
        let cli =
            Cli::try_parse_from(["x", "--rope-scale", "2", "--model.rope_scale", "3"]).unwrap();
        assert_eq!((cli.rope_scale, cli.config.values.len()), (Some(2.0), 1));
    }

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
