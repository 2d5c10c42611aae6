//! The flags of the engine's table of sampling parameters: one for every row that people are offered.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, value_parser};
use pagella::SampleOptions;
use pagella_engine::params::{Param, ParamGroup, ParamKind, Place, SAMPLING};

/// Values of sampling parameters that were given, in the order of the table.
#[derive(Clone, Debug, Default)]
pub struct SettingFlags {
    given: Vec<(&'static Param, f64)>,
}

/// Scalars that have a flag. Guidance has one beside its prompt.
fn offered() -> impl Iterator<Item = &'static Param> {
    let scalar = |param: &&Param| matches!(param.place, Place::Sampling { .. });
    SAMPLING.iter().filter(scalar).filter(|param| param.offered && param.name != "cfg_scale")
}

impl SettingFlags {
    /// Puts the given values on top.
    pub fn apply(&self, options: &mut SampleOptions) {
        for (param, number) in &self.given {
            if let Place::Sampling { set, .. } = param.place {
                set(options, *number);
            }
        }
    }
}

fn flag(param: &'static Param) -> Arg {
    let arg = Arg::new(param.name).long(dashed(param.name)).help(param.help_line());
    let basic = matches!(param.group, ParamGroup::Basic | ParamGroup::Penalties);
    let arg = arg.help_heading(if basic { "Sampling" } else { "More sampling" });
    let arg = arg.visible_aliases(shortest(param));
    let arg = match param.needs {
        Some(other) if other != "negative_prompt" => arg.requires(other),
        _ => arg,
    };
    match param.kind {
        ParamKind::Flag | ParamKind::Switch => arg.action(ArgAction::SetTrue),
        ParamKind::Choice(words) => arg.value_name("WORD").value_parser(words.to_vec()),
        ParamKind::Integer(..) => {
            arg.value_name("N").allow_negative_numbers(true).value_parser(value_parser!(i64))
        }
        _ => arg.value_name("X").allow_negative_numbers(true).value_parser(value_parser!(f64)),
    }
}

fn dashed(name: &'static str) -> String {
    name.replace('_', "-")
}

/// The one spelling that people type instead.
fn shortest(param: &Param) -> Option<&'static str> {
    (param.name == "temperature").then_some("temp")
}

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        command.args(offered().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut flags = SettingFlags::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for param in offered() {
            let number = match param.kind {
                ParamKind::Flag | ParamKind::Switch => matches.get_flag(param.name).then_some(1.0),
                ParamKind::Choice(words) => matches
                    .get_one::<String>(param.name)
                    .and_then(|given| words.iter().position(|word| word == given))
                    .map(|place| place as f64),
                ParamKind::Integer(..) => matches.get_one::<i64>(param.name).map(|n| *n as f64),
                _ => matches.get_one::<f64>(param.name).copied(),
            };
            let Some(number) = number else { continue };
            let checked = match param.kind {
                ParamKind::Choice(_) => Ok(number),
                _ => param.number(number),
            };
            let checked = checked.map_err(|error| {
                let message = format!("--{} {error}", dashed(param.name));
                Error::raw(clap::error::ErrorKind::ValueValidation, format!("{message}\n"))
            })?;
            self.given.push((param, checked));
        }
        Ok(())
    }
}
