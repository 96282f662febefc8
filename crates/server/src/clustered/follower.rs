//! Follows shards that other nodes own: a copy of each, tailed from the log in PostgreSQL, answers reads that tolerate its
//! lag. Knows nothing of which shards are to be followed, nor of who owns them.
//!
//! A copy grants nothing and writes nothing. It knows nothing of locks, so a read under locks is refused, and the door asks
//! the owner; so are all reads that the copy cannot answer.

use super::{
    ClusterNode,
    host::{ShardHost, first_free},
    serve::cache_of,
};
use crate::{
    arriving::Arriving,
    authority::Authority,
    body,
    cluster::dispatch::decoded,
    lease::LeaseTime,
    listener::Service,
    native::{Native, lag},
    runtime::{self, Origin, blocking},
    schemas,
    serve::ServeError,
    shared::Shared,
    trouble::Trouble,
};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Method, Request, Uri};
use lockwood_cluster::{Call, monotonic};
use lockwood_model::Event;
use lockwood_router::{NodeName, NodeRow, ShardNo, Staleness, ownership::Monotonic};
use lockwood_storage::{
    Entry, StoreError,
    postgres::{Advanced, CacheError, Follower, Shown},
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

/// Time between two looks at the log.
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

    /// Ends the following of a shard; gives the copy, if there is one.
    pub(super) async fn end(&self, shard: ShardNo) -> Option<Follower> {
        let Following { stop, task } = self.0.lock().remove(&shard)?;
        stop.send_replace(true);
        task.await.ok().flatten()
    }
}

/// A copy that answers reads.
pub(crate) struct Copy {
    shared: Arc<Shared>,
    native: Native,
    shown: Arc<Shown>,
    staleness: Mutex<Staleness>,
    last: AtomicU64,
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
        let copy = Copy { shared, native, shown, staleness: Mutex::default(), last: AtomicU64::default() };
        copy.compared(follower, sent);
        Ok(copy)
    }

    /// The copy has everything that a call found which was sent then.
    fn compared(&self, follower: &Follower, sent: Monotonic) {
        self.last.store(follower.last(), Ordering::Release);
        self.staleness.lock().compared(sent, monotonic());
    }

    /// Shows what the follower has by now.
    fn advance(&self, follower: &Follower) -> Result<(), StoreError> {
        let before = self.last.load(Ordering::Acquire);
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

/// Answers a read by this node's copy of a shard, if it tolerates the lag of the copy; otherwise gives the request back.
pub(super) async fn answer(
    node: &ClusterNode,
    shard: ShardNo,
    peer: SocketAddr,
    request: Request<Arriving>,
) -> Result<Response, Request<Arriving>> {
    let tolerated = match lag::tolerated(request.method(), request.uri()) {
        Ok(Some(max_lag_ms)) => max_lag_ms,
        Ok(None) => return Err(request),
        Err(trouble) => return Ok(trouble.into_response()),
    };
    // An owner has no copy besides; a copy that is too old is not tried.
    let copy = node.copy(shard).filter(|copy| copy.lag_ms().is_some_and(|lag_ms| lag_ms <= tolerated));
    let Some(copy) = copy.filter(|_| is_of_one_shard(node, request.uri())) else { return Err(request) };
    let (parts, body) = request.into_parts();
    let body = match body::read_at(&node.front, body).await {
        Ok(body) => body,
        Err(error) => return Ok(Trouble::from(error).into_response()),
    };
    let whole = || Request::from_parts(parts.clone(), Arriving::Whole(Full::new(body.clone())));
    copy.answer(peer, tolerated, whole()).await.ok_or_else(whole)
}

/// Whether a read is of documents that are all on one shard.
fn is_of_one_shard(node: &ClusterNode, uri: &Uri) -> bool {
    let segments: Vec<&str> = uri.path().split('/').skip(1).collect();
    let ["v1", namespace, word, ..] = segments[..] else { return false };
    // Where it is was looked up on the way here; one that is nowhere is empty.
    let placed = node.homes.remembered(&decoded(namespace));
    word != "shard" && !placed.is_some_and(|placed| placed.is_spread)
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
                let kept = keep(shard, follower, &copy, &mut stop).await;
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
    if *stop.borrow() {
        return Ok((follower, None));
    }
    let copy = Copy::open(host, &follower, sent).await?;
    tracing::info!(shard = shard.0, last = follower.last(), "this node follows a shard");
    Ok((follower, Some(Arc::new(copy))))
}

/// Brings the copy to the log again and again; none if it is no part of the log any more.
async fn keep(
    shard: ShardNo,
    mut follower: Follower,
    copy: &Arc<Copy>,
    stop: &mut watch::Receiver<bool>,
) -> Option<Follower> {
    let mut failures = 0;
    loop {
        tokio::select! {
            _ = stop.wait_for(|is_over| *is_over) => return Some(follower),
            () = tokio::time::sleep(POLL) => {}
        }
        let shown = Arc::clone(copy);
        let advanced;
        (follower, advanced) = blocking(move || {
            let advanced = step(&mut follower, &shown);
            (follower, advanced)
        })
        .await;
        match advanced {
            Ok(Advanced::To(_)) => failures = 0,
            Ok(Advanced::Diverged) => return None,
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
    let sent = monotonic();
    let advanced = follower.advance()?;
    if let Advanced::To(last) = advanced {
        if last != copy.last() {
            copy.advance(follower)?;
        }
        copy.compared(follower, sent);
    }
    Ok(advanced)
}

impl ClusterNode {
    /// The copy that this node has of a shard.
    pub(crate) fn copy(&self, shard: ShardNo) -> Option<Arc<Copy>> {
        self.copies.read().get(&shard).cloned()
    }

    /// What this node tells of itself.
    pub(super) fn tell(&self) -> Own {
        let copies = self.copies.read();
        let followed = |(shard, copy): (&ShardNo, &Arc<Copy>)| {
            Some(Followed { shard: shard.0, lag_ms: copy.lag_ms()?, last: copy.last() })
        };
        Own { copies: copies.iter().filter_map(followed).collect(), losses: self.losses.lock().clone() }
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

    async fn told_by(&self, address: &str) -> Option<Own> {
        let (method, target) = (Method::GET, Uri::from_static(TELL));
        let call = Call { method, target, headers: HeaderMap::new(), body: Bytes::new() };
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
