//! The `lockwood` command. Reads arguments and hands over to one module per command.

mod child;
mod exit;
mod limits;
mod listing;
mod lock;
mod locks;
mod serve;
mod target;
mod verify;
mod wait;

use clap::{Parser, Subcommand};
use std::{future::Future, process::ExitCode};

/// Locks on a tree of nodes, with queues, tokens, and answers to who is in the way.
#[derive(Parser)]
#[command(name = "lockwood", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(Box<serve::Args>),
    Lock(lock::Args),
    Locks(locks::Args),
    Verify(verify::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(args) => serve::run(*args),
        Command::Lock(args) => block_on(lock::run(args)),
        Command::Locks(args) => block_on(locks::run(args)),
        Command::Verify(args) => verify::run(args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("lockwood: {error:#}");
        ExitCode::FAILURE
    })
}

/// A client needs one thread only.
fn block_on(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_declarations_make_sense() {
        Cli::command().debug_assert();
    }

    #[track_caller]
    fn check(line: &str, accepted: bool) {
        let result = Cli::try_parse_from(line.split(' '));
        assert_eq!(result.is_ok(), accepted, "{line}: {:?}", result.err().map(|error| error.to_string()));
    }

    #[test]
    fn command_lines() {
        check("lockwood lock --write a/b -- true", true);
        check("lockwood lock --write a --read b --read c --depth 2 --wait 10s -q -- sh -c x", true);
        check(
            "lockwood lock -n ns --server h:1 --list a --link b --update c --abandon-timeout 1m -- x",
            true,
        );
        check("lockwood lock -- true", false);
        check("lockwood lock --write a", false);
        check("lockwood lock --write a//b -- true", false);
        check("lockwood lock --write a --depth 0 -- true", false);
        check("lockwood lock --write a --wait 10 -- true", false);
        check("lockwood locks", true);
        check("lockwood locks user/42 --owner x --state waiting --watch --json", true);
        check("lockwood locks --watch=5 --all", true);
        check("lockwood locks --watch=0", false);
        check("lockwood locks release 5 --reason stuck -n x", true);
        check("lockwood locks release", false);
    }
}
