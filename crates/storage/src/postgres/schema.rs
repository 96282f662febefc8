//! The tables in PostgreSQL, made and changed by whichever node comes first. Knows nothing of what is in them.
//!
//! | table | row | rule |
//! | --- | --- | --- |
//! | `setting` | name, value | `schema` is the version of the tables, `schema N` says that they were brought to version N; `cluster` is the cluster's key; `homes` counts changes of homes |
//! | `node` | name, address, version, renewed_at, incarnation, stops, drains | renewed by the node; drained by an operator |
//! | `shard` | number, epoch, owner, incarnation, last, rewrites, renewed_at, target, pinned | a claim sets epoch + 1 and the incarnation; every append is guarded by both and by last |
//! | `log` | shard, index, epoch, record | changed only in a transaction that updates the guarded `shard` row |
//! | `snapshot` | shard, index, part, bytes | the same |
//! | `ledger` | shard, space, key, value | the same |
//! | `map` | epoch, map | a change inserts a higher epoch, while its writer owns shard 1 |
//! | `namespace` | name, home, spread, moved, target | inserted once; a home moves to its target while its mover owns the shard that it leaves |
//!
//! `rewrites` counts the appends that changed records which were there before. `last` is never negative: an append whose
//! guard does not hold sets it to -1, so that its whole transaction fails.
//!
//! Nothing but guarded updates, unique keys, checks and plain transactions is used, so other databases that speak
//! PostgreSQL's protocol will do.
//!
//! The tables have a version, and each step brings them to the next one. A step is one transaction that first inserts a row
//! with a unique key: of the nodes that start at once, one does it. Nodes of an earlier version that run go on; they are
//! refused when they start again.

use super::link::{CallError, Link};
use std::time::Duration;
use tokio_postgres::error::SqlState;

const DEADLINE: Duration = Duration::from_secs(30);
/// How often nodes that start together get in each other's way before one gives up.
const ATTEMPTS_MAX: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// Version 1.
const TABLES: &str = r#"
create table lockwood.setting (name text primary key, value bytea not null);
create table lockwood.node (
    name text primary key, address text not null, version text not null, renewed_at timestamptz not null,
    incarnation text not null default '', stops boolean not null default false,
    drains boolean not null default false);
create table lockwood.shard (
    number bigint primary key, epoch bigint not null default 0, owner text,
    last bigint not null default 0 constraint guarded check (last >= 0), rewrites bigint not null default 0,
    renewed_at timestamptz not null default now(), target text,
    pinned boolean not null default false) with (fillfactor = 20);
create table lockwood.log (
    shard bigint not null, "index" bigint not null, epoch bigint not null, record bytea not null,
    primary key (shard, "index"));
create table lockwood.snapshot (
    shard bigint not null, "index" bigint not null, part bigint not null, bytes bytea not null,
    primary key (shard, "index", part));
create table lockwood.ledger (
    shard bigint not null, space text not null, key bytea not null, value bytea not null,
    primary key (shard, space, key));
create table lockwood.map (epoch bigint primary key, map bytea not null);
create table lockwood.namespace (
    name text primary key, home bigint not null, spread boolean not null default false);
insert into lockwood.setting (name, value) values ('schema', '1');
"#;

/// Version 2: an owner is known by its run. After a failover that lost commits, an epoch can be another owner's as well.
const INCARNATION: &str =
    "alter table lockwood.shard add column if not exists incarnation text not null default ''";

/// Version 3: homes move.
const MOVING_HOMES: &str = "
alter table lockwood.namespace add column if not exists moved bigint not null default 0,
    add column if not exists target bigint;
create index if not exists namespace_target on lockwood.namespace (home) where target is not null;
insert into lockwood.setting (name, value) values ('homes', '0') on conflict (name) do nothing";

/// What brings the tables to each version, from the first on.
pub(super) const STEPS: [&str; 3] = [TABLES, INCARNATION, MOVING_HOMES];

/// Why the tables cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SchemaError {
    /// A newer node has changed them.
    #[error("the tables in PostgreSQL have version {found}, this node knows version {known}; upgrade it")]
    Newer {
        /// The version found.
        found: usize,
        /// The version that this code makes.
        known: usize,
    },
    /// PostgreSQL did not do it.
    #[error("make the tables: {0}")]
    Call(#[from] CallError),
}

/// Makes the tables, or brings them to this version. Any number of nodes may do so at once.
pub async fn ensure_schema(link: &Link) -> Result<(), SchemaError> {
    bring_to(link, &STEPS).await
}

/// Takes all steps that were not taken yet.
pub(super) async fn bring_to(link: &Link, steps: &'static [&'static str]) -> Result<(), SchemaError> {
    let (known, mut races) = (steps.len(), 0);
    loop {
        let found = version(link).await?.unwrap_or(0);
        if found > known {
            return Err(SchemaError::Newer { found, known });
        }
        let Some(step) = steps.get(found) else { return Ok(()) };
        let taken = match found {
            0 => create(link, step).await,
            _ => migrate(link, found + 1, step).await,
        };
        match taken {
            Err(error) if races < ATTEMPTS_MAX && is_race(&error) => {
                races += 1;
                pause(link).await?;
            }
            taken => taken?,
        }
    }
}

/// Pauses on the link's own clock: the caller's runtime may have none.
async fn pause(link: &Link) -> Result<(), CallError> {
    let pause = async {
        tokio::time::sleep(PAUSE).await;
        Ok(())
    };
    link.call(DEADLINE, |_| pause).await
}

/// The version of the tables; nothing if there are none.
async fn version(link: &Link) -> Result<Option<usize>, CallError> {
    let read = "select convert_from(value, 'UTF8') from lockwood.setting where name = 'schema'";
    let rows = link.call(DEADLINE, move |call| async move { call.query(read, &[]).await }).await;
    let missing = [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME];
    let rows = match rows {
        Err(error) if error.has_code(&missing) => return Ok(None),
        rows => rows?,
    };
    let Some(row) = rows.first() else { return Ok(None) };
    let text: &str = row.try_get(0).map_err(|error| unexpected(&error))?;
    text.parse().map(Some).map_err(|_| CallError::Unexpected(format!("version {text:?} of the tables")))
}

/// Statements that are sent together are one transaction: the tables are there with their version or not at all.
async fn create(link: &Link, tables: &'static str) -> Result<(), CallError> {
    link.call(DEADLINE, move |call| async move {
        // Looked for first: a role that may use the schema need not be allowed to make one.
        let found =
            call.query("select 1 from pg_catalog.pg_namespace where nspname = 'lockwood'", &[]).await?;
        if found.is_empty() {
            call.batch("create schema if not exists lockwood").await?;
        }
        call.batch(tables).await
    })
    .await
}

/// Brings the tables to `version`. The first row is there if another node has done so, and the transaction fails by it.
async fn migrate(link: &Link, version: usize, step: &str) -> Result<(), CallError> {
    let sql = format!(
        "insert into lockwood.setting (name, value) values ('schema {version}', '');
        {step};
        update lockwood.setting set value = '{version}' where name = 'schema'"
    );
    link.call(DEADLINE, move |call| async move { call.batch(&sql).await }).await
}

/// Whether another node did the same at the same time.
fn is_race(error: &CallError) -> bool {
    error.is_conflict()
        || error.has_code(&[
            SqlState::UNIQUE_VIOLATION,
            SqlState::DUPLICATE_TABLE,
            SqlState::DUPLICATE_SCHEMA,
            SqlState::DUPLICATE_OBJECT,
            SqlState::DUPLICATE_COLUMN,
            SqlState::INTERNAL_ERROR,
        ])
}

/// A value that has another type than the tables give it.
pub(super) fn unexpected(error: &tokio_postgres::Error) -> CallError {
    CallError::Unexpected(error.to_string())
}

/// Numbers are 63 bits wide in PostgreSQL.
pub(super) fn to_sql(number: u64) -> i64 {
    i64::try_from(number).expect("numbers of shards, epochs and records are far below 2^63")
}

/// A number that was stored by [`to_sql`].
pub(super) fn from_sql(number: i64) -> Result<u64, CallError> {
    u64::try_from(number).map_err(|_| CallError::Unexpected(format!("the negative number {number}")))
}
