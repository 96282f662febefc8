//! Locks of one operation on several shards, kept while it lasts: in the one table at the home of the namespace over
//! PostgreSQL, otherwise taken in the order of the shards. Knows nothing of what the operation is.

use super::{
    super::Message,
    ask::{Asker, Stop, elsewhere},
    cut::Manner,
};
use crate::{
    cluster::SYSTEM,
    gate::{self, Terms, Turn},
    secret,
    shared::Shared,
    trouble::Trouble,
};
use lockwood_model::{Resource, Wait};
use lockwood_router::ShardNo;
use lockwood_wire::{Code, WireResource};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// Locks whose operation is not heard of any more go after this.
const HOLD_PATIENCE: Duration = Duration::from_secs(100);

/// Where locks are taken.
pub(crate) const HOLD: &str = "/internal/hold";
/// Where they are given back.
pub(crate) const RELEASE: &str = "/internal/release";

/// What is to be locked.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HoldRequest {
    pub(crate) namespace: String,
    pub(crate) resources: Vec<WireResource>,
    pub(crate) tokens: Vec<u64>,
    pub(crate) wait_ms: Option<u64>,
}

/// The name of what is locked.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) hold: String,
}

/// Whether it was still locked.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Released {
    pub(crate) lasted: bool,
}

/// The locks that others' operations have here.
#[derive(Default)]
pub(crate) struct HoldTable(Mutex<HashMap<String, oneshot::Sender<()>>>);

impl HoldTable {
    /// Keeps a lock until it is given back, or nobody is heard of any more; gives its name.
    pub(crate) fn keep(shared: &Arc<Shared>, turn: Turn) -> Held {
        let hold = secret::hex(&secret::random::<16>());
        let (release, released) = oneshot::channel();
        shared.cluster.holds.0.lock().insert(hold.clone(), release);
        let (shared, name) = (Arc::clone(shared), hold.clone());
        tokio::spawn(async move {
            // Given back, or nobody can give it back any more; the lock goes either way.
            let _ = tokio::time::timeout(HOLD_PATIENCE, released).await;
            shared.cluster.holds.0.lock().remove(&name);
            drop(turn);
        });
        Held { hold }
    }

    /// Gives a lock back.
    pub(crate) fn release(&self, hold: &str) -> Released {
        let known = self.0.lock().remove(hold);
        Released { lasted: known.is_some_and(|release| release.send(()).is_ok()) }
    }
}

/// Locks on several shards. Given back when this goes.
pub(super) struct Holds<'a> {
    ask: &'a Asker<'a>,
    held: Vec<(ShardNo, String)>,
    /// All of them, if they are in one table.
    turn: Option<Turn>,
}

impl<'a> Holds<'a> {
    /// Takes the locks on one shard after the other, all within the time that the operation has.
    pub(super) async fn take(
        ask: &'a Asker<'a>,
        namespace: &str,
        shards: &[ShardNo],
        manner: &Manner,
        resources: impl Fn(ShardNo) -> Vec<Resource>,
    ) -> Result<Holds<'a>, Stop> {
        let limits = &ask.shared.config.limits;
        let wait_ms = manner.wait_ms.unwrap_or(ask.shared.config.wait_ms.min(limits.wait_ms_max));
        let deadline = Instant::now() + Duration::from_millis(wait_ms.min(limits.wait_ms_max));
        let mut holds = Holds { ask, held: Vec::new(), turn: None };
        if ask.shared.membership.is_some() && namespace != SYSTEM {
            let resources: BTreeSet<Resource> = shards.iter().flat_map(|shard| resources(*shard)).collect();
            let resources: Vec<Resource> = resources.into_iter().collect();
            let wait = if wait_ms == 0 { Wait::Never } else { Wait::Millis(wait_ms) };
            let terms = Terms { tokens: manner.tokens.clone(), ..Terms::anonymous(wait) };
            if !resources.is_empty() {
                let held = gate::hold(ask.shared, namespace, &resources, &terms).await;
                holds.turn = Some(held.map_err(Trouble::from)?);
            }
            return Ok(holds);
        }
        for shard in shards {
            let left = deadline.saturating_duration_since(Instant::now()).as_millis();
            // More than there may be is refused where all such things are.
            let left = if wait_ms > limits.wait_ms_max { wait_ms } else { left as u64 };
            let request = HoldRequest {
                namespace: namespace.to_owned(),
                resources: resources(*shard).iter().map(Into::into).collect(),
                tokens: manner.tokens.clone(),
                wait_ms: Some(left),
            };
            let mut message = Message::json(HOLD, &request);
            message.patience += Duration::from_millis(left);
            let Held { hold } = ask.one(*shard, &message).await?.read()?;
            holds.held.push((*shard, hold));
        }
        Ok(holds)
    }

    /// By which a request is known as that of the holder.
    pub(super) fn token(&self) -> Option<u64> {
        self.turn.as_ref().and_then(Turn::token)
    }

    /// Gives all of them back; refused if one of them did not last.
    pub(super) async fn release(mut self) -> Result<(), Stop> {
        for (shard, hold) in std::mem::take(&mut self.held) {
            let reply = self.ask.one(shard, &Message::json(RELEASE, &Held { hold })).await?;
            let Released { lasted } = reply.read()?;
            if !lasted {
                let message = "a lock that the request needed did not last as long; try again";
                return Err(Trouble::new(Code::WrongEpoch, message).into());
            }
        }
        Ok(())
    }
}

impl Drop for Holds<'_> {
    fn drop(&mut self) {
        for (shard, hold) in std::mem::take(&mut self.held) {
            if self.ask.is_own(shard) {
                self.ask.shared.cluster.holds.release(&hold);
                continue;
            }
            let shared = Arc::clone(self.ask.shared);
            // If it does not arrive, the lock goes after a while.
            tokio::spawn(async move {
                let _ = elsewhere(&shared, shard, &Message::json(RELEASE, &Held { hold })).await;
            });
        }
    }
}
