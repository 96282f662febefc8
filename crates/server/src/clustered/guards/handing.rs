//! How the home of a namespace moves to another shard. Knows nothing of who wants that, nor of when a shard is opened.
//!
//! ```text
//!  next owner of the old home: claims, has the log ──what a home needs──► owner of the new home: on record there, not in force
//!      serves nothing yet           ◄───────────────────────────────────── durable
//!      the row names the new home, if this epoch is still that of the owner
//!      serves, as a member                                                 ends its tenure; the next one is the home
//! ```
//!
//! *Invariant:* the row names the home. Only an owner of the shard that it names changes it, under its epoch and before it serves
//! anything. So nothing is granted at the old home after what it hands over, and a crash leaves the home that the row names.

use super::{Membership, message};
use crate::{
    cluster::{
        definitions::{self, Definitions},
        received,
    },
    clustered::{ClusterNode, ShardCall, home_moves},
    serve::ServeError,
    shared::Shared,
};
use lockwood_cluster::Placed;
use lockwood_node::{
    lease,
    secret::{hex, unhex},
    trouble::Trouble,
};
use lockwood_router::{ShardEpoch, ShardNo};
use lockwood_storage::Entry;
use lockwood_wire::Code;
use serde::{Deserialize, Serialize};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Where a shard is handed what its predecessor as a home had.
pub(super) const HAND: &str = "/guards/home";
/// Where a shard is asked whether it is the home of a namespace.
pub(super) const DECIDES: &str = "/guards/decides";

/// Homes that one opening of a shard gives away; the next one goes on.
const HOMES_LEN_MAX: u32 = 100;
const HAND_TIMEOUT: Duration = Duration::from_secs(5);
const DECIDES_TIMEOUT: Duration = Duration::from_secs(1);

/// What the next home of a namespace needs.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Handed {
    namespace: String,
    /// The shard that is the home, and the epoch of its owner.
    from: u32,
    epoch: u64,
    /// All lock ids and tokens are below.
    ceiling: u64,
    /// How long nothing is granted, because sessions may come back.
    grace_ms: u64,
    /// The sessions that may, if they are known.
    holders: Option<Vec<String>>,
    /// As records.
    leases: Vec<String>,
    definitions: Definitions,
}

/// Moves the homes that are wanted elsewhere, before this shard serves. One whose next shard cannot take it in stays. Fails if it is
/// not known which shard is the home: then the next owner looks.
pub(crate) async fn give_away(shared: &Arc<Shared>) -> Result<(), ServeError> {
    let Some(membership) = &shared.membership else { return Ok(()) };
    let (node, from) = (&membership.node, (membership.shard, membership.epoch));
    let wanted = node.database.homes_to_move(membership.shard, HOMES_LEN_MAX).await?;
    let are_wanted = !wanted.is_empty();
    for (namespace, to) in wanted {
        if let Err(trouble) = hand(shared, membership, &namespace, to).await {
            tracing::warn!(namespace, to = to.0, why = trouble.message, "a home stays where it is for now");
            *membership.kept_home.lock() = Some(Instant::now());
            continue;
        }
        // The outcome of a call that fails is not known, so this owner does not go on.
        let moved = node.database.move_home(&namespace, from, to).await?;
        let another = || ServeError::Setting(format!("the home of {namespace} was moved by another owner"));
        let moved = moved.ok_or_else(another)?;
        tracing::info!(namespace, from = from.0.0, to = to.0, "the home of a namespace has moved");
        node.homes.remember(&namespace, Placed { home: to, is_spread: true, moved });
        shared.grace.end(&shared.kernel, &namespace).await?;
    }
    if are_wanted {
        tokio::spawn(home_moves::tell(Arc::clone(node)));
    }
    Ok(())
}

/// Gives the next home what it needs; durable there when it answers.
async fn hand(
    shared: &Arc<Shared>,
    membership: &Membership,
    namespace: &str,
    to: ShardNo,
) -> Result<(), Trouble> {
    let (grace_ms, holders) = shared.grace.of(namespace);
    let leases = lease::export(shared, namespace)?;
    let handed = Handed {
        namespace: namespace.to_owned(),
        from: membership.shard.0,
        epoch: membership.epoch.0,
        ceiling: shared.numbers.first(),
        grace_ms,
        holders,
        leases: leases.iter().map(|lease| hex(&lease.encode())).collect(),
        definitions: definitions::read(shared, namespace)?,
    };
    let call = ShardCall::post(HAND, message::write(&handed), HAND_TIMEOUT);
    let answer = membership.node.ask_shard(to, &call).await;
    let answer = answer.map_err(|error| Trouble::unreachable(to, error.to_string()))?;
    message::read_answer(answer.status(), answer.body())
}

/// Puts on record what the home of a namespace hands over. It is in force when the row of the namespace names this shard and the next
/// tenure begins; an earlier attempt is replaced.
pub(super) async fn take_in(
    shared: &Arc<Shared>,
    membership: &Membership,
    handed: Handed,
) -> Result<(), Trouble> {
    let _turn = membership.taking_in.lock().await;
    let Handed { namespace, from, epoch, ceiling, grace_ms, holders, leases, definitions } = handed;
    check_sender(membership, &namespace, (ShardNo(from), ShardEpoch(epoch))).await?;
    let leases = leases.iter().map(|lease| read_lease(&namespace, lease));
    let leases = leases.collect::<Result<Vec<Entry>, Trouble>>()?;
    definitions::take_over(shared, &namespace, definitions).await?;
    lease::import(shared, &namespace, leases).await?;
    shared.numbers.begin_above(ceiling).await?;
    shared.grace.expect(&namespace, (grace_ms, holders)).await?;
    Ok(())
}

/// Whether a shard serves as the home of a namespace by now.
pub(in crate::clustered) async fn is_served(node: &Arc<ClusterNode>, namespace: &str, home: ShardNo) -> bool {
    let call = ShardCall::post(DECIDES, message::write(&namespace), DECIDES_TIMEOUT);
    let Ok(answer) = node.ask_shard(home, &call).await else { return false };
    message::read_answer(answer.status(), answer.body()).unwrap_or(false)
}

/// That a home speaks: a call of an earlier owner of its shard may be carried out late.
async fn check_sender(
    membership: &Membership,
    namespace: &str,
    (from, epoch): (ShardNo, ShardEpoch),
) -> Result<(), Trouble> {
    let unavailable = |error: lockwood_cluster::DatabaseError| {
        Trouble::new(Code::ShardUnreachable, format!("the database of the cluster: {error}"))
    };
    let database = &membership.node.database;
    let placed = database.find_home(namespace).await.map_err(unavailable)?;
    let rows = database.rows().await.map_err(unavailable)?;
    let is_home = placed.is_some_and(|placed| placed.is_spread && placed.home == from);
    let is_owner = rows.shard(from).is_some_and(|row| row.epoch == epoch);
    match is_home && is_owner && from != membership.shard {
        true => Ok(()),
        false => Err(Trouble::new(Code::ShardUnreachable, format!("shard {} is not the home now", from.0))),
    }
}

fn read_lease(namespace: &str, lease: &str) -> Result<Entry, Trouble> {
    let bad = || Trouble::new(Code::BadBody, "what a home hands over is not of this namespace");
    let entry = received::read_entry(&unhex(lease).ok_or_else(bad)?)?;
    match &entry {
        Entry::Leased { namespace: named, .. } if **named == *namespace => Ok(entry),
        _ => Err(bad()),
    }
}
