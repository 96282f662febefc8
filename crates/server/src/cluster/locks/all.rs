//! What concerns a lock with all its parts, or the locks of all shards: every shard that has something to do with it is
//! asked, and what they say is made one answer. Knows nothing of protocols.

use super::{
    letter::{self, Meant, Order, Piece, Pieces, Voucher, read},
    parts,
    patience::Patience,
};
use crate::{
    cluster::{Current, SHARDS_MAX, no_map},
    lease::{self, Which},
    listing::Selection,
    operator,
    shared::Shared,
    trouble::Trouble,
};
use lockwood_model::{Mode, Path, Resource};
use lockwood_router::{Phase, ShardNo};
use lockwood_wire::{
    Code, Intents, LeaseInfo, LeaseList, LockInfo, LockList, LockState, NodeClaim, NodeInfo, OperatorAction,
    Tree, WaitEdge, WaitGraph, WirePath, WireResource,
};
use serde::de::DeserializeOwned;
use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
    time::{Duration, Instant},
};

/// How many of the locks in a lock's way are named.
const BLOCKERS_MAX: usize = 16;
/// How the lock of an operation says what it belongs to; it is on one shard only.
const OPERATION: &str = "operation";
/// How long to wait between two looks at a lock whose parts are being taken.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// A namespace by one map.
struct Round<'a> {
    shared: &'a Arc<Shared>,
    current: Arc<Current>,
    namespace: &'a str,
}

impl<'a> Round<'a> {
    fn new(shared: &'a Arc<Shared>, namespace: &'a str) -> Result<Round<'a>, Trouble> {
        let current = shared.cluster.current().ok_or_else(no_map)?;
        Ok(Round { shared, current, namespace })
    }

    async fn ask<T: DeserializeOwned>(&self, shard: ShardNo, order: Order) -> Result<T, Trouble> {
        self.ask_long(shard, order, Duration::ZERO).await
    }

    async fn ask_long<T: DeserializeOwned>(
        &self,
        shard: ShardNo,
        order: Order,
        wait: Duration,
    ) -> Result<T, Trouble> {
        letter::ask(self.shared, &self.current, shard, (self.namespace, order), wait).await
    }

    /// Asks several shards at once.
    async fn ask_each<T: DeserializeOwned>(
        &self,
        shards: impl IntoIterator<Item = ShardNo>,
        order: &Order,
    ) -> Vec<(ShardNo, Result<T, Trouble>)> {
        let asking =
            shards.into_iter().map(|shard| async move { (shard, self.ask(shard, order.clone()).await) });
        futures_util::future::join_all(asking).await
    }

    /// Asks all shards; one that cannot answer is the end of it.
    async fn ask_all<T: DeserializeOwned>(&self, order: &Order) -> Result<Vec<T>, Trouble> {
        let answers = self.ask_each(self.every(), order).await;
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    fn every(&self) -> impl Iterator<Item = ShardNo> {
        self.current.map.shard_numbers()
    }

    /// The shards that parts of a lock are with.
    fn shards_of(&self, whole: &[WireResource]) -> Result<BTreeSet<ShardNo>, Trouble> {
        let parts = parts(&self.current, &read(whole.to_vec())?)?;
        Ok(parts.into_keys().collect())
    }

    /// The shard that gave a lock its number; it has a part of it unless that has moved.
    fn birthplace(&self, lock: u64) -> Option<ShardNo> {
        let shard = u32::try_from(lock % SHARDS_MAX).ok().map(ShardNo)?;
        self.every().any(|known| known == shard).then_some(shard)
    }

    /// Where to look for a lock first, which is where its number is from, and where if it is not there.
    fn places(&self, lock: u64) -> (BTreeSet<ShardNo>, BTreeSet<ShardNo>) {
        let first = self.birthplace(lock);
        self.every().partition(|shard| Some(*shard) == first)
    }
}

/// What shards said about leases: how they are, or were, and who has or had a part.
#[derive(Default)]
struct Tally {
    locks: BTreeMap<u64, Seen>,
}

struct Seen {
    whole: Vec<WireResource>,
    /// None if it stood in line, or was not settled.
    lease: Option<LeaseInfo>,
    /// Who has a part that its owner may rely on.
    shards: BTreeSet<ShardNo>,
}

impl Tally {
    fn add(&mut self, shard: ShardNo, pieces: Pieces) {
        for (lock, whole) in pieces.waits {
            self.seen(lock, whole);
        }
        for Piece { lease, settled } in pieces.leases {
            let seen = self.seen(lease.lock, lease.resources.clone());
            if settled {
                seen.shards.insert(shard);
                let earlier = seen.lease.as_ref().is_some_and(|seen| seen.expires_at < lease.expires_at);
                seen.lease = if earlier { seen.lease.take() } else { Some(lease) };
            }
        }
    }

    fn seen(&mut self, lock: u64, whole: Vec<WireResource>) -> &mut Seen {
        self.locks.entry(lock).or_insert(Seen { whole, lease: None, shards: BTreeSet::new() })
    }

    fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    fn leases(self) -> Vec<LeaseInfo> {
        self.locks.into_values().filter_map(|seen| seen.lease).collect()
    }
}

/// Has everybody who may have a part of what is meant do something about it.
async fn change(round: &Round<'_>, which: &Which, order: &Order, tally: &mut Tally) -> Result<(), Trouble> {
    match which {
        Which::All { .. } => add_all(round, round.every().collect(), order, tally).await,
        Which::Like { resources, .. } => {
            let shards = parts(&round.current, resources)?.into_keys().collect();
            add_all(round, shards, order, tally).await
        }
        Which::Lock { lock, .. } => {
            let (first, others) = round.places(lock.0);
            add_all(round, first.clone(), order, tally).await?;
            let rest = match tally.locks.get(&lock.0) {
                Some(seen) => round.shards_of(&seen.whole)?.difference(&first).copied().collect(),
                None => others,
            };
            add_all(round, rest, order, tally).await
        }
    }
}

async fn add_all(
    round: &Round<'_>,
    shards: BTreeSet<ShardNo>,
    order: &Order,
    tally: &mut Tally,
) -> Result<(), Trouble> {
    let mut refused = Ok(());
    for (shard, answer) in round.ask_each(shards, order).await {
        match answer {
            Ok(pieces) => tally.add(shard, pieces),
            Err(trouble) => refused = refused.and(Err(trouble)),
        }
    }
    refused
}

/// Changes when leases end.
pub(crate) async fn renew(
    shared: &Arc<Shared>,
    namespace: &str,
    which: &Which,
    ttl_ms: u64,
) -> Result<LeaseList, Trouble> {
    let order = Order::Renew { meant: Meant::from(which), ttl_ms };
    let mut patience = Patience::new();
    loop {
        let round = Round::new(shared, namespace)?;
        let mut tally = Tally::default();
        let trouble = match renew_once(&round, which, &order, &mut tally).await {
            Ok(()) if tally.is_empty() => return Err(lease::nothing_held(which)),
            Ok(()) => return Ok(LeaseList { leases: tally.leases() }),
            Err(trouble) => trouble,
        };
        patience.endure(trouble).await?;
    }
}

/// Renews what is whole. What has lost a part is over, and what is left of it is of no use to anybody.
async fn renew_once(
    round: &Round<'_>,
    which: &Which,
    order: &Order,
    tally: &mut Tally,
) -> Result<(), Trouble> {
    change(round, which, order, tally).await?;
    let mut broken = Vec::new();
    for (lock, seen) in &tally.locks {
        if !round.shards_of(&seen.whole)?.is_subset(&seen.shards) {
            broken.push(*lock);
        }
    }
    for lock in broken {
        if is_whole(round, &find(round, lock).await?)? {
            // It is just being settled.
            continue;
        }
        let seen = tally.locks.remove(&lock);
        let owner = seen.and_then(|seen| seen.lease).map(|lease| lease.owner);
        let order = Order::Release { meant: Meant::Lock { lock, token: None, owner } };
        add_all(round, round.every().collect(), &order, &mut Tally::default()).await?;
    }
    Ok(())
}

/// Ends leases, and the waits of those that stand in line.
pub(crate) async fn release(
    shared: &Arc<Shared>,
    namespace: &str,
    which: &Which,
) -> Result<LeaseList, Trouble> {
    let order = Order::Release { meant: Meant::from(which) };
    let mut patience = Patience::new();
    // What was released before something went wrong is released all the same, be it that nobody heard of it.
    let mut tally = Tally::default();
    let mut is_uncertain = false;
    loop {
        let round = Round::new(shared, namespace)?;
        let trouble = match change(&round, which, &order, &mut tally).await {
            Ok(()) if tally.is_empty() && !is_uncertain => return Err(lease::nothing_held(which)),
            Ok(()) => return Ok(LeaseList { leases: tally.leases() }),
            Err(trouble) => trouble,
        };
        is_uncertain |= trouble.code == Code::ShardUnreachable;
        patience.endure(trouble).await?;
    }
}

/// Gives back everything of an owner that it may not rely on: whoever took it is gone, and this connection speaks for
/// it from now on.
pub(crate) async fn drop_unsettled(
    shared: &Arc<Shared>,
    namespace: &str,
    (owner, seat): (&str, u64),
) -> Result<(), Trouble> {
    let order = Order::DropUnsettled { owner: owner.to_owned(), seat };
    let mut patience = Patience::new();
    loop {
        let round = Round::new(shared, namespace)?;
        let dropped = match round.current.map.phase {
            // What is on its way from one shard to another would be dropped by neither.
            Phase::Preparing => Err(Trouble::new(Code::WrongEpoch, "documents are about to move; ask again")),
            _ => round.ask_all::<()>(&order).await,
        };
        match dropped {
            Ok(_) => return Ok(()),
            Err(trouble) => patience.endure(trouble).await?,
        }
    }
}

/// A lock that does not have the same token everywhere: a conversion of it was just being settled.
pub(super) struct Torn {
    pub(super) lock: u64,
    /// What its owner knows of, and has the token of.
    pub(super) whole: Vec<Resource>,
    pub(super) token: u64,
    /// The token that nobody has heard of.
    pub(super) latest: u64,
}

/// What is not as its owner knows it.
pub(super) struct Damage {
    pub(super) torn: Vec<Torn>,
    /// Locks of which parts are missing: whoever took them was not done, so their owner has not heard of them.
    pub(super) incomplete: Vec<u64>,
}

/// Renews the locks of an owner for which a connection speaks. Says which of them are not the same everywhere.
pub(super) async fn damage(
    shared: &Arc<Shared>,
    namespace: &str,
    (owner, seat): (&str, u64),
    ttl_ms: u64,
) -> Result<Damage, Trouble> {
    let meant = Meant::All { owner: owner.to_owned(), seat: Some(seat) };
    let order = Order::Renew { meant, ttl_ms };
    let mut patience = Patience::new();
    loop {
        let round = Round::new(shared, namespace)?;
        let found = match round.ask_all(&order).await {
            Ok(pieces) => incomplete(&round, &pieces).map(|incomplete| (pieces, incomplete)),
            Err(trouble) => Err(trouble),
        };
        match found {
            Ok((pieces, incomplete)) => return Ok(Damage { torn: torn(pieces)?, incomplete }),
            Err(trouble) => patience.endure(trouble).await?,
        }
    }
}

/// Which locks lack parts, going by what each shard has.
fn incomplete(round: &Round<'_>, pieces: &[Pieces]) -> Result<Vec<u64>, Trouble> {
    let mut missing: BTreeMap<u64, BTreeSet<ShardNo>> = BTreeMap::new();
    for Piece { lease, .. } in pieces.iter().flat_map(|pieces| &pieces.leases) {
        if let Entry::Vacant(vacant) = missing.entry(lease.lock) {
            vacant.insert(round.shards_of(&lease.resources)?);
        }
    }
    for (shard, pieces) in round.every().zip(pieces) {
        for Piece { lease, .. } in &pieces.leases {
            missing.entry(lease.lock).or_default().remove(&shard);
        }
    }
    Ok(missing.into_iter().filter(|(_, shards)| !shards.is_empty()).map(|(lock, _)| lock).collect())
}

/// Which locks do not have the same token everywhere.
fn torn(pieces: Vec<Pieces>) -> Result<Vec<Torn>, Trouble> {
    let mut locks: BTreeMap<u64, BTreeMap<u64, Vec<WireResource>>> = BTreeMap::new();
    let mut is_torn = BTreeSet::new();
    for Piece { lease, .. } in pieces.into_iter().flat_map(|pieces| pieces.leases) {
        let wholes = locks.entry(lease.lock).or_default();
        if wholes.first_key_value().is_some_and(|known| known != (&lease.token, &lease.resources)) {
            is_torn.insert(lease.lock);
        }
        // What becomes weaker keeps its token, and until that is settled its owner relies on the stronger.
        let known = wholes.entry(lease.token).or_default();
        if *known != lease.resources {
            known.extend(lease.resources);
        }
    }
    let mut torn = Vec::new();
    for (lock, mut wholes) in locks.into_iter().filter(|(lock, _)| is_torn.contains(lock)) {
        let latest = wholes.keys().next_back().copied().unwrap_or(0);
        if let Some((token, whole)) = wholes.pop_first() {
            torn.push(Torn { lock, whole: lease::merged(&read(whole)?), token, latest });
        }
    }
    Ok(torn)
}

/// How a lock stands; while it waits it is waited for as long as `wait` says.
pub(crate) async fn one(
    shared: &Arc<Shared>,
    namespace: &str,
    lock: u64,
    wait: Option<Duration>,
) -> Result<Option<LockInfo>, Trouble> {
    let started = Instant::now();
    let mut patience = Patience::new();
    loop {
        let left = wait.map(|wait| wait.saturating_sub(started.elapsed())).filter(|left| !left.is_zero());
        let looked = look(&Round::new(shared, namespace)?, lock, left).await;
        match looked {
            Ok(Look::Done(info)) => return Ok(info.map(|info| *info)),
            Ok(Look::Again) => {}
            Err(trouble) => patience.endure(trouble).await?,
        }
    }
}

enum Look {
    Done(Option<Box<LockInfo>>),
    Again,
}

async fn look(round: &Round<'_>, lock: u64, left: Option<Duration>) -> Result<Look, Trouble> {
    let found = find(round, lock).await?;
    let in_line = found.iter().find(|(_, info)| info.place.is_some()).map(|(shard, _)| *shard);
    let waits = found.iter().any(|(_, info)| info.state == LockState::Waiting);
    let (Some(left), true) = (left, waits) else {
        let is_whole = waits || is_whole(round, &found)?;
        let infos = found.into_iter().map(|(_, info)| info).collect();
        return Ok(Look::Done(merged(infos).filter(|_| is_whole).map(Box::new)));
    };
    match in_line {
        Some(shard) => {
            let poll_ms = Some(left.as_millis() as u64);
            round.ask_long::<Option<LockInfo>>(shard, Order::Show { lock, poll_ms }, left).await?;
        }
        // Its parts are being taken; they are not waited for, only looked at.
        None => tokio::time::sleep(LOOK_PAUSE.min(left)).await,
    }
    Ok(Look::Again)
}

/// What there is of a lock, shard by shard.
async fn find(round: &Round<'_>, lock: u64) -> Result<Vec<(ShardNo, LockInfo)>, Trouble> {
    let (first, others) = round.places(lock);
    let order = Order::Show { lock, poll_ms: None };
    let mut found = shown(round, first.clone(), &order).await?;
    let rest = match found.first() {
        Some((_, info)) if info.owner.via == OPERATION => return Ok(found),
        Some((_, info)) => round.shards_of(&info.resources)?.difference(&first).copied().collect(),
        None => others,
    };
    found.extend(shown(round, rest, &order).await?);
    Ok(found)
}

async fn shown(
    round: &Round<'_>,
    shards: BTreeSet<ShardNo>,
    order: &Order,
) -> Result<Vec<(ShardNo, LockInfo)>, Trouble> {
    let mut found = Vec::new();
    for (shard, answer) in round.ask_each::<Option<LockInfo>>(shards, order).await {
        found.extend(answer?.map(|info| (shard, info)));
    }
    Ok(found)
}

/// Whether every part of a lock is there.
fn is_whole(round: &Round<'_>, found: &[(ShardNo, LockInfo)]) -> Result<bool, Trouble> {
    let Some((_, info)) = found.first().filter(|(_, info)| info.owner.via != OPERATION) else {
        return Ok(true);
    };
    let shards: BTreeSet<ShardNo> = found.iter().map(|(shard, _)| *shard).collect();
    Ok(round.shards_of(&info.resources)?.is_subset(&shards))
}

/// One lock of all that its shards say about it: it is held if every part is.
pub(super) fn merged(infos: Vec<LockInfo>) -> Option<LockInfo> {
    let mut infos = infos.into_iter();
    let mut whole = infos.next()?;
    for info in infos {
        if info.state == LockState::Waiting && whole.state != LockState::Waiting {
            (whole.state, whole.granted_at, whole.age_ms) = (info.state, None, info.age_ms);
        }
        if info.state == LockState::Converting && whole.state == LockState::Granted {
            whole.state = info.state;
        }
        whole.token = whole.token.filter(|_| whole.state != LockState::Waiting).max(info.token);
        if whole.state == LockState::Waiting {
            whole.token = None;
        }
        if info.expires_in_ms < whole.expires_in_ms {
            (whole.expires_at, whole.expires_in_ms) = (info.expires_at, info.expires_in_ms);
        }
        whole.place = whole.place.max(info.place);
        whole.wait_left_ms = whole.wait_left_ms.or(info.wait_left_ms);
        if let Some(len) = info.blockers_len {
            whole.blockers_len = Some(whole.blockers_len.unwrap_or(0) + len);
        }
        whole
            .blockers
            .extend(info.blockers.iter().filter(|lock| !whole.blockers.contains(lock)).collect::<Vec<_>>());
        whole.blockers.truncate(BLOCKERS_MAX);
    }
    Some(whole)
}

/// A page of the locks of all shards.
pub(crate) async fn page(
    shared: &Arc<Shared>,
    namespace: &str,
    selection: &Selection,
) -> Result<LockList, Trouble> {
    let lists: Vec<LockList> = everywhere(shared, namespace, &Order::List(selection.clone())).await?;
    // Beyond the end of the shortest page there may be locks that are not listed.
    let horizon = lists.iter().filter_map(|list| list.next).min();
    let mut locks: BTreeMap<u64, Vec<LockInfo>> = BTreeMap::new();
    for info in lists.into_iter().flat_map(|list| list.locks) {
        if horizon.is_none_or(|horizon| info.lock <= horizon) {
            locks.entry(info.lock).or_default().push(info);
        }
    }
    let is_cut = locks.len() > selection.len_max;
    let locks: Vec<LockInfo> = locks.into_values().take(selection.len_max).filter_map(merged).collect();
    let next = if is_cut { locks.last().map(|info| info.lock) } else { horizon };
    Ok(LockList { locks, next })
}

/// Asks all shards until all have answered by the same map.
async fn everywhere<T: DeserializeOwned>(
    shared: &Arc<Shared>,
    namespace: &str,
    order: &Order,
) -> Result<Vec<T>, Trouble> {
    let mut patience = Patience::new();
    loop {
        match Round::new(shared, namespace)?.ask_all(order).await {
            Ok(answers) => return Ok(answers),
            Err(trouble) => patience.endure(trouble).await?,
        }
    }
}

/// The nodes with locks on them, of all shards.
pub(crate) async fn tree(shared: &Arc<Shared>, namespace: &str, path: &Path) -> Result<Tree, Trouble> {
    let trees: Vec<Tree> = everywhere(shared, namespace, &Order::Tree { path: path.to_string() }).await?;
    let truncated = trees.iter().any(|tree| tree.truncated);
    let mut nodes: BTreeMap<Path, NodeInfo> = BTreeMap::new();
    let mut repeated = Vec::new();
    for node in trees.into_iter().flat_map(|tree| tree.nodes) {
        let NodeInfo { path, claims, intents } = node;
        let whole = nodes.entry(path.0.clone()).or_insert_with(|| NodeInfo {
            path: WirePath(path.0.clone()),
            claims: Vec::new(),
            intents: Intents { read: 0, change: 0 },
        });
        whole.intents.read += intents.read;
        whole.intents.change += intents.change;
        for claim in claims {
            match whole.claims.iter_mut().find(|known| is_same(known, &claim)) {
                Some(known) => {
                    if known.granted && claim.granted {
                        repeated.push((path.0.clone(), claim.mode));
                    } else if known.granted {
                        *known = claim;
                    }
                }
                None => whole.claims.push(claim),
            }
        }
    }
    for (path, mode) in repeated {
        uncount(&mut nodes, &path, &mode);
    }
    let mut nodes: Vec<NodeInfo> = nodes.into_values().collect();
    for node in &mut nodes {
        node.claims.sort_by_key(|claim| (!claim.granted, claim.lock));
    }
    Ok(Tree { nodes, truncated })
}

fn is_same(a: &NodeClaim, b: &NodeClaim) -> bool {
    (a.lock, &a.mode, a.depth) == (b.lock, &b.mode, b.depth)
}

/// A lock that is on every shard means something to the nodes above it once, not once for each shard.
fn uncount(nodes: &mut BTreeMap<Path, NodeInfo>, path: &Path, mode: &str) {
    let Ok(mode) = mode.parse::<Mode>() else { return };
    for (above, node) in nodes.iter_mut().filter(|(above, _)| above.is_prefix_of(path)) {
        if above == path && !mode.on_child_list() {
            continue;
        }
        let Intents { read, change } = &mut node.intents;
        let count = if mode.intends_change() { change } else { read };
        *count = count.saturating_sub(1);
    }
}

/// Who waits for whom, on all shards.
pub(crate) async fn waits(shared: &Arc<Shared>, namespace: &str) -> Result<WaitGraph, Trouble> {
    let graphs: Vec<WaitGraph> = everywhere(shared, namespace, &Order::Waits).await?;
    let truncated = graphs.iter().any(|graph| graph.truncated);
    let edges = graphs.into_iter().flat_map(|graph| graph.edges);
    let edges: BTreeMap<(u64, u64), WaitEdge> =
        edges.map(|edge| ((edge.waiter, edge.blocker), edge)).collect();
    Ok(WaitGraph { edges: edges.into_values().collect(), truncated })
}

/// What operators did, on all shards, the latest first.
pub(crate) async fn log(shared: &Arc<Shared>, namespace: &str) -> Result<Vec<OperatorAction>, Trouble> {
    let logs: Vec<Vec<OperatorAction>> = everywhere(shared, namespace, &Order::Log).await?;
    let mut actions: Vec<OperatorAction> = logs.into_iter().flatten().collect();
    actions.sort_by(|a, b| b.at.cmp(&a.at));
    actions.truncate(operator::LOG_LEN);
    Ok(actions)
}

/// Ends a lock by force, with all its parts. One of the shards records it.
pub(crate) async fn end(
    shared: &Arc<Shared>,
    namespace: &str,
    lock: u64,
    reason: Option<String>,
) -> Result<OperatorAction, Trouble> {
    let mut patience = Patience::new();
    let mut action: Option<OperatorAction> = None;
    loop {
        match end_once(&Round::new(shared, namespace)?, lock, reason.as_ref(), &mut action).await {
            Ok(()) => return action.ok_or_else(|| Trouble::unknown_lock(lock)),
            Err(trouble) => patience.endure(trouble).await?,
        }
    }
}

async fn end_once(
    round: &Round<'_>,
    lock: u64,
    reason: Option<&String>,
    action: &mut Option<OperatorAction>,
) -> Result<(), Trouble> {
    let found = find(round, lock).await?;
    let mut record = None;
    if action.is_none() {
        let Some(info) = merged(found.iter().map(|(_, info)| info.clone()).collect()) else { return Ok(()) };
        let made = operator::action(round.shared, round.namespace, info, reason.cloned());
        record = Some(Box::new(made));
    }
    for (shard, _) in found {
        let order = Order::End { lock, action: record.clone() };
        match round.ask::<()>(shard, order).await {
            Ok(()) => {}
            Err(trouble) if trouble.code == Code::UnknownLock && action.is_some() => {}
            Err(trouble) => return Err(trouble),
        }
        if let Some(made) = record.take() {
            *action = Some(*made);
        }
    }
    Ok(())
}

/// Whose locks have these tokens, wherever they are.
pub(crate) async fn vouch(
    shared: &Arc<Shared>,
    namespace: &str,
    tokens: Vec<u64>,
) -> Result<Vec<Voucher>, Trouble> {
    let vouchers: Vec<Vec<Voucher>> = everywhere(shared, namespace, &Order::Vouch { tokens }).await?;
    let mut vouchers: Vec<Voucher> = vouchers.into_iter().flatten().collect();
    // Of several parts the one counts that ends first.
    vouchers.sort_by_key(|voucher| (voucher.token, voucher.until.unwrap_or(u64::MAX)));
    vouchers.dedup_by_key(|voucher| voucher.token);
    Ok(vouchers)
}
