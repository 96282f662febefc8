//! The commands about documents, one module each, and what their command lines have in common.

pub(crate) mod count;
pub(crate) mod delete;
pub(crate) mod dump;
pub(crate) mod filter;
pub(crate) mod get;
pub(crate) mod history;
pub(crate) mod index;
pub(crate) mod load;
mod progress;
pub(crate) mod put;
pub(crate) mod trim;
pub(crate) mod watch;
pub(crate) mod write;

use crate::{
    exit::read_file,
    output,
    target::{Namespace, Server},
};
use lockwood_client::{DocumentKey, Filter, PutOptions, Store, wire};
use std::process::ExitCode;

/// Ends every help text about documents; a literal, so that examples can follow in the same text.
macro_rules! exit_codes {
    () => {
        "\
Exit codes:
  2   the command line is wrong
  65  the data is not what it should be: no JSON, or a dump that broke off
  66  there is no such document
  69  no server answers, or it does not work now
  70  the server refused the request
  73  there is such a document already
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

impl Writer {
    fn options(&self) -> PutOptions {
        let Writer { position, user, note } = self.clone();
        PutOptions { only_if: None, position, user, note }
    }
}

/// `user/42`: everything up to the first slash is the collection.
fn parse_document(text: &str) -> Result<DocumentKey, String> {
    match text.split_once('/') {
        Some((collection, key)) if !collection.is_empty() => {
            Ok(DocumentKey::new(collection, key.parse().map_err(|error| format!("{error}"))?))
        }
        _ => Err("write collection and key, for example user/42 or order:item/7:1".to_owned()),
    }
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
        check("order/a:1", "order/a:1");
        check("file/a/b", "file/a/b");
        for text in ["user", "user/", "/42", "user/a::b", ""] {
            assert!(parse_document(text).is_err(), "{text}");
        }
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
