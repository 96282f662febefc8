//! How shards keep up with what is registered at the home of a namespace, and how the home knows that they do. Knows
//! nothing of what schemas, procedures and indexes are.
//!
//! ```text
//!  register ──► home: on record ──announce──► members: ask, take over ──confirm──► told
//!               a shard with a new owner: join ──► announced ──► ask, take over ──► serves
//! ```

use super::{
    Membership, PAUSE, PAUSE_MAX,
    member::MemberOf,
    message::{self, read_answer},
};
use crate::{
    cluster::definitions::{self, Definitions},
    clustered::ShardCall,
    shared::Shared,
};
use axum::response::{IntoResponse, Response};
use lockwood_node::trouble::Trouble;
use lockwood_router::{ShardNo, guards::DefinitionsNo};
use lockwood_wire::Code;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::{Id, JoinSet},
};

/// Where a home is asked what is registered.
pub(super) const DEFINITIONS: &str = "/guards/definitions";

const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a shard without a home waits for it before it refuses.
const HOME_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a registration waits for all shards. One that is lost has another owner by then.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(15);

/// A shard asks for what is registered.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Asked {
    namespace: String,
    /// The digest of what it has.
    has: String,
}

/// A home's answer.
#[derive(Debug, Serialize, Deserialize)]
struct Given {
    /// It is of this version, or newer.
    as_of: u64,
    /// Absent if it is what the shard has.
    definitions: Option<Definitions>,
}

/// Memberships that are behind.
pub(super) struct CatchUps {
    send: UnboundedSender<Arc<MemberOf>>,
    /// Taken by the task that catches up.
    receive: Mutex<Option<UnboundedReceiver<Arc<MemberOf>>>>,
}

impl CatchUps {
    pub(super) fn new() -> CatchUps {
        let (send, receive) = unbounded_channel();
        CatchUps { send, receive: Mutex::new(Some(receive)) }
    }

    /// Has a membership caught up, again and again until it is.
    pub(super) fn ask(&self, member: &Arc<MemberOf>) {
        // Without a receiver the tenure is over.
        let _ = self.send.send(Arc::clone(member));
    }
}

impl Membership {
    /// Catches up wherever this shard is behind, for as long as the tenure.
    pub(super) async fn catch_up(&self, shared: &Arc<Shared>) {
        let Some(mut asked) = self.catch_ups.receive.lock().take() else { return };
        let mut running: HashMap<Id, Arc<MemberOf>> = HashMap::new();
        let mut tasks: JoinSet<()> = JoinSet::new();
        loop {
            let member = tokio::select! {
                Some(member) = asked.recv() => member,
                Some(done) = tasks.join_next_with_id() => {
                    // One that has panicked is tried again.
                    let id = done.map_or_else(|error| error.id(), |(id, ())| id);
                    let Some(member) = running.remove(&id) else { continue };
                    member
                }
                else => return,
            };
            let is_running = running.values().any(|known| known.namespace == member.namespace);
            // It may have fallen behind again as it was done.
            if member.is_behind() && !is_running {
                let task = tasks.spawn(catch_up(Arc::clone(shared), Arc::clone(&member)));
                running.insert(task.id(), member);
            }
        }
    }
}

async fn catch_up(shared: Arc<Shared>, member: Arc<MemberOf>) {
    let Some(membership) = &shared.membership else { return };
    let mut pause = PAUSE;
    while member.is_behind() {
        match take_over(&shared, membership, &member).await {
            Ok(as_of) => member.caught_up(membership, as_of),
            Err(trouble) => {
                let (namespace, message) = (&member.namespace, &trouble.message);
                tracing::debug!(%namespace, %message, "take over what is registered");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// Goes by what the home has from now on; gives its version.
async fn take_over(
    shared: &Arc<Shared>,
    membership: &Membership,
    member: &MemberOf,
) -> Result<DefinitionsNo, Trouble> {
    let (has, home) = (definitions::digest(shared, &member.namespace)?, member.home());
    let asked = Asked { namespace: member.namespace.to_string(), has };
    let call = ShardCall::post(DEFINITIONS, message::write(&asked), ASK_TIMEOUT);
    let answer = membership.node.ask_shard(home, &call).await;
    let answer = answer.map_err(|error| Trouble::unreachable(home, error.to_string()))?;
    let given: Given = read_answer(answer.status(), answer.body())?;
    if let Some(definitions) = given.definitions {
        definitions::take_over(shared, &member.namespace, definitions).await?;
    }
    Ok(DefinitionsNo(given.as_of))
}

/// Answers a shard that asks what is registered in a namespace whose home is here.
pub(super) async fn give(
    shared: &Arc<Shared>,
    membership: &Membership,
    asked: Asked,
) -> Result<Response, Trouble> {
    if !membership.decides(&asked.namespace).await {
        return Err(not_home(membership.shard));
    }
    let last = shared.shard.last_index();
    shared.shard.shown(last).await?;
    let as_of = DefinitionsNo::new(membership.home_epoch(&asked.namespace), last).0;
    let definitions = match definitions::digest(shared, &asked.namespace)? == asked.has {
        true => None,
        false => Some(definitions::read(shared, &asked.namespace)?),
    };
    Ok(axum::Json(Given { as_of, definitions }).into_response())
}

/// Makes sure that this shard knows what is registered in a namespace, at least as of when it began to serve its documents;
/// whatever was registered later is not told before this shard has confirmed it.
pub(crate) async fn defined(shared: &Arc<Shared>, namespace: &str) -> Result<(), Trouble> {
    let (Some(home), Some(membership)) = (shared.remote_home(namespace).await?, &shared.membership) else {
        return Ok(());
    };
    let member = membership.member_of(namespace, home);
    let (mut changes, deadline) = (member.changes(), Instant::now() + HOME_TIMEOUT);
    loop {
        changes.borrow_and_update();
        if member.is_defined() {
            return Ok(());
        }
        member.join_first(membership);
        if tokio::time::timeout_at(deadline.into(), changes.changed()).await.is_err() {
            return Err(unknown_to(membership.shard, home));
        }
    }
}

/// Waits until every shard goes by what is registered here by now, or joins before it serves. Of a namespace whose home is
/// elsewhere nothing is registered here, and a whole one is here alone.
pub(crate) async fn confirmed(shared: &Arc<Shared>, name: &str) -> Result<(), Trouble> {
    shared.locate(name).await?;
    if !shared.is_home(name) {
        return Ok(());
    }
    let last = shared.shard.last_index();
    shared.shard.shown(last).await?;
    let namespace = shared.registry.ensure(shared, name)?;
    let Some((last, mut defined)) = namespace.redefined(shared, last) else { return Ok(()) };
    let all = defined.wait_for(|defined| *defined >= Some(last));
    match tokio::time::timeout(CONFIRM_TIMEOUT, all).await {
        Ok(Ok(_)) => Ok(()),
        _ => Err(unconfirmed(&namespace.undefined(last))),
    }
}

/// Why a shard that is asked as the home does not answer.
pub(super) fn not_home(shard: ShardNo) -> Trouble {
    let message =
        format!("shard {} is not the home of this namespace now; its home was moved, try again", shard.0);
    Trouble::unreachable(shard, message)
}

fn unknown_to(shard: ShardNo, home: ShardNo) -> Trouble {
    let message = format!(
        "shard {} does not know yet what is registered in this namespace, and shard {}, its home, does not say; nothing \
         was done, try again",
        shard.0, home.0
    );
    Trouble::unreachable(home, message)
}

fn unconfirmed(shards: &BTreeSet<ShardNo>) -> Trouble {
    let named: Vec<String> = shards.iter().map(|shard| shard.0.to_string()).collect();
    let message = format!(
        "it is on record, and shard {} has not confirmed it yet: operations there may still go by what was registered \
         before. It holds everywhere as soon as they confirm; the same request again waits for that",
        named.join(", ")
    );
    Trouble::new(Code::ShardUnreachable, message)
}
