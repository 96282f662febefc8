//! Follows shards that other nodes own: a copy of each, tailed from the log in PostgreSQL, answers reads that tolerate its
//! lag. Knows nothing of which shards are to be followed, nor of who owns them.
//!
//! A copy grants nothing and writes nothing. It knows nothing of locks, so a read under locks is refused, and the door asks
//! the owner; so are all reads that the copy cannot answer.

use super::{
    ClusterNode,
    alerts::{self, Alert},
    host::{ShardHost, first_free},
    serve::cache_of,
};
use crate::{
    arriving::Arriving,
    listener::Service,
    native::{Native, lag},
    runtime::{self, Origin},
    serve::ServeError,
    shared::Shared,
};
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::BodyExt;
use hyper::{HeaderMap, Method, Request, Uri};
use lockwood_cluster::{Call, CallKind, DatabaseError};
use lockwood_model::Event;
use lockwood_node::clock::monotonic;
use lockwood_node::{authority::Authority, kernel::blocking, lease::LeaseTime, schemas};
use lockwood_router::{NodeName, NodeRow, Phase, ShardMap, ShardNo, Staleness, ownership::Monotonic};
use lockwood_storage::{
    Entry, StoreError,
    postgres::{Advanced, CacheError, Follower, LostRecords, Shown},
};
use lockwood_wire::Code;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{sync::watch, task::JoinHandle};

/// Time between two looks at the log if nothing hints that it has grown.
const POLL: Duration = Duration::from_millis(200);
/// Time until a copy that could not be made is made again.
const RETRY: Duration = Duration::from_secs(1);
/// After so many failures in a row the log says so, once.
const FAILURES_TOLD: u32 = 5;

/// The address at which a node tells other nodes of itself.
pub(super) const TELL: &str = "/tell";
/// How long a node may take for that; then nothing is told of it.
const TELL_TIMEOUT: Duration = Duration::from_millis(500);
/// A node that has not renewed for so long is not asked.
const LIVE_MS: u64 = 3_000;
/// A node that has renewed its row so long after anything came from it is cut off from this one.
const RENEWED_AFTER: Duration = Duration::from_secs(2);

/// A copy, as its node tells of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Followed {
    pub(super) shard: u32,
    pub(super) lag_ms: u64,
    pub(super) last: u64,
}

/// What a node tells other nodes of itself.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Own {
    pub(super) copies: Vec<Followed>,
    /// Logs that it found to lack acknowledged records, in words.
    pub(super) losses: Vec<String>,
    /// What is wrong between it and other nodes, in words.
    #[serde(default)]
    pub(super) connections: Vec<String>,
}

/// The shards that this node follows.
#[derive(Default)]
pub(super) struct Followers(Mutex<BTreeMap<ShardNo, Following>>);

/// One of them: a task that ends with the copy, if there is one.
struct Following {
    stop: watch::Sender<bool>,
    task: JoinHandle<Option<Follower>>,
}

impl Followers {
    /// Follows a shard, if it is not followed already.
    pub(super) fn follow(&self, host: &Arc<ShardHost>, shard: ShardNo) {
        self.0.lock().entry(shard).or_insert_with(|| {
            let (stop, stopped) = watch::channel(false);
            let task = tokio::spawn(tail(Arc::clone(host), shard, stopped));
            Following { stop, task }
        });
    }

    /// Ends the following of a shard, as far as what is called next can tell: it may be followed again at once. The copy, if
    /// there is one, comes when its task is over.
    pub(super) fn end(&self, shard: ShardNo) -> impl Future<Output = Option<Follower>> + use<> {
        let ending = self.0.lock().remove(&shard).map(|Following { stop, task }| {
            stop.send_replace(true);
            task
        });
        // One that fills its cache is waited for: its owner would have to do the same.
        async move { ending?.await.ok().flatten() }
    }
}

/// A copy that answers reads.
pub(crate) struct Copy {
    shared: Arc<Shared>,
    native: Native,
    shown: Arc<Shown>,
    staleness: Mutex<Staleness>,
    last: AtomicU64,
    under: Mutex<Under>,
}

/// Which map was the latest one when the state of a copy was that of the log.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Under {
    /// Counts the states that were shown.
    shown: u64,
    /// Before the last look at the log, and after it; none if there is no map, or another one came meanwhile.
    epoch: Option<u64>,
    /// After the last look.
    latest: Option<u64>,
}

impl Copy {
    async fn open(host: &ShardHost, follower: &Follower, sent: Monotonic) -> Result<Copy, ServeError> {
        let shown = Arc::new(Shown::new(follower.snapshot()));
        let origin = Origin {
            front: Arc::clone(&host.node.front),
            interfaces: host.interfaces.clone(),
            library: None,
            authority: Arc::new(Authority::follower()),
            lease_time: LeaseTime::Restarts,
            directory: host.directory.clone(),
            membership: None,
        };
        let shared = runtime::copy(origin, Arc::clone(&shown)).await?;
        let native = Native::new(&shared);
        let (staleness, last) = (Mutex::default(), AtomicU64::new(follower.last()));
        let copy = Copy { shared, native, shown, staleness, last, under: Mutex::default() };
        copy.compared(sent, None);
        Ok(copy)
    }

    /// The copy has everything that a call found which was sent then; after it this was the epoch of the latest map.
    fn compared(&self, sent: Monotonic, latest: Option<u64>) {
        let mut under = self.under.lock();
        under.epoch = latest.filter(|latest| under.latest == Some(*latest));
        under.latest = latest;
        self.staleness.lock().compared(sent, monotonic());
    }

    /// Shows what the follower has by now.
    fn advance(&self, follower: &Follower) -> Result<(), StoreError> {
        let before = self.last.load(Ordering::Acquire);
        {
            let mut under = self.under.lock();
            (under.shown, under.epoch) = (under.shown + 1, None);
        }
        self.shown.show(follower.snapshot());
        self.shared.shard.show_latest();
        let reading = self.shared.shard.read();
        for index in before + 1..=follower.last() {
            // A record that is trimmed already is in the state; a purge makes the copy start anew.
            if let Some(entry) = reading.state().entry(index)?
                && let Some(namespace) = entry.namespace().filter(|_| changes_schemas(&entry))
            {
                self.shared.schemas.reread(&self.shared, namespace);
            }
        }
        self.last.store(follower.last(), Ordering::Release);
        Ok(())
    }

    /// Its lag; none if it was not compared yet.
    pub(crate) fn lag_ms(&self) -> Option<u64> {
        self.staleness.lock().lag_ms(monotonic())
    }

    /// The last record that it has.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// The same for a document whose place a map decides: none if the copy is not one of that map, under which nothing moves.
    pub(crate) async fn answer_under(
        &self,
        map: &ShardMap,
        peer: SocketAddr,
        max_lag_ms: u64,
        request: Request<Arriving>,
    ) -> Option<Response> {
        let before = *self.under.lock();
        if map.phase != Phase::Steady || before.epoch != Some(map.epoch) {
            return None;
        }
        let answer = self.answer(peer, max_lag_ms, request).await?;
        // What was read may be a later state, of which nothing is known yet.
        (self.under.lock().shown == before.shown).then_some(answer)
    }

    /// Answers a read that tolerates a lag; none if the owner has to. The lag is looked at first: what is read is no older.
    pub(crate) async fn answer(
        &self,
        peer: SocketAddr,
        max_lag_ms: u64,
        mut request: Request<Arriving>,
    ) -> Option<Response> {
        let staleness = *self.staleness.lock();
        let lag_ms = staleness.answers(Some(max_lag_ms), monotonic())?;
        *request.uri_mut() = lag::without(request.uri());
        let mut answer = self.native.answer(peer, request).await;
        match answer.extensions().get::<Code>() {
            None | Some(Code::NoDocument | Code::NoNode) => {}
            Some(_) => return None,
        }
        lag::note(&mut answer, lag_ms);
        Some(answer)
    }
}

/// Whether a record may change what is registered for its namespace.
fn changes_schemas(entry: &Entry) -> bool {
    let Entry::Committed { commits, .. } = entry else { return !matches!(entry, Entry::Leased { .. }) };
    let is_schema = |event: &Event| &*event.at.collection == schemas::COLLECTION;
    commits.iter().any(|commit| commit.purged.is_some() || commit.events.iter().any(is_schema))
}

/// Keeps a copy of a shard until it is told to stop.
async fn tail(host: Arc<ShardHost>, shard: ShardNo, mut stop: watch::Receiver<bool>) -> Option<Follower> {
    loop {
        match begin(&host, shard, &stop).await {
            Ok((follower, None)) => return Some(follower),
            Ok((follower, Some(copy))) => {
                host.node.set_copy(shard, Some(Arc::clone(&copy)));
                let kept = keep(&host.node, shard, follower, &copy, &mut stop).await;
                host.node.set_copy(shard, None);
                if let Some(follower) = kept {
                    return Some(follower);
                }
                tracing::warn!(
                    shard = shard.0,
                    "the log is not the one that was followed; the copy is made anew"
                );
                continue;
            }
            Err(error) => tracing::warn!(shard = shard.0, %error, "follow a shard"),
        }
        tokio::select! {
            _ = stop.wait_for(|is_over| *is_over) => return None,
            () = tokio::time::sleep(RETRY) => {}
        }
    }
}

/// A copy as the log is now, to be read unless it is over.
async fn begin(
    host: &Arc<ShardHost>,
    shard: ShardNo,
    stop: &watch::Receiver<bool>,
) -> Result<(Follower, Option<Arc<Copy>>), ServeError> {
    let (database, data) = (Arc::clone(&host.database), host.directory.clone());
    let sent = monotonic();
    let opened = blocking(move || {
        first_free(|number| {
            let directory = data.join(cache_of(shard, number));
            crate::serve::restrict_data(&directory);
            database.follow(&directory, shard)
        })
    })
    .await;
    let follower = opened.map_err(|error: CacheError| ServeError::Setting(error.to_string()))?;
    if let Some(lost) = follower.lost() {
        host.node.note_loss(lost);
    }
    if *stop.borrow() {
        return Ok((follower, None));
    }
    let copy = Copy::open(host, &follower, sent).await?;
    tracing::info!(shard = shard.0, last = follower.last(), "this node follows a shard");
    Ok((follower, Some(Arc::new(copy))))
}

/// Brings the copy to the log again and again; none if it is no part of the log any more.
async fn keep(
    node: &ClusterNode,
    shard: ShardNo,
    mut follower: Follower,
    copy: &Arc<Copy>,
    stop: &mut watch::Receiver<bool>,
) -> Option<Follower> {
    let mut failures = 0;
    let mut hints = follower.hints();
    loop {
        tokio::select! {
            _ = stop.wait_for(|is_over| *is_over) => return Some(follower),
            () = hints.next() => {}
            () = tokio::time::sleep(POLL) => {}
        }
        let (shown, sent) = (Arc::clone(copy), monotonic());
        let advanced;
        (follower, advanced) = blocking(move || {
            let advanced = step(&mut follower, &shown);
            (follower, advanced)
        })
        .await;
        let compared = match advanced {
            Ok(Advanced::To(_)) => latest_map(node).await.map_err(|error| error.to_string()),
            Ok(Advanced::Diverged) => return None,
            Err(error) => Err(error.to_string()),
        };
        match compared {
            Ok(latest) => {
                failures = 0;
                copy.compared(sent, latest);
            }
            Err(error) => {
                failures += 1;
                if failures == FAILURES_TOLD {
                    tracing::warn!(shard = shard.0, %error, "a follower cannot read the log; its lag grows");
                }
            }
        }
    }
}

/// One look at the log.
fn step(follower: &mut Follower, copy: &Copy) -> Result<Advanced, CacheError> {
    let advanced = follower.advance()?;
    if let Advanced::To(last) = advanced
        && last != copy.last()
    {
        copy.advance(follower)?;
    }
    Ok(advanced)
}

/// The epoch of the latest map, if there is one.
async fn latest_map(node: &ClusterNode) -> Result<Option<u64>, DatabaseError> {
    let is_there = node.placing.read().map.is_some();
    if is_there { node.database.map_epoch().await } else { Ok(None) }
}

impl ClusterNode {
    /// The copy that this node has of a shard.
    pub(crate) fn copy(&self, shard: ShardNo) -> Option<Arc<Copy>> {
        self.copies.read().get(&shard).cloned()
    }

    /// Brings lost records to an operator's attention, until this process ends.
    pub(super) fn note_loss(&self, lost: LostRecords) {
        tracing::error!(%lost, "restore the database from a backup that has it, or go on without");
        self.losses.lock().push(lost.to_string());
    }

    /// What this node tells of itself.
    pub(super) fn tell(&self) -> Own {
        let copies = self.copies.read();
        let followed = |(shard, copy): (&ShardNo, &Arc<Copy>)| {
            Some(Followed { shard: shard.0, lag_ms: copy.lag_ms()?, last: copy.last() })
        };
        Own {
            copies: copies.iter().filter_map(followed).collect(),
            losses: self.losses.lock().clone(),
            connections: self.connection_alerts().into_iter().map(|alert| alert.text).collect(),
        }
    }

    /// What all nodes tell of themselves, as far as they answer at once.
    pub(super) async fn all_tell(&self) -> Vec<(NodeName, Own)> {
        let view = self.topology.view();
        let ask = |node: &NodeRow| {
            let (name, address) = (node.name.clone(), node.address.clone());
            async move {
                match name == *self.topology.own() {
                    true => (name, self.tell()),
                    false => (name, self.told_by(&address).await.unwrap_or_default()),
                }
            }
        };
        let live = view.nodes.iter().filter(|node| node.age_ms <= LIVE_MS);
        join_all(live.map(ask)).await
    }

    /// What is wrong between this node and others that are live.
    pub(super) fn connection_alerts(&self) -> Vec<Alert> {
        let (view, own) = (self.topology.view(), self.topology.own());
        let others = || view.nodes.iter().filter(|node| node.name != *own && node.age_ms <= LIVE_MS);
        let misfit = |node: &NodeRow| Some((node.name.clone(), self.peers.misfit(&node.address)?));
        let since_ms = self.topology.age_ms();
        // One that was killed or is paused has not renewed its row since, either.
        let is_cut_off = |node: &&NodeRow| {
            let renewed = Duration::from_millis(node.age_ms.saturating_add(since_ms)) + RENEWED_AFTER;
            self.peers.silent_for(&node.address).is_some_and(|silent| silent > renewed)
        };
        let silent: Vec<NodeRow> = others().filter(is_cut_off).cloned().collect();
        let misfits: Vec<_> = others().filter_map(misfit).collect();
        alerts::connections(own, &misfits, &silent, self.peers.tls().and_then(|tls| tls.problem()))
    }

    /// Has all other nodes called again and again, so that it is known whether they can be, and forgets those that are not on
    /// the list any more.
    pub(super) fn watch_others(&self) {
        self.peers.retain(&self.topology.others());
        let view = self.topology.view();
        let others = view.nodes.iter().filter(|node| node.name != *self.topology.own());
        others.filter(|node| node.age_ms <= LIVE_MS).for_each(|node| self.peers.watch(&node.address));
    }

    async fn told_by(&self, address: &str) -> Option<Own> {
        let (method, target) = (Method::GET, Uri::from_static(TELL));
        let call =
            Call { kind: CallKind::Node, method, target, headers: HeaderMap::new(), body: Bytes::new() };
        let asking = async {
            let answer = self.peers.call(address, &call, TELL_TIMEOUT).await.ok()?;
            serde_json::from_slice(&answer.into_body().collect().await.ok()?.to_bytes()).ok()
        };
        tokio::time::timeout(TELL_TIMEOUT, asking).await.ok().flatten()
    }

    fn set_copy(&self, shard: ShardNo, copy: Option<Arc<Copy>>) {
        let mut all = self.copies.write();
        match copy {
            Some(copy) => drop(all.insert(shard, copy)),
            None => drop(all.remove(&shard)),
        }
    }
}
