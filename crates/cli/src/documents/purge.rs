//! `lockwood purge`: takes documents, a collection or a namespace away for good.

use super::{Target, Write, exit_codes, not_written, progress::Progress};
use crate::{
    exit::{Failure, USAGE},
    output,
};
use lockwood_client::{Admin, DocumentKey, Path, PathError, text, wire};
use std::{
    io::{IsTerminal, Write as _},
    process::ExitCode,
    time::Duration,
};

const AFTER_HELP: &str = concat!(
    "\
What is purged is gone: from the documents, the indexes, the history, the feed, later dumps and backups, and the server's
files. Reads as of an earlier position do not show it either. What stays is a record that something was purged: when, by
whom and why, of which collection or namespace, and how many documents; not which ones. `lockwood delete` only hides.

Backups and dumps that were made before still have it. Disks may keep the bytes of files that were removed.

A collection, user, or the whole namespace, /, has to be confirmed: with --yes, or by typing its name. Its indexes,
schemas and procedures go with it. Nobody else may hold a lock on any of it; the error says who does.

It ends when nothing is left in the files. That takes as long as writing the whole store anew; others are served
meanwhile. If this command or the server ends before, the server completes it, at its next start if need be. Without a
PATH the purges that are not complete are listed.

",
    exit_codes!(),
    "
Examples:
  lockwood purge user/42 --user ann --note 'asked for it'
  lockwood purge user/42 user/43
  lockwood purge user --yes
  lockwood purge / --namespace staging --yes
  lockwood purge"
);

/// How often to ask whether it is complete.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Take documents, a collection or the namespace away for good
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Documents of one collection, a collection, or / for the whole namespace
    #[arg(value_name = "PATH", value_parser = parse_path)]
    paths: Vec<Path>,
    /// Purge a whole collection or namespace without asking
    #[arg(long)]
    yes: bool,
    /// Who purges; the record keeps it [default: the user of this terminal]
    #[arg(long)]
    user: Option<String>,
    /// Why; the record keeps it, so it should not say what is purged
    #[arg(long)]
    note: Option<String>,
    /// Do not wait until it is complete
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    write: Write,
}

/// `user/42`, `user` or `/`; a document is read as everywhere.
fn parse_path(text: &str) -> Result<Path, String> {
    let path: Path = text.parse().map_err(|error: PathError| match error {
        PathError::Nothing => {
            "nothing is given; a document is COLLECTION/KEY, and / is the whole namespace".to_owned()
        }
        error => error.to_string(),
    })?;
    if path.len() >= 2 {
        super::parse_document(text)?;
    }
    Ok(path)
}

/// What is to go.
#[derive(Debug, PartialEq)]
enum What {
    Documents { collection: String, keys: Vec<wire::WireKey> },
    Collection(String),
    Namespace,
}

impl What {
    fn of(paths: &[Path]) -> Result<What, Failure> {
        if let [path] = paths
            && path.len() < 2
        {
            return Ok(path
                .segments()
                .next()
                .map_or(What::Namespace, |name| What::Collection(name.to_owned())));
        }
        let documents = paths.iter().map(|path| super::parse_document(&path.to_string()));
        let documents = documents.collect::<Result<Vec<DocumentKey>, String>>().map_err(|_| {
            misused(
                "a collection or the whole namespace is purged alone; name it by itself, or documents only",
            )
        })?;
        let collection = documents.first().map(|at| at.collection.to_string()).unwrap_or_default();
        if documents.iter().any(|at| *at.collection != *collection) {
            return Err(misused(
                "the documents are in different collections; purge one collection after the other",
            ));
        }
        let keys = documents.into_iter().map(|at| wire::WireKey(at.key)).collect();
        Ok(What::Documents { collection, keys })
    }

    /// The name to confirm it by.
    fn name<'a>(&'a self, target: &'a Target) -> Option<&'a str> {
        match self {
            What::Documents { .. } => None,
            What::Collection(name) => Some(name),
            What::Namespace => Some(&target.namespace.name),
        }
    }
}

fn misused(message: &str) -> Failure {
    Failure::new(USAGE, message)
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let admin = Admin { address: args.write.target.server.address.clone() };
    if args.paths.is_empty() {
        return list(&admin, args.write.json).await;
    }
    let request = match request(&args) {
        Ok(request) => request,
        Err(failure) => return Ok(failure.report()),
    };
    let begun = match args.write.store().purge(&request).await {
        Ok(begun) => begun,
        Err(error) => return Ok(not_written(&error).report()),
    };
    if !args.detach
        && let Err(failure) = wait(&admin, begun.purge).await
    {
        return Ok(failure.report());
    }
    if args.write.json {
        return output::print(&output::json_line(&begun));
    }
    let what = describe(&begun.purged);
    let state = match args.detach {
        true => "the server's files follow; `lockwood purge` shows how far that is",
        false => "nothing of it is left in the server's files",
    };
    output::print(&format!("{what} purged at position {}; {state}\n{}\n", begun.position, begun.not_reached))
}

fn request(args: &Args) -> Result<wire::PurgeRequest, Failure> {
    let what = What::of(&args.paths)?;
    let confirm = what.name(&args.write.target).map(|name| confirm(&what, name, args.yes)).transpose()?;
    let environment = || ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let user = args.user.clone().or_else(environment).filter(|user| !user.is_empty());
    let user = user.ok_or_else(|| misused("say who purges, for the record: --user NAME"))?;
    let value = |text: String| wire::WireValue::from(&serde_json::Value::from(text));
    let terms = args.write.terms();
    let (collection, keys) = match what {
        What::Documents { collection, keys } => (Some(collection), Some(keys)),
        What::Collection(name) => (Some(name), None),
        What::Namespace => (None, None),
    };
    Ok(wire::PurgeRequest {
        collection,
        keys,
        confirm,
        user: Some(value(user)),
        note: args.note.clone().map(value),
        tokens: terms.tokens,
        wait_ms: terms.wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
    })
}

/// The name of what goes as a whole, if that is meant.
fn confirm(what: &What, name: &str, yes: bool) -> Result<String, Failure> {
    if yes {
        return Ok(name.to_owned());
    }
    let kind = if *what == What::Namespace { "namespace" } else { "collection" };
    let shown = text::plain(name);
    if !std::io::stdin().is_terminal() {
        return Err(misused(&format!(
            "all of the {kind} {shown} would be gone for good; confirm it with --yes"
        )));
    }
    eprint!("All of the {kind} {shown} will be gone for good. Type its name to go on: ");
    let mut typed = String::new();
    let read = std::io::stderr().flush().and_then(|()| std::io::stdin().read_line(&mut typed));
    match read.is_ok() && typed.trim_end_matches(['\r', '\n']) == name {
        true => Ok(name.to_owned()),
        false => Err(misused("that is not its name; nothing was purged")),
    }
}

/// Waits until nothing is left, and shows what is done meanwhile.
async fn wait(admin: &Admin, purge: u64) -> Result<(), Failure> {
    let progress = Progress::of_steps("purge");
    loop {
        let list = admin.purges().await.map_err(|error| {
            let mut failure = Failure::from(&error);
            failure.message +=
                "\nthe purge is on record and will be completed; `lockwood purge` shows how far it is";
            failure
        })?;
        let Some(info) = list.purges.into_iter().find(|info| info.purge == purge) else { break };
        progress.say(step(&info));
        tokio::time::sleep(ASK_EVERY).await;
    }
    progress.end();
    Ok(())
}

async fn list(admin: &Admin, json: bool) -> anyhow::Result<ExitCode> {
    match admin.purges().await {
        Err(error) => Ok(Failure::from(&error).report()),
        Ok(list) if json => output::print(&output::json_line(&list.purges)),
        Ok(list) if list.purges.is_empty() => output::print("every purge is complete\n"),
        Ok(list) => {
            let line = |info: &wire::PurgeInfo| {
                let (namespace, what) = (text::plain(&info.namespace), describe(&info.purged));
                format!("{}  {namespace}  {what}  {}\n", info.purge, step(info))
            };
            output::print(&list.purges.iter().map(line).collect::<String>())
        }
    }
}

fn step(info: &wire::PurgeInfo) -> String {
    let step = info.step.describe();
    match (info.done, info.of) {
        (Some(done), Some(of)) => format!("{step}, {done} of {of} records"),
        (Some(done), None) => format!("{step}, {done} so far"),
        _ => step.to_owned(),
    }
}

/// What was purged, in a few words.
pub(super) fn describe(purged: &wire::PurgedInfo) -> String {
    match (&purged.collection, purged.documents) {
        (Some(collection), Some(1)) => format!("1 document of {}", text::plain(collection)),
        (Some(collection), Some(count)) => format!("{count} documents of {}", text::plain(collection)),
        (Some(collection), None) => format!("collection {}", text::plain(collection)),
        (None, _) => "the namespace".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(paths: &[&str]) -> Result<What, String> {
        let paths = paths.iter().map(|path| parse_path(path)).collect::<Result<Vec<_>, _>>()?;
        What::of(&paths).map_err(|failure| failure.message)
    }

    #[test]
    fn documents_of_one_collection_or_one_whole_thing_are_purged() {
        let keys = |keys: &[&str]| keys.iter().map(|key| wire::WireKey(key.parse().unwrap())).collect();
        let documents = What::Documents { collection: "user".into(), keys: keys(&["42", "a:1"]) };
        assert_eq!(what(&["user/42", "/user/a:1"]), Ok(documents));
        assert_eq!(what(&["user"]), Ok(What::Collection("user".into())));
        assert_eq!(what(&["/"]), Ok(What::Namespace));
        for refused in
            [&["user/42/name"][..], &[""], &["user", "order"], &["user/1", "order/1"], &["user/1", "/"]]
        {
            assert!(what(refused).is_err(), "{refused:?}");
        }
    }
}
