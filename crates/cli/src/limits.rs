//! A flag for every limit of the server, made from the list the server keeps. Knows no limit by name.

use clap::{Arg, ArgMatches, Command, FromArgMatches, value_parser};
use lockwood_server::Limits;

/// The limits as the command line sets them.
#[derive(Debug, Clone, Default)]
pub(crate) struct LimitArgs(pub(crate) Limits);

impl clap::Args for LimitArgs {
    fn augment_args(command: Command) -> Command {
        Limits::SPECS.iter().fold(command, |command, spec| {
            let flag = Arg::new(spec.name)
                .long(spec.name.replace('_', "-"))
                .value_name("N")
                .help(format!("{} [default: {}]", spec.help.trim().trim_end_matches('.'), spec.default))
                .help_heading("Limits")
                .value_parser(value_parser!(u64).range(spec.least..=spec.most));
            command.arg(flag)
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        LimitArgs::augment_args(command)
    }
}

impl FromArgMatches for LimitArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<LimitArgs, clap::Error> {
        let mut limits = LimitArgs::default();
        limits.update_from_arg_matches(matches)?;
        Ok(limits)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for spec in Limits::SPECS {
            if let Some(value) = matches.get_one::<u64>(spec.name) {
                self.0.set(spec.name, *value);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Args;

    #[test]
    fn every_limit_has_a_flag_with_its_bounds() {
        for spec in Limits::SPECS {
            let flag = format!("--{}", spec.name.replace('_', "-"));
            let parse = |value: u64| {
                let command = LimitArgs::augment_args(Command::new("x"));
                let matches = command.try_get_matches_from(["x", &flag, &value.to_string()])?;
                LimitArgs::from_arg_matches(&matches)
            };
            let mut expected = Limits::default();
            assert!(expected.set(spec.name, spec.most), "{}", spec.name);
            assert_eq!(parse(spec.most).unwrap().0, expected, "{}", spec.name);
            assert!(parse(spec.least).is_ok(), "{}", spec.name);
            assert!(parse(spec.most + 1).is_err(), "{}", spec.name);
            assert!(spec.least == 0 || parse(spec.least - 1).is_err(), "{}", spec.name);
        }
    }
}
