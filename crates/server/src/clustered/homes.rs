//! Where each namespace is: its home, the shard that has its locks, and whether its documents are all there too (a *whole*
//! namespace) or on the shards of the map (a *spread* one). On record in the database since the namespace was first used, and
//! remembered here. Homes that were moved are looked for after each renewal. Knows nothing of requests, nor of the map.

use lockwood_cluster::{Database, DatabaseError, Placed};
use lockwood_node::{
    territory::{SYSTEM, Use},
    trouble::Trouble,
};
use lockwood_router::ShardNo;
use lockwood_wire::Code;
use parking_lot::RwLock;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};
use tokio::sync::{Mutex, watch};

/// The homes that are on record at the most, which bounds what is remembered.
const HOMES_LEN_MAX: u64 = 1_000_000;

/// What is remembered may be an earlier home. The shard of that refuses what only the home may do.
pub(crate) struct Homes {
    database: Arc<Database>,
    known: RwLock<Known>,
    /// One look at a time.
    looking: Mutex<()>,
    /// How many changes of homes are known here.
    seen: watch::Sender<u64>,
}

#[derive(Default)]
struct Known {
    placed: HashMap<Arc<str>, Placed>,
    /// By shard, the last change that brought a home there.
    arrived: BTreeMap<ShardNo, u64>,
}

impl Homes {
    pub(super) fn new(database: Arc<Database>) -> Homes {
        let (known, looking, seen) = (RwLock::default(), Mutex::default(), watch::Sender::new(0));
        Homes { database, known, looking, seen }
    }

    /// Looks which homes were moved; gives how many changes there were. Whatever was moved before this began is known after it.
    pub(super) async fn look(&self) -> Result<u64, Trouble> {
        let _turn = self.looking.lock().await;
        let now = self.database.home_changes().await.map_err(|error| unavailable(&error))?;
        let before = *self.seen.borrow();
        if now > before {
            let moved = self.database.moved_homes(before).await.map_err(|error| unavailable(&error))?;
            moved.into_iter().for_each(|(name, placed)| self.remember(&name, placed));
            self.seen.send_replace(now);
        }
        Ok(now)
    }

    /// Changes whenever changes of homes have become known.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.seen.subscribe()
    }

    /// The last change that brought a home to a shard, as far as it is known; 0 if none did.
    pub(super) fn arrived_at(&self, shard: ShardNo) -> u64 {
        self.known.read().arrived.get(&shard).copied().unwrap_or_default()
    }

    /// Where a namespace is, if it is anywhere.
    pub(crate) async fn find(&self, namespace: &str) -> Result<Option<Placed>, Trouble> {
        if let Some(placed) = self.remembered(namespace) {
            return Ok(Some(placed));
        }
        let found = self.database.find_home(namespace).await.map_err(|error| unavailable(&error))?;
        Ok(found.inspect(|placed| self.remember(namespace, *placed)))
    }

    /// Where a namespace is; that becomes `wanted` if it is nowhere.
    pub(crate) async fn ensure(&self, namespace: &str, wanted: Placed) -> Result<Placed, Trouble> {
        if let Some(placed) = self.remembered(namespace) {
            return Ok(placed);
        }
        let found = self
            .database
            .home(namespace, wanted, HOMES_LEN_MAX)
            .await
            .map_err(|error| unavailable(&error))?;
        let too_many = || {
            let message =
                format!("the cluster has {HOMES_LEN_MAX} namespaces, which is the limit; use one of them");
            Trouble::new(Code::TooMany, message)
        };
        let placed = found.ok_or_else(too_many)?;
        self.remember(namespace, placed);
        Ok(placed)
    }

    /// That this shard may have documents of a namespace: it is the home, or they are on several shards. A write makes it
    /// the home if there is none.
    pub(crate) async fn check(&self, namespace: &str, shard: ShardNo, wanted: Use) -> Result<(), Trouble> {
        let here = Placed { home: shard, is_spread: false, moved: 0 };
        let placed = match wanted {
            Use::Write => self.ensure(namespace, here).await?,
            Use::Read => self.find(namespace).await?.unwrap_or(here),
        };
        if placed.home == shard || placed.is_spread {
            return Ok(());
        }
        let message = format!(
            "{namespace} is on shard {}, and what else the request names on shard {}; send a request for each",
            placed.home.0, shard.0
        );
        Err(Trouble::new(Code::SpansShards, message))
    }

    /// Whether the documents of a namespace are on several shards.
    pub(crate) async fn is_spread(&self, namespace: &str) -> Result<bool, Trouble> {
        if namespace == SYSTEM {
            return Ok(false);
        }
        Ok(self.find(namespace).await?.is_some_and(|placed| placed.is_spread))
    }

    /// Where a namespace is, if that was asked before.
    pub(crate) fn remembered(&self, namespace: &str) -> Option<Placed> {
        self.known.read().placed.get(namespace).copied()
    }

    /// A home is known from now on, unless a later one is.
    pub(super) fn remember(&self, namespace: &str, placed: Placed) {
        let mut known = self.known.write();
        if placed.moved > 0 {
            let arrived = known.arrived.entry(placed.home).or_default();
            *arrived = placed.moved.max(*arrived);
        }
        match known.placed.get_mut(namespace) {
            Some(before) if before.moved > placed.moved => {}
            Some(before) => *before = placed,
            None => drop(known.placed.insert(namespace.into(), placed)),
        }
    }
}

fn unavailable(error: &DatabaseError) -> Trouble {
    let message =
        format!("the database of the cluster does not say where the namespace is: {error}; try again");
    Trouble::new(Code::ShardUnreachable, message)
}
