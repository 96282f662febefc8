//! The directory of a cluster in PostgreSQL: nodes, who owns which shard, the map and namespaces.
//! Knows nothing of when a node claims or releases, nor of what the map says.
//!
//! Times are PostgreSQL's: a row is so many milliseconds old by the clock of the database, and nodes' clocks do not matter.
//! Every change is one guarded statement; none waits for another but for the row it changes.

use super::{
    durability::{self, DurabilityReport, Standby},
    link::{CallError, Link},
    log::{get, get_number},
    schema::{from_sql, to_sql},
    tenure::Tenure,
};
use crate::log::Epoch;
use parking_lot::Mutex;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio_postgres::{Row, types::ToSql};

/// How often a statement is tried whose transaction gave way to another one.
const ATTEMPTS_MAX: u32 = 5;

/// How long a count of the namespaces is good for.
const COUNT_KEPT: Duration = Duration::from_secs(10);
/// So many nodes may add namespaces at once, each as many as this one, and none passes the limit.
const COUNTED_BY: u64 = 16;

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
    /// Stands for the last time at which its owner renewed it, or it was claimed or released: no two of them have the same.
    pub renewed: i64,
    /// How long ago that was, by the clock of the database.
    pub age_ms: u64,
    /// The node that a planned handoff is for.
    pub target: Option<String>,
    /// Whether an operator named the target, and it stays.
    pub pinned: bool,
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
    counted: Arc<Mutex<Option<Counted>>>,
}

/// What this node knows of how many namespaces there are. Counting reads the whole table, so it is done again when its
/// result may be too old to say that there is room: never near the limit.
#[derive(Debug, Clone, Copy)]
struct Counted {
    at: Instant,
    /// So many more this node may add before it counts again.
    room: u64,
}

impl Counted {
    fn new(count: u64, homes_max: u64, at: Instant) -> Counted {
        Counted { at, room: homes_max.saturating_sub(count) / COUNTED_BY }
    }

    /// One more, if there is room for certain.
    fn take(&mut self, now: Instant) -> bool {
        let has_room = self.room > 0 && now.duration_since(self.at) < COUNT_KEPT;
        self.room = self.room.saturating_sub(1);
        has_room
    }
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
        Directory { link, counted: Arc::default() }
    }

    /// Removes the row of a run that has stopped; false if its name has passed to another run, or the row is gone.
    pub async fn remove_node(&self, name: &str, incarnation: &str) -> Result<bool, CallError> {
        let sql = "delete from lockwood.node where name = $1 and incarnation = $2 returning name";
        self.changed(sql, parameters![name.to_owned(), incarnation.to_owned()]).await
    }

    /// Makes sure that shards have rows.
    pub async fn ensure_shards(&self, numbers: &[u64]) -> Result<(), CallError> {
        let numbers: Vec<i64> = numbers.iter().copied().map(to_sql).collect();
        let sql =
            "insert into lockwood.shard (number) select number from unnest($1::bigint[]) as wanted (number)
            on conflict (number) do nothing";
        self.rows(sql, parameters![numbers]).await.map(drop)
    }

    /// The latest map with its epoch.
    pub async fn map(&self) -> Result<Option<(u64, Vec<u8>)>, CallError> {
        let rows = self
            .rows("select epoch, map from lockwood.map order by epoch desc limit 1", parameters![])
            .await?;
        rows.first().map(|row| Ok((get_number(row, 0)?, get(row, 1)?))).transpose()
    }

    /// Some of the maps from an epoch on, with their epochs, in order.
    pub async fn maps_from(&self, epoch: u64, len_max: u32) -> Result<Vec<(u64, Vec<u8>)>, CallError> {
        let sql = "select epoch, map from lockwood.map where epoch >= $1 order by epoch limit $2::bigint";
        let rows = self.rows(sql, parameters![to_sql(epoch), i64::from(len_max)]).await?;
        rows.iter().map(|row| Ok((get_number(row, 0)?, get(row, 1)?))).collect()
    }

    /// The epoch of the latest map.
    pub async fn map_epoch(&self) -> Result<Option<u64>, CallError> {
        let rows = self.rows("select max(epoch) from lockwood.map", parameters![]).await?;
        let epoch: Option<i64> = rows.first().map_or(Ok(None), |row| get(row, 0))?;
        epoch.map(from_sql).transpose()
    }

    /// Adds a map with a higher epoch than all others, if `owner` is the tenure of the owner of `shard`; false if it is not, or
    /// there is one that is as new.
    pub async fn add_map(
        &self,
        epoch: u64,
        map: &[u8],
        (shard, owner): (u64, &Tenure),
    ) -> Result<bool, CallError> {
        let sql = "with owner as (select 1 from lockwood.shard
                where number = $3 and epoch = $4 and incarnation = $5 for update)
            insert into lockwood.map (epoch, map) select $1::bigint, $2 from owner
            where $1 > (select coalesce(max(epoch), 0) from lockwood.map)
            on conflict (epoch) do nothing returning epoch";
        let Tenure { epoch: owner, incarnation } = owner.clone();
        let parameters =
            parameters![to_sql(epoch), map.to_vec(), to_sql(shard), to_sql(owner.0), incarnation];
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
        if !self.has_room(homes_max).await? {
            return self.find_home(namespace).await;
        }
        let sql = "insert into lockwood.namespace (name, home, spread) values ($1, $2, $3)
            on conflict (name) do nothing returning home, spread, moved";
        let parameters = parameters![namespace.to_owned(), to_sql(wanted.home), wanted.spread];
        let rows = self.rows(sql, parameters).await?;
        match rows.first() {
            Some(row) => home_row(row).map(Some),
            None => self.find_home(namespace).await,
        }
    }

    /// Whether there is room for one more namespace.
    async fn has_room(&self, homes_max: u64) -> Result<bool, CallError> {
        if self.counted.lock().as_mut().is_some_and(|counted| counted.take(Instant::now())) {
            return Ok(true);
        }
        let at = Instant::now();
        let rows = self.rows("select count(*) from lockwood.namespace", parameters![]).await?;
        let count = rows.first().map_or(Ok(0), |row| get_number(row, 0))?;
        *self.counted.lock() = Some(Counted::new(count, homes_max, at));
        Ok(count < homes_max)
    }

    /// How many namespaces have their home on each shard, as far as some have.
    pub async fn homes_by_shard(&self) -> Result<Vec<(u64, u64)>, CallError> {
        let rows =
            self.rows("select home, count(*) from lockwood.namespace group by home", parameters![]).await?;
        rows.iter().map(|row| Ok((get_number(row, 0)?, get_number(row, 1)?))).collect()
    }

    /// The same with the names of the first `len_max` namespaces of each shard.
    pub async fn names_by_shard(&self, len_max: u32) -> Result<Vec<(u64, u64, Vec<String>)>, CallError> {
        let sql = "select home, total, name from (select home, name, count(*) over (partition by home) as total,
                row_number() over (partition by home order by name) as place from lockwood.namespace) as ranked
            where place <= $1::bigint order by home, name";
        let mut found: Vec<(u64, u64, Vec<String>)> = Vec::new();
        for row in &self.rows(sql, parameters![i64::from(len_max.max(1))]).await? {
            let home = get_number(row, 0)?;
            if found.last().is_none_or(|(last, ..)| *last != home) {
                found.push((home, get_number(row, 1)?, Vec::new()));
            }
            if let Some((.., names)) = found.last_mut() {
                names.push(get(row, 2)?);
            }
        }
        Ok(found)
    }

    /// The home of a namespace, if it has one.
    pub async fn find_home(&self, namespace: &str) -> Result<Option<HomeRow>, CallError> {
        let sql = "select home, spread, moved from lockwood.namespace where name = $1";
        let rows = self.rows(sql, parameters![namespace.to_owned()]).await?;
        rows.first().map(home_row).transpose()
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

    /// The settings whose names begin so, without that beginning. `%` and `_` stand for themselves in no beginning that is used.
    pub async fn settings_below(&self, beginning: &str) -> Result<Vec<(String, Vec<u8>)>, CallError> {
        let sql = "select substr(name, char_length($1::text) + 1), value from lockwood.setting
            where name like $1::text || '%' order by name";
        let rows = self.rows(sql, parameters![beginning.to_owned()]).await?;
        rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?))).collect()
    }

    /// Removes a setting, if it is on record.
    pub async fn remove_setting(&self, name: &str) -> Result<(), CallError> {
        self.rows("delete from lockwood.setting where name = $1", parameters![name.to_owned()])
            .await
            .map(drop)
    }

    /// Changes a setting, if `owner` is the tenure of the owner of `shard`; false if it is not.
    pub async fn change_setting(
        &self,
        name: &str,
        value: &[u8],
        (shard, owner): (u64, &Tenure),
    ) -> Result<bool, CallError> {
        let sql = "with owner as (select 1 from lockwood.shard
                where number = $3 and epoch = $4 and incarnation = $5 for update)
            insert into lockwood.setting (name, value) select $1::text, $2::bytea from owner
            on conflict (name) do update set value = excluded.value returning name";
        let Tenure { epoch: owner, incarnation } = owner.clone();
        let parameters =
            parameters![name.to_owned(), value.to_vec(), to_sql(shard), to_sql(owner.0), incarnation];
        self.changed(sql, parameters).await
    }

    /// How durable an acknowledged write is.
    pub async fn durability(&self) -> Result<DurabilityReport, CallError> {
        let rows = self.rows(durability::SQL, parameters![]).await?;
        let none = || CallError::Unexpected("no settings".to_owned());
        durability::read(rows.first().ok_or_else(none)?)
    }

    /// The standbys that are connected; none if this role may not see them, or there is no such view.
    pub async fn standbys(&self) -> Result<Option<Vec<Standby>>, CallError> {
        match self.rows(durability::STANDBYS, parameters![]).await {
            Ok(rows) => rows.iter().map(durability::standby).collect(),
            Err(error) if error.has_code(&durability::NOT_SHOWN) => Ok(None),
            Err(error) => Err(error),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_counted_again_when_the_limit_may_be_near() {
        let at = Instant::now();
        let mut counted = Counted::new(200, 1000, at);
        assert_eq!((0..100).filter(|_| counted.take(at)).count(), 50);
        assert!(!Counted::new(200, 1000, at).take(at + COUNT_KEPT), "others may have added some since");
        assert!(!Counted::new(990, 1000, at).take(at));
        assert!(!Counted::new(2000, 1000, at).take(at));
    }
}
