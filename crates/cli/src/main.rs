//! The `lockwood` command. Reads arguments and hands over to one module per command.

mod backup;
mod child;
mod cluster;
mod collection;
mod documents;
mod exit;
mod grace;
mod help;
mod import;
mod lease;
mod limits;
mod listing;
mod lock;
mod lock_lease;
mod locks;
mod manual;
mod mark;
mod nested;
mod output;
mod processes;
mod reshard;
mod schema;
mod serve;
mod shard;
mod status;
mod surroundings;
mod target;
mod verify;
mod wait;
mod watchdog;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use mimalloc::MiMalloc;
use std::{ffi::OsString, future::Future, process::ExitCode};

/// A write is decided by one thread and made durable by another, which frees what the first one allocated; this
/// allocator takes that more lightly than the system's.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const AFTER_HELP: &str = "\
Environment, each the default of a flag:
  LOCKWOOD_SERVER     --server: host and port of the server
  LOCKWOOD_NAMESPACE  --namespace
  LOCKWOOD_TOKEN      --token of `put`, `set`, `get` and others; `lockwood lock` sets it for the program it runs
  LOCKWOOD_LISTEN, LOCKWOOD_DATA and others: see `lockwood serve --help`

Exit codes, where the help of a command says no more:
  0    done
  1    something here does not work: a file, or the server that was to be started
  2    the command line is wrong
  65   the data is not what it should be: no JSON, or a dump that broke off
  66   there is no such document, node, subject or procedure
  69   no server answers, or it does not work now
  70   the server refused the request
  73   there is such a document already
  75   others have locked it, and the wait is over
  76   the lock is over
  77   what was read has changed since
  78   a schema does not go with earlier versions

With --json answers are JSON on standard output, and errors on standard error:
  {\"error\": {\"code\": \"locked\", \"message\": …, \"exit_code\": 75, \"blockers\": […]}}
code is the server's, or usage, bad_data, unavailable or failed.";

/// Documents with a history, and locks on a tree of nodes, with answers to who is in the way.
#[derive(Parser)]
#[command(name = "lockwood", version, max_term_width = 110, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(Box<serve::Args>),
    Status(status::StatusArgs),
    Namespaces(status::NamespacesArgs),
    Collections(status::CollectionsArgs),
    Lock(lock::Args),
    Locks(locks::Args),
    Grace(grace::Args),
    Lease(lease::Args),
    Get(documents::get::Args),
    Put(documents::put::Args),
    Set(documents::set::Args),
    Delete(documents::delete::Args),
    Restore(documents::restore::Args),
    Write(documents::write::Args),
    Filter(documents::filter::Args),
    Count(documents::count::Args),
    Join(documents::join::Args),
    History(documents::history::Args),
    Watch(documents::watch::Args),
    Dump(documents::dump::Args),
    Load(documents::load::Args),
    Import(import::Args),
    Index(documents::index::Args),
    Schema(schema::Args),
    Cluster(cluster::Args),
    Shard(Box<shard::Args>),
    Reshard(reshard::Args),
    Trim(documents::trim::Args),
    Purge(documents::purge::Args),
    Backup(backup::Args),
    RestoreBackup(backup::RestoreArgs),
    Verify(verify::Args),
    Completion(manual::CompletionArgs),
    Man(manual::ManArgs),
    /// Ends a program when the `lockwood lock` that runs it is killed
    #[command(hide = true)]
    Watchdog,
}

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    if wants_json(&words) {
        exit::tell_in_json();
    }
    let command = match read(&words) {
        Ok(cli) => cli.command,
        Err(error) => return exit::misused(&error),
    };
    if !matches!(command, Command::Serve(_) | Command::Watchdog)
        && let Err(why) = surroundings::check()
    {
        return exit::Failure::new(exit::USAGE, why).report();
    }
    let result = match command {
        Command::Serve(args) => serve::run(*args),
        Command::Status(args) => block_on(status::status(args)),
        Command::Namespaces(args) => block_on(status::namespaces(args)),
        Command::Collections(args) => block_on(status::collections(args)),
        Command::Lock(args) => block_on(lock::run(args)),
        Command::Locks(args) => block_on(locks::run(args)),
        Command::Grace(args) => block_on(grace::run(args)),
        Command::Lease(args) => block_on(lease::run(args)),
        Command::Get(args) => block_on(documents::get::run(args)),
        Command::Put(args) => block_on(documents::put::run(args)),
        Command::Set(args) => block_on(documents::set::run(args)),
        Command::Delete(args) => block_on(documents::delete::run(args)),
        Command::Restore(args) => block_on(documents::restore::run(args)),
        Command::Write(args) => block_on(documents::write::run(args)),
        Command::Filter(args) => block_on(documents::filter::run(args)),
        Command::Count(args) => block_on(documents::count::run(args)),
        Command::Join(args) => block_on(documents::join::run(args)),
        Command::History(args) => block_on(documents::history::run(args)),
        Command::Watch(args) => block_on(documents::watch::run(args)),
        Command::Dump(args) => block_on(documents::dump::run(args)),
        Command::Load(args) => block_on(documents::load::run(args)),
        Command::Import(args) => block_on(import::run(args)),
        Command::Index(args) => block_on(documents::index::run(args)),
        Command::Schema(args) => block_on(schema::run(args)),
        Command::Cluster(args) => block_on(cluster::run(args)),
        Command::Shard(args) => block_on(shard::run(*args)),
        Command::Reshard(args) => block_on(reshard::run(args)),
        Command::Trim(args) => block_on(documents::trim::run(args)),
        Command::Purge(args) => block_on(documents::purge::run(args)),
        Command::Backup(args) => block_on(backup::run(args)),
        Command::RestoreBackup(args) => backup::restore(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Completion(args) => manual::complete(&args, self::command()),
        Command::Man(args) => manual::write_pages(&args, self::command()),
        Command::Watchdog => Ok(watchdog::run()),
    };
    result.unwrap_or_else(|error| exit::Failure::new(exit::FAILED, format!("{error:#}")).report())
}

/// The command line as it is read, and as help, manual pages and shells tell it.
fn command() -> clap::Command {
    help::with_exit_codes(Cli::command())
}

fn read(words: &[OsString]) -> Result<Cli, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(words)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Whether answers, and so errors, are to be JSON. What follows `--` is another program's.
fn wants_json(words: &[OsString]) -> bool {
    words.iter().take_while(|word| *word != "--").any(|word| word == "--json")
}

/// A client needs one thread only.
fn block_on(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declarations_make_sense() {
        command().debug_assert();
    }

    /// But for those that start a server or print what shells and manuals read.
    #[test]
    fn every_command_speaks_json() {
        fn check(command: &clap::Command, name: &str) {
            let has_json = command.get_arguments().any(|argument| argument.get_long() == Some("json"));
            let leads_on = command.get_subcommands().any(|below| !below.is_hide_set());
            assert!(has_json || leads_on, "{name} has no --json");
            command.get_subcommands().for_each(|below| check(below, &format!("{name} {}", below.get_name())));
        }
        let exempt = ["serve", "completion", "man", "watchdog"];
        let root = Cli::command();
        for command in root.get_subcommands().filter(|command| !exempt.contains(&command.get_name())) {
            check(command, command.get_name());
        }
    }

    #[track_caller]
    fn check(line: &str, accepted: bool) {
        let result = Cli::try_parse_from(line.split(' '));
        assert_eq!(result.is_ok(), accepted, "{line}: {:?}", result.err().map(|error| error.to_string()));
    }

    /// An unset variable in a script must not become the whole namespace, or the default one.
    #[test]
    fn empty_arguments_are_refused() {
        for line in [
            "lock --write PATH -- true",
            "lock --read PATH -- true",
            "lease take PATH --owner me",
            "lease release PATH --owner me",
            "lease list --path PATH",
            "locks PATH",
            "get PATH",
            "put PATH {}",
            "set PATH 1",
            "delete PATH",
            "restore PATH",
            "history PATH",
            "purge PATH",
            "get user/42 -n PATH",
        ] {
            let given = |path: &str| {
                let line = line
                    .split(' ')
                    .map(|word| if word == "PATH" { path.to_owned() } else { word.to_owned() });
                Cli::try_parse_from(std::iter::once("lockwood".to_owned()).chain(line))
            };
            let error = given("").err().unwrap_or_else(|| panic!("{line} is accepted")).to_string();
            assert!(
                error.contains("empty path names nothing")
                    || error.contains("nothing is given")
                    || error.contains("needs a name"),
                "{line}: {error}"
            );
        }
        check("lockwood lock --write / -- true", true);
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
        check("lockwood import openslides --from postgres://localhost/os -n os --json", true);
        check("lockwood import openslides -", true);
        check("lockwood import openslides --sql", true);
        check("lockwood import openslides", false);
        check("lockwood import openslides - --from os", false);
        check("lockwood lock --write a", false);
        check("lockwood lock --write a//b -- true", false);
        check("lockwood lock --write a --depth 0 -- true", false);
        check("lockwood lock --write a --wait 10 -- true", false);
        check("lockwood lock --write a --lease 30s --owner me -- true", true);
        check("lockwood lock --write a --owner me -- true", false);
        check("lockwood lock --write a --lease 30s --abandon-timeout 1m -- true", false);
        check(
            "lockwood lease take a b --owner me --read --depth 2 --ttl 5m --wait 10s --note 5 --json",
            true,
        );
        check("lockwood lease take a --owner me", true);
        check("lockwood lease take a", false);
        check("lockwood lease take --owner me", false);
        check("lockwood lease take a --owner me --read --write", false);
        check("lockwood lease renew --lock 5 --token 6 --ttl 1m", true);
        check("lockwood lease renew --all --owner me", true);
        check("lockwood lease renew --all", false);
        check("lockwood lease renew --owner me", false);
        check("lockwood lease release a --owner me --write --depth 1", true);
        check("lockwood lease release --lock 5 --token 6", true);
        check("lockwood lease release --all --owner me", true);
        check("lockwood lease release a", false);
        check("lockwood lease release a --all --owner me", false);
        check("lockwood lease list --owner me --path a/b --json", true);
        check("lockwood put user/42 {} --token 5 --token 6 --wait 3s", true);
        check("lockwood delete user/42 --token 5 --wait 0", true);
        check("lockwood write - --token 5 --wait 3s", true);
        check("lockwood locks", true);
        check("lockwood locks user/42 --owner x --state waiting --watch --json", true);
        check("lockwood locks --watch=5 --all", true);
        check("lockwood locks --watch=0", false);
        check("lockwood locks release 5 --reason stuck -n x", true);
        check("lockwood locks release", false);
        check("lockwood grace --json", true);
        check("lockwood grace end default --reason gone", true);
        check("lockwood grace end", false);
        check("lockwood get user/42 --fields a,b --at 7 --deleted only --json", true);
        check("lockwood get user", false);
        check("lockwood get user/42/address --depth 1 --isolation locked --wait 5s --token 7", true);
        check("lockwood get user/42/address --depth 0", false);
        check("lockwood get user/42 --isolation loose", false);
        check("lockwood set user/42/address/city \"Ulm\" --token 7 --wait 1s", true);
        check("lockwood set user/42/address/city --delete", true);
        check("lockwood set user/42/address/city", false);
        check("lockwood set user/42/address/city 1 --delete", false);
        check("lockwood set user/42 1", false);
        check("lockwood join order.customer user.id --left --where-left a=1 --where-right b=2", true);
        check("lockwood join order.customer user.id --isolation document --fields a,user.b --all", true);
        check("lockwood join order user.id", false);
        check("lockwood join order.customer", false);
        check("lockwood put user/42 {} --if absent --position 7 --user me --note why", true);
        check("lockwood put user/42 --if never", false);
        check("lockwood delete user/42 --position 7", true);
        check("lockwood put user/42/address {}", true);
        check("lockwood delete user/42/address", true);
        check("lockwood history /user/42/address", true);
        check("lockwood restore user/42 --user me --token 5 --wait 1s --json", true);
        check("lockwood restore user/42/name", false);
        check("lockwood write", true);
        check("lockwood filter user age>=18 --sort name,-age --limit 5", true);
        check("lockwood filter user --sort -age", true);
        check("lockwood filter user age==18", false);
        check("lockwood filter user --all --limit 5", false);
        check("lockwood count user {\"and\":[]} --deleted with", true);
        check("lockwood history order/a:1 --after 5 --limit 2", true);
        check("lockwood watch a b --after 0 --field x --field y --json", true);
        check("lockwood dump", true);
        check("lockwood load", false);
        check("lockwood load - -n x", true);
        check("lockwood index", true);
        check("lockwood index add user email", true);
        check("lockwood index add user", false);
        check("lockwood schema register user.json --subject user --json -n x", true);
        check("lockwood schema check - --subject user", true);
        check("lockwood schema list --deleted", true);
        check("lockwood schema show user 2", true);
        check("lockwood schema show user 0", false);
        check("lockwood schema show user 2 --versions", false);
        check("lockwood schema diff user 1 2", true);
        check("lockwood schema delete user --permanent", true);
        check("lockwood schema settings --level full", true);
        check("lockwood schema", false);
        check("lockwood shard map --json", true);
        check("lockwood shard config --list shards.json --curr jump --prev hash", true);
        check("lockwood shard config --no-prev --force", true);
        check("lockwood shard config --force", false);
        check("lockwood shard config --no-prev --prev hash", false);
        check("lockwood shard select line/order:42", true);
        check("lockwood shard eselect r line/1 --json -n x", true);
        check("lockwood shard eselect w line/1", false);
        check("lockwood shard insert user/1 {} --user me --token 5 --wait 1s", true);
        check("lockwood shard replace user/1 {}", true);
        check("lockwood shard delete user/1", true);
        check("lockwood shard update user/1 -p n -5", true);
        check("lockwood shard update user/1 +p", false);
        check("lockwood shard call rw transfer account/7 8 -100", true);
        check("lockwood shard call transfer account/7", false);
        check("lockwood shard copy", true);
        check("lockwood shard cleanup --json", true);
        check("lockwood shard procedure put f f.luau", true);
        check("lockwood shard procedure", false);
        check("lockwood reshard --to map.json --throttle 1000 --detach", true);
        check("lockwood reshard", false);
        check("lockwood reshard status --json", true);
        check("lockwood reshard throttle 500", true);
        check("lockwood reshard throttle none", true);
        check("lockwood reshard throttle 0", false);
        check("lockwood reshard --to map.json status", false);
        check("lockwood trim 720h", true);
        check("lockwood trim", false);
        check("lockwood trim 30d", true);
        check("lockwood purge user/42 user/43 --user me --note why --token 5 --wait 1s --json", true);
        check("lockwood purge / --yes --detach -n x", true);
        check("lockwood purge user/42/name", false);
        check("lockwood status --json", true);
        check("lockwood namespaces --server localhost:7117", true);
        check("lockwood collections -n shop --json", true);
        check("lockwood completion bash", true);
        check("lockwood completion tcsh", false);
        check("lockwood man pages", true);
        check("lockwood man", false);
    }
}
