//! What an operator can do, and the record of it. Knows nothing of protocols.

use crate::{clock::rfc3339, guards::lifted, kernel::Kernel, trouble::Trouble};
use lockwood_model::LockId;
use lockwood_storage::Action;
use lockwood_wire::{LockInfo, OperatorAction, OperatorDeed};
use std::sync::Arc;

/// How much of the record is shown.
pub(crate) const LOG_LEN: usize = 100;
/// How many resources of a lock a record keeps.
const RECORDED_RESOURCES_MAX: usize = 16;

/// That a lock is to be ended now.
pub fn action(
    kernel: &Kernel,
    namespace: &str,
    mut lock: LockInfo,
    reason: Option<String>,
) -> OperatorAction {
    lock.resources.truncate(RECORDED_RESOURCES_MAX);
    OperatorAction { lock: Some(lock), ..deed(kernel, namespace, OperatorDeed::ReleaseLock, reason) }
}

/// That a grace period is to be ended now.
pub fn end_of_grace(
    kernel: &Kernel,
    namespace: &str,
    left_ms: u64,
    reason: Option<String>,
) -> OperatorAction {
    OperatorAction { grace_ms: Some(left_ms), ..deed(kernel, namespace, OperatorDeed::EndGrace, reason) }
}

/// That an operator is about to do something.
pub fn deed(
    kernel: &Kernel,
    namespace: &str,
    action: OperatorDeed,
    reason: Option<String>,
) -> OperatorAction {
    let (at, namespace) = (rfc3339(kernel.clock.now()), namespace.to_owned());
    OperatorAction {
        action,
        operator: None,
        at,
        namespace,
        reason,
        lock: None,
        grace_ms: None,
        document: None,
        forced: false,
    }
}

/// Puts on record what is about to be done, so that nothing is ever done without a record.
pub async fn record(kernel: &Kernel, action: &OperatorAction) -> Result<(), Trouble> {
    let record = serde_json::to_vec(action).expect("an action is valid JSON");
    let entry = Action { namespace: action.namespace.clone(), record };
    let ledger = Arc::clone(&kernel.ledger);
    match tokio::task::spawn_blocking(move || ledger.record(&entry)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => {
            tracing::error!(%error, "record an operator's action");
            Err(Trouble::storage_failed())
        }
        Err(_) => Err(Trouble::storage_failed()),
    }
}

/// Ends a lock whoever owns it; durable when it answers.
pub async fn end(kernel: &Kernel, name: &str, lock: u64) -> Result<(), Trouble> {
    let namespace = kernel.registry.get(name).ok_or_else(|| Trouble::unknown_lock(lock))?;
    let covered = namespace.resources_of(LockId(lock));
    let after = namespace.revoke(kernel, lock)?;
    kernel.shard.shown(after).await?;
    lifted(kernel, name, &covered).await
}

/// What operators did, the latest first.
pub async fn log(kernel: &Kernel, namespace: &str) -> Result<Vec<OperatorAction>, Trouble> {
    let (ledger, namespace) = (Arc::clone(&kernel.ledger), namespace.to_owned());
    let read = tokio::task::spawn_blocking(move || ledger.actions(&namespace, LOG_LEN)).await;
    let Ok(Ok(actions)) = read else { return Err(Trouble::storage_failed()) };
    Ok(actions.iter().filter_map(|action| serde_json::from_slice(&action.record).ok()).collect())
}
