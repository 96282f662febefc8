//! Locks of one operation on several shards, kept while it lasts: in the one table at the home of the namespace, and one at
//! shard 1 for what only one operation may do at a time. Knows nothing of what the operation is.

use super::{
    super::Message,
    ask::{Asker, Stop, elsewhere},
    cut::Manner,
};
use crate::{clustered::allowance, shared::Shared};
use lockwood_model::{Resource, Wait};
use lockwood_node::{
    gate::{self, Terms, Turn},
    secret,
    territory::SYSTEM,
    trouble::Trouble,
};
use lockwood_router::ShardNo;
use lockwood_wire::{Code, WireResource};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
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

/// How long an operation waits for others' locks.
fn wait_ms(ask: &Asker<'_>, manner: &Manner) -> u64 {
    manner.wait_ms.unwrap_or(ask.shared.config.wait_ms.min(ask.shared.config.limits.wait_ms_max))
}

/// Takes the locks of an operation that is about some shards of a namespace, at its home; none if it needs none. They are
/// given back when the turn goes.
pub(super) async fn take(
    ask: &Asker<'_>,
    namespace: &str,
    shards: &[ShardNo],
    manner: &Manner,
    resources: impl Fn(ShardNo) -> Vec<Resource>,
) -> Result<Option<Turn>, Stop> {
    let resources: BTreeSet<Resource> = shards.iter().flat_map(|shard| resources(*shard)).collect();
    if resources.is_empty() {
        return Ok(None);
    }
    let wait_ms = wait_ms(ask, manner);
    let wait = if wait_ms == 0 { Wait::Never } else { Wait::Millis(wait_ms) };
    let terms = Terms { tokens: manner.tokens.clone(), ..Terms::anonymous(wait) };
    let resources: Vec<Resource> = resources.into_iter().collect();
    let turn = gate::hold(ask.shared, namespace, &resources, &terms).await;
    Ok(Some(turn.map_err(Trouble::from)?))
}

/// A lock at shard 1 that keeps operations of one kind one after the other. Given back when this goes.
pub(super) struct Alone<'a> {
    ask: &'a Asker<'a>,
    hold: Option<String>,
}

impl<'a> Alone<'a> {
    pub(super) async fn take(
        ask: &'a Asker<'a>,
        manner: &Manner,
        resource: &Resource,
    ) -> Result<Alone<'a>, Stop> {
        let wait_ms = wait_ms(ask, manner);
        let request = HoldRequest {
            namespace: SYSTEM.to_owned(),
            resources: vec![resource.into()],
            tokens: manner.tokens.clone(),
            wait_ms: Some(wait_ms),
        };
        let mut message = Message::json(HOLD, &request);
        let limits = &ask.shared.config.limits;
        let wait = Duration::from_millis(wait_ms.min(limits.wait_ms_max));
        message.patience = Some(allowance::of_work(limits).saturating_add(wait));
        let Held { hold } = ask.one(Asker::first(), &message).await?.read()?;
        Ok(Alone { ask, hold: Some(hold) })
    }

    /// Gives it back; refused if it did not last.
    pub(super) async fn release(mut self) -> Result<(), Stop> {
        let Some(hold) = self.hold.take() else { return Ok(()) };
        let reply = self.ask.one(Asker::first(), &Message::json(RELEASE, &Held { hold })).await?;
        let Released { lasted } = reply.read()?;
        if !lasted {
            let message = "a lock that the request needed did not last as long; try again";
            return Err(Trouble::new(Code::WrongEpoch, message).into());
        }
        Ok(())
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        let Some(hold) = self.hold.take() else { return };
        if self.ask.is_own(Asker::first()) {
            self.ask.shared.cluster.holds.release(&hold);
            return;
        }
        let shared = Arc::clone(self.ask.shared);
        // If it does not arrive, the lock goes after a while.
        tokio::spawn(async move {
            let _ = elsewhere(&shared, Asker::first(), &Message::json(RELEASE, &Held { hold })).await;
        });
    }
}
