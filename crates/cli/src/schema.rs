//! `lockwood schema`: the schemas that collections are held to. Knows nothing of how they are compared.

use crate::{
    collection::Collection,
    exit::{self, Failure},
    output::{self, Table},
    target::{Namespace, Server},
};
use lockwood_client::{Code, Error, Refusal, Schemas, text};
use lockwood_wire::{SchemaCheck, SchemaRegistered, SettingsAnswer, SettingsRequest};
use std::{path::Path, process::ExitCode};

const AFTER_HELP: &str = "\
A collection with a schema takes only documents that fit it, and no read, filter or write that names a field the \
schema does not know. Versions must go with earlier ones, as the level says. Fields with \"x-lockwood-index\": true \
have an index.

Exit codes:
  2   the command line is wrong
  65  the file cannot be read, or is no schema
  66  there is no such subject or version
  69  no server answers, or it does not work now
  70  the server refused the request
  78  the schema does not go with earlier versions; the reasons are printed

Examples:
  lockwood schema register user.json             for the collection user
  lockwood schema register v2.json --subject user
  lockwood schema check user.json                could it be registered?
  lockwood schema list
  lockwood schema show user
  lockwood schema show user 1
  lockwood schema diff user 1 2
  lockwood schema settings user --level full --policy lenient
  lockwood schema settings user --isolation locked
  lockwood schema delete user 1";

/// Register, list, compare and delete the schemas of collections
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    Register(File),
    Check(File),
    List(List),
    Show(Show),
    Diff(Diff),
    Delete(Delete),
    Settings(Settings),
}

/// Where the schemas are, and how they are shown.
#[derive(clap::Args)]
struct Common {
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    namespace: Namespace,
}

impl Common {
    fn schemas(&self) -> Schemas {
        Schemas::new(&self.server.address, &self.namespace.name)
    }
}

/// A schema in a file, for a collection
#[derive(clap::Args)]
struct File {
    /// The file with the JSON Schema; - is standard input
    file: String,
    /// The collection it is for [default: the name of the file without its ending]
    #[arg(long, value_name = "NAME")]
    subject: Option<Collection>,
    #[command(flatten)]
    common: Common,
}

impl File {
    fn subject(&self) -> Result<String, Failure> {
        if let Some(subject) = &self.subject {
            return Ok(subject.to_string());
        }
        let stem = Path::new(&self.file).file_stem().and_then(|stem| stem.to_str());
        match stem.filter(|_| self.file != "-") {
            Some(stem) => Ok(stem.to_owned()),
            None => Err(exit::bad_data("say which collection the schema is for: --subject NAME".to_owned())),
        }
    }
}

/// List the subjects with their latest versions
#[derive(clap::Args)]
struct List {
    /// Also those whose versions are all deleted
    #[arg(long)]
    deleted: bool,
    #[command(flatten)]
    common: Common,
}

/// Print a schema, or list the versions of a subject
#[derive(clap::Args)]
struct Show {
    /// Which collection
    subject: Collection,
    /// Which version [default: the latest]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    version: Option<u32>,
    /// List the versions instead, deleted ones included
    #[arg(long, conflicts_with = "version")]
    versions: bool,
    #[command(flatten)]
    common: Common,
}

/// Show what changed from one version to another
#[derive(clap::Args)]
struct Diff {
    /// Which collection
    subject: Collection,
    /// From this version [default: the one before]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    from: Option<u32>,
    /// To this version [default: the latest]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    to: Option<u32>,
    #[command(flatten)]
    common: Common,
}

/// Delete a version, or all of them
#[derive(clap::Args)]
struct Delete {
    /// Which collection
    subject: Collection,
    /// Which version [default: all]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    version: Option<u32>,
    /// For good; only what is deleted already
    #[arg(long)]
    permanent: bool,
    #[command(flatten)]
    common: Common,
}

/// Show or change how versions must go with earlier ones, and whether new ones are taken
#[derive(clap::Args)]
struct Settings {
    /// Which collection [default: all that say nothing themselves]
    subject: Option<Collection>,
    /// none, backward, forward or full, the last three also with _transitive; default takes back what was said
    #[arg(long)]
    level: Option<String>,
    /// strict or lenient; lenient lets optional fields be added to open models
    #[arg(long)]
    policy: Option<String>,
    /// readwrite or readonly
    #[arg(long)]
    mode: Option<String>,
    /// snapshot, locked or document: how reads of the collection stand to locks unless they say so themselves
    #[arg(long)]
    isolation: Option<String>,
    #[command(flatten)]
    common: Common,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let done = match args.action {
        Action::Register(args) => register(&args).await,
        Action::Check(args) => check(&args).await,
        Action::List(args) => list(&args).await,
        Action::Show(args) => show(&args).await,
        Action::Diff(args) => diff(&args).await,
        Action::Delete(args) => delete(&args).await,
        Action::Settings(args) => settings(&args).await,
    };
    match done {
        Ok(Shown { text, code }) => {
            output::write(&text)?;
            Ok(ExitCode::from(code))
        }
        Err(failure) => Ok(failure.report()),
    }
}

/// What is printed when a command did what it was to do.
struct Shown {
    text: String,
    code: u8,
}

impl From<String> for Shown {
    fn from(text: String) -> Shown {
        Shown { text, code: 0 }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "errors are mapped by value")]
fn failed(error: Error) -> Failure {
    Failure::from(&error)
}

async fn register(args: &File) -> Result<Shown, Failure> {
    let (subject, schema) = (args.subject()?, exit::read_file(&args.file)?);
    let registered = args.common.schemas().register(&subject, &schema).await.map_err(failed)?;
    if args.common.json {
        return Ok(output::json_line(&registered).into());
    }
    let SchemaRegistered { subject, version, id, new } = registered;
    let subject = text::plain(&subject);
    Ok(match new {
        true => format!("{subject} has version {version} (id {id})\n").into(),
        false => format!("{subject} has it already: version {version} (id {id})\n").into(),
    })
}

async fn check(args: &File) -> Result<Shown, Failure> {
    let (subject, schema) = (args.subject()?, exit::read_file(&args.file)?);
    let checked = args.common.schemas().check(&subject, &schema).await.map_err(failed)?;
    if args.common.json {
        let code = if checked.compatible { 0 } else { exit::INCOMPATIBLE };
        return Ok(Shown { text: output::json_line(&checked), code });
    }
    let SchemaCheck { compatible, level, policy, reasons } = checked;
    let subject = text::plain(&subject);
    if compatible {
        return Ok(format!("{subject}: compatible ({level}, {policy})\n").into());
    }
    let message = format!("the schema does not go with {subject} at level {level} ({policy})");
    let refusal = Refusal { reasons, ..Refusal::new(Code::SchemaIncompatible, message) };
    Err(failed(refusal.into()))
}

async fn list(args: &List) -> Result<Shown, Failure> {
    let subjects = args.common.schemas().subjects(args.deleted).await.map_err(failed)?.subjects;
    if args.common.json {
        return Ok(subjects.iter().map(output::json_line).collect::<String>().into());
    }
    if subjects.is_empty() {
        return Ok("no schemas\n".to_owned().into());
    }
    let header = ["subject", "version", "id", "level", "policy", "mode", "state"].map(str::to_owned);
    let row = |info: lockwood_wire::SubjectInfo| {
        let state = match (info.deleted, info.enforced) {
            (true, _) => "deleted",
            (false, true) => "enforced",
            (false, false) => "kept",
        };
        let (version, id) = (info.version.to_string(), info.id.to_string());
        vec![info.subject, version, id, info.level, info.policy, info.mode, state.to_owned()]
    };
    let rows: Vec<Vec<String>> = subjects.into_iter().map(row).collect();
    Ok(Table::default().render(&header, &rows).into())
}

async fn show(args: &Show) -> Result<Shown, Failure> {
    if args.versions {
        return versions(args).await;
    }
    let found = args.common.schemas().get(&args.subject, args.version).await.map_err(failed)?;
    if args.common.json {
        return Ok(output::json_line(&found).into());
    }
    Ok((output::pretty(found.schema.as_str()) + "\n").into())
}

async fn versions(args: &Show) -> Result<Shown, Failure> {
    let found = args.common.schemas().versions(&args.subject, true).await.map_err(failed)?;
    if args.common.json {
        return Ok(output::json_line(&found).into());
    }
    let header = ["version", "id", "state"].map(str::to_owned);
    let state = |deleted| if deleted { "deleted" } else { "" }.to_owned();
    let versions = found.versions.into_iter();
    let rows: Vec<Vec<String>> =
        versions.map(|one| vec![one.version.to_string(), one.id.to_string(), state(one.deleted)]).collect();
    Ok(Table::default().render(&header, &rows).into())
}

async fn diff(args: &Diff) -> Result<Shown, Failure> {
    let found = args.common.schemas().diff(&args.subject, args.from, args.to).await.map_err(failed)?;
    if args.common.json {
        return Ok(output::json_line(&found).into());
    }
    let mut out = format!("version {} → {}\n", found.from, found.to);
    if found.changes.is_empty() {
        out += "  no difference\n";
    }
    for change in &found.changes {
        let sign = match change.kind.as_str() {
            "added" => '+',
            "removed" => '-',
            _ => '~',
        };
        out += &format!("  {sign} {}: {}\n", text::plain(&change.path), text::plain(&change.text));
    }
    Ok(out.into())
}

async fn delete(args: &Delete) -> Result<Shown, Failure> {
    let deleted = args.common.schemas().delete(&args.subject, args.version, args.permanent).await;
    let deleted = deleted.map_err(failed)?;
    if args.common.json {
        return Ok(output::json_line(&deleted).into());
    }
    let numbers: Vec<String> = deleted.versions.iter().map(u32::to_string).collect();
    let good = if deleted.permanent { " for good" } else { "" };
    Ok(format!("deleted{good}: {} {}\n", text::plain(&deleted.subject), numbers.join(", ")).into())
}

async fn settings(args: &Settings) -> Result<Shown, Failure> {
    let schemas = args.common.schemas();
    let said = |text: &Option<String>| {
        text.as_ref().map(|text| Some(text.to_uppercase()).filter(|text| text != "DEFAULT"))
    };
    let request = SettingsRequest {
        level: said(&args.level),
        policy: said(&args.policy),
        mode: said(&args.mode),
        isolation: said(&args.isolation),
    };
    let answer = match request == SettingsRequest::default() {
        true => schemas.settings(args.subject.as_deref()).await,
        false => schemas.set(args.subject.as_deref(), &request).await,
    };
    let answer = answer.map_err(failed)?;
    if args.common.json {
        return Ok(output::json_line(&answer).into());
    }
    let SettingsAnswer { level, policy, mode, isolation, own, .. } = answer;
    let row = |name: &str, value: String| {
        let from = if own.iter().any(|own| own == name) { "set here" } else { "not set here" };
        vec![name.to_owned(), value, from.to_owned()]
    };
    let header = ["setting", "value", "from"].map(str::to_owned);
    let rows = [row("level", level), row("policy", policy), row("mode", mode), row("isolation", isolation)];
    Ok(Table::default().render(&header, &rows).into())
}
