//! `lockwood filter`: the documents of a collection that match.

use super::{Deleted, Reader, Target, cell, exit_codes, field_list, parse_filter};
use crate::{
    collection::Collection,
    exit::Failure,
    output::{self, Table},
};
use lockwood_client::{
    FieldPath, text,
    wire::{DocumentInfo, FilterRequest, Sort, WireFilter},
};
use std::process::ExitCode;

/// Nobody wants to see more unless they say so.
const LIMIT_DEFAULT: u64 = 100;

macro_rules! expressions {
    () => {
        "\
A filter is written in words or as JSON:
  age >= 18 and (name ~= \"bob\" or not city = \"Bonn\") and email != null
  = != < <= > >=   numbers with numbers, text with text; = null is absent, != null is there
  ~=               equal but for case
  %=               like a pattern but for case: % is any text, _ any character
  and or not ()    not binds most, then and, then or
  address.zip      a member of an object in a field; a name with a dot in it is written \"zip.code\"
A field that is not there matches no comparison, not even !=.

"
    };
}
pub(super) use expressions;

const AFTER_HELP: &str = concat!(
    expressions!(),
    exit_codes!(),
    "
Examples:
  lockwood filter user
  lockwood filter user 'age >= 18 and name %= \"b%\"' --fields name,age --sort name,-age
  lockwood filter user 'address.zip %= \"53%\"' --fields name,address.zip --sort address.zip
  lockwood filter user 'meta_position > 7' --all --json"
);

/// List the documents of a collection that match
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Which collection
    collection: Collection,
    /// Which documents [default: all]
    #[arg(value_name = "FILTER", value_parser = parse_filter)]
    filter: Option<WireFilter>,
    /// Only these fields, or what is inside them: address.zip
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',')]
    fields: Vec<String>,
    /// By these fields; those with a - before them the greatest first [default: by key]
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',', allow_hyphen_values = true, value_parser = parse_sort)]
    sort: Vec<Sort>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = LIMIT_DEFAULT, conflicts_with = "all")]
    limit: u64,
    /// All of them
    #[arg(long)]
    all: bool,
    /// As they were at this position
    #[arg(long, value_name = "POSITION")]
    at: Option<u64>,
    /// Whether deleted documents are shown
    #[arg(long, value_enum, default_value_t)]
    deleted: Deleted,
    /// Print every document as a line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reader: Reader,
    #[command(flatten)]
    target: Target,
}

/// `age`, or `-age` for the greatest first.
fn parse_sort(text: &str) -> Result<Sort, String> {
    let (field, descending) = match text.strip_prefix('-') {
        Some(field) => (field, true),
        None => (text, false),
    };
    match field {
        "" => Err("write the names of fields, for example name,-age".into()),
        _ => Ok(Sort { field: field.to_owned(), descending }),
    }
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut left = if args.all { u64::MAX } else { args.limit };
    let mut pages = args.target.store().pages(request(&args));
    let mut table = Table::default();
    let mut shown = 0;
    while left > 0 {
        let mut page = match pages.next().await {
            Ok(Some(page)) => page,
            Ok(None) => break,
            Err(error) => return Ok(Failure::from(&error).report()),
        };
        page.documents.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        shown += page.documents.len();
        left -= page.documents.len() as u64;
        if !output::write(&show(&args, &mut table, &page.documents))? {
            return Ok(ExitCode::SUCCESS);
        }
        if left == 0 && page.next.is_some() && !args.json {
            eprintln!("there may be more; --all shows all, --limit N more of them");
        }
    }
    if shown == 0 && !args.json {
        return output::print(&format!("no documents that match in {}\n", text::plain(&args.collection)));
    }
    Ok(ExitCode::SUCCESS)
}

fn request(args: &Args) -> FilterRequest {
    let options = args.reader.options(&args.target);
    FilterRequest {
        collection: args.collection.to_string(),
        filter: args.filter.clone(),
        fields: (!args.fields.is_empty()).then(|| field_list(&args.fields)),
        sort: args.sort.clone(),
        limit: (!args.all).then_some(args.limit),
        cursor: None,
        deleted: args.deleted.into(),
        at: args.at,
        isolation: options.isolation,
        wait_ms: options.terms.wait_ms(),
        tokens: options.terms.tokens,
    }
}

fn show(args: &Args, table: &mut Table, documents: &[DocumentInfo]) -> String {
    if args.json {
        return documents.iter().map(output::json_line).collect();
    }
    if documents.is_empty() {
        return String::new();
    }
    let columns = columns(&field_list(&args.fields), documents);
    let header: Vec<String> =
        ["key", "position"].into_iter().map(str::to_owned).chain(columns.clone()).collect();
    let rows: Vec<Vec<String>> = documents.iter().map(|document| row(document, &columns)).collect();
    table.render(&header, &rows)
}

/// The fields to show: those asked for, or else all there are, in the order they come.
fn columns(asked: &[String], documents: &[DocumentInfo]) -> Vec<String> {
    if !asked.is_empty() {
        return asked.to_vec();
    }
    let mut columns: Vec<String> = Vec::new();
    for (name, _) in documents.iter().flat_map(|document| &document.value.0) {
        if !columns.contains(&FieldPath::name(name).to_string()) {
            columns.push(FieldPath::name(name).to_string());
        }
    }
    columns
}

fn row(document: &DocumentInfo, columns: &[String]) -> Vec<String> {
    let deleted = if document.deleted { " (deleted)" } else { "" };
    let mut row = vec![format!("{}{deleted}", document.key), document.position.to_string()];
    row.extend(columns.iter().map(|column| cell(document, column)));
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorting() {
        let sort = |field: &str, descending| Ok(Sort { field: field.into(), descending });
        assert_eq!(parse_sort("a"), sort("a", false));
        assert_eq!(parse_sort("-a"), sort("a", true));
        assert!(parse_sort("-").is_err() && parse_sort("").is_err());
    }

    #[test]
    fn documents_are_rows() {
        let documents: Vec<DocumentInfo> = serde_json::from_str(
            r#"[{"collection":"u","key":"1","position":5,"created":1,"deleted":false,"value":{"name":"Ann","l":[1,2]}},
                {"collection":"u","key":"a:2","position":17,"created":1,"deleted":true,"value":{"age":1.50,"name":"B\n"}}]"#,
        )
        .unwrap();
        let columns = columns(&[], &documents);
        assert_eq!(columns, ["name", "l", "age"]);
        assert_eq!(row(&documents[0], &columns), ["1", "5", "Ann", "[1,2]", ""]);
        assert_eq!(row(&documents[1], &columns), ["a:2 (deleted)", "17", "B\\n", "", "1.50"]);
        assert_eq!(super::columns(&["x".into()], &documents), ["x"]);
    }

    #[test]
    fn columns_lead_into_objects() {
        let document: DocumentInfo = serde_json::from_str(
            r#"{"collection":"u","key":"1","position":5,"created":1,"deleted":false,
                "value":{"a":{"b": {"c" : 1}, "d.e":"x"},"f.g":2}}"#,
        )
        .unwrap();
        let columns = ["a.b.c", "a.\"d.e\"", "\"f.g\"", "a.x", "f.g"].map(str::to_owned);
        assert_eq!(row(&document, &columns)[2..], ["1", "x", "2", "", ""]);
        assert_eq!(super::columns(&[], &[document]), ["a", "\"f.g\""]);
    }
}
