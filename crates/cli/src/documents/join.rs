//! `lockwood join`: two collections put together by the value of a field.

use super::{Reader, Target, cell, exit_codes, field_list, filter::expressions, parse_filter};
use crate::{
    collection::Collection,
    exit::Failure,
    output::{self, Table},
};
use lockwood_client::{
    FieldPath,
    wire::{DocumentInfo, JoinKind, JoinRequest, JoinRow, JoinSide, WireFilter},
};
use std::process::ExitCode;

/// Nobody wants to see more unless they say so.
const LIMIT_DEFAULT: u64 = 100;

const AFTER_HELP: &str = concat!(
    "\
Every document on the left is shown with every document on the right whose field has an equal value; 1 equals 1.0,
and documents without the field have no partner. Everything up to the first dot is the collection, what follows
leads into objects: order.shipping.zip.

",
    expressions!(),
    exit_codes!(),
    "
Examples:
  lockwood join order.customer user.id
  lockwood join order.customer user.id --left --where-left 'total > 100' --fields total,user.name
  lockwood join order.shipping.zip branch.address.zip --fields total,branch.address.city
  lockwood join order.customer user.id --isolation locked --all --json"
);

/// Show documents of two collections that have a value in common
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The collection on the left and its field
    #[arg(value_name = "COLLECTION.FIELD", value_parser = parse_side)]
    left_side: (Collection, String),
    /// The collection on the right and its field
    #[arg(value_name = "COLLECTION.FIELD", value_parser = parse_side)]
    right_side: (Collection, String),
    /// Also show documents on the left that have no partner
    #[arg(long)]
    left: bool,
    /// Which documents on the left [default: all]
    #[arg(long, value_name = "FILTER", value_parser = parse_filter)]
    where_left: Option<WireFilter>,
    /// Which documents on the right [default: all]
    #[arg(long, value_name = "FILTER", value_parser = parse_filter)]
    where_right: Option<WireFilter>,
    /// Only these fields: of the left, or with the collection before them
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',')]
    fields: Vec<String>,
    /// At most so many rows
    #[arg(long, value_name = "N", default_value_t = LIMIT_DEFAULT, conflicts_with = "all")]
    limit: u64,
    /// All of them
    #[arg(long)]
    all: bool,
    /// As they were at this position
    #[arg(long, value_name = "POSITION")]
    at: Option<u64>,
    /// Print every row as a line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reader: Reader,
    #[command(flatten)]
    target: Target,
}

/// `order.customer`: everything up to the first dot is the collection.
fn parse_side(text: &str) -> Result<(Collection, String), String> {
    match text.split_once('.') {
        Some((collection, field)) if !collection.is_empty() && !field.is_empty() => {
            Ok((collection.parse()?, field.to_owned()))
        }
        _ => Err("write collection and field, for example order.customer".to_owned()),
    }
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let store = args.target.store();
    let mut left = if args.all { u64::MAX } else { args.limit };
    let mut request = request(&args);
    let mut table = Table::default();
    let mut shown = 0;
    while left > 0 {
        let mut page = match store.join(&request).await {
            Ok(page) => page,
            Err(error) => return Ok(Failure::from(&error).report()),
        };
        page.rows.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        shown += page.rows.len();
        left -= page.rows.len() as u64;
        if !output::write(&show(&args, &request, &mut table, &page.rows))? {
            return Ok(ExitCode::SUCCESS);
        }
        if left == 0 && page.next.is_some() && !args.json {
            eprintln!("there may be more; --all shows all, --limit N more of them");
        }
        match page.next {
            Some(next) => request.cursor = Some(next),
            None => break,
        }
    }
    if shown == 0 && !args.json {
        return output::print("no documents that have a value in common\n");
    }
    Ok(ExitCode::SUCCESS)
}

fn request(args: &Args) -> JoinRequest {
    let (left, right) = (&args.left_side, &args.right_side);
    let (left_fields, right_fields) = split_fields(&args.fields, &left.0, &right.0);
    let side = |(collection, field): &(Collection, String), filter: &Option<WireFilter>, fields| JoinSide {
        collection: collection.to_string(),
        field: field.clone(),
        filter: filter.clone(),
        fields,
    };
    let options = args.reader.options(&args.target);
    JoinRequest {
        left: side(left, &args.where_left, left_fields),
        right: side(right, &args.where_right, right_fields),
        kind: if args.left { JoinKind::Left } else { JoinKind::Inner },
        limit: (!args.all).then_some(args.limit),
        cursor: None,
        at: args.at,
        isolation: options.isolation,
        wait_ms: options.terms.wait_ms(),
        tokens: options.terms.tokens,
    }
}

type Fields = Option<Vec<String>>;

/// The fields of each side; all of both if none are given.
fn split_fields(fields: &[String], left: &str, right: &str) -> (Fields, Fields) {
    if fields.is_empty() {
        return (None, None);
    }
    let (mut of_left, mut of_right) = (Vec::new(), Vec::new());
    for field in &field_list(fields) {
        match field.split_once('.') {
            Some((collection, name)) if collection == right && collection != left => {
                of_right.push(name.to_owned());
            }
            Some((collection, name)) if collection == left => of_left.push(name.to_owned()),
            _ => of_left.push(field.clone()),
        }
    }
    (Some(of_left), Some(of_right))
}

fn show(args: &Args, request: &JoinRequest, table: &mut Table, rows: &[JoinRow]) -> String {
    if args.json {
        return rows.iter().map(output::json_line).collect();
    }
    if rows.is_empty() {
        return String::new();
    }
    let left = columns(&request.left, rows.iter().map(|row| &row.left));
    let right = columns(&request.right, rows.iter().filter_map(|row| row.right.as_ref()));
    let titles = |side: &JoinSide, columns: &[String]| -> Vec<String> {
        let names = std::iter::once("key").chain(columns.iter().map(String::as_str));
        names.map(|name| format!("{}.{name}", side.collection)).collect()
    };
    let header = [titles(&request.left, &left), titles(&request.right, &right)].concat();
    let lines: Vec<Vec<String>> = rows
        .iter()
        .map(|row| [cells(Some(&row.left), &left), cells(row.right.as_ref(), &right)].concat())
        .collect();
    table.render(&header, &lines)
}

/// The fields to show: those asked for, or else all there are, in the order they come.
fn columns<'a>(side: &JoinSide, documents: impl Iterator<Item = &'a DocumentInfo>) -> Vec<String> {
    if let Some(fields) = &side.fields {
        return fields.clone();
    }
    let mut columns: Vec<String> = Vec::new();
    for (name, _) in documents.flat_map(|document| &document.value.0) {
        if !columns.contains(&FieldPath::name(name).to_string()) {
            columns.push(FieldPath::name(name).to_string());
        }
    }
    columns
}

fn cells(document: Option<&DocumentInfo>, columns: &[String]) -> Vec<String> {
    let Some(document) = document else { return vec![String::new(); columns.len() + 1] };
    let mut cells = vec![document.key.clone()];
    cells.extend(columns.iter().map(|column| cell(document, column)));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_a_collection_and_a_field() {
        let side = |collection: &str, field: &str| Ok((collection.parse().unwrap(), field.to_owned()));
        assert_eq!(parse_side("order.customer"), side("order", "customer"));
        assert_eq!(parse_side("/order.customer"), side("order", "customer"));
        assert_eq!(parse_side("a.b.c"), side("a", "b.c"));
        assert!(parse_side("order/42.x").is_err());
        assert!(parse_side("order").is_err() && parse_side(".x").is_err() && parse_side("x.").is_err());
    }

    #[test]
    fn fields_belong_to_a_side() {
        let names = ["total", "user.name", "order.id"].map(str::to_owned);
        let (left, right) = split_fields(&names, "order", "user");
        assert_eq!(left.unwrap(), ["total", "id"]);
        assert_eq!(right.unwrap(), ["name"]);
        assert_eq!(split_fields(&[], "order", "user"), (None, None));
    }
}
