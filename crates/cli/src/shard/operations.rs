//! `lockwood shard select`, `eselect`, `insert`, `replace`, `delete`, `update` and `call`: one key each, on whatever
//! shard it is.

use super::{Common, Shown, Writing, document};
use crate::{
    documents::{parse_document, read_fields},
    exit::{self, Failure},
    output,
};
use clap::builder::NonEmptyStringValueParser;
use lockwood_client::{
    DocumentKey, ShardMode,
    shard_wire::ShardDocument,
    wire::{Fields, WireValue},
};

/// Which document.
#[derive(clap::Args)]
struct At {
    /// Which document
    #[arg(value_name = "COLLECTION/KEY", value_parser = parse_document)]
    document: DocumentKey,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Mode {
    /// A follower may answer
    #[value(alias = "r")]
    Ro,
    /// Only the owner
    Rw,
}

impl From<Mode> for ShardMode {
    fn from(mode: Mode) -> ShardMode {
        match mode {
            Mode::Ro => ShardMode::Ro,
            Mode::Rw => ShardMode::Rw,
        }
    }
}

/// Show a document; a follower may answer
#[derive(clap::Args)]
pub(super) struct Select {
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    common: Common,
}

pub(super) async fn select(args: &Select) -> Shown {
    let answer = args.common.shards().select(&args.at.document).await;
    shown(&args.at, &answer.map_err(|error| Failure::from(&error))?, &args.common)
}

/// Show a document, if need be from the owner
#[derive(clap::Args)]
pub(super) struct Eselect {
    /// Who may answer
    mode: Mode,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    common: Common,
}

pub(super) async fn eselect(args: &Eselect) -> Shown {
    let answer = args.common.shards().eselect(args.mode.into(), &args.at.document).await;
    shown(&args.at, &answer.map_err(|error| Failure::from(&error))?, &args.common)
}

/// Create a document; refused if there is one
#[derive(clap::Args)]
pub(super) struct Store {
    #[command(flatten)]
    at: At,
    /// All its fields as a JSON object; - for standard input
    #[arg(value_name = "JSON", default_value = "-")]
    fields: String,
    #[command(flatten)]
    writing: Writing,
    #[command(flatten)]
    common: Common,
}

impl Store {
    fn fields(&self) -> Result<Fields, Failure> {
        read_fields(&self.fields)
    }
}

pub(super) async fn insert(args: &Store) -> Shown {
    let options = args.writing.options(&args.common);
    let answer = args.common.shards().insert(&args.at.document, &args.fields()?, &options).await;
    shown(&args.at, &answer.map_err(|error| Failure::from(&error))?, &args.common)
}

/// Make a document exactly what is given, be it there or not
#[derive(clap::Args)]
pub(super) struct Replace {
    #[command(flatten)]
    store: Store,
}

pub(super) async fn replace(Replace { store: args }: &Replace) -> Shown {
    let options = args.writing.options(&args.common);
    let answer = args.common.shards().replace(&args.at.document, &args.fields()?, &options).await;
    shown(&args.at, &answer.map_err(|error| Failure::from(&error))?, &args.common)
}

/// Delete a document and show what it was
#[derive(clap::Args)]
pub(super) struct Delete {
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    writing: Writing,
    #[command(flatten)]
    common: Common,
}

pub(super) async fn delete(args: &Delete) -> Shown {
    let options = args.writing.options(&args.common);
    let answer = args.common.shards().delete(&args.at.document, &options).await;
    let answer = answer.map_err(|error| Failure::from(&error))?;
    if answer.document.is_none() && !args.common.json {
        return Ok(format!("there is no document {}\n", args.at.document));
    }
    Ok(document(&answer, &args.common))
}

const UPDATE_HELP: &str = "\
The format has two characters for each operation, and each operation a field and a value:
  =p   set the field; null removes it         +p -p      add, subtract a number
  !p   insert a field that is not there       &p |p ^p   and, or, exclusive or of whole numbers
  #p   remove a field; the value is ignored   :p         splice text: [offset, length, \"new\"]
Values are JSON; text needs its quotes.

Examples:
  lockwood shard update user/42 +p visits 1
  lockwood shard update user/42 '=p:p' name '\"Ann\"' city '[0, 1, \"U\"]'";

/// Change a document by operations and show what it has become
#[derive(clap::Args)]
#[command(after_help = UPDATE_HELP)]
pub(super) struct Update {
    #[command(flatten)]
    at: At,
    /// The operations
    #[arg(allow_hyphen_values = true)]
    format: String,
    /// For each operation a field and a value
    #[arg(value_name = "FIELD VALUE", required = true, allow_negative_numbers = true)]
    arguments: Vec<String>,
    #[command(flatten)]
    writing: Writing,
    #[command(flatten)]
    common: Common,
}

pub(super) async fn update(args: &Update) -> Shown {
    let options = args.writing.options(&args.common);
    let arguments = arguments(&args.arguments, |index| index % 2 == 0)?;
    let answer = args.common.shards().update(&args.at.document, &args.format, &arguments, &options).await;
    shown(&args.at, &answer.map_err(|error| Failure::from(&error))?, &args.common)
}

/// Call a procedure at the shard of a key
#[derive(clap::Args)]
pub(super) struct Call {
    /// Whether it may write (rw), or only reads (ro)
    mode: Mode,
    /// Its name
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    procedure: String,
    #[command(flatten)]
    at: At,
    /// What it is called with, as JSON; text needs its quotes
    #[arg(value_name = "JSON", allow_negative_numbers = true)]
    arguments: Vec<String>,
    #[command(flatten)]
    writing: Writing,
    #[command(flatten)]
    common: Common,
}

pub(super) async fn call(args: &Call) -> Shown {
    let options = args.writing.options(&args.common);
    let arguments = arguments(&args.arguments, |_| false)?;
    let shards = args.common.shards();
    let answer =
        shards.call(args.mode.into(), &args.procedure, &args.at.document, &arguments, &options).await;
    let answer = answer.map_err(|error| Failure::from(&error))?;
    Ok(match args.common.json {
        true => output::json_line(&answer),
        false => output::pretty(answer.answer.as_str()) + "\n",
    })
}

/// Arguments as JSON; those at some places are names and need no quotes.
fn arguments(given: &[String], is_name: impl Fn(usize) -> bool) -> Result<Vec<WireValue>, Failure> {
    let read = |(index, text): (usize, &String)| {
        if is_name(index) {
            return Ok(WireValue::from(&serde_json::Value::from(text.as_str())));
        }
        WireValue::from_text(text.clone()).map_err(|_| {
            exit::bad_data(format!("{text:?} is not JSON; text is written with its quotes, '\"{text}\"'"))
        })
    };
    given.iter().enumerate().map(read).collect()
}

/// A document that should be there.
fn shown(at: &At, answer: &ShardDocument, common: &Common) -> Shown {
    if answer.document.is_some() {
        return Ok(document(answer, common));
    }
    if common.json {
        output::write(&document(answer, common)).map_err(|error| exit::bad_data(error.to_string()))?;
    }
    let message = format!("there is no document {}", at.document);
    Err(Failure::new(exit::NO_DOCUMENT, message))
}
