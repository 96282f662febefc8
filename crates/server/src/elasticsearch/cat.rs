//! What people and clients ask before they begin: how the server is, and which indexes there are. Knows nothing of what
//! is in an index.

use super::{
    Asked, Elasticsearch,
    answer::{self, Answer, Object, Refusal, list, ok, quoted},
    place::{Cursor, Looker, Place},
    query::Query,
    request::Params,
    route::Scope,
    search::SHARDS,
    several::Meant,
};
use hyper::StatusCode;
use std::{collections::BTreeMap, fmt::Write};

/// From bad to good.
const STATUSES: [&str; 3] = ["red", "yellow", "green"];

/// The columns of a list of indexes, and whether their values stand at the right.
const COLUMNS: [(&str, bool); 10] = [
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
const UNSUPPORTED: [&str; 4] = ["s", "health", "pri", "help"];

impl Elasticsearch {
    pub(super) fn health(&self, scope: &Scope, asked: &Asked) -> Result<Answer, Refusal> {
        if let Some(level) = asked.params.get("level").filter(|level| *level != "cluster") {
            return Err(Refusal::argument(format!("the level [{level}] is not supported; cluster is")));
        }
        let indexes = Meant::read(&self.0.shared, scope, &asked.params)?.indexes.len() as u64;
        let status = self.status();
        let is_reached = match asked.params.get("wait_for_status") {
            None => true,
            Some(wanted) => rank(status) >= Some(rank(wanted).ok_or_else(|| unknown_status(wanted))?),
        };
        let code = if is_reached { StatusCode::OK } else { StatusCode::REQUEST_TIMEOUT };
        Ok(answer::json(code, health(status, indexes * SHARDS, !is_reached)))
    }

    /// As far as it concerns those who want to write.
    fn status(&self) -> &'static str {
        let shared = &self.0.shared;
        match () {
            () if shared.is_poisoned() => "red",
            () if shared.is_draining() || !shared.grace.list().is_empty() => "yellow",
            () => "green",
        }
    }

    pub(super) async fn cat_indices(&self, scope: &Scope, asked: &Asked) -> Result<Answer, Refusal> {
        if let Some(name) = UNSUPPORTED.into_iter().find(|name| asked.params.get(name).is_some()) {
            return Err(Refusal::argument(format!("the parameter [{name}] is not supported")));
        }
        let columns = columns(&asked.params)?;
        let has_head = asked.params.flag("v")?.unwrap_or(false);
        let meant = Meant::read(&self.0.shared, scope, &asked.params)?;
        let counts = self.look(move |looker| count(looker, meant)).await?;
        let health = self.status();
        let rows: Vec<Row> =
            counts.into_iter().map(|(index, documents)| row(index, documents, health)).collect();
        if is_json(asked) {
            let rows = rows.iter().map(|row| as_object(row, &columns));
            return Ok(ok(list(rows)));
        }
        Ok(answer::text(as_table(&rows, &columns, has_head)))
    }
}

fn rank(status: &str) -> Option<usize> {
    STATUSES.iter().position(|known| *known == status)
}

fn unknown_status(status: &str) -> Refusal {
    Refusal::argument(format!("unknown cluster health status [{status}]"))
}

fn health(status: &str, shards: u64, timed_out: bool) -> String {
    Object::new()
        .text("cluster_name", "lockwood")
        .text("status", status)
        .flag("timed_out", timed_out)
        .number("number_of_nodes", 1)
        .number("number_of_data_nodes", 1)
        .number("active_primary_shards", shards)
        .number("active_shards", shards)
        .number("relocating_shards", 0)
        .number("initializing_shards", 0)
        .number("unassigned_shards", 0)
        .number("delayed_unassigned_shards", 0)
        .number("number_of_pending_tasks", 0)
        .number("number_of_in_flight_fetch", 0)
        .number("task_max_waiting_in_queue_millis", 0)
        .raw("active_shards_percent_as_number", "100.0")
        .done()
}

/// How many documents each index has, its locks among them.
fn count(looker: Looker<'_>, meant: Meant) -> Result<BTreeMap<String, u64>, Refusal> {
    let mut counts: BTreeMap<String, u64> = meant.indexes.iter().map(|index| (index.clone(), 0)).collect();
    let place = Place::open(looker.shared, meant)?;
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
fn columns(params: &Params) -> Result<Vec<(&'static str, bool)>, Refusal> {
    let Some(wanted) = params.get("h") else { return Ok(COLUMNS.to_vec()) };
    let find = |name: &str| {
        COLUMNS.into_iter().find(|(known, _)| *known == name).ok_or_else(|| {
            let known = COLUMNS.map(|(name, _)| name).join(", ");
            Refusal::argument(format!("there is no column [{name}]; there are {known}"))
        })
    };
    wanted.split(',').map(find).collect()
}

/// Tables are for people, unless a client takes JSON only.
fn is_json(asked: &Asked) -> bool {
    match asked.params.get("format") {
        Some(format) => format == "json",
        None => asked.accept.contains("json") && !asked.accept.contains("text/plain"),
    }
}

fn as_object(row: &Row, columns: &[(&'static str, bool)]) -> String {
    let add = |object: Object, (name, _): &(&'static str, bool)| {
        let value = row.get(name).and_then(Option::as_deref).map_or_else(|| "null".to_owned(), quoted);
        object.raw(name, &value)
    };
    columns.iter().fold(Object::new(), add).done()
}

fn as_table(rows: &[Row], columns: &[(&'static str, bool)], has_head: bool) -> String {
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
    fn statuses_have_an_order() {
        assert!(rank("green") > rank("yellow") && rank("yellow") > rank("red"));
        assert_eq!(rank("blue"), None);
    }
}
