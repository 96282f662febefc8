//! The directory of a cluster in PostgreSQL: nodes, who owns which shard, the map and namespaces.
//! Knows nothing of when a node claims or releases, nor of what the map says.
//!
//! Times are PostgreSQL's: a row is so many milliseconds old by the clock of the database, and nodes' clocks do not matter.
//! Every change is one guarded statement; none waits for another but for the row it changes.

use super::{
    durability::{self, DurabilityReport},
    link::{CallError, Link},
    log::{get, get_number},
    schema::{from_sql, to_sql},
};
use crate::log::Epoch;
use std::sync::Arc;
use tokio_postgres::{Row, types::ToSql};

/// How often a statement is tried whose transaction gave way to another one.
const ATTEMPTS_MAX: u32 = 5;

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    /// Its name, which is unique.
    pub name: String,
    /// Where other nodes reach it.
    pub address: String,
    /// The version it runs.
    pub version: String,
    /// How long ago it was renewed.
    pub age_ms: u64,
    /// Whether it gives its shards away and takes none: it stops, or an operator drains it.
    pub drains: bool,
}

/// A shard of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardRow {
    /// Its number in the map.
    pub number: u64,
    /// The node that owns it; none if it was released or never claimed.
    pub owner: Option<String>,
    /// Of the last claim.
    pub epoch: Epoch,
    /// The last record of its log.
    pub last: u64,
    /// How long ago its owner renewed it, or it was released.
    pub age_ms: u64,
    /// The node that a planned handoff is for.
    pub target: Option<String>,
    /// Whether an operator named the target, and it stays.
    pub pinned: bool,
}

/// What a node that has claimed a shard gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claimed {
    /// To be shown with every append.
    pub epoch: Epoch,
    /// The last record of the log.
    pub last: u64,
}

/// Where the documents of a namespace are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HomeRow {
    /// The shard that has its locks.
    pub home: u64,
    /// Whether its documents are on the shards of the map; otherwise they are at its home.
    pub spread: bool,
    /// Which change of homes brought it there; 0 if none did.
    pub moved: u64,
}

/// The directory of a cluster.
#[derive(Clone)]
pub struct Directory {
    link: Arc<Link>,
}

pub(super) type Parameters = Vec<Box<dyn ToSql + Sync + Send>>;

/// The parameters of a statement.
macro_rules! parameters {
    ($($value:expr),* $(,)?) => { { let all: Parameters = vec![$(Box::new($value)),*]; all } };
}

pub(super) use parameters;

impl Directory {
    /// The directory in the database that `link` is connected to. Renewals should have a link of their own.
    pub fn new(link: Arc<Link>) -> Directory {
        Directory { link }
    }

    /// Registers a node, or renews it.
    pub async fn renew_node(&self, name: &str, address: &str, version: &str) -> Result<(), CallError> {
        let sql = "insert into lockwood.node (name, address, version, renewed_at) values ($1, $2, $3, now())
            on conflict (name) do update set address = $2, version = $3, renewed_at = now()";
        self.rows(sql, parameters![name.to_owned(), address.to_owned(), version.to_owned()]).await.map(drop)
    }

    /// Removes a node that has stopped.
    pub async fn remove_node(&self, name: &str) -> Result<(), CallError> {
        self.rows("delete from lockwood.node where name = $1", parameters![name.to_owned()]).await.map(drop)
    }

    /// All nodes that were not removed, by name.
    pub async fn nodes(&self) -> Result<Vec<NodeRow>, CallError> {
        Ok(self.read_rows().await?.nodes)
    }

    /// Makes sure that shards have rows.
    pub async fn ensure_shards(&self, numbers: &[u64]) -> Result<(), CallError> {
        let numbers: Vec<i64> = numbers.iter().copied().map(to_sql).collect();
        let sql =
            "insert into lockwood.shard (number) select number from unnest($1::bigint[]) as wanted (number)
            on conflict (number) do nothing";
        self.rows(sql, parameters![numbers]).await.map(drop)
    }

    /// All shards, by number.
    pub async fn shards(&self) -> Result<Vec<ShardRow>, CallError> {
        Ok(self.read_rows().await?.shards)
    }

    /// Makes `node` the owner and fences every earlier one; none if another node owns the shard and renewed it within
    /// `stale_after_ms`, or released it within that time for a third one.
    pub async fn claim(
        &self,
        shard: u64,
        node: &str,
        stale_after_ms: u64,
    ) -> Result<Option<Claimed>, CallError> {
        let sql = "update lockwood.shard set epoch = epoch + 1, owner = $2, renewed_at = now(), target = null
            where number = $1 and (owner = $2 or renewed_at < now() - $3::float8 * interval '1 millisecond'
                or owner is null and (target is null or target = $2))
            returning epoch, last";
        let parameters = parameters![to_sql(shard), node.to_owned(), stale_after_ms as f64];
        let rows = self.rows(sql, parameters).await?;
        let claimed =
            |row: &Row| Ok(Claimed { epoch: Epoch(get_number(row, 0)?), last: get_number(row, 1)? });
        rows.first().map(claimed).transpose()
    }

    /// Renews all shards of a node; gives those that are still its own, with their epochs.
    pub async fn renew_shards(&self, node: &str) -> Result<Vec<(u64, Epoch)>, CallError> {
        let sql = "update lockwood.shard set renewed_at = now() where owner = $1 returning number, epoch";
        let rows = self.rows(sql, parameters![node.to_owned()]).await?;
        rows.iter().map(|row| Ok((get_number(row, 0)?, Epoch(get_number(row, 1)?)))).collect()
    }

    /// Gives a shard up; false if it has another owner by now. A target keeps its turn.
    pub async fn release(&self, shard: u64, epoch: Epoch) -> Result<bool, CallError> {
        // The epoch goes up, so that an append still under way does not come after the release.
        let sql = "update lockwood.shard set owner = null, epoch = epoch + 1, renewed_at = now()
            where number = $1 and epoch = $2 and owner is not null returning number";
        self.changed(sql, parameters![to_sql(shard), to_sql(epoch.0)]).await
    }

    /// Asks the owner to hand a shard off to `target`, or not to any more.
    pub async fn set_target(&self, shard: u64, target: Option<&str>) -> Result<bool, CallError> {
        let sql = "update lockwood.shard set target = $2 where number = $1 returning number";
        self.changed(sql, parameters![to_sql(shard), target.map(str::to_owned)]).await
    }

    /// The latest map with its epoch.
    pub async fn map(&self) -> Result<Option<(u64, Vec<u8>)>, CallError> {
        let rows = self
            .rows("select epoch, map from lockwood.map order by epoch desc limit 1", parameters![])
            .await?;
        rows.first().map(|row| Ok((get_number(row, 0)?, get(row, 1)?))).transpose()
    }

    /// The epoch of the latest map.
    pub async fn map_epoch(&self) -> Result<Option<u64>, CallError> {
        let rows = self.rows("select max(epoch) from lockwood.map", parameters![]).await?;
        let epoch: Option<i64> = rows.first().map_or(Ok(None), |row| get(row, 0))?;
        epoch.map(from_sql).transpose()
    }

    /// Adds a map with a higher epoch than all others, if `owner` is the epoch of the owner of `shard`; false if it is not, or
    /// there is one that is as new.
    pub async fn add_map(
        &self,
        epoch: u64,
        map: &[u8],
        (shard, owner): (u64, Epoch),
    ) -> Result<bool, CallError> {
        let sql = "with owner as (select 1 from lockwood.shard where number = $3 and epoch = $4 for update)
            insert into lockwood.map (epoch, map) select $1::bigint, $2 from owner
            where $1 > (select coalesce(max(epoch), 0) from lockwood.map)
            on conflict (epoch) do nothing returning epoch";
        let parameters = parameters![to_sql(epoch), map.to_vec(), to_sql(shard), to_sql(owner.0)];
        self.changed(sql, parameters).await
    }

    /// The home of a namespace: that on record, or `wanted` if there is none, which is on record then. None if there is none
    /// and `homes_max` others are on record, or a few more when several nodes add some at once.
    pub async fn home(
        &self,
        namespace: &str,
        wanted: HomeRow,
        homes_max: u64,
    ) -> Result<Option<HomeRow>, CallError> {
        // One round trip for all but the first; the insert finds a home that came in between.
        if let Some(found) = self.find_home(namespace).await? {
            return Ok(Some(found));
        }
        let sql = "insert into lockwood.namespace (name, home, spread)
            select $1::text, $2::bigint, $4::boolean
            where (select count(*) from lockwood.namespace) < $3::bigint
            on conflict (name) do nothing returning home, spread, moved";
        let parameters =
            parameters![namespace.to_owned(), to_sql(wanted.home), to_sql(homes_max), wanted.spread];
        let rows = self.rows(sql, parameters).await?;
        match rows.first() {
            Some(row) => home_row(row).map(Some),
            None => self.find_home(namespace).await,
        }
    }

    /// How many namespaces have their home on each shard, as far as some have.
    pub async fn homes_by_shard(&self) -> Result<Vec<(u64, u64)>, CallError> {
        let rows =
            self.rows("select home, count(*) from lockwood.namespace group by home", parameters![]).await?;
        rows.iter().map(|row| Ok((get_number(row, 0)?, get_number(row, 1)?))).collect()
    }

    /// The home of a namespace, if it has one.
    pub async fn find_home(&self, namespace: &str) -> Result<Option<HomeRow>, CallError> {
        let sql = "select home, spread, moved from lockwood.namespace where name = $1";
        let rows = self.rows(sql, parameters![namespace.to_owned()]).await?;
        rows.first().map(home_row).transpose()
    }

    /// Some namespaces with their homes by name, behind `after`.
    pub async fn homes(&self, after: &str, len_max: u32) -> Result<Vec<(String, u64)>, CallError> {
        let sql = "select name, home from lockwood.namespace where name > $1 order by name limit $2";
        let rows = self.rows(sql, parameters![after.to_owned(), i64::from(len_max)]).await?;
        rows.iter().map(|row| Ok((get(row, 0)?, get_number(row, 1)?))).collect()
    }

    /// A setting of the cluster: that on record, or `fresh` if there is none, which is on record then. The one named
    /// `cluster` tells clusters apart; it is to be set before caches are opened.
    pub async fn setting(&self, name: &str, fresh: &[u8]) -> Result<Vec<u8>, CallError> {
        let insert =
            "insert into lockwood.setting (name, value) values ($1, $2) on conflict (name) do nothing";
        self.rows(insert, parameters![name.to_owned(), fresh.to_vec()]).await?;
        let rows = self
            .rows("select value from lockwood.setting where name = $1", parameters![name.to_owned()])
            .await?;
        let gone = || CallError::Unexpected(format!("the setting {name:?} came and went"));
        get(rows.first().ok_or_else(gone)?, 0)
    }

    /// A setting of the cluster, if it is on record.
    pub async fn find_setting(&self, name: &str) -> Result<Option<Vec<u8>>, CallError> {
        let sql = "select value from lockwood.setting where name = $1";
        let rows = self.rows(sql, parameters![name.to_owned()]).await?;
        rows.first().map(|row| get(row, 0)).transpose()
    }

    /// Changes a setting, if `owner` is the epoch of the owner of `shard`; false if it is not.
    pub async fn change_setting(
        &self,
        name: &str,
        value: &[u8],
        (shard, owner): (u64, Epoch),
    ) -> Result<bool, CallError> {
        let sql = "with owner as (select 1 from lockwood.shard where number = $3 and epoch = $4 for update)
            insert into lockwood.setting (name, value) select $1::text, $2::bytea from owner
            on conflict (name) do update set value = excluded.value returning name";
        let parameters = parameters![name.to_owned(), value.to_vec(), to_sql(shard), to_sql(owner.0)];
        self.changed(sql, parameters).await
    }

    /// How durable an acknowledged write is.
    pub async fn durability(&self) -> Result<DurabilityReport, CallError> {
        let rows = self.rows(durability::SQL, parameters![]).await?;
        let none = || CallError::Unexpected("no settings".to_owned());
        durability::read(rows.first().ok_or_else(none)?)
    }

    /// The clock of the database, in milliseconds since 1970.
    pub async fn now_ms(&self) -> Result<u64, CallError> {
        let rows = self.rows("select (extract(epoch from now()) * 1000)::bigint", parameters![]).await?;
        let none = || CallError::Unexpected("no time".to_owned());
        from_sql(get(rows.first().ok_or_else(none)?, 0)?)
    }

    pub(super) async fn changed(&self, sql: &str, parameters: Parameters) -> Result<bool, CallError> {
        Ok(!self.rows(sql, parameters).await?.is_empty())
    }

    /// The rows of one statement. It is tried again if it gave way to another one.
    pub(super) async fn rows(&self, sql: &str, parameters: Parameters) -> Result<Vec<Row>, CallError> {
        let (sql, parameters) = (sql.to_owned(), Arc::new(parameters));
        self.link
            .call(self.link.deadline(), move |call| async move {
                let parameters: Vec<&(dyn ToSql + Sync)> =
                    parameters.iter().map(|parameter| &**parameter as &(dyn ToSql + Sync)).collect();
                for attempt in 1.. {
                    match call.query(&sql, &parameters).await {
                        Err(error) if error.is_conflict() && attempt < ATTEMPTS_MAX => {}
                        rows => return rows,
                    }
                }
                unreachable!("the last attempt returns")
            })
            .await
    }
}

pub(super) fn home_row(row: &Row) -> Result<HomeRow, CallError> {
    Ok(HomeRow { home: get_number(row, 0)?, spread: get(row, 1)?, moved: get_number(row, 2)? })
}
