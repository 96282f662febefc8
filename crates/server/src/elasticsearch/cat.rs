//! Which indexes there are, as a table or a list. Knows nothing of what is in an index.

use super::{
    Asked, Elasticsearch,
    answer::{self, Answer, Object, Refusal, list, ok, quoted},
    place::{Cursor, Looker, Place},
    query::Query,
    request::Params,
    route::Scope,
    search::SHARDS,
    several::Address,
};
use std::{cmp::Ordering, collections::BTreeMap, fmt::Write};

/// A column of a list of indexes, and whether it has numbers, which stand at the right.
type Column = (&'static str, bool);

const COLUMNS: [Column; 10] = [
    ("health", false),
    ("status", false),
    ("index", false),
    ("uuid", false),
    ("pri", true),
    ("rep", true),
    ("docs.count", true),
    ("docs.deleted", true),
    ("store.size", true),
    ("pri.store.size", true),
];

/// Parameters of a list of indexes that would change it, and are not understood here.
const UNSUPPORTED: [&str; 3] = ["health", "pri", "help"];

impl Elasticsearch {
    pub(super) async fn cat_indices(&self, scope: &Scope, asked: &Asked) -> Result<Answer, Refusal> {
        if let Some(name) = UNSUPPORTED.into_iter().find(|name| asked.params.get(name).is_some()) {
            return Err(Refusal::argument(format!("the parameter [{name}] is not supported")));
        }
        let columns = columns(&asked.params)?;
        let order = order(&asked.params)?;
        let has_head = asked.params.flag("v")?.unwrap_or(false);
        let address = Address::read(self.limits(), scope, &asked.params)?;
        let counts = self.look(move |looker| count(looker, address)).await?;
        let health = self.status();
        let mut rows: Vec<Row> =
            counts.into_iter().map(|(index, documents)| row(index, documents, health)).collect();
        rows.sort_by(|one, other| {
            order.iter().fold(Ordering::Equal, |so_far, by| so_far.then(by.compare(one, other)))
        });
        if is_json(asked) {
            let rows = rows.iter().map(|row| as_object(row, &columns));
            return Ok(ok(list(rows)));
        }
        Ok(answer::text(as_table(&rows, &columns, has_head)))
    }
}

/// How many documents each index has, its locks among them.
fn count(looker: Looker<'_>, address: Address) -> Result<BTreeMap<String, u64>, Refusal> {
    let meant = address.find(looker)?;
    let mut counts: BTreeMap<String, u64> = meant.indexes.iter().map(|index| (index.clone(), 0)).collect();
    let place = Place::open(looker, meant)?;
    place.visit(looker, &Query::All, Cursor::default(), &mut |hit| {
        if let Some(count) = counts.get_mut(&hit.stage.index) {
            *count += 1;
        }
        true
    })?;
    Ok(counts)
}

/// The values of an index by their columns; none for what is not known of one index alone.
type Row = BTreeMap<&'static str, Option<String>>;

fn row(index: String, documents: u64, health: &str) -> Row {
    BTreeMap::from([
        ("health", Some(health.to_owned())),
        ("status", Some("open".to_owned())),
        ("index", Some(index)),
        ("uuid", Some("_na_".to_owned())),
        ("pri", Some(SHARDS.to_string())),
        ("rep", Some("0".to_owned())),
        ("docs.count", Some(documents.to_string())),
        ("docs.deleted", Some("0".to_owned())),
        ("store.size", None),
        ("pri.store.size", None),
    ])
}

/// The columns that are wanted, in that order.
fn columns(params: &Params) -> Result<Vec<Column>, Refusal> {
    let Some(wanted) = params.get("h") else { return Ok(COLUMNS.to_vec()) };
    wanted.split(',').map(column).collect()
}

fn column(name: &str) -> Result<Column, Refusal> {
    COLUMNS.into_iter().find(|(known, _)| *known == name).ok_or_else(|| {
        let known = COLUMNS.map(|(name, _)| name).join(", ");
        Refusal::argument(format!("there is no column [{name}]; there are {known}"))
    })
}

/// A column that rows are sorted by.
struct SortBy {
    column: Column,
    descending: bool,
}

/// What `s` says: `docs.count:desc,index`.
fn order(params: &Params) -> Result<Vec<SortBy>, Refusal> {
    let read = |text: &str| {
        let (name, direction) = text.split_once(':').unwrap_or((text, "asc"));
        let descending = match direction {
            "asc" => false,
            "desc" => true,
            other => {
                return Err(Refusal::argument(format!(
                    "[s] sorts asc or desc; found [{other}] for [{name}]"
                )));
            }
        };
        Ok(SortBy { column: column(name)?, descending })
    };
    params.get("s").into_iter().flat_map(|text| text.split(',')).map(read).collect()
}

impl SortBy {
    fn compare(&self, one: &Row, other: &Row) -> Ordering {
        let (name, is_number) = self.column;
        let value = |row: &Row| {
            let text = row.get(name).cloned().flatten().unwrap_or_default();
            let number: u64 = if is_number { text.parse().unwrap_or(0) } else { 0 };
            (number, text)
        };
        let ordering = value(one).cmp(&value(other));
        if self.descending { ordering.reverse() } else { ordering }
    }
}

/// Tables are for people, unless a client takes JSON only.
fn is_json(asked: &Asked) -> bool {
    match asked.params.get("format") {
        Some(format) => format == "json",
        None => asked.accept.contains("json") && !asked.accept.contains("text/plain"),
    }
}

fn as_object(row: &Row, columns: &[Column]) -> String {
    let add = |object: Object, (name, _): &Column| {
        let value = row.get(name).and_then(Option::as_deref).map_or_else(|| "null".to_owned(), quoted);
        object.raw(name, &value)
    };
    columns.iter().fold(Object::new(), add).done()
}

fn as_table(rows: &[Row], columns: &[Column], has_head: bool) -> String {
    let value = |row: &Row, name: &str| row.get(name).cloned().flatten().unwrap_or_default();
    let mut lines: Vec<Vec<String>> = Vec::new();
    if has_head {
        lines.push(columns.iter().map(|(name, _)| (*name).to_owned()).collect());
    }
    lines.extend(rows.iter().map(|row| columns.iter().map(|(name, _)| value(row, name)).collect()));
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut table = String::new();
    for line in &lines {
        for (column, cell) in line.iter().enumerate() {
            let (gap, width) = (if column == 0 { "" } else { " " }, widths[column]);
            let written = match columns[column] {
                (_, true) => write!(table, "{gap}{cell:>width$}"),
                (_, false) => write!(table, "{gap}{cell:<width$}"),
            };
            written.expect("memory takes everything");
        }
        table.push('\n');
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_lists() {
        let rows = [row("fs".to_owned(), 12, "green"), row("other".to_owned(), 3, "green")];
        let params = Params::read(Some("h=index,docs.count,store.size")).unwrap();
        let columns = columns(&params).unwrap();
        assert_eq!(
            as_table(&rows, &columns, true),
            "index docs.count store.size\nfs            12           \nother          3           \n"
        );
        assert_eq!(as_table(&rows[..1], &columns[..2], false), "fs 12\n");
        assert_eq!(as_object(&rows[0], &columns), r#"{"index":"fs","docs.count":"12","store.size":null}"#);
        assert!(super::columns(&Params::read(Some("h=x")).unwrap()).is_err());
    }

    #[test]
    fn numbers_are_sorted_as_numbers() {
        let rows = [row("a".to_owned(), 9, "green"), row("b".to_owned(), 10, "green")];
        let compare = |query: &str| {
            let order = order(&Params::read(Some(query)).unwrap()).unwrap();
            order[0].compare(&rows[0], &rows[1])
        };
        assert_eq!(compare("s=docs.count"), Ordering::Less);
        assert_eq!(compare("s=docs.count:desc"), Ordering::Greater);
        assert_eq!(compare("s=index:asc"), Ordering::Less);
        assert_eq!(compare("s=rep"), Ordering::Equal);
        for wrong in ["s=x", "s=index:up", "s="] {
            assert!(order(&Params::read(Some(wrong)).unwrap()).is_err(), "{wrong}");
        }
    }
}
