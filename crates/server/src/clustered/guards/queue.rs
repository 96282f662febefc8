//! Operations at other shards that queue at their home: each has a lock in the table there, which is given back when the
//! operation is durable or rejected. Knows nothing of guards, nor of what the operation does.

use super::{
    Membership,
    definitions::{self, DEFINITIONS, not_home},
    handing::{self, DECIDES, HAND},
    message::{self, Attempt, Enter, Entered, Hear, Leave, ToHome},
    post::{self, HEAR, POST},
};
use crate::{native::problem, shared::Shared};
use axum::{body::Body, response::IntoResponse, response::Response};
use http_body_util::BodyExt;
use hyper::{Request, StatusCode};
use lockwood_node::{
    gate::{self, Terms, Turn},
    trouble::Trouble,
};
use lockwood_router::{ShardEpoch, ShardNo};
use lockwood_wire::Code;
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

pub(super) const ENTER: &str = "/guards/enter";
pub(super) const LEAVE: &str = "/guards/leave";

/// Operations that were given up and may still ask; the oldest are forgotten, as they do not come any more.
const GIVEN_UP_LEN_MAX: usize = 10_000;

/// The locks of operations at other shards.
#[derive(Default)]
pub(crate) struct Turns(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    turns: BTreeMap<Attempt, Turn>,
    /// The tenure is over: nothing is kept any more.
    is_over: bool,
    /// The call that asks was given up, and may still arrive. The oldest first.
    given_up: VecDeque<Attempt>,
}

impl Turns {
    /// Keeps the lock of an operation; gives it back if the operation has left already.
    fn keep(&self, attempt: Attempt, turn: Turn) -> Result<(), Turn> {
        let mut taken = self.0.lock();
        if taken.is_over {
            return Err(turn);
        }
        if let Some(at) = taken.given_up.iter().position(|given_up| *given_up == attempt) {
            taken.given_up.remove(at);
            return Err(turn);
        }
        taken.turns.insert(attempt, turn);
        Ok(())
    }

    /// Gives the lock of an operation back; `entered` says that it had one, so that it does not ask any more.
    pub(super) fn leave(&self, attempt: Attempt, entered: bool) {
        let mut taken = self.0.lock();
        let turn = taken.turns.remove(&attempt);
        if turn.is_none() && !entered {
            taken.given_up.push_back(attempt);
            if taken.given_up.len() > GIVEN_UP_LEN_MAX {
                taken.given_up.pop_front();
            }
        }
        drop(taken);
        // Giving it back may grant others what they wait for.
        drop(turn);
    }

    pub(super) fn end(&self) {
        let mut taken = self.0.lock();
        taken.is_over = true;
        let turns = std::mem::take(&mut taken.turns);
        drop(taken);
        drop(turns);
    }

    /// A shard has another owner: what its previous ones have under way is rejected by the log.
    pub(super) fn owner_changed(&self, shard: ShardNo, epoch: ShardEpoch) {
        let mut taken = self.0.lock();
        let is_over = |attempt: &Attempt| attempt.owner().0 == shard && attempt.owner().1 < epoch;
        let over: Vec<Attempt> = taken.turns.keys().copied().filter(is_over).collect();
        let turns: Vec<Option<Turn>> = over.iter().map(|attempt| taken.turns.remove(attempt)).collect();
        taken.given_up.retain(|attempt| !is_over(attempt));
        drop(taken);
        drop(turns);
    }
}

/// Answers another shard.
pub(in crate::clustered) async fn answer(shared: &Arc<Shared>, request: Request<Body>) -> Response {
    let Some(membership) = &shared.membership else { return problem(unknown()) };
    match try_answer(shared, membership, request).await {
        Ok(answer) => answer,
        Err(trouble) => problem(trouble),
    }
}

async fn try_answer(
    shared: &Arc<Shared>,
    membership: &Arc<Membership>,
    request: Request<Body>,
) -> Result<Response, Trouble> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await;
    let body = body.map_err(|error| Trouble::new(Code::BadBody, error.to_string()))?.to_bytes();
    match path.as_str() {
        ENTER => enter(shared, membership, message::read(&body)?).await,
        LEAVE => {
            let Leave { attempt, entered } = message::read(&body)?;
            membership.turns.leave(attempt, entered);
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        POST => {
            Ok(axum::Json(post::receive(shared, membership, message::read(&body)?).await).into_response())
        }
        HEAR => {
            let asked: Hear = message::read(&body)?;
            let heard = membership.hear(&asked, ShardNo(asked.from))?;
            Ok(axum::Json(ToHome::new(&asked.namespace, &heard)).into_response())
        }
        DEFINITIONS => definitions::give(shared, membership, message::read(&body)?).await,
        DECIDES => {
            let namespace: String = message::read(&body)?;
            Ok(axum::Json(membership.decides(&namespace).await).into_response())
        }
        HAND => {
            handing::take_in(shared, membership, message::read(&body)?).await?;
            Ok(axum::Json(()).into_response())
        }
        _ => Err(unknown()),
    }
}

async fn enter(
    shared: &Arc<Shared>,
    membership: &Arc<Membership>,
    asked: Enter,
) -> Result<Response, Trouble> {
    if !membership.decides(&asked.namespace).await {
        return Err(not_home(membership.shard));
    }
    asked.left.iter().for_each(|attempt| membership.turns.leave(*attempt, true));
    let (attempt, resources) = (asked.attempt, asked.resources()?);
    let terms = Terms { tokens: asked.tokens.clone(), ..Terms::anonymous(asked.wait()) };
    let owner = if resources.is_empty() {
        gate::owner_of(shared, &asked.namespace, &terms)?
    } else {
        let turn = gate::hold(shared, &asked.namespace, &resources, &terms).await?;
        // The caller's own locks may have run out while it waited.
        gate::check_tokens(shared, &asked.namespace, &terms).await?;
        let owner = turn.owner().ok_or_else(unknown)?;
        if membership.turns.keep(attempt, turn).is_err() {
            return Err(Trouble::new(Code::ShardUnreachable, "the operation was given up"));
        }
        owner
    };
    let (shard, epoch) = attempt.owner();
    if membership.node.topology.view().shard(shard).is_some_and(|row| row.epoch > epoch) {
        membership.turns.owner_changed(shard, ShardEpoch(epoch.0 + 1));
    }
    if !shared.authority.is_fresh() {
        membership.turns.leave(attempt, true);
        return Err(Trouble::new(Code::ShardUnreachable, "the home of the namespace has lost its shard"));
    }
    Ok(axum::Json(Entered { epoch: membership.home_epoch(&asked.namespace).0, owner: owner.0 })
        .into_response())
}

fn unknown() -> Trouble {
    Trouble::new(Code::NotFound, "shards do not ask each other for this")
}
