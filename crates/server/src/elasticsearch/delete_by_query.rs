//! Deletes what a query finds, document by document: each only if it still is as it was found, so a lock that was released
//! and taken again meanwhile is left to its new holder. Knows nothing of how one document is deleted.

use super::{
    Asked, BULK_WIDTH, Elasticsearch, Facade,
    answer::{self, Answer, CONFLICT, Object, Refusal, list},
    change::{Expected, Order, Write},
    lock_document,
    place::{Cursor, Looker, Place, Target, TargetState},
    query::Query,
    request::{self, Params, part, unambiguous_members},
    route::Scope,
    several::Address,
};
use hyper::StatusCode;
use lockwood_node::limits::Limits;
use serde_json::Value;
use std::{sync::Arc, time::Instant};
use tokio::task::JoinSet;

/// How many documents are looked for at a time, without asking for more or less.
const BATCH: u64 = 1000;

/// Which documents are to be deleted.
#[derive(Debug, Clone)]
struct Deletion {
    query: Query,
    documents_max: u64,
    batch: u64,
    /// Go on when a document changed or is locked.
    proceeds: bool,
}

/// What a deletion may be given; after the first five, what does not change which documents go.
const PARAMS: [&str; 24] = [
    "conflicts",
    "max_docs",
    "scroll_size",
    "size",
    "wait_for_completion",
    "allow_no_indices",
    "error_trace",
    "expand_wildcards",
    "filter_path",
    "format",
    "human",
    "ignore_unavailable",
    "preference",
    "pretty",
    "refresh",
    "request_cache",
    "requests_per_second",
    "scroll",
    "search_timeout",
    "search_type",
    "slices",
    "stats",
    "timeout",
    "wait_for_active_shards",
];

impl Deletion {
    fn read(limits: &Limits, json: &str, params: &Params) -> Result<Deletion, Refusal> {
        params.only(&PARAMS)?;
        if params.flag("wait_for_completion")? == Some(false) {
            return Err(Refusal::argument("there are no tasks here; leave out wait_for_completion"));
        }
        let mut members = unambiguous_members("delete_by_query", json)?;
        let mut take = |name: &str| -> Result<Option<Value>, Refusal> {
            members.remove(name).map(|raw| part(name, raw.get())).transpose()
        };
        let query = take("query")?.ok_or_else(|| request::validation("query is missing"))?;
        let written = take("max_docs")?.or(take("size")?).map(|value| whole(&value)).transpose()?;
        let conflicts = take("conflicts")?.map(|value| value.as_str().unwrap_or_default().to_owned());
        if let Some(name) = members.keys().next() {
            let reason = format!(
                "[delete_by_query] unknown field [{name}]; query, max_docs and conflicts are supported"
            );
            return Err(Refusal::new(StatusCode::BAD_REQUEST, "parsing_exception", reason));
        }
        let documents_max = params.number("max_docs")?.or(params.number("size")?).or(written);
        let batch = params.number("scroll_size")?.unwrap_or(BATCH);
        if documents_max == Some(0) || batch == 0 {
            return Err(request::validation("[max_docs] and [scroll_size] are greater than 0"));
        }
        let conflicts = params.get("conflicts").map(str::to_owned).or(conflicts);
        Ok(Deletion {
            query: Query::read(&query, limits)?,
            documents_max: documents_max.unwrap_or(u64::MAX),
            batch: batch.min(limits.documents_per_page_max),
            proceeds: proceeds(conflicts.as_deref())?,
        })
    }

    /// The next documents from `start` on; all are counted if `count` is set.
    fn batch(
        &self,
        looker: Looker<'_>,
        place: &Place,
        start: Cursor,
        (size, count): (u64, bool),
    ) -> Result<Batch, Refusal> {
        let mut batch = Batch { targets: Vec::new(), seen: 0, next: start.clone() };
        place.visit(looker, &self.query, start, &mut |hit| {
            batch.seen += 1;
            if (batch.targets.len() as u64) < size {
                batch.targets.push(hit.target());
                batch.next = hit.cursor();
            }
            count || (batch.targets.len() as u64) < size
        })?;
        Ok(batch)
    }
}

fn whole(value: &Value) -> Result<u64, Refusal> {
    value.as_u64().ok_or_else(|| Refusal::parse("[max_docs] is a whole number, 1 or more"))
}

fn proceeds(conflicts: Option<&str>) -> Result<bool, Refusal> {
    match conflicts {
        None | Some("abort") => Ok(false),
        Some("proceed") => Ok(true),
        Some(other) => Err(Refusal::argument(format!(
            "conflicts may only be \"proceed\" or \"abort\" but was [{other}]"
        ))),
    }
}

struct Batch {
    targets: Vec<Target>,
    seen: u64,
    next: Cursor,
}

/// What came of it.
#[derive(Debug, Default)]
struct Report {
    total: u64,
    deleted: u64,
    batches: u64,
    conflicts: u64,
    failures: Vec<String>,
    /// That of the first failure.
    status: Option<StatusCode>,
}

impl Elasticsearch {
    pub(super) async fn delete_by_query(&self, scope: &Scope, asked: &Asked) -> Result<Answer, Refusal> {
        let began = Instant::now();
        let deletion =
            Arc::new(self.decode(asked, |reader, text| Deletion::read(reader.limits, text, &asked.params))?);
        let address = Address::read_named(self.limits(), scope, &asked.params)?;
        let place = Arc::new(self.look(move |looker| Place::open(looker, address.find(looker)?)).await?);
        let mut report = Report::default();
        let mut cursor = Cursor::default();
        let mut left = deletion.documents_max;
        while left > 0 && report.status.is_none() {
            let (is_first, size) = (report.batches == 0, deletion.batch.min(left));
            let (order, through) = (Arc::clone(&deletion), Arc::clone(&place));
            let batch =
                self.look(move |looker| order.batch(looker, &through, cursor, (size, is_first))).await?;
            if is_first {
                report.total = batch.seen.min(deletion.documents_max);
            }
            if batch.targets.is_empty() {
                break;
            }
            report.batches += 1;
            left -= batch.targets.len() as u64;
            cursor = batch.next;
            self.delete_all(batch.targets, &deletion, &mut report).await?;
        }
        self.settle(&place.indexes).await?;
        Ok(report.answer(began))
    }

    /// Deletes some at a time, until one cannot be.
    async fn delete_all(
        &self,
        targets: Vec<Target>,
        deletion: &Deletion,
        report: &mut Report,
    ) -> Result<(), Refusal> {
        let mut targets = targets.into_iter().peekable();
        while targets.peek().is_some() && report.status.is_none() {
            let mut width = JoinSet::new();
            for target in targets.by_ref().take(BULK_WIDTH) {
                let (facade, waits) = (Arc::clone(&self.0), !deletion.proceeds);
                width.spawn(async move {
                    let done = facade.delete_unchanged(&target, waits).await;
                    (target, done)
                });
            }
            while let Some(done) = width.join_next().await {
                let (target, done) = done.map_err(|error| {
                    tracing::error!(%error, "delete one of many");
                    Refusal::failed()
                })?;
                report.count(&target, done, deletion.proceeds);
            }
        }
        Ok(())
    }
}

impl Facade {
    /// Deletes a document that still is as it was found.
    async fn delete_unchanged(&self, target: &Target, waits: bool) -> Result<(), Refusal> {
        let at = &target.at;
        match &target.state {
            TargetState::Document(seq_no) => {
                let expected = Expected { version: None, seq_no: Some(*seq_no) };
                let write = Write { expected, waits, ..Write::new(Order::Delete) };
                self.write(at, &write).await.map(drop)
            }
            TargetState::Lock(lease) => match lock_document::remove(&self.shared, at, lease).await? {
                Some(_) => Ok(()),
                None => Err(at.conflict("the lock was written again or released since it was found")),
            },
        }
    }
}

impl Report {
    fn count(&mut self, target: &Target, done: Result<(), Refusal>, proceeds: bool) {
        let Err(refusal) = done else {
            self.deleted += 1;
            return;
        };
        let is_conflict = refusal.kind == CONFLICT;
        self.conflicts += u64::from(is_conflict);
        if is_conflict && proceeds {
            return;
        }
        self.status.get_or_insert(refusal.status);
        let at = &target.at;
        let failure = Object::new()
            .text("index", &at.index)
            .when(at.is_typed(), |object| object.text("type", at.collection()))
            .text("id", &at.id)
            .raw("cause", &refusal.object())
            .number("status", refusal.status.as_u16().into());
        self.failures.push(failure.done());
    }

    fn answer(self, began: Instant) -> Answer {
        let retries = Object::new().number("bulk", 0).number("search", 0).done();
        let object = Object::new()
            .number("took", u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX))
            .flag("timed_out", false)
            .number("total", self.total)
            .number("deleted", self.deleted)
            .number("batches", self.batches)
            .number("version_conflicts", self.conflicts)
            .number("noops", 0)
            .raw("retries", &retries)
            .number("throttled_millis", 0)
            .raw("requests_per_second", "-1.0")
            .number("throttled_until_millis", 0)
            .raw("failures", &list(self.failures));
        answer::json(self.status.unwrap_or(StatusCode::OK), object.done())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str, json: &str) -> Result<Deletion, Refusal> {
        Deletion::read(&Limits::default(), json, &Params::read(Some(query)).unwrap())
    }

    #[test]
    fn what_a_deletion_says() {
        let all = r#"{"query":{"match_all":{}}}"#;
        let deletion = read("", all).unwrap();
        assert_eq!((deletion.documents_max, deletion.batch, deletion.proceeds), (u64::MAX, BATCH, false));
        let deletion = read("conflicts=proceed&max_docs=3&scroll_size=2", all).unwrap();
        assert_eq!((deletion.documents_max, deletion.batch, deletion.proceeds), (3, 2, true));
        let deletion = read("", r#"{"query":{"match_all":{}},"size":5,"conflicts":"proceed"}"#).unwrap();
        assert_eq!((deletion.documents_max, deletion.proceeds), (5, true));
        for (query, json) in [
            ("", ""),
            ("", "{}"),
            ("terminate_after=1", r#"{"query":{"match_all":{}}}"#),
            ("dry_run=true", r#"{"query":{"match_all":{}}}"#),
            ("", r#"{"query":{}}"#),
            ("", r#"{"query":{"match_all":{}},"sort":"_doc"}"#),
            ("", r#"{"query":{"match_all":{}},"conflicts":7}"#),
            ("conflicts=maybe", all),
            ("wait_for_completion=false", all),
            ("", r#"{"query":{"match_all":{}},"query":{"match_none":{}}}"#),
            ("", r#"{"query":{"term":{"a":1,"a":2}}}"#),
            ("", r#"{"query":{"bool":{"must":[{"term":{"a":1}}],"must":[]}}}"#),
            ("max_docs=0", all),
            ("scroll_size=0", all),
        ] {
            assert_eq!(read(query, json).unwrap_err().status, StatusCode::BAD_REQUEST, "{query} {json}");
        }
    }
}
