//! The rows that ownership is decided by: renewed, read, claimed and released, each by one guarded statement. Knows nothing
//! of when a node does so.
//!
//! `renewed_at` is the moment of the statement by the clock of the database. That clock may step, so it decides nothing but
//! whose a name is: of a shard, `renewed_at` only tells one renewal from another, and therefore always increases.

use super::{
    directory::{Directory, NodeRow, Parameters, ShardRow, parameters},
    link::CallError,
    log::{get, get_number},
    schema::to_sql,
};
use crate::log::Epoch;
use tokio_postgres::Row;

/// One ownership of a shard, from a claim to the next: what every append has to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenure {
    /// Of the claim.
    pub epoch: Epoch,
    /// The run of the node that claimed the shard. Another node can have the same epoch, after a failover of the database
    /// that lost commits.
    pub incarnation: String,
}

/// The node that claims a shard.
#[derive(Debug, Clone, Copy)]
pub struct Claimant<'a> {
    /// Its name.
    pub node: &'a str,
    /// Its run.
    pub incarnation: &'a str,
}

/// What a node says of itself, again and again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    /// Its name.
    pub node: String,
    /// Its run: a row that another run has renewed lately is left alone.
    pub incarnation: String,
    /// Where other nodes reach it.
    pub address: String,
    /// The version it runs.
    pub version: String,
    /// Whether it is about to stop; another column than an operator's drain.
    pub stops: bool,
    /// The shards that it holds.
    pub shards: Vec<(u64, Epoch)>,
}

/// All rows, read after a renewal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rows {
    /// By name.
    pub nodes: Vec<NodeRow>,
    /// By number.
    pub shards: Vec<ShardRow>,
}

/// What a row must fulfil for a claim, beside the expected epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimIf {
    /// No owner, or none that has renewed it since this was its [`ShardRow::renewed`].
    Free(i64),
    /// This run of this node is the owner.
    Own,
}

/// A name belongs to the run that has renewed it within this time.
const NAME_KEPT_MS: f64 = 3_000.0;

/// No row of a shard has the same twice.
const NEXT: &str = "greatest(clock_timestamp(), renewed_at + interval '1 microsecond')";
const RENEWED: &str = "(extract(epoch from renewed_at) * 1000000)::bigint";
const AGE: &str = "greatest(0, extract(epoch from (clock_timestamp() - renewed_at)) * 1000)::bigint";

impl Directory {
    /// Renews a node and its shards, then reads all rows.
    pub async fn renew(&self, renewal: &Renewal) -> Result<Rows, CallError> {
        if !self.register(renewal).await? {
            let why = format!("another node called {} is running", renewal.node);
            return Err(CallError::Unexpected(why));
        }
        let Renewal { node, incarnation, shards, .. } = renewal;
        let (numbers, epochs): (Vec<i64>, Vec<i64>) =
            shards.iter().map(|(number, epoch)| (to_sql(*number), to_sql(epoch.0))).unzip();
        let renew_shards = format!(
            "update lockwood.shard set renewed_at = {NEXT}
            from unnest($2::bigint[], $3::bigint[]) as held (number, epoch)
            where shard.number = held.number and shard.epoch = held.epoch and shard.owner = $1
                and shard.incarnation = $4"
        );
        if !shards.is_empty() {
            self.rows(&renew_shards, parameters![node.clone(), numbers, epochs, incarnation.clone()]).await?;
        }
        self.read_rows().await
    }

    /// Renews a node's row; false if another run of this name has renewed it within [`NAME_KEPT_MS`].
    pub async fn register(&self, renewal: &Renewal) -> Result<bool, CallError> {
        let Renewal { node, incarnation, address, version, stops, .. } = renewal.clone();
        let sql = "insert into lockwood.node (name, address, version, stops, incarnation, renewed_at)
            values ($1, $2, $3, $4, $5, clock_timestamp())
            on conflict (name) do update set address = $2, version = $3, stops = $4, incarnation = $5,
                renewed_at = clock_timestamp()
            where node.incarnation = $5
                or node.renewed_at < clock_timestamp() - $6::float8 * interval '1 millisecond'
            returning name";
        let parameters = parameters![node, address, version, stops, incarnation, NAME_KEPT_MS];
        self.changed(sql, parameters).await
    }

    /// All nodes and shards as they are now.
    pub async fn read_rows(&self) -> Result<Rows, CallError> {
        let nodes =
            format!("select name, address, version, drains or stops, {AGE} from lockwood.node order by name");
        let shards = format!(
            "select number, owner, epoch, last, {AGE}, target, pinned, {RENEWED} from lockwood.shard order by number"
        );
        let nodes = self.rows(&nodes, parameters![]).await?;
        let shards = self.rows(&shards, parameters![]).await?;
        Ok(Rows {
            nodes: nodes.iter().map(node).collect::<Result<_, _>>()?,
            shards: shards.iter().map(shard).collect::<Result<_, _>>()?,
        })
    }

    /// Makes a node the owner of a shard and fences every earlier one; none if the row has another epoch or does not fulfil
    /// the condition. Done twice, the second has no effect.
    pub async fn claim_at(
        &self,
        shard: u64,
        claimant: Claimant<'_>,
        expected: Epoch,
        condition: ClaimIf,
    ) -> Result<Option<Epoch>, CallError> {
        let (own, renewed) = match condition {
            ClaimIf::Own => (true, 0),
            ClaimIf::Free(renewed) => (false, renewed),
        };
        let sql = format!(
            "update lockwood.shard set epoch = epoch + 1, owner = $2, incarnation = $6,
                renewed_at = {NEXT}, target = case when pinned then target end
            where number = $1 and epoch = $3 and case when $4 then owner = $2 and incarnation = $6
                else owner is null or {RENEWED} = $5 end
            returning epoch"
        );
        let (node, incarnation) = (claimant.node.to_owned(), claimant.incarnation.to_owned());
        let parameters = parameters![to_sql(shard), node, to_sql(expected.0), own, renewed, incarnation];
        let rows = self.rows(&sql, parameters).await?;
        rows.first().map(|row| get_number(row, 0).map(Epoch)).transpose()
    }

    /// Gives a shard up, if `node` still holds it with this tenure, and names the node that is to claim it, unless an operator
    /// has pinned it. The epoch goes up, so that an append still under way does not come after the release.
    pub async fn release_to(
        &self,
        shard: u64,
        node: &str,
        tenure: &Tenure,
        target: Option<&str>,
    ) -> Result<(), CallError> {
        let sql = format!(
            "update lockwood.shard set owner = null, epoch = epoch + 1, renewed_at = {NEXT},
                target = case when pinned then target else $4 end
            where number = $1 and owner = $2 and epoch = $3 and incarnation = $5"
        );
        let target = target.map(str::to_owned);
        let (epoch, incarnation) = (to_sql(tenure.epoch.0), tenure.incarnation.clone());
        let parameters = parameters![to_sql(shard), node.to_owned(), epoch, target, incarnation];
        self.rows(&sql, parameters).await.map(drop)
    }

    /// Has a node give its shards away and take none, or take some again; false if there is no such node.
    pub async fn set_drains(&self, node: &str, drains: bool) -> Result<bool, CallError> {
        let sql = "update lockwood.node set drains = $2 where name = $1 returning name";
        self.changed(sql, parameters![node.to_owned(), drains]).await
    }

    /// Removes a node that has not renewed its row for `stale_after_ms`, and what pinned shards to it; false if there is no
    /// such node, or it is alive.
    pub async fn forget(&self, node: &str, stale_after_ms: u64) -> Result<bool, CallError> {
        let sql = "with gone as (delete from lockwood.node
                where name = $1 and renewed_at < clock_timestamp() - $2::float8 * interval '1 millisecond'
                returning name),
            unpinned as (update lockwood.shard set target = null, pinned = false from gone where target = gone.name)
            select name from gone";
        self.changed(sql, parameters![node.to_owned(), stale_after_ms as f64]).await
    }

    /// Pins a shard to a node, or to none; false if there is no such shard.
    pub async fn pin(&self, shard: u64, node: Option<&str>) -> Result<bool, CallError> {
        let sql = "update lockwood.shard set target = $2, pinned = $3 where number = $1 returning number";
        let parameters = parameters![to_sql(shard), node.map(str::to_owned), node.is_some()];
        self.changed(sql, parameters).await
    }
}

fn node(row: &Row) -> Result<NodeRow, CallError> {
    Ok(NodeRow {
        name: get(row, 0)?,
        address: get(row, 1)?,
        version: get(row, 2)?,
        drains: get(row, 3)?,
        age_ms: get_number(row, 4)?,
    })
}

fn shard(row: &Row) -> Result<ShardRow, CallError> {
    Ok(ShardRow {
        number: get_number(row, 0)?,
        owner: get(row, 1)?,
        epoch: Epoch(get_number(row, 2)?),
        last: get_number(row, 3)?,
        age_ms: get_number(row, 4)?,
        target: get(row, 5)?,
        pinned: get(row, 6)?,
        renewed: get(row, 7)?,
    })
}
