//! The commands about documents, one module each, and what their command lines have in common.

pub(crate) mod count;
pub(crate) mod delete;
pub(crate) mod dump;
pub(crate) mod filter;
pub(crate) mod get;
pub(crate) mod history;
pub(crate) mod index;
pub(crate) mod join;
pub(crate) mod load;
pub(crate) mod progress;
pub(crate) mod purge;
pub(crate) mod put;
pub(crate) mod restore;
pub(crate) mod set;
pub(crate) mod trim;
pub(crate) mod watch;
pub(crate) mod write;

use crate::{
    exit::{Failure, bad_data, read_file},
    output, surroundings,
    target::{Namespace, Server},
    wait::parse_span,
};
use lockwood_client::{
    AddressError, Code, DocumentKey, Error, FieldPath, Filter, NodeAddress, PathError, PutOptions,
    ReadOptions, Shards, Store, Terms, text, wire,
};
use lockwood_model::Json;
use std::{process::ExitCode, time::Duration};

/// Ends every help text about documents; a literal, so that examples can follow in the same text.
macro_rules! exit_codes {
    () => {
        "\
Exit codes:
  2   the command line is wrong
  65  the data is not what it should be: no JSON, or a dump that broke off
  66  there is no such document, or no such node in it
  69  no server answers, or it does not work now
  70  the server refused the request
  73  there is such a document already
  75  others have locked it, and the wait is over
  76  the lock whose token was shown is over, and nothing was done: take it anew and read again
  77  what was read has changed since: read it again and try again
"
    };
}
use exit_codes;

/// Which server, and which namespace of it.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Target {
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    namespace: Namespace,
}

impl Target {
    pub(crate) fn shards(&self) -> Shards {
        Shards::new(self.server.address.as_str(), &self.namespace.name)
    }

    fn store(&self) -> Store {
        Store::new(&self.server.address, &self.namespace.name)
    }
}

/// Whether deleted documents are seen.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum Deleted {
    /// Only documents that are not deleted
    #[default]
    Without,
    /// Only deleted documents
    Only,
    /// Both
    With,
}

impl From<Deleted> for wire::Deleted {
    fn from(deleted: Deleted) -> wire::Deleted {
        match deleted {
            Deleted::Without => wire::Deleted::Without,
            Deleted::Only => wire::Deleted::Only,
            Deleted::With => wire::Deleted::With,
        }
    }
}

/// Who writes, why, and on what condition.
#[derive(clap::Args, Debug, Clone)]
struct Writer {
    /// Only if the document has not changed since this position, as `get --json` shows it
    #[arg(long, value_name = "POSITION")]
    position: Option<u64>,
    /// Who writes; the history keeps it
    #[arg(long)]
    user: Option<String>,
    /// Why; the history keeps it
    #[arg(long)]
    note: Option<String>,
}

/// Where a write goes, which locks it respects, and how its answer is printed.
#[derive(clap::Args, Debug, Clone)]
struct Write {
    #[command(flatten)]
    holding: Holding,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl Write {
    fn store(&self) -> Store {
        self.target.store()
    }

    fn terms(&self) -> Terms {
        self.holding.terms(&self.target)
    }

    /// Prints what came of it; `done` says what was done.
    fn report(&self, written: Result<wire::Written, Error>, done: &str) -> anyhow::Result<ExitCode> {
        match written {
            Ok(written) => print_written(&written, self.json, done),
            Err(error) => Ok(not_written(&error).report()),
        }
    }
}

/// How a read stands to locks.
#[derive(clap::Args, Debug, Clone)]
struct Reader {
    /// Whether others' locks are waited for [default: as the collection or the namespace is set, usually snapshot]
    #[arg(long, value_enum)]
    isolation: Option<Isolation>,
    #[command(flatten)]
    holding: Holding,
}

impl Reader {
    fn options(&self, target: &Target) -> ReadOptions {
        let (isolation, terms) = (self.isolation.map(Into::into), self.holding.terms(target));
        ReadOptions { isolation, terms, ..ReadOptions::default() }
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Isolation {
    /// Show what is there, whoever has locks on it
    Snapshot,
    /// Wait until nobody else's lock is in the way of anything that is read
    Locked,
    /// Wait for each document by itself
    Document,
}

impl From<Isolation> for wire::Isolation {
    fn from(isolation: Isolation) -> wire::Isolation {
        match isolation {
            Isolation::Snapshot => wire::Isolation::Snapshot,
            Isolation::Locked => wire::Isolation::Locked,
            Isolation::Document => wire::Isolation::Document,
        }
    }
}

impl Writer {
    fn options(&self, terms: Terms) -> PutOptions {
        let Writer { position, user, note } = self.clone();
        PutOptions { only_if: None, position, user, note, terms }
    }
}

/// With which locks it is done, and how long it waits for those of others.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Holding {
    /// Your fencing token; the request is rejected if the lock has ended [default: that of `lockwood lock`, inside]
    #[arg(long = "token", value_name = "TOKEN")]
    tokens: Vec<u64>,
    /// How long to wait for the locks of others: 0, 500ms, 10s or 5m [default: the server's, usually 1s]
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    wait: Option<Duration>,
}

impl Holding {
    pub(crate) fn terms(&self, target: &Target) -> Terms {
        let tokens = match &self.tokens[..] {
            [] => surroundings::tokens(&target.server.address, &target.namespace.name),
            tokens => tokens.to_vec(),
        };
        Terms { tokens, wait: self.wait }
    }
}

/// Why a write was not done, and what to do about it.
fn not_written(error: &Error) -> Failure {
    let mut failure = Failure::from(error);
    if matches!(error.code(), Some(Code::Locked | Code::Timeout)) {
        failure.message += "\nwait longer with --wait, or, if the lock is yours, show its token with --token; \
                            `lockwood locks` shows who has what";
    }
    failure
}

/// `user/42` or `user/42/address/city`, read as locks read it.
fn parse_node(text: &str) -> Result<NodeAddress, String> {
    text.parse().map_err(|error: AddressError| match error {
        AddressError::Path(PathError::Nothing) => {
            "nothing is given; a document is COLLECTION/KEY, for example user/42".to_owned()
        }
        AddressError::Collection(ref collection) => {
            format!("{error}; `lockwood filter {collection}` lists a collection")
        }
        error => error.to_string(),
    })
}

/// The same for commands that are about whole documents.
pub(crate) fn parse_document(text: &str) -> Result<DocumentKey, String> {
    let NodeAddress { document, path } = parse_node(text)?;
    if path.is_empty() {
        return Ok(document);
    }
    Err(format!(
        "{path} is a node of the document {document}, and this is about whole documents; a slash inside a key is \
         written %2F"
    ))
}

/// A value, given as JSON or on standard input.
fn read_value(given: &str) -> Result<wire::WireValue, Failure> {
    let text = if given == "-" { read_file("-")? } else { given.to_owned() };
    wire::WireValue::from_text(text).map_err(|error| {
        let message = error.message;
        bad_data(format!("the value is not JSON (text needs quotes inside quotes, '\"Ulm\"'): {message}"))
    })
}

/// The fields that are asked for. What is no list of fields is for the server to refuse.
pub(crate) fn field_list(given: &[String]) -> Vec<String> {
    // Commas inside quotes are part of a name.
    match FieldPath::read_list(&given.join(",")) {
        Ok(paths) => paths.iter().map(ToString::to_string).collect(),
        Err(_) => given.to_vec(),
    }
}

/// What a table shows of a document under the path of a column.
pub(crate) fn cell(document: &wire::DocumentInfo, column: &str) -> String {
    let Ok(path) = column.parse::<FieldPath>() else { return String::new() };
    let Some(field) = document.value.get(path.root()) else { return String::new() };
    if path.is_top_level() {
        return text::value(field);
    }
    let field = Json::read(field.as_str(), JSON_DEPTH_MAX).ok();
    let found = field.as_ref().and_then(|field| path.find(field.as_str()));
    found.map(|found| text::value(&wire::WireValue::from(&Json::trusted(found)))).unwrap_or_default()
}

/// Deeper documents are not taken apart for tables.
const JSON_DEPTH_MAX: usize = 1000;

/// The fields of a document, given as JSON or on standard input.
pub(crate) fn read_fields(given: &str) -> Result<wire::Fields, Failure> {
    let text = if given == "-" { read_file("-")? } else { given.to_owned() };
    wire::read_body(text.as_bytes()).map_err(|error| {
        bad_data(format!("the fields are not a JSON object such as {{\"name\": \"Ann\"}}: {}", error.message))
    })
}

/// A filter in words or as JSON.
fn parse_filter(text: &str) -> Result<wire::WireFilter, String> {
    if text.trim_start().starts_with('{') {
        let value = wire::WireValue::from_text(text.to_owned()).map_err(|error| error.message)?;
        return Ok(wire::WireFilter(value));
    }
    text.parse::<Filter>().map(|filter| wire::WireFilter::from(&filter)).map_err(|error| error.to_string())
}

/// What a write did, for a person or for a program.
fn print_written(written: &wire::Written, json: bool, what: &str) -> anyhow::Result<ExitCode> {
    if json {
        return output::print(&output::json_line(written));
    }
    let positions = match &written.positions[..] {
        [] | [_] => format!("position {}", written.position),
        [first, .., last] => format!("positions {first} to {last}"),
    };
    let before = if written.replayed { " before; nothing was done again" } else { "" };
    output::print(&format!("{what} at {positions}{before}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_named_by_collection_and_key() {
        let check = |text: &str, shown: &str| assert_eq!(parse_document(text).unwrap().to_string(), shown);
        check("user/42", "user/42");
        check("/user/42", "user/42");
        check("order/a:1", "order/a:1");
        check("file/a%2Fb", "file/a%2Fb");
        for text in ["user", "user/", "/42", "user/a::b", "", "/", "user/42/name"] {
            assert!(parse_document(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nodes_are_named_like_locks() {
        let check = |text: &str, document: &str, path: &str| {
            let node = parse_node(text).unwrap();
            assert_eq!((node.document.to_string(), node.path.to_string()), (document.into(), path.into()));
        };
        check("user/42", "user/42", "/");
        check("/user/42/address/city", "user/42", "address/city");
        check("file/a%2Fb/c%2Fd", "file/a%2Fb", "c%2Fd");
        for text in ["user/", "user/42/", "user/42/a//b"] {
            assert!(parse_node(text).is_err(), "{text}");
        }
        assert!(parse_node("").unwrap_err().starts_with("nothing is given"));
        assert!(parse_node("user").unwrap_err().contains("user is a collection"));
    }

    #[test]
    fn filters_are_words_or_json() {
        let check = |text: &str, json: &str| assert_eq!(parse_filter(text).unwrap().0.as_str(), json);
        check("age >= 18", r#"{"field":"age","op":">=","value":18}"#);
        check(r#"{"and":[]}"#, r#"{"and":[]}"#);
        assert!(parse_filter("{\"and\"").is_err());
        assert_eq!(parse_filter("age == 18").unwrap_err(), "at column 5: write = instead of ==");
    }
}
