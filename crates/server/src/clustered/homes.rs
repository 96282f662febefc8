//! The home of each namespace: the shard that has its locks and documents. On record in the database since the namespace
//! was first used, and remembered here. Knows nothing of requests.

use crate::trouble::Trouble;
use lockwood_cluster::{Database, DatabaseError};
use lockwood_router::ShardNo;
use lockwood_wire::Code;
use parking_lot::RwLock;
use std::{collections::HashMap, sync::Arc};

/// The homes that are on record at the most.
const HOMES_LEN_MAX: u64 = 1_000_000;
/// The homes that are remembered at the most; more are read again when they are needed.
const KNOWN_LEN_MAX: usize = 100_000;

/// A home never changes, so what is remembered is never wrong.
pub(crate) struct Homes {
    database: Arc<Database>,
    known: RwLock<HashMap<Arc<str>, ShardNo>>,
}

/// SHIM until the branches are merged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) home: ShardNo,
    pub(crate) is_spread: bool,
}

impl Homes {
    pub(crate) fn remembered2(&self, namespace: &str) -> Option<Placed> {
        self.remembered(namespace).map(|home| Placed { home, is_spread: false })
    }
    pub(crate) async fn find2(&self, namespace: &str) -> Result<Option<Placed>, Trouble> {
        Ok(self.find(namespace).await?.map(|home| Placed { home, is_spread: false }))
    }
}

/// What a request wants with a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
}

impl Homes {
    pub(super) fn new(database: Arc<Database>) -> Homes {
        Homes { database, known: RwLock::default() }
    }

    /// The home of a namespace, if it has one.
    pub(crate) async fn find(&self, namespace: &str) -> Result<Option<ShardNo>, Trouble> {
        if let Some(home) = self.remembered(namespace) {
            return Ok(Some(home));
        }
        let found = self.database.find_home(namespace).await.map_err(|error| unavailable(&error))?;
        Ok(found.inspect(|home| self.remember(namespace, *home)))
    }

    /// The home of a namespace; it becomes `home` if it has none.
    pub(crate) async fn ensure(&self, namespace: &str, home: ShardNo) -> Result<ShardNo, Trouble> {
        if let Some(home) = self.remembered(namespace) {
            return Ok(home);
        }
        let found =
            self.database.home(namespace, home, HOMES_LEN_MAX).await.map_err(|error| unavailable(&error))?;
        let too_many = || {
            let message =
                format!("the cluster has {HOMES_LEN_MAX} namespaces, which is the limit; use one of them");
            Trouble::new(Code::TooMany, message)
        };
        let home = found.ok_or_else(too_many)?;
        self.remember(namespace, home);
        Ok(home)
    }

    /// That a namespace has its home on this shard. A write makes it so if it has none.
    pub(crate) async fn check(&self, namespace: &str, shard: ShardNo, wanted: Use) -> Result<(), Trouble> {
        let home = match wanted {
            Use::Write => self.ensure(namespace, shard).await?,
            Use::Read => self.find(namespace).await?.unwrap_or(shard),
        };
        if home == shard {
            return Ok(());
        }
        let message = format!(
            "{namespace} is on shard {}, and what else the request names on shard {}; send a request for each",
            home.0, shard.0
        );
        Err(Trouble::new(Code::SpansShards, message))
    }

    fn remembered(&self, namespace: &str) -> Option<ShardNo> {
        self.known.read().get(namespace).copied()
    }

    fn remember(&self, namespace: &str, home: ShardNo) {
        let mut known = self.known.write();
        if known.len() >= KNOWN_LEN_MAX {
            known.clear();
        }
        known.insert(namespace.into(), home);
    }
}

fn unavailable(error: &DatabaseError) -> Trouble {
    let message =
        format!("the database of the cluster does not say where the namespace is: {error}; try again");
    Trouble::new(Code::ShardUnreachable, message)
}
