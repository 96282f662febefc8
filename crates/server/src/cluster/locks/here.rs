//! What a shard does about its locks when a node asks it to. Knows nothing of the other shards.

use super::letter::{
    Convert, Converted, Edge, Letter, Meant, Order, Part, PartTaken, Piece, Pieces, Voucher, Wanted, read,
    written,
};
use crate::{
    clock::rfc3339,
    cluster::Admitted,
    lease::{self, Conversion, PartOf, Released, Settle, Share, Taken, Which},
    listing,
    namespace::State,
    operator,
    shared::Shared,
    trouble::Trouble,
};
use lockwood_locks::merge;
use lockwood_model::{Lease, LockId, Resource, Token};
use lockwood_router::Epoch;
use lockwood_wire::{Code, LeaseAnswer, LeaseInfo, LeaseOutcome};
use serde::Serialize;
use std::{sync::Arc, time::Duration};

/// How many waits are told of at once.
const EDGES_MAX: usize = 10_000;

/// Does what a letter says, if the map is the one it was written by; gives the answer as JSON.
pub(crate) async fn carry_out(shared: &Arc<Shared>, letter: Letter) -> Result<Vec<u8>, Trouble> {
    let (epoch, only_looks) = (letter.epoch, letter.order.only_looks());
    check_epoch(shared, epoch)?;
    let done = obey(shared, letter).await;
    if only_looks {
        // By another map what is not here may be elsewhere.
        check_epoch(shared, epoch)?;
    }
    done
}

fn check_epoch(shared: &Shared, epoch: Epoch) -> Result<(), Trouble> {
    match shared.cluster.current() {
        Some(current) if current.map.epoch == epoch && current.is_owner => Ok(()),
        _ => Err(Trouble::new(Code::WrongEpoch, "the shard map is another one; ask again")),
    }
}

async fn obey(shared: &Arc<Shared>, letter: Letter) -> Result<Vec<u8>, Trouble> {
    let Letter { namespace: name, epoch, order } = letter;
    let admitted = Admitted(Some(epoch));
    match order {
        Order::Take { wanted, poll_ms, anew, taker } => {
            json(&take(shared, (&name, admitted), (wanted, anew, taker), poll_ms).await?)
        }
        Order::Number => json(&lease::draw_number(shared, &name)?.0),
        Order::Part(part) => json(&take_part(shared, (&name, admitted), part).await?),
        Order::Settle { lock, token, ttl_ms, whole, instead_of } => {
            let whole = match whole {
                Some((whole, seat)) => Some((read(whole)?, seat)),
                None => None,
            };
            let (token, instead_of) = (Token(token), instead_of.map(Token));
            let settle = Settle { admitted, lock: LockId(lock), token, ttl_ms, whole, instead_of };
            lease::settle_part(shared, &name, settle).await?;
            let info = listing::one(shared, &name, lock, None).await?;
            if info.is_none() {
                // By another map it may be elsewhere.
                check_epoch(shared, epoch)?;
            }
            json(&info.ok_or_else(|| lease::lost(LockId(lock)))?)
        }
        Order::Drop { lock, owner, seat, whole, taker } => {
            let whole = read(whole)?;
            json(&lease::drop_part(shared, &name, (lock.map(LockId), taker), (&owner, seat, &whole)).await?)
        }
        Order::DropUnsettled { owner, seat } => {
            shared.cluster.sessions.replaced(&name, &owner, seat);
            json(&lease::drop_unsettled(shared, &name, (&owner, seat)).await?)
        }
        Order::Convert(wanted) => json(&convert(shared, (&name, admitted), wanted).await?),
        Order::Unconvert { lock, owner, seat, turn } => {
            let which = match lock {
                Some(lock) => Which::Lock { lock: LockId(lock), token: None, owner: Some(owner.clone()) },
                None => Which::All { owner: owner.clone(), seat: None },
            };
            json(&lease::unconvert(shared, &name, &which, (&owner, seat, turn), admitted).await?)
        }
        Order::Renew { meant, ttl_ms } => {
            let which = meant.into_which()?;
            let renewed = lease::renew(shared, &name, &which, ttl_ms).await;
            let leases = some(shared, (&name, &which), renewed)?;
            json(&Pieces { leases: leases.iter().map(piece).collect(), waits: Vec::new() })
        }
        Order::Release { meant } => json(&release(shared, &name, meant).await?),
        Order::Show { lock, poll_ms } => {
            json(&listing::one(shared, &name, lock, poll_ms.map(Duration::from_millis)).await?)
        }
        Order::List(selection) => json(&listing::page(shared, &name, &selection).await?),
        Order::Tree { path } => json(&listing::tree(shared, &name, &listing::read_path(&path)?)),
        Order::Waits => json(&listing::waits(shared, &name)),
        Order::Edges { owners } => json(&edges(shared, &name, &owners)),
        Order::Log => json(&operator::log(shared, &name).await?),
        Order::End { lock, action } => {
            if let Some(action) = action {
                operator::record(shared, &action).await?;
            }
            json(&operator::end(shared, &name, lock, admitted).await?)
        }
        Order::Vouch { tokens } => json(&vouch(shared, &name, &tokens)),
    }
}

fn json<T: Serialize>(answer: &T) -> Result<Vec<u8>, Trouble> {
    Ok(serde_json::to_vec(answer).expect("an answer is valid JSON"))
}

async fn take(
    shared: &Arc<Shared>,
    (name, admitted): (&str, Admitted),
    (wanted, anew, taker): (Wanted, bool, u64),
    poll_ms: Option<u64>,
) -> Result<LeaseAnswer, Trouble> {
    let request = wanted.into_request()?;
    let share = Share::under(shared, (name, admitted), &request, None)?.by(taker);
    let share = if anew { share.anew() } else { share };
    let taken = match poll_ms.map(Duration::from_millis) {
        Some(patience) => lease::take_and_poll(shared, name, request, &share, patience).await?,
        None => lease::take_share(shared, name, request, &share).await?,
    };
    let answer = answer(shared, name, &taken);
    if let (Err(_), Some(epoch)) = (&answer, admitted.epoch()) {
        // By another map it may be elsewhere.
        check_epoch(shared, epoch)?;
    }
    let answer = answer?;
    if matches!(taken, Taken::Queued(..)) {
        // It may have been granted just now.
        lease::settled(shared, name).await?;
    }
    Ok(answer)
}

/// How a lease was taken, in the words of the native interface.
pub(crate) fn answer(shared: &Shared, name: &str, taken: &Taken) -> Result<LeaseAnswer, Trouble> {
    let (outcome, lock, in_the_way) = match taken {
        Taken::Granted(lease) => (LeaseOutcome::Granted, lease.lock, Vec::new()),
        Taken::Held(lease) => (LeaseOutcome::Held, lease.lock, Vec::new()),
        Taken::Queued(lock, line) => (LeaseOutcome::Queued, *lock, line.blockers.clone()),
    };
    let found = shared.registry.get(name).and_then(|space| space.lock_info(shared, lock.0));
    let lock = found.ok_or_else(|| lease::lost(lock))?;
    let is_granted = outcome == LeaseOutcome::Queued && lock.token.is_some();
    let outcome = if is_granted { LeaseOutcome::Granted } else { outcome };
    Ok(LeaseAnswer { outcome, lock, in_the_way })
}

async fn take_part(
    shared: &Arc<Shared>,
    (name, admitted): (&str, Admitted),
    part: Part,
) -> Result<PartTaken, Trouble> {
    let Part { wanted, lock, whole, floor, slice_ms, unless_covered, fresh, only, taker, seat, unsettled } =
        part;
    let request = wanted.into_request()?;
    let mut whole = read(whole)?;
    merge(&mut whole);
    if unless_covered && let Some((lock, same)) = lease::covering(shared, name, &request, &whole) {
        return Ok(PartTaken::Covered { lock: lock.0, same });
    }
    let of = PartOf { lock: lock.map(LockId), whole, fresh, only, seat, unsettled };
    let share = Share::under(shared, (name, admitted), &request, Some(of))?.by(taker);
    lease::raise_in(shared, name, floor).await?;
    match lease::take_slice(shared, name, request, &share, Duration::from_millis(slice_ms)).await {
        Ok(Taken::Granted(lease) | Taken::Held(lease)) => {
            let (lock, token, settled) = (lease.lock.0, lease.token.0, lease.is_settled());
            Ok(PartTaken::Held { lock, token, settled })
        }
        Ok(Taken::Queued(lock, line)) => Ok(PartTaken::Queued { lock: lock.0, line: line.into() }),
        Err(trouble) if trouble.code == Code::UnknownLock => Ok(PartTaken::Absent),
        Err(trouble) => Err(trouble),
    }
}

async fn convert(
    shared: &Arc<Shared>,
    (name, admitted): (&str, Admitted),
    wanted: Convert,
) -> Result<Converted, Trouble> {
    let Convert { lock, owner, seat, whole, alone, wait, waits, turn } = wanted;
    let (lock, whole, wait) = (LockId(lock), read(whole)?, wait.0);
    let conversion = Conversion { admitted, lock, owner, seat, whole, alone, wait, waits, turn };
    Ok(match lease::convert(shared, name, &conversion).await? {
        lease::Converted::Done(token) => Converted::Done { token: token.0 },
        lease::Converted::Queued(line) => Converted::Queued(line.into()),
    })
}

async fn release(shared: &Arc<Shared>, name: &str, meant: Meant) -> Result<Pieces, Trouble> {
    let which = meant.into_which()?;
    let released = lease::release(shared, name, &which).await;
    let Released { leases, waits } = some(shared, (name, &which), released)?;
    let waits = waits.iter().map(|(lock, whole)| (lock.0, written(whole))).collect();
    Ok(Pieces { leases: leases.iter().map(piece).collect(), waits })
}

/// What was found, be it nothing: others may have it. That it is somebody else's is an error all the same.
fn some<T: Default>(
    shared: &Shared,
    (name, which): (&str, &Which),
    found: Result<T, Trouble>,
) -> Result<T, Trouble> {
    let is_here = |lock| lease::get(shared, name, lock).is_some();
    match found {
        Err(trouble) if trouble.code == Code::LockLost => match which {
            Which::Lock { lock, .. } if is_here(*lock) => Err(trouble),
            _ => Ok(T::default()),
        },
        found => found,
    }
}

fn piece(lease: &Lease) -> Piece {
    let info = LeaseInfo {
        lock: lease.lock.0,
        token: lease.token.0,
        owner: lease.owner.to_string(),
        resources: written(lease.whole()),
        expires_at: lease.expires_at.map(rfc3339),
    };
    Piece { lease: info, settled: lease.is_settled() }
}

/// Whom owners wait for here. What ends by itself is not counted.
fn edges(shared: &Shared, name: &str, owners: &[String]) -> Vec<Edge> {
    let Some(namespace) = shared.registry.get(name) else { return Vec::new() };
    let state = namespace.lock();
    let mut edges = Vec::new();
    for waiter in owners {
        let Some(owner) = state.leases.owner(waiter) else { continue };
        for view in state.table.owned(owner) {
            let wanted = view.converting_to.as_ref().unwrap_or(&view.resources);
            for blocker in state.table.blockers(view.id) {
                edges.extend(edge(&state, (waiter, view.id, wanted), blocker));
            }
            if edges.len() > EDGES_MAX {
                return edges;
            }
        }
    }
    edges
}

fn edge(state: &State, (waiter, lock, wanted): (&str, LockId, &[Resource]), blocker: LockId) -> Option<Edge> {
    let other = state.table.view(blocker).filter(|view| !view.rank.is_operation())?;
    let holder = state.leases.describe(other.owner)?.to_owned();
    let has = || other.resources.iter().chain(other.converting_to.iter().flatten());
    let clash = |wants: &&Resource| has().any(|has| has.conflicts(wants));
    let wants = wanted.iter().find(clash)?;
    let has = has().find(|has| has.conflicts(wants))?;
    let (waiter, settled) = (waiter.to_owned(), state.leases.get(blocker).is_some_and(Lease::is_settled));
    Some(Edge {
        waiter,
        lock: lock.0,
        wants: wants.into(),
        holder,
        held: blocker.0,
        has: has.into(),
        settled,
    })
}

fn vouch(shared: &Shared, name: &str, tokens: &[u64]) -> Vec<Voucher> {
    let Some(namespace) = shared.registry.get(name) else { return Vec::new() };
    let state = namespace.lock();
    let now = shared.clock.now();
    let voucher = |token: &u64| {
        let (lock, _) = state.table.granted(Token(*token))?;
        let lease = state.leases.get(lock).filter(|lease| lease.is_alive(now) && lease.is_settled())?;
        let until = lease.expires_at.map(|at| at.0);
        Some(Voucher { token: *token, owner: lease.owner.to_string(), until })
    };
    tokens.iter().filter_map(voucher).collect()
}
