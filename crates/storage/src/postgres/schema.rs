//! The tables in PostgreSQL, made and changed by whichever node comes first. Knows nothing of what is in them.
//!
//! | table | row | rule |
//! | --- | --- | --- |
//! | `setting` | name, value | written once; `schema` is the version of the tables, `cluster` the cluster's key; `homes` counts changes of homes |
//! | `node` | name, address, version, renewed_at, incarnation, stops, drains | renewed by the node; drained by an operator |
//! | `shard` | number, epoch, owner, last, rewrites, renewed_at, target, pinned | a claim sets epoch + 1; every append is guarded by epoch and last |
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

use super::link::{CallError, Link};
use std::time::Duration;
use tokio_postgres::error::SqlState;

/// The version of the tables that this code needs.
const VERSION: i64 = 1;
const DEADLINE: Duration = Duration::from_secs(30);
/// How often nodes that start together get in each other's way before one gives up.
const ATTEMPTS_MAX: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

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
    name text primary key, home bigint not null, spread boolean not null default false,
    moved bigint not null default 0, target bigint);
create index namespace_target on lockwood.namespace (home) where target is not null;
insert into lockwood.setting (name, value) values ('schema', '1'), ('homes', '0');
"#;

/// Why the tables cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SchemaError {
    /// A newer node has changed them.
    #[error("the tables in PostgreSQL have version {found}, this node knows version {VERSION}; upgrade it")]
    Newer {
        /// The version found.
        found: i64,
    },
    /// PostgreSQL did not do it.
    #[error("make the tables: {0}")]
    Call(#[from] CallError),
}

/// Makes the tables, or brings them to this version. Any number of nodes may do so at once.
pub async fn ensure_schema(link: &Link) -> Result<(), SchemaError> {
    for attempt in 1.. {
        match version(link).await? {
            Some(VERSION) => return Ok(()),
            Some(found) if found > VERSION => return Err(SchemaError::Newer { found }),
            // Version 1 is the first; a later one changes the tables here, from `found` on, guarded by the row of the
            // version.
            Some(_) | None => {}
        }
        match create(link).await {
            Err(error) if attempt < ATTEMPTS_MAX && is_race(&error) => {}
            done => done?,
        }
        // Pauses on the link's own clock: the caller's runtime may have none.
        let pause = async {
            tokio::time::sleep(PAUSE).await;
            Ok(())
        };
        link.call(DEADLINE, |_| pause).await?;
    }
    unreachable!("the last attempt returns")
}

/// The version of the tables; nothing if there are none.
async fn version(link: &Link) -> Result<Option<i64>, CallError> {
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
async fn create(link: &Link) -> Result<(), CallError> {
    link.call(DEADLINE, |call| async move {
        // Looked for first: a role that may use the schema need not be allowed to make one.
        let found =
            call.query("select 1 from pg_catalog.pg_namespace where nspname = 'lockwood'", &[]).await?;
        if found.is_empty() {
            call.batch("create schema if not exists lockwood").await?;
        }
        call.batch(TABLES).await
    })
    .await
}

/// Whether another node did the same at the same time.
fn is_race(error: &CallError) -> bool {
    error.is_conflict()
        || error.has_code(&[
            SqlState::UNIQUE_VIOLATION,
            SqlState::DUPLICATE_TABLE,
            SqlState::DUPLICATE_SCHEMA,
            SqlState::DUPLICATE_OBJECT,
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
