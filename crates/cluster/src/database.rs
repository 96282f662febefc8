//! The database of a cluster, as this crate uses it: the rows of nodes and shards in the words of the router, the cluster's
//! key, and caches of shards. Knows nothing of SQL.

use crate::proof::Incarnation;
use lockwood_router::{
    NodeName, NodeRow, RenewalMark, ShardEpoch, ShardNo, ShardRow, Target, This, View, ownership::ClaimRule,
};
use lockwood_storage::{
    Epoch, Store,
    postgres::{
        self, Address, AddressError, CacheError, CacheReport, CallError, ClaimIf, Claimant, Directory,
        DurabilityReport, Follower, HomeRow, Link, Rows, SchemaError, Standby, Tenure, ensure_schema,
        open_cache,
    },
};
use std::{
    collections::BTreeMap,
    io,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// How long a start waits for the database.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a start looks again.
const START_STEP: Duration = Duration::from_secs(1);
/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The setting with the key that nodes prove their calls with.
const KEY: &str = "cluster";
/// The setting with the hosts that operators prefer for each shard.
const HOSTS: &str = "hosts";
/// The settings with the shards that nodes prefer to own, before their names.
const THIS: &str = "this/";

/// Why the database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The address is none.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A thread or TLS cannot be set up.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The tables.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// It does not answer, or not as expected.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The key on record is none.
    #[error("the cluster's key in the database is damaged: it has {0} bytes instead of 32")]
    Key(usize),
}

/// Where a namespace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// The shard that has its locks.
    pub home: ShardNo,
    /// Whether its documents are on the shards of the map; otherwise they are at its home.
    pub is_spread: bool,
    /// Which change of homes brought it there; 0 if none did. A later home has a higher number.
    pub moved: u64,
}

/// Four links: renewals must not wait for appends, nor for what clients ask about namespaces, and appends not for a follower
/// that reads a long log.
pub struct Database {
    appends: Arc<Link>,
    reads: Arc<Link>,
    directory: Directory,
    /// What keeps ownership fresh, and nothing else.
    ownership: Directory,
    /// The run of this node, which its claims and appends show.
    incarnation: String,
    stale_after_ms: u64,
}

impl Database {
    /// Connects as one run of a node, and makes the tables if there are none.
    pub async fn connect(
        address: &str,
        incarnation: Incarnation,
        stale_after_ms: u64,
    ) -> Result<Database, DatabaseError> {
        let address: Address = address.parse()?;
        let [appends, reads, others, renewals] = [
            Link::open(&address, CALL_TIMEOUT)?,
            Link::open(&address, CALL_TIMEOUT)?,
            Link::open(&address, CALL_TIMEOUT)?,
            Link::open(&address, Duration::from_millis(stale_after_ms))?,
        ];
        wait_for(&appends).await?;
        ensure_schema(&appends).await?;
        let (directory, ownership) = (Directory::new(others), Directory::new(renewals));
        Ok(Database {
            appends,
            reads,
            directory,
            ownership,
            incarnation: incarnation.to_string(),
            stale_after_ms,
        })
    }

    fn tenure(&self, epoch: ShardEpoch) -> Tenure {
        Tenure { epoch: Epoch(epoch.0), incarnation: self.incarnation.clone() }
    }

    /// The key that all nodes of the cluster share; drawn by the first.
    pub async fn key(&self) -> Result<[u8; 32], DatabaseError> {
        let mut fresh = [0; 32];
        getrandom::fill(&mut fresh).expect("the operating system has a random source");
        let key = self.directory.setting(KEY, &fresh).await?;
        let len = key.len();
        key.try_into().map_err(|_| DatabaseError::Key(len))
    }

    /// How durable an acknowledged write is; none if the database answers but does not say, as one that is compatible with
    /// PostgreSQL may.
    pub async fn durability(&self) -> Result<Option<DurabilityReport>, DatabaseError> {
        match self.directory.durability().await {
            Ok(report) => Ok(Some(report)),
            Err(error @ (CallError::Refused { .. } | CallError::Unexpected(_))) => {
                tracing::debug!(%error, "ask how durable writes are");
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Makes sure that shards have rows.
    pub async fn ensure_shards(&self, shards: &[ShardNo]) -> Result<(), DatabaseError> {
        let numbers: Vec<u64> = shards.iter().map(|shard| u64::from(shard.0)).collect();
        Ok(self.directory.ensure_shards(&numbers).await?)
    }

    /// All rows as they are now.
    pub async fn rows(&self) -> Result<View, DatabaseError> {
        Ok(view(self.directory.read_rows().await?))
    }

    /// Where a namespace is, if it is anywhere.
    pub async fn find_home(&self, namespace: &str) -> Result<Option<Placed>, DatabaseError> {
        let home = self.directory.find_home(namespace).await?;
        home.map(placed).transpose()
    }

    /// Where a namespace is; that becomes `wanted` if it is nowhere, unless `homes_max` namespaces are somewhere already.
    pub async fn home(
        &self,
        namespace: &str,
        wanted: Placed,
        homes_max: u64,
    ) -> Result<Option<Placed>, DatabaseError> {
        let wanted = HomeRow { home: u64::from(wanted.home.0), spread: wanted.is_spread, moved: 0 };
        let home = self.directory.home(namespace, wanted, homes_max).await?;
        home.map(placed).transpose()
    }

    /// How many changes of homes there were.
    pub async fn home_changes(&self) -> Result<u64, DatabaseError> {
        Ok(self.directory.home_changes().await?)
    }

    /// The homes that were moved after so many changes.
    pub async fn moved_homes(&self, after: u64) -> Result<Vec<(String, Placed)>, DatabaseError> {
        let moved = self.directory.moved_homes(after).await?;
        moved.into_iter().map(|(name, row)| Ok((name, placed(row)?))).collect()
    }

    /// Notes where the home of a spread namespace is wanted; where it is ends that. Gives where it is.
    pub async fn want_home(&self, namespace: &str, at: ShardNo) -> Result<Option<ShardNo>, DatabaseError> {
        let home = self.directory.want_home(namespace, u64::from(at.0)).await?;
        home.map(shard_no).transpose()
    }

    /// Where the home of a namespace is wanted, if that is not where it is.
    pub async fn home_target(&self, namespace: &str) -> Result<Option<ShardNo>, DatabaseError> {
        self.directory.home_target(namespace).await?.map(shard_no).transpose()
    }

    /// The shards with homes that are wanted elsewhere.
    pub async fn shards_to_leave(&self) -> Result<Vec<ShardNo>, DatabaseError> {
        self.directory.shards_to_leave().await?.into_iter().map(shard_no).collect()
    }

    /// Some of the homes at a shard that are wanted elsewhere, with where.
    pub async fn homes_to_move(
        &self,
        from: ShardNo,
        len_max: u32,
    ) -> Result<Vec<(String, ShardNo)>, DatabaseError> {
        named_shards(self.directory.homes_to_move(u64::from(from.0), len_max).await?)
    }

    /// Some of the homes of spread namespaces at these shards that are wanted nowhere else.
    pub async fn homes_at(
        &self,
        shards: &[ShardNo],
        len_max: u32,
    ) -> Result<Vec<(String, ShardNo)>, DatabaseError> {
        let shards: Vec<u64> = shards.iter().map(|shard| u64::from(shard.0)).collect();
        named_shards(self.directory.homes_at(&shards, len_max).await?)
    }

    /// Moves a home, if `owner` is the epoch of the owner of the shard that it leaves; gives the number of this change.
    pub async fn move_home(
        &self,
        namespace: &str,
        (from, owner): (ShardNo, ShardEpoch),
        to: ShardNo,
    ) -> Result<Option<u64>, DatabaseError> {
        let from = (u64::from(from.0), Epoch(owner.0));
        Ok(self.directory.move_home(namespace, from, u64::from(to.0)).await?)
    }

    /// The latest map as it was added, with its epoch.
    pub async fn map(&self) -> Result<Option<(u64, Vec<u8>)>, DatabaseError> {
        Ok(self.directory.map().await?)
    }

    /// Some of the maps from an epoch on, as they were added, with their epochs, in order.
    pub async fn maps_from(&self, epoch: u64, len_max: u32) -> Result<Vec<(u64, Vec<u8>)>, DatabaseError> {
        Ok(self.directory.maps_from(epoch, len_max).await?)
    }

    /// The epoch of the latest map, asked over the link of followers.
    pub async fn map_epoch(&self) -> Result<Option<u64>, DatabaseError> {
        Ok(Directory::new(Arc::clone(&self.reads)).map_epoch().await?)
    }

    /// Adds a map that is newer than all others, if `owner` is this node's epoch of `shard`; false if it is not, or there
    /// is one that is as new.
    pub async fn add_map(
        &self,
        epoch: u64,
        map: &[u8],
        (shard, owner): (ShardNo, ShardEpoch),
    ) -> Result<bool, DatabaseError> {
        Ok(self.directory.add_map(epoch, map, (u64::from(shard.0), &self.tenure(owner))).await?)
    }

    /// The hosts that operators prefer for each shard, as they were noted last.
    pub async fn hosts(&self) -> Result<Option<Vec<u8>>, DatabaseError> {
        Ok(self.directory.find_setting(HOSTS).await?)
    }

    /// Notes the hosts that operators prefer, if `owner` is this node's epoch of `shard`; false if it is not.
    pub async fn set_hosts(
        &self,
        hosts: &[u8],
        (shard, owner): (ShardNo, ShardEpoch),
    ) -> Result<bool, DatabaseError> {
        let owner = (u64::from(shard.0), &self.tenure(owner));
        Ok(self.directory.change_setting(HOSTS, hosts, owner).await?)
    }

    /// What nodes prefer to own, by their names.
    pub async fn this(&self) -> Result<BTreeMap<NodeName, This>, DatabaseError> {
        let rows = Directory::new(Arc::clone(&self.reads)).settings_below(THIS).await?;
        let read = |(node, value): (String, Vec<u8>)| {
            let number = std::str::from_utf8(&value).ok()?.parse().ok()?;
            Some((NodeName::from(node.as_str()), This::of(number)))
        };
        Ok(rows.into_iter().filter_map(read).collect())
    }

    /// Notes what a node prefers to own, or that it prefers nothing any more, if `owner` is the epoch of the owner of `shard`; false
    /// if it is not.
    pub async fn set_this(
        &self,
        node: &NodeName,
        this: Option<This>,
        (shard, owner): (ShardNo, ShardEpoch),
    ) -> Result<bool, DatabaseError> {
        // What cannot be read is no preference.
        let value = this.map_or_else(String::new, |this| this.number().to_string());
        let name = format!("{THIS}{node}");
        let owner = (u64::from(shard.0), &self.tenure(owner));
        Ok(self.directory.change_setting(&name, value.as_bytes(), owner).await?)
    }

    /// The first `len_max` namespaces by name that have their home on each shard, and how many there are.
    pub async fn names_by_shard(
        &self,
        len_max: u32,
    ) -> Result<BTreeMap<ShardNo, (u64, Vec<String>)>, DatabaseError> {
        let found = self.directory.names_by_shard(len_max).await?;
        found.into_iter().map(|(shard, count, names)| Ok((shard_no(shard)?, (count, names)))).collect()
    }

    /// The standbys of the database; none if this role may not see them.
    pub async fn standbys(&self) -> Result<Option<Vec<Standby>>, DatabaseError> {
        Ok(self.directory.standbys().await?)
    }

    /// How many namespaces have their home on each shard.
    pub async fn homes_by_shard(&self) -> Result<BTreeMap<ShardNo, u64>, DatabaseError> {
        let counts = self.directory.homes_by_shard().await?;
        counts.into_iter().map(|(shard, count)| Ok((shard_no(shard)?, count))).collect()
    }

    /// Opens the cache of a shard that was claimed. Blocks.
    pub fn open_cache(
        &self,
        directory: &Path,
        shard: ShardNo,
        epoch: ShardEpoch,
    ) -> Result<(Arc<dyn Store>, CacheReport), CacheError> {
        open_cache(directory, &self.appends, u64::from(shard.0), &self.tenure(epoch))
    }

    /// Opens the cache of a shard that another node owns, and brings it to the log. Blocks.
    pub fn follow(&self, directory: &Path, shard: ShardNo) -> Result<Follower, CacheError> {
        Follower::open(directory, &self.reads, u64::from(shard.0))
    }

    /// Makes a follower the store of an owner, under the epoch of its claim. Blocks.
    pub fn promote(
        &self,
        follower: Follower,
        epoch: ShardEpoch,
    ) -> Result<(Arc<dyn Store>, CacheReport), CacheError> {
        follower.promote(&self.appends, &self.tenure(epoch))
    }

    /// Takes a node's name for one run; false if another run that is alive has it.
    pub async fn register(
        &self,
        node: &NodeName,
        address: &str,
        version: &str,
    ) -> Result<bool, DatabaseError> {
        let renewal = postgres::Renewal {
            node: node.to_string(),
            incarnation: self.incarnation.clone(),
            address: address.to_owned(),
            version: version.to_owned(),
            stops: false,
            shards: Vec::new(),
        };
        Ok(self.ownership.register(&renewal).await?)
    }

    pub(crate) async fn renew(&self, renewal: &postgres::Renewal) -> Result<View, CallError> {
        self.ownership.renew(renewal).await.map(view)
    }

    pub(crate) async fn claim(
        &self,
        shard: ShardNo,
        node: &NodeName,
        expected: ShardEpoch,
        rule: ClaimRule,
    ) -> Result<Option<ShardEpoch>, CallError> {
        let condition = match rule {
            ClaimRule::Free(renewed) => ClaimIf::Free(renewed.0),
            ClaimRule::Holder => ClaimIf::Own,
        };
        let (shard, expected) = (u64::from(shard.0), Epoch(expected.0));
        let claimant = Claimant { node: node.as_str(), incarnation: &self.incarnation };
        let claimed = self.ownership.claim_at(shard, claimant, expected, condition).await?;
        Ok(claimed.map(|epoch| ShardEpoch(epoch.0)))
    }

    pub(crate) async fn release(
        &self,
        shard: ShardNo,
        node: &NodeName,
        epoch: ShardEpoch,
        to: Option<&NodeName>,
    ) -> Result<(), CallError> {
        let to = to.map(NodeName::as_str);
        self.ownership.release_to(u64::from(shard.0), node.as_str(), &self.tenure(epoch), to).await
    }

    pub(crate) async fn deregister(&self, node: &NodeName, incarnation: &str) -> Result<(), CallError> {
        self.ownership.remove_node(node.as_str(), incarnation).await.map(drop)
    }

    /// Has a node give its shards away and take none, or take some again; false if there is no such node.
    pub async fn set_drains(&self, node: &str, drains: bool) -> Result<bool, DatabaseError> {
        Ok(self.directory.set_drains(node, drains).await?)
    }

    /// Removes a node that does not come back; false if there is no such node, or it is alive.
    pub async fn forget(&self, node: &str) -> Result<bool, DatabaseError> {
        let forgotten = self.directory.forget(node, self.stale_after_ms).await?;
        if forgotten {
            self.directory.remove_setting(&format!("{THIS}{node}")).await?;
        }
        Ok(forgotten)
    }

    /// Pins a shard to a node, or to none; false if there is no such shard.
    pub async fn pin(&self, shard: ShardNo, node: Option<&str>) -> Result<bool, DatabaseError> {
        Ok(self.directory.pin(u64::from(shard.0), node).await?)
    }
}

/// Waits for a database that may be about to start, but not for one that does not let this node in.
async fn wait_for(link: &Link) -> Result<(), CallError> {
    let (begun, mut is_told) = (Instant::now(), false);
    loop {
        match link.ready(START_STEP).await {
            Err(error) if !link.is_refused() && begun.elapsed() < START_TIMEOUT => {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::warn!(%error, "wait for the database");
                }
            }
            ready => return ready,
        }
    }
}

fn placed(row: HomeRow) -> Result<Placed, DatabaseError> {
    Ok(Placed { home: shard_no(row.home)?, is_spread: row.spread, moved: row.moved })
}

fn named_shards(rows: Vec<(String, u64)>) -> Result<Vec<(String, ShardNo)>, DatabaseError> {
    rows.into_iter().map(|(name, shard)| Ok((name, shard_no(shard)?))).collect()
}

fn shard_no(number: u64) -> Result<ShardNo, DatabaseError> {
    let unexpected = |_| CallError::Unexpected(format!("shard {number} as the home of a namespace"));
    Ok(ShardNo(u32::try_from(number).map_err(unexpected)?))
}

fn view(rows: Rows) -> View {
    let node = |row: postgres::NodeRow| NodeRow {
        name: NodeName::from(row.name.as_str()),
        address: row.address,
        age_ms: row.age_ms,
        drains: row.drains,
    };
    // A number that is no shard's cannot be routed to.
    let shard = |row: postgres::ShardRow| {
        let target = row.target.as_deref().map(NodeName::from);
        Some(ShardRow {
            shard: ShardNo(u32::try_from(row.number).ok()?),
            epoch: ShardEpoch(row.epoch.0),
            owner: row.owner.as_deref().map(NodeName::from),
            renewed: RenewalMark(row.renewed),
            age_ms: row.age_ms,
            target: match target {
                None => Target::Any,
                Some(node) if row.pinned => Target::Pinned(node),
                Some(node) => Target::Handoff(node),
            },
        })
    };
    View {
        nodes: rows.nodes.into_iter().map(node).collect(),
        shards: rows.shards.into_iter().filter_map(shard).collect(),
    }
}
