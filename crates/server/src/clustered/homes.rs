//! Where each namespace is: its home, the shard that has its locks, and whether its documents are all there too (a *whole*
//! namespace) or on the shards of the map (a *spread* one). On record in the database since the namespace was first used, and
//! remembered here. Knows nothing of requests, nor of the map.

use lockwood_cluster::{Database, DatabaseError, Placed};
use lockwood_node::{
    territory::{SYSTEM, Use},
    trouble::Trouble,
};
use lockwood_router::ShardNo;
use lockwood_wire::Code;
use parking_lot::RwLock;
use std::{collections::HashMap, sync::Arc};

/// The homes that are on record at the most, which bounds what is remembered.
const HOMES_LEN_MAX: u64 = 1_000_000;

/// What is on record never changes, so what is remembered is never wrong.
pub(crate) struct Homes {
    database: Arc<Database>,
    known: RwLock<HashMap<Arc<str>, Placed>>,
}

impl Homes {
    pub(super) fn new(database: Arc<Database>) -> Homes {
        Homes { database, known: RwLock::default() }
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
        let here = Placed { home: shard, is_spread: false };
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
        self.known.read().get(namespace).copied()
    }

    fn remember(&self, namespace: &str, placed: Placed) {
        self.known.write().insert(namespace.into(), placed);
    }
}

fn unavailable(error: &DatabaseError) -> Trouble {
    let message =
        format!("the database of the cluster does not say where the namespace is: {error}; try again");
    Trouble::new(Code::ShardUnreachable, message)
}
