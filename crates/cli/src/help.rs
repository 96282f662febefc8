//! Exit codes in every help: a command that lists none of its own gets those of the command above it. Knows no
//! command by name.

use clap::Command;

/// How a list of exit codes begins, in the help of the whole and in that of a command.
const OF_ALL: &str = "Exit codes, where the help of a command says no more:";
const OF_ONE: &str = "Exit codes:";
const EXAMPLES: &str = "Examples:";

/// The same command, each command below it with exit codes.
pub(crate) fn with_exit_codes(root: Command) -> Command {
    let codes = section(&help_of(&root)).unwrap_or_default();
    root.mut_subcommands(|below| complete(below, &codes))
}

fn complete(command: Command, inherited: &str) -> Command {
    let help = help_of(&command);
    let own = section(&help);
    let codes = own.clone().unwrap_or_else(|| inherited.to_owned());
    let command = match own {
        Some(_) => command,
        None => command.after_help(insert(&help, &codes)),
    };
    command.mut_subcommands(|below| complete(below, &codes))
}

fn help_of(command: &Command) -> String {
    command.get_after_help().map(ToString::to_string).unwrap_or_default()
}

/// The exit codes that a help lists, with their heading.
fn section(help: &str) -> Option<String> {
    let heading = [OF_ALL, OF_ONE].into_iter().find(|heading| help.contains(heading))?;
    let (_, rest) = help.split_once(heading)?;
    let codes = rest.split("\n\n").next().unwrap_or_default();
    Some(format!("{OF_ONE}{}", codes.trim_end()))
}

/// A help with a section before its examples.
fn insert(help: &str, section: &str) -> String {
    match help.split_once(EXAMPLES) {
        Some((before, examples)) => format!("{before}{section}\n\n{EXAMPLES}{examples}"),
        None if help.is_empty() => section.to_owned(),
        None => format!("{}\n\n{section}", help.trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_lists_its_exit_codes_once() {
        fn check(command: &Command, name: &str) {
            let help = help_of(command);
            assert_eq!(help.matches("Exit codes").count(), 1, "{name}: {help}");
            assert!(help.contains("\n  69") || help.contains("Exit codes: 0 "), "{name}: {help}");
            command.get_subcommands().for_each(|below| check(below, &format!("{name} {}", below.get_name())));
        }
        let root = crate::command();
        check(&root, "lockwood");
        assert!(root.get_subcommands().count() > 30);
    }

    #[test]
    fn exit_codes_come_from_the_command_above_and_before_examples() {
        let command = |name: &'static str, help: &'static str| Command::new(name).after_help(help);
        let root =
            command("root", "Exit codes, where the help of a command says no more:\n  1  bad\n\nMore.")
                .subcommand(
                    command("own", "Exit codes: 0 good.\n\nExamples:\n  x").subcommand(Command::new("leaf")),
                )
                .subcommand(command("none", "Words.\n\nExamples:\n  y"));
        let root = with_exit_codes(root);
        let help = |names: &[&str]| {
            let found = names.iter().try_fold(&root, |command, name| command.find_subcommand(name));
            help_of(found.expect("it is there"))
        };
        assert_eq!(help(&["own"]), "Exit codes: 0 good.\n\nExamples:\n  x");
        assert_eq!(help(&["own", "leaf"]), "Exit codes: 0 good.");
        assert_eq!(help(&["none"]), "Words.\n\nExit codes:\n  1  bad\n\nExamples:\n  y");
    }
}
