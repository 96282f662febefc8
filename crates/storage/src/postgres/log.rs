//! The log of one shard in PostgreSQL: guarded by the tenure of its owner, one round trip per append. Knows nothing of what
//! the records say.
//!
//! An append that only adds records is one statement. All others (the ledger, snapshots, records that are dropped or
//! written anew) are the statements of one transaction, sent together. Both check owner, epoch and last record in the row
//! of the shard, and lock it until they are committed; so a claim waits for an append that is under way, and an append that
//! comes after a claim changes nothing. The owner is its incarnation: a failover of the database that loses commits may
//! give an epoch twice.

use super::{
    change::Change,
    link::{CHANNEL, Call, CallError, Link},
    schema::{from_sql, to_sql, unexpected},
    tenure::Tenure,
};
use crate::{
    log::{Appended, Epoch},
    store::{Space, StoreError},
};
use futures_util::future::{BoxFuture, join_all};
use lockwood_planted::{Fault, is_planted};
use parking_lot::Mutex;
use std::{
    borrow::Cow,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio_postgres::{
    Client, Row, Statement,
    error::SqlState,
    types::{FromSql, ToSql},
};

/// How long a page of records may take at least.
const READ_DEADLINE: Duration = Duration::from_secs(60);
/// A page has no more records than this, and ends after so many bytes.
const PAGE_LEN: u32 = 2000;
const PAGE_BYTES: i64 = 4 << 20;
/// Pieces of snapshots have 256 KiB.
const PARTS_LEN: i64 = 8;
const LEDGER_LEN: i64 = 1000;
/// How often an append is tried whose transaction gave way to another one.
const ATTEMPTS_MAX: u32 = 5;
/// Hints of one log are at least so far apart.
const HINT_EVERY: Duration = Duration::from_millis(20);

/// The part of both guards that only the owner's tenure fulfils.
const IS_OWNER: &str = "epoch = $2 and incarnation = $3";
const APPEND: &str = r#"
with guard as (
    update lockwood.shard set last = $5 where number = $1 and epoch = $2 and incarnation = $3 and last = $4
    returning number, epoch),
records as (
    insert into lockwood.log (shard, "index", epoch, record)
    select guard.number, added.place, guard.epoch, added.record
    from guard, unnest($6::bigint[], $7::bytea[]) as added (place, record))
select number from guard"#;

/// Fails by the check of the table if another node is the owner, or the log is not where it is expected to be.
const GUARD: &str = r#"
update lockwood.shard
set last = case when epoch = $2 and incarnation = $3 and last = $4 then $5::bigint else -1 end, rewrites = rewrites + $6
where number = $1"#;
const PUT_RECORDS: &str = r#"
insert into lockwood.log (shard, "index", epoch, record)
select shard.number, added.place, shard.epoch, added.record
from lockwood.shard, unnest($2::bigint[], $3::bytea[]) as added (place, record) where shard.number = $1
on conflict (shard, "index") do update set record = excluded.record"#;
const DROP_RECORDS: &str = r#"delete from lockwood.log where shard = $1 and "index" = any($2::bigint[])"#;
const DROP_LEDGER: &str = "
delete from lockwood.ledger using unnest($2::text[], $3::bytea[]) as gone (space, key)
where ledger.shard = $1 and ledger.space = gone.space and ledger.key = gone.key";
const PUT_LEDGER: &str = "
insert into lockwood.ledger (shard, space, key, value)
select shard.number, added.space, added.key, added.value
from lockwood.shard, unnest($2::text[], $3::bytea[], $4::bytea[]) as added (space, key, value) where shard.number = $1
on conflict (shard, space, key) do update set value = excluded.value";
const DROP_PARTS: &str = r#"
delete from lockwood.snapshot using unnest($2::bigint[], $3::bigint[]) as gone (place, part)
where snapshot.shard = $1 and snapshot."index" = gone.place and snapshot.part = gone.part"#;
const PUT_PARTS: &str = r#"
insert into lockwood.snapshot (shard, "index", part, bytes)
select shard.number, added.place, added.part, added.bytes
from lockwood.shard, unnest($2::bigint[], $3::bigint[], $4::bytea[]) as added (place, part, bytes)
where shard.number = $1
on conflict (shard, "index", part) do update set bytes = excluded.bytes"#;
/// A snapshot that is complete replaces all others, those that were never completed included, and what is left of a longer
/// one of the same moment.
const DROP_OTHER_SNAPSHOTS: &str = r#"
delete from lockwood.snapshot where shard = $1 and ("index" <> $2 or part >= $3 and part <> 4294967295)"#;

/// Not synced: a hint may be lost.
const HINT: &str = "select set_config('synchronous_commit', 'off', true), pg_notify($1, $2)";

const HEAD: &str = r#"
select epoch, incarnation, last, rewrites,
    (select min("index") from lockwood.log where log.shard = shard.number),
    (select max("index") from lockwood.snapshot where snapshot.shard = shard.number and part = 4294967295)
from lockwood.shard where number = $1"#;
const READ: &str = r#"
select "index", epoch, record from (
    select "index", epoch, record, sum(octet_length(record)) over (order by "index") - octet_length(record) as before
    from (select * from lockwood.log where shard = $1 and "index" >= $2 order by "index" limit $3) as found) as sized
where before < $4 order by "index""#;
const READ_PARTS: &str = r#"
select part, bytes from lockwood.snapshot where shard = $1 and "index" = $2 and part >= $3 order by part limit $4"#;
const READ_LEDGER: &str = "
select space, key, value from lockwood.ledger where shard = $1 and (space, key) > ($2, $3) order by space, key limit $4";

/// One record as PostgreSQL has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its place in the log.
    pub index: u64,
    /// Of the owner that wrote it.
    pub epoch: Epoch,
    /// The same bytes as in a local log.
    pub bytes: Vec<u8>,
}

/// Where a shard stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Of the last claim.
    pub tenure: Tenure,
    /// The last record that was ever appended.
    pub last: u64,
    /// How often records were written anew.
    pub rewrites: u64,
    /// The first record that was not dropped; nothing if there is none.
    pub first: Option<u64>,
    /// The last record in the complete snapshot.
    pub snapshot: Option<u64>,
}

/// Space, key and value.
pub(super) type LedgerRow = (Space, Vec<u8>, Vec<u8>);

/// The log of one shard.
pub struct ShardLog {
    link: Arc<Link>,
    shard: i64,
    /// When others were told last that the log has grown.
    hinted: Mutex<Option<Instant>>,
}

impl ShardLog {
    /// The log of `shard`, whose row must be there.
    pub fn new(link: Arc<Link>, shard: u64) -> ShardLog {
        ShardLog { link, shard: to_sql(shard), hinted: Mutex::new(None) }
    }

    /// Makes a change behind the record `expected`, as the owner with this tenure. Blocks.
    ///
    /// [`Appended::Unknown`] has [`StoreError::Unreachable`] if nothing was sent, and [`StoreError::Unconfirmed`] if it was
    /// sent and may be there.
    pub fn append(&self, tenure: &Tenure, expected: u64, change: Change) -> Appended {
        let append = Arc::new(Append {
            shard: self.shard,
            epoch: to_sql(tenure.epoch.0),
            incarnation: tenure.incarnation.clone(),
            expected: to_sql(expected),
            last: to_sql(change.last().unwrap_or(0).max(expected)),
            change,
        });
        for attempt in 1.. {
            let own = Arc::clone(&append);
            let appended =
                self.link.call_blocking(self.link.deadline(), |call| async move { own.send(&call).await });
            match appended {
                Ok(Appended::Done) => {
                    self.hint(append.last);
                    return Appended::Done;
                }
                Ok(other) => return other,
                Err(error) if error.is_conflict() && attempt < ATTEMPTS_MAX => {}
                Err(error) => return Appended::Unknown(error.into()),
            }
        }
        unreachable!("the last attempt returns")
    }

    /// Tells followers that there is something to read. Not in the append's own transaction: PostgreSQL lets only one
    /// transaction with a notification commit at a time.
    fn hint(&self, last: i64) {
        let mut hinted = self.hinted.lock();
        if hinted.is_some_and(|hinted| hinted.elapsed() < HINT_EVERY) {
            return;
        }
        *hinted = Some(Instant::now());
        let payload = format!("{}:{last}", self.shard);
        self.link.tell(self.link.deadline(), |call| async move {
            // A database without notifications is polled.
            call.query(HINT, &[&CHANNEL, &payload]).await.map(drop)
        });
    }

    /// Where the shard stands; nothing if it has no row.
    pub fn head(&self) -> Result<Option<Head>, CallError> {
        let shard = self.shard;
        let rows = self
            .link
            .call_blocking(READ_DEADLINE, move |call| async move { call.query(HEAD, &[&shard]).await })?;
        rows.first().map(read_head).transpose()
    }

    /// Records from `from` on: a page of them, but no more than `len_max`. Blocks.
    pub fn read(&self, from: u64, len_max: u32) -> Result<Vec<Record>, CallError> {
        let read = page(self.shard, from, len_max);
        self.link.call_blocking(READ_DEADLINE, |call| async move { read.query(&call).await })
    }

    /// Hints that this log has grown.
    pub(super) fn hints(&self) -> Hints {
        Hints { own: format!("{}:", self.shard), all: self.link.hints() }
    }

    /// Some pieces of a snapshot, from the one with the number `from` on. Blocks.
    pub(super) fn parts(&self, index: u64, from: u32) -> Result<Vec<(u32, Vec<u8>)>, CallError> {
        let (shard, index, from) = (self.shard, to_sql(index), i64::from(from));
        let rows = self.link.call_blocking(READ_DEADLINE, move |call| async move {
            call.query(READ_PARTS, &[&shard, &index, &from, &PARTS_LEN]).await
        })?;
        let part = |row: &Row| {
            let number = u32::try_from(get::<i64>(row, 0)?);
            Ok((number.map_err(|error| CallError::Unexpected(error.to_string()))?, get(row, 1)?))
        };
        rows.iter().map(part).collect()
    }

    /// Some rows of the ledger, behind the one with this key. Blocks.
    pub(super) fn ledger(&self, after: (Option<Space>, Vec<u8>)) -> Result<Vec<LedgerRow>, CallError> {
        let (shard, (space, key)) = (self.shard, after);
        let space = space.map_or("", Space::as_str);
        let rows = self.link.call_blocking(READ_DEADLINE, move |call| async move {
            call.query(READ_LEDGER, &[&shard, &space, &key, &LEDGER_LEN]).await
        })?;
        let pair = |row: &Row| {
            let name: &str = get(row, 0)?;
            let space = [Space::Numbers, Space::Actions].into_iter().find(|space| space.as_str() == name);
            let space = space.ok_or_else(|| CallError::Unexpected(format!("the space {name:?}")))?;
            Ok((space, get(row, 1)?, get(row, 2)?))
        };
        rows.iter().map(pair).collect()
    }
}

/// Hints that a log has grown. They may be late, lost or absent, so a follower polls as well.
pub struct Hints {
    own: String,
    all: broadcast::Receiver<String>,
}

impl Hints {
    /// Waits for a hint, for ever if there is none.
    pub async fn next(&mut self) {
        loop {
            match self.all.recv().await {
                Ok(hint) if !hint.starts_with(&self.own) => {}
                // Some were missed, which may have been for this log.
                Ok(_) | Err(RecvError::Lagged(_)) => return,
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

impl From<CallError> for StoreError {
    fn from(error: CallError) -> StoreError {
        match error {
            CallError::Unavailable(why) => StoreError::Unreachable { why },
            CallError::Unknown(why) => StoreError::Unconfirmed { why },
            refused @ (CallError::Refused { .. } | CallError::Unexpected(_)) => {
                StoreError::Failed(refused.to_string())
            }
        }
    }
}

/// The value of a column.
pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Result<T, CallError> {
    row.try_get(column).map_err(|error| unexpected(&error))
}

/// A number that is never negative.
pub(super) fn get_number(row: &Row, column: usize) -> Result<u64, CallError> {
    from_sql(get(row, column)?)
}

fn read_head(row: &Row) -> Result<Head, CallError> {
    let optional = |column| get::<Option<i64>>(row, column)?.map(from_sql).transpose();
    Ok(Head {
        tenure: Tenure { epoch: Epoch(get_number(row, 0)?), incarnation: get(row, 1)? },
        last: get_number(row, 2)?,
        rewrites: get_number(row, 3)?,
        first: optional(4)?,
        snapshot: optional(5)?,
    })
}

/// A page of records that is to be read.
struct Page {
    shard: i64,
    from: i64,
    len: i64,
}

fn page(shard: i64, from: u64, len_max: u32) -> Page {
    Page { shard, from: to_sql(from), len: i64::from(len_max.min(PAGE_LEN)) }
}

impl Page {
    async fn query(&self, call: &Call) -> Result<Vec<Record>, CallError> {
        let rows = call.query(READ, &[&self.shard, &self.from, &self.len, &PAGE_BYTES]).await?;
        let record = |row: &Row| {
            Ok(Record { index: get_number(row, 0)?, epoch: Epoch(get_number(row, 1)?), bytes: get(row, 2)? })
        };
        rows.iter().map(record).collect()
    }
}

/// A change on its way.
struct Append {
    shard: i64,
    epoch: i64,
    incarnation: String,
    expected: i64,
    last: i64,
    change: Change,
}

type Parameter<'a> = Box<dyn ToSql + Sync + Send + 'a>;

/// One statement of a transaction, with its parameters, the first of which is the shard.
struct Step<'a> {
    sql: &'static str,
    parameters: Vec<Parameter<'a>>,
}

impl Append {
    async fn send(&self, call: &Call) -> Result<Appended, CallError> {
        let only_appends = self.change.only_appends(from_sql(self.expected)?);
        let done = if only_appends { self.add(call).await? } else { self.change(call).await? };
        if done {
            return call.check_unwarned().map(|()| Appended::Done);
        }
        self.explain(call).await
    }

    /// One statement; false if the guard did not hold.
    async fn add(&self, call: &Call) -> Result<bool, CallError> {
        let Append { shard, epoch, incarnation, expected, last, change } = self;
        let indexes: Vec<i64> = change.records.iter().map(|(index, _)| to_sql(*index)).collect();
        let records: Vec<&[u8]> = change.records.iter().map(|(_, record)| &record[..]).collect();
        let parameters: [&(dyn ToSql + Sync); 7] =
            [shard, epoch, incarnation, expected, last, &indexes, &records];
        let rows = call.query(&fenced(APPEND), &parameters).await?;
        Ok(!rows.is_empty())
    }

    /// One transaction; false if the guard did not hold.
    async fn change(&self, call: &Call) -> Result<bool, CallError> {
        let steps = self.steps()?;
        let mut statements = Vec::new();
        for step in &steps {
            statements.push(call.prepare(&fenced(step.sql)).await?);
        }
        // All of it is handed over before anything is waited for, so nothing of other calls comes in between.
        let client = call.client();
        let mut sent: Vec<BoxFuture<'_, Result<u64, tokio_postgres::Error>>> = Vec::new();
        sent.push(Box::pin(async { client.batch_execute("begin").await.map(|()| 0) }));
        for (step, statement) in steps.iter().zip(&statements) {
            sent.push(Box::pin(step.execute(client, statement)));
        }
        sent.push(Box::pin(async { client.batch_execute("commit").await.map(|()| 0) }));
        let answers: Result<Vec<u64>, _> = join_all(sent).await.into_iter().collect();
        match answers.map_err(|error| call.read_error(&error)) {
            Ok(counts) => Ok(counts[1] == 1),
            Err(error) if error.has_code(&[SqlState::CHECK_VIOLATION]) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn steps(&self) -> Result<Vec<Step<'_>>, CallError> {
        let Change { records, dropped, ledger, ledger_dropped, parts, parts_dropped } = &self.change;
        let rewrites = i64::from(self.change.rewrites(from_sql(self.expected)?));
        let guard: Vec<Parameter<'_>> = vec![
            Box::new(self.epoch),
            Box::new(&self.incarnation),
            Box::new(self.expected),
            Box::new(self.last),
            Box::new(rewrites),
        ];
        let mut steps = vec![self.step(GUARD, guard)];
        if !dropped.is_empty() {
            steps.push(self.step(DROP_RECORDS, vec![column(dropped, |index| to_sql(*index))]));
        }
        if !records.is_empty() {
            let indexes = column(records, |(index, _)| to_sql(*index));
            steps.push(self.step(PUT_RECORDS, vec![indexes, column(records, |(_, record)| &record[..])]));
        }
        if !ledger_dropped.is_empty() {
            let spaces = column(ledger_dropped, |(space, _)| space.as_str());
            steps.push(self.step(DROP_LEDGER, vec![spaces, column(ledger_dropped, |(_, key)| &key[..])]));
        }
        if !ledger.is_empty() {
            let spaces = column(ledger, |(space, ..)| space.as_str());
            let (keys, values) =
                (column(ledger, |(_, key, _)| &key[..]), column(ledger, |(.., value)| &value[..]));
            steps.push(self.step(PUT_LEDGER, vec![spaces, keys, values]));
        }
        if !parts_dropped.is_empty() {
            let indexes = column(parts_dropped, |(index, _)| to_sql(*index));
            steps.push(
                self.step(DROP_PARTS, vec![indexes, column(parts_dropped, |(_, part)| i64::from(*part))]),
            );
        }
        if !parts.is_empty() {
            let indexes = column(parts, |(index, ..)| to_sql(*index));
            let (numbers, bytes) =
                (column(parts, |(_, part, _)| i64::from(*part)), column(parts, |(.., bytes)| &bytes[..]));
            steps.push(self.step(PUT_PARTS, vec![indexes, numbers, bytes]));
        }
        if let Some(index) = self.change.saved() {
            let pieces: Parameter<'_> = Box::new(i64::from(self.change.pieces()));
            steps.push(self.step(DROP_OTHER_SNAPSHOTS, vec![Box::new(to_sql(index)), pieces]));
        }
        Ok(steps)
    }

    fn step<'a>(&self, sql: &'static str, more: Vec<Parameter<'a>>) -> Step<'a> {
        let mut parameters: Vec<Parameter<'a>> = vec![Box::new(self.shard)];
        parameters.extend(more);
        Step { sql, parameters }
    }

    /// Which part of the guard did not hold.
    async fn explain(&self, call: &Call) -> Result<Appended, CallError> {
        let sql = "select epoch, last, incarnation from lockwood.shard where number = $1";
        let rows = call.query(sql, &[&self.shard]).await?;
        let Some(row) = rows.first() else { return Ok(Appended::Fenced(Epoch(0))) };
        let (epoch, last) = (get_number(row, 0)?, get_number(row, 1)?);
        let incarnation: &str = get(row, 2)?;
        match epoch == from_sql(self.epoch)? && incarnation == self.incarnation {
            true => Ok(Appended::Moved { last }),
            false => Ok(Appended::Fenced(Epoch(epoch))),
        }
    }
}

/// A statement that is guarded by the tenure of the owner, unless tests leave that out.
fn fenced(sql: &'static str) -> Cow<'static, str> {
    match is_planted(Fault::NoFence) {
        true => sql.replace(IS_OWNER, "$2::bigint > 0 and $3::text is not null").into(),
        false => sql.into(),
    }
}

/// One column of the rows of a change.
fn column<'a, T, V>(rows: &'a [T], value: impl Fn(&'a T) -> V) -> Parameter<'a>
where
    Vec<V>: ToSql + Sync + Send + 'a,
{
    Box::new(rows.iter().map(value).collect::<Vec<V>>())
}

impl Step<'_> {
    async fn execute(&self, client: &Client, statement: &Statement) -> Result<u64, tokio_postgres::Error> {
        let parameters: Vec<&(dyn ToSql + Sync)> =
            self.parameters.iter().map(|parameter| &**parameter as &(dyn ToSql + Sync)).collect();
        client.execute(statement, &parameters).await
    }
}
