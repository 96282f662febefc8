//! Serves the shards that this node owns: opens a runtime for each tenure, and closes or abandons it. Knows nothing of
//! when that is to happen.

use super::{Answering, ClusterNode, Membership, Served, follower::Followers, serve::cache_of};
use crate::{
    elasticsearch::Library,
    runtime::{Origin, Runtime},
    serve::ServeError,
};
use lockwood_cluster::{Database, Doing, Host, Reports};
use lockwood_node::{authority::Authority, lease::LeaseTime};
use lockwood_router::{
    ShardEpoch, ShardNo,
    ownership::{Event, Monotonic, StepDownReason},
};
use lockwood_storage::{
    OpenError, Store, StoreError,
    postgres::{CacheError, CacheReport, Follower},
};
use lockwood_wire::Interface;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// How often it is looked whether the store of a runtime still takes writes.
const WATCH_INTERVAL: Duration = Duration::from_millis(20);
/// How long a tenure waits for the cache that the one before it may still have open; then it fills another one.
const PREDECESSOR_TIMEOUT: Duration = Duration::from_secs(1);
/// Caches of one shard at the most: an answer that a client reads slowly keeps the cache of its tenure open.
const CACHES_LEN_MAX: usize = 8;

/// What all tenures share.
pub(super) struct ShardHost {
    pub(super) node: Arc<ClusterNode>,
    pub(super) database: Arc<Database>,
    pub(super) interfaces: Vec<Interface>,
    pub(super) library: Option<Library>,
    pub(super) directory: PathBuf,
    pub(super) reports: Reports,
    pub(super) tenures: Mutex<BTreeMap<ShardNo, Tenures>>,
    pub(super) followers: Followers,
}

/// What this process has of one shard.
#[derive(Default)]
pub(super) struct Tenures {
    now: Option<Tenure>,
    /// The last epoch whose tenure is over, also if its runtime was still being opened then.
    ended: ShardEpoch,
}

/// One runtime, from its opening to its end.
pub(super) struct Tenure {
    epoch: ShardEpoch,
    authority: Arc<Authority>,
    runtime: Runtime,
    /// Tells requests that the tenure is over.
    over: watch::Sender<bool>,
    answering: Answering,
}

/// A handle by which the driver calls the host.
pub(super) struct Handle(pub(super) Arc<ShardHost>);

impl Host for Handle {
    fn catch_up(&self, shard: ShardNo, epoch: ShardEpoch) -> Doing<Result<(), String>> {
        let host = Arc::clone(&self.0);
        Box::pin(async move { host.open(shard, epoch).await.map_err(|error| format!("{error:#}")) })
    }

    fn serve(&self, shard: ShardNo, epoch: ShardEpoch) {
        let tenures = self.0.tenures.lock();
        let tenure = tenures.get(&shard).and_then(|tenures| tenures.now.as_ref());
        let Some(tenure) = tenure.filter(|tenure| tenure.epoch == epoch) else { return };
        let (shared, services) = (Arc::clone(&tenure.runtime.shared), tenure.runtime.services.clone());
        let (authority, over) = (Arc::clone(&tenure.authority), tenure.over.subscribe());
        let answering = tenure.answering.clone();
        self.0.node.set_served(shard, Some(Served { shared, services, authority, over, answering }));
    }

    fn set_fresh(&self, shard: ShardNo, until: Option<Monotonic>) {
        let tenures = self.0.tenures.lock();
        if let Some(tenure) = tenures.get(&shard).and_then(|tenures| tenures.now.as_ref()) {
            tenure.authority.set_fresh_until(until);
        }
    }

    fn stop_admitting(&self, shard: ShardNo, epoch: ShardEpoch) -> Doing<()> {
        let host = Arc::clone(&self.0);
        Box::pin(async move {
            let Some(Tenure { runtime, over, answering, .. }) = host.take(shard, epoch) else { return };
            if let Err(error) = runtime.close(answering.finished()).await {
                tracing::warn!(%error, "note what is held before a handoff");
            }
            over.send_replace(true);
        })
    }

    fn step_down(&self, shard: ShardNo, epoch: ShardEpoch, _: StepDownReason) -> Doing<()> {
        let host = Arc::clone(&self.0);
        Box::pin(async move {
            let Some(tenure) = host.take(shard, epoch) else { return };
            tenure.authority.set_fresh_until(None);
            tenure.over.send_replace(true);
            tenure.runtime.abandon().await;
        })
    }

    fn follow(&self, shard: ShardNo) {
        self.0.followers.follow(&self.0, shard);
    }

    fn unfollow(&self, shard: ShardNo) {
        let ending = self.0.followers.end(shard);
        tokio::spawn(async move { drop(ending.await) });
    }
}

impl ShardHost {
    async fn open(self: &Arc<ShardHost>, shard: ShardNo, epoch: ShardEpoch) -> Result<(), ServeError> {
        let directory = self.directory.join(cache_of(shard, 0));
        let authority = Arc::new(Authority::none());
        // After the claim, so that every owner that this tenure does not hear of knows of it.
        let rows = self.database.rows().await?.shards;
        // No home leaves this shard under an earlier epoch any more, so what is known now of homes here stays true.
        let changes = self.node.homes.look().await;
        let changes = changes.map_err(|trouble| ServeError::Setting(trouble.message))?;
        let membership = Membership::new(&self.node, (shard, epoch), (rows, changes));
        let origin = Origin {
            front: Arc::clone(&self.node.front),
            interfaces: self.interfaces.clone(),
            library: self.library.clone(),
            authority: Arc::clone(&authority),
            lease_time: LeaseTime::Restarts,
            directory: directory.clone(),
            membership: Some(Arc::clone(&membership)),
        };
        let (node, data) = (Arc::clone(&self.node), self.directory.clone());
        // What was followed needs no catching up, and no other cache can be opened in its directory.
        let followed = self.followers.end(shard).await;
        let runtime =
            Runtime::open(origin, move || open_store(&node, &data, (shard, epoch), followed)).await?;
        let over = watch::Sender::new(false);
        let (shared, mut ended) = (Arc::clone(&runtime.shared), over.subscribe());
        match self.install(shard, Tenure { epoch, authority, runtime, over, answering: Answering::default() })
        {
            None => {
                tokio::spawn(watch(Arc::clone(self), shard, epoch));
                // What a member of the cluster does besides answering requests.
                tokio::spawn(async move {
                    tokio::select! {
                        () = Arc::clone(&membership).attend(shared) => {}
                        _ = ended.wait_for(|is_over| *is_over) => {}
                    }
                    membership.end();
                });
                Ok(())
            }
            Some(late) => {
                late.runtime.abandon().await;
                Err(ServeError::Setting("the tenure ended while the shard was being opened".to_owned()))
            }
        }
    }

    /// Takes a tenure that is ready to serve; gives it back if it is over already.
    fn install(&self, shard: ShardNo, ready: Tenure) -> Option<Tenure> {
        let mut tenures = self.tenures.lock();
        let tenures = tenures.entry(shard).or_default();
        if tenures.ended >= ready.epoch {
            return Some(ready);
        }
        // A tenure ends before the next one begins, so there is none here.
        tenures.now.replace(ready)
    }

    /// Ends the serving of a tenure; none if it is over already.
    fn take(&self, shard: ShardNo, epoch: ShardEpoch) -> Option<Tenure> {
        let mut tenures = self.tenures.lock();
        let tenures = tenures.entry(shard).or_default();
        tenures.ended = tenures.ended.max(epoch);
        let ending = tenures.now.take_if(|tenure| tenure.epoch == epoch)?;
        self.node.set_served(shard, None);
        Some(ending)
    }

    /// Why the store of a tenure takes no more writes; none if it does. Gives nothing at all if the tenure is over.
    fn failure(&self, shard: ShardNo, epoch: ShardEpoch) -> Option<Option<StoreError>> {
        let tenures = self.tenures.lock();
        let tenure = tenures.get(&shard)?.now.as_ref().filter(|tenure| tenure.epoch == epoch)?;
        Some(tenure.runtime.shared.shard.store_failure())
    }
}

/// The store of a tenure: what was followed, or else the first cache of the shard that no earlier tenure of this process has
/// open; brought to the log. Blocks.
fn open_store(
    node: &ClusterNode,
    data: &Path,
    (shard, epoch): (ShardNo, ShardEpoch),
    followed: Option<Follower>,
) -> Result<Arc<dyn Store>, OpenError> {
    let (database, begun) = (&node.database, Instant::now());
    let (is_followed, mut opened) = (followed.is_some(), None);
    if let Some(follower) = followed {
        match database.promote(follower, epoch) {
            Ok(promoted) => opened = Some(promoted),
            Err(error) => tracing::warn!(shard = shard.0, %error, "go on with what was followed"),
        }
    }
    let (store, report) = match opened {
        Some(opened) => opened,
        None => first_free(|number| {
            let directory = data.join(cache_of(shard, number));
            crate::serve::restrict_data(&directory);
            database.open_cache(&directory, shard, epoch)
        })
        .map_err(|error| OpenError::from(StoreError::Failed(error.to_string())))?,
    };
    if let Some(lost) = report.alert {
        node.note_loss(lost);
    }
    let CacheReport { outcome, records, last, .. } = report;
    tracing::info!(
        shard = shard.0,
        epoch = epoch.0,
        is_followed,
        ?outcome,
        records,
        last,
        took_ms = begun.elapsed().as_millis(),
        "the cache equals the log"
    );
    Ok(store)
}

/// Opens the first of a shard's caches, by number, that is not open in this process already. Blocks.
pub(super) fn first_free<T>(open: impl Fn(usize) -> Result<T, CacheError>) -> Result<T, CacheError> {
    let (begun, mut number) = (Instant::now(), 0);
    loop {
        match open(number) {
            Err(error) if is_in_use(&error) && begun.elapsed() < PREDECESSOR_TIMEOUT => {
                std::thread::sleep(WATCH_INTERVAL);
            }
            Err(error) if is_in_use(&error) && number + 1 < CACHES_LEN_MAX => number += 1,
            opened => return opened,
        }
    }
}

/// Whether another runtime of this process has the directory open.
fn is_in_use(error: &CacheError) -> bool {
    matches!(error, CacheError::Open { error: OpenError::InUse, .. })
}

/// Reports when the store of a tenure takes no more writes. Ends with the tenure.
async fn watch(host: Arc<ShardHost>, shard: ShardNo, epoch: ShardEpoch) {
    loop {
        tokio::time::sleep(WATCH_INTERVAL).await;
        let Some(failure) = host.failure(shard, epoch) else { return };
        let Some(failure) = failure else { continue };
        tracing::warn!(shard = shard.0, epoch = epoch.0, %failure, "the log takes no more records of this owner");
        host.reports.report(match failure {
            StoreError::Fenced { .. } => Event::AppendFenced { shard, epoch },
            _ => Event::AppendUnknown { shard, epoch },
        });
        return;
    }
}
