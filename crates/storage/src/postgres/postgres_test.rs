//! A real PostgreSQL, races on it, and a network that fails between a node and it.

use super::{
    Address, CacheError, CacheReport, CallError, Change, ClaimIf, Claimant, Directory, HomeRow, Link, Record,
    ShardLog, ShardRow, Tenure, ensure_schema, open_cache,
};
use crate::{Appended, Batch, Durability, Epoch, Space, Store, StoreError};
use lockwood_test_support::{Fault, Postgres, Proxy};
use std::{
    future::Future,
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// Longer than any test.
const STALE_MS: u64 = 600_000;
const DEADLINE: Duration = Duration::from_secs(10);
/// For calls that are not answered.
const SOON: Duration = Duration::from_millis(700);
const PATIENCE: Duration = Duration::from_secs(30);

/// A runtime without timers: the link has its own.
pub(crate) fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

/// What a claim gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claimed {
    pub(crate) epoch: Epoch,
    pub(crate) last: u64,
}

/// The one run of a node.
pub(crate) fn run_of(node: &str) -> String {
    format!("run of {node}")
}

/// A tenure of the node `a`.
pub(crate) fn of_a(epoch: Epoch) -> Tenure {
    Tenure { epoch, incarnation: run_of("a") }
}

/// A database with tables, and a connection to it.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) database: String,
    pub(crate) link: Arc<Link>,
}

impl ShardRow {
    /// What a node claims by that has seen the row for as long as the row is old.
    pub(crate) fn claim_if_stale(&self) -> ClaimIf {
        ClaimIf::Free(if self.age_ms > STALE_MS { self.renewed } else { 0 })
    }
}

impl Cluster {
    /// The one that tests share; each has shards of its own.
    pub(crate) fn shared() -> Cluster {
        static DATABASE: OnceLock<String> = OnceLock::new();
        let database = DATABASE.get_or_init(|| Cluster::new().database);
        Cluster::on(database, &Postgres::shared().socket(database))
    }

    pub(crate) fn new() -> Cluster {
        let database = Postgres::shared().create_database();
        let cluster = Cluster::on(&database, &Postgres::shared().socket(&database));
        wait(ensure_schema(&cluster.link)).unwrap();
        wait(cluster.directory().setting("cluster", database.as_bytes())).unwrap();
        cluster
    }

    /// The same database by another way.
    pub(crate) fn on(database: &str, address: &str) -> Cluster {
        Cluster::within(DEADLINE, database, address)
    }

    fn within(deadline: Duration, database: &str, address: &str) -> Cluster {
        let link = Link::open(&address.parse::<Address>().unwrap(), deadline).unwrap();
        Cluster { database: database.to_owned(), link }
    }

    /// A connection of its own over a network that fails, soon given up.
    fn behind_proxy(&self) -> (Cluster, Proxy) {
        let proxy = Proxy::start(Postgres::shared().port());
        let url = Postgres::shared().url(&self.database, proxy.port());
        (Cluster::within(SOON, &self.database, &url), proxy)
    }

    pub(crate) fn log(&self, shard: u64) -> ShardLog {
        ShardLog::new(Arc::clone(&self.link), shard)
    }

    pub(crate) fn new_shard() -> u64 {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        NUMBER.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn directory(&self) -> Directory {
        Directory::new(Arc::clone(&self.link))
    }

    pub(crate) fn row(&self, shard: u64) -> ShardRow {
        let rows = wait(self.directory().read_rows()).unwrap().shards;
        rows.into_iter().find(|row| row.number == shard).unwrap()
    }

    /// Claims a shard from the row as it is; none if another node was faster, or owns it.
    pub(crate) fn claim(&self, node: &str, shard: u64) -> Option<Claimed> {
        wait(self.directory().ensure_shards(&[shard])).unwrap();
        let row = self.row(shard);
        let condition = match row.owner.as_deref() == Some(node) {
            true => ClaimIf::Own,
            false => row.claim_if_stale(),
        };
        let claimant = Claimant { node, incarnation: &run_of(node) };
        let claimed = wait(self.directory().claim_at(shard, claimant, row.epoch, condition)).unwrap();
        claimed.map(|epoch| Claimed { epoch, last: self.row(shard).last })
    }

    pub(crate) fn open(
        &self,
        node: &str,
        shard: u64,
        directory: &Path,
    ) -> Result<(Arc<dyn Store>, CacheReport), CacheError> {
        let Claimed { epoch, .. } = self.claim(node, shard).unwrap();
        let tenure = Tenure { epoch, incarnation: run_of(node) };
        open_cache(directory, &self.link, shard, &tenure)
    }

    pub(crate) fn sql(&self, script: &str) -> String {
        Postgres::shared().sql(&self.database, script)
    }
}

#[test]
fn eight_nodes_that_start_at_once_make_the_tables_once() {
    let database = Postgres::shared().create_database();
    let address = Postgres::shared().socket(&database);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let cluster = Cluster::on(&database, &address);
                cluster.link.ready_blocking(PATIENCE).unwrap();
                wait(ensure_schema(&cluster.link)).unwrap();
                while cluster.claim("a", 1).is_none() {}
            });
        }
    });
    assert_eq!(Postgres::shared().sql(&database, "select epoch from lockwood.shard"), "8");
}

fn records(indexes: std::ops::RangeInclusive<u64>) -> Change {
    let mut batch = Batch::default();
    indexes
        .for_each(|index| batch.put(Space::Log, index.to_be_bytes(), format!("record {index}").into_bytes()));
    Change::of(&batch).unwrap()
}

#[track_caller]
fn done(appended: &Appended) {
    assert!(matches!(appended, Appended::Done), "{appended:?}");
}

#[track_caller]
fn unconfirmed(appended: &Appended) {
    assert!(matches!(appended, Appended::Unknown(StoreError::Unconfirmed { .. })), "{appended:?}");
}

fn indexes(log: &ShardLog) -> Vec<u64> {
    log.read(0, 100).unwrap().into_iter().map(|record| record.index).collect()
}

#[test]
fn appends_are_guarded_by_epoch_and_place() {
    let (cluster, shard) = (Cluster::shared(), Cluster::new_shard());
    let log = cluster.log(shard);
    assert_eq!(log.head().unwrap(), None);
    assert!(
        matches!(log.append(&of_a(Epoch(1)), 0, records(1..=1)), Appended::Fenced(Epoch(0))),
        "there is no such shard"
    );
    let first = cluster.claim("a", shard).unwrap();
    assert_eq!(first, Claimed { epoch: Epoch(1), last: 0 });
    done(&log.append(&of_a(first.epoch), 0, records(1..=3)));
    for (expected, change) in [(0, records(1..=1)), (2, records(3..=3)), (4, records(5..=5))] {
        let moved = log.append(&of_a(first.epoch), expected, change);
        assert!(matches!(moved, Appended::Moved { last: 3 }), "{moved:?}");
    }
    let second = cluster.claim("a", shard).unwrap();
    assert_eq!(second, Claimed { epoch: Epoch(2), last: 3 });
    let fenced = log.append(&of_a(first.epoch), 3, records(4..=4));
    assert!(matches!(fenced, Appended::Fenced(Epoch(2))), "{fenced:?}");
    done(&log.append(&of_a(second.epoch), 3, records(4..=5)));
    assert_eq!(indexes(&log), [1, 2, 3, 4, 5]);
    let page = log.read(4, 1).unwrap();
    assert_eq!(page, [Record { index: 4, epoch: Epoch(2), bytes: b"record 4".to_vec() }]);
}

/// Changes that are more than new records are one transaction, and guarded like them.
#[test]
fn a_change_is_made_whole_or_not_at_all() {
    let (cluster, shard) = (Cluster::shared(), Cluster::new_shard());
    let log = cluster.log(shard);
    let Claimed { epoch, .. } = cluster.claim("a", shard).unwrap();
    let mut batch = Batch::default();
    batch.put(Space::Log, 1u64.to_be_bytes(), "one");
    batch.put(Space::Log, 2u64.to_be_bytes(), "two");
    batch.put(Space::Numbers, "ceiling", "5");
    batch.put(Space::Numbers, "epoch", "local");
    batch.put(Space::Actions, "a", "1");
    batch.put(Space::Meta, "derived", "1");
    batch.put(Space::Snapshots, [0; 12], "piece");
    assert!(
        matches!(log.append(&of_a(Epoch(9)), 0, Change::of(&batch).unwrap()), Appended::Fenced(found) if found == epoch)
    );
    assert!(matches!(log.append(&of_a(epoch), 1, Change::of(&batch).unwrap()), Appended::Moved { last: 0 }));
    let count =
        |table: &str| cluster.sql(&format!("select count(*) from lockwood.{table} where shard = {shard}"));
    assert_eq!((count("log"), count("ledger"), count("snapshot")), ("0".into(), "0".into(), "0".into()));
    done(&log.append(&of_a(epoch), 0, Change::of(&batch).unwrap()));
    assert_eq!((count("log"), count("ledger"), count("snapshot")), ("2".into(), "2".into(), "1".into()));
    assert_eq!(log.head().unwrap().map(|head| (head.last, head.rewrites)), Some((2, 0)));
    let mut batch = Batch::default();
    batch.remove(Space::Log, 1u64.to_be_bytes());
    batch.put(Space::Log, 2u64.to_be_bytes(), "TWO");
    batch.remove(Space::Numbers, "ceiling");
    batch.remove(Space::Snapshots, [0; 12]);
    done(&log.append(&of_a(epoch), 2, Change::of(&batch).unwrap()));
    assert_eq!((count("log"), count("ledger"), count("snapshot")), ("1".into(), "1".into(), "0".into()));
    let head = log.head().unwrap().unwrap();
    assert_eq!((head.first, head.last, head.rewrites), (Some(2), 2, 1));
    assert_eq!(log.read(0, 9).unwrap()[0].bytes, b"TWO");
}

#[test]
fn maps_homes_and_settings_are_kept() {
    let cluster = Cluster::new();
    let directory = cluster.directory();
    assert_eq!(wait(directory.map()), Ok(None));
    wait(directory.ensure_shards(&[1])).unwrap();
    cluster.claim("a", 1).unwrap();
    let (first, later) = (of_a(Epoch(1)), of_a(Epoch(2)));
    let owner = (1, &first);
    assert_eq!(wait(directory.add_map(1, b"one", owner)), Ok(true));
    assert_eq!(wait(directory.add_map(1, b"two", owner)), Ok(false));
    assert_eq!(wait(directory.add_map(2, b"two", (1, &later))), Ok(false), "that is not the owner");
    assert_eq!(wait(directory.add_map(2, b"two", owner)), Ok(true));
    assert_eq!(wait(directory.map()), Ok(Some((2, b"two".to_vec()))));
    assert_eq!(wait(directory.add_map(5, b"five", owner)), Ok(true));

    let row = |home, spread, moved| HomeRow { home, spread, moved };
    let (whole, spread) = (|home| row(home, false, 0), |home| row(home, true, 0));
    assert_eq!(wait(directory.home("n", whole(3), 2)), Ok(Some(whole(3))));
    assert_eq!(wait(directory.home("n", spread(4), 2)), Ok(Some(whole(3))));
    let found = (wait(directory.find_home("n")), wait(directory.find_home("m")));
    assert_eq!(found, (Ok(Some(whole(3))), Ok(None)));
    assert_eq!(wait(directory.home("m", spread(1), 2)), Ok(Some(spread(1))));
    assert_eq!(wait(directory.home("k", whole(1), 2)), Ok(None), "two are the limit");
    assert_eq!(wait(directory.home("m", whole(9), 2)), Ok(Some(spread(1))));
    let counts = wait(directory.homes_by_shard()).map(|mut counts| {
        counts.sort_unstable();
        counts
    });
    assert_eq!(counts, Ok(vec![(1, 1), (3, 1)]));

    assert_eq!(wait(directory.setting("key", b"1")), Ok(b"1".to_vec()));
    assert_eq!(wait(directory.setting("key", b"2")), Ok(b"1".to_vec()));
    let report = wait(directory.durability()).unwrap();
    assert_eq!((&*report.synchronous_commit, report.machines, report.in_recovery), ("on", 1, false));
    assert!(report.server_version.starts_with("15."), "{report:?}");
}

#[test]
fn synchronous_commit_is_never_off() {
    let database = Postgres::shared().create_database();
    Postgres::shared().sql(&database, &format!("alter database {database} set synchronous_commit = off"));
    let cluster = Cluster::on(&database, &Postgres::shared().socket(&database));
    let report = wait(cluster.directory().durability()).unwrap();
    assert_eq!(report.synchronous_commit, "on");
}

#[test]
fn namespaces_are_not_counted_at_each_first_use_and_the_limit_holds() {
    let cluster = Cluster::new();
    let (one, other) = (cluster.directory(), cluster.directory());
    let add = |directory: &Directory, name: &str| {
        wait(directory.home(name, HomeRow { home: 1, spread: false, moved: 0 }, 40)).unwrap().is_some()
    };
    assert!(add(&one, "first"));
    cluster.sql(
        "insert into lockwood.namespace (name, home) select 'n' || n, 1 from generate_series(1, 50) as n",
    );
    assert!(add(&one, "second"), "that there is room was counted before");
    assert!(!add(&other, "third"));
    assert!((0..4).any(|n| !add(&one, &format!("more {n}"))), "it is counted again");
    assert!(add(&other, "second"), "it is there");
    let (full, limit) = (Cluster::new(), 40);
    let directory = full.directory();
    let added = (0..60).filter(|n| add(&directory, &n.to_string())).count();
    assert_eq!(added, limit);
}

/// A database that is compatible with PostgreSQL may not have what the report is read from.
#[test]
fn a_database_that_does_not_show_its_settings_is_used() {
    let cluster = Cluster::new();
    let (name, database) = (format!("plain_{}", cluster.database), &cluster.database);
    cluster.sql(&format!(
        "create role {name} login; grant create on database {database} to {name};
         grant usage on schema lockwood to {name}; grant all on all tables in schema lockwood to {name};
         revoke execute on function pg_is_in_recovery() from public"
    ));
    let address = Postgres::shared().socket(database).replace("user=postgres", &format!("user={name}"));
    let plain = Cluster::on(database, &address);
    let refused = wait(plain.directory().durability());
    assert!(matches!(refused, Err(CallError::Refused { .. })), "{refused:?}");
    let Claimed { epoch, .. } = plain.claim("a", 1).unwrap();
    done(&plain.log(1).append(&of_a(epoch), 0, records(1..=1)));
}

/// Without hints a follower finds by itself what is new.
#[test]
fn a_log_is_followed_without_notifications() {
    let (shared, shard) = (Cluster::shared(), Cluster::new_shard());
    let proxy = Proxy::start(Postgres::shared().port());
    proxy.replace(b"listen lockwood_log", b"listen lockwood_nil");
    let silent = Cluster::on(&shared.database, &Postgres::shared().url(&shared.database, proxy.port()));
    silent.link.ready_blocking(PATIENCE).unwrap();
    assert_eq!(proxy.replaced(), 1);
    let mut hints = silent.log(shard).hints();
    let (told, hinted) = mpsc::channel();
    thread::spawn(move || {
        wait(hints.next());
        told.send(()).unwrap();
    });
    let Claimed { epoch, .. } = shared.claim("a", shard).unwrap();
    done(&shared.log(shard).append(&of_a(epoch), 0, records(1..=3)));
    assert!(hinted.recv_timeout(Duration::from_millis(300)).is_err());
    assert_eq!(indexes(&silent.log(shard)), [1, 2, 3]);
    done(&silent.log(shard).append(&of_a(epoch), 3, records(4..=4)));
}

/// The answer is lost, not the append.
#[test]
fn an_append_whose_answer_is_lost_is_unknown_and_found_by_the_next_claim() {
    let (shared, shard) = (Cluster::shared(), Cluster::new_shard());
    let (near, proxy) = shared.behind_proxy();
    let Claimed { epoch, .. } = near.claim("a", shard).unwrap();
    let log = near.log(shard);
    done(&log.append(&of_a(epoch), 0, records(1..=1)));
    proxy.set(Fault::CutAnswers);
    unconfirmed(&log.append(&of_a(epoch), 1, records(2..=2)));
    proxy.set(Fault::None);
    let again = near.claim("a", shard).unwrap();
    assert_eq!(again, Claimed { epoch: Epoch(2), last: 2 });
    assert_eq!(indexes(&log), [1, 2]);
    assert_eq!(near.link.connections(), 2);
}

/// The request is still on its way when the deadline is over, and comes after the claim.
#[test]
fn an_append_that_arrives_after_the_next_claim_changes_nothing() {
    let (shared, shard) = (Cluster::shared(), Cluster::new_shard());
    let (near, proxy) = shared.behind_proxy();
    let Claimed { epoch, .. } = near.claim("a", shard).unwrap();
    let log = near.log(shard);
    done(&log.append(&of_a(epoch), 0, records(1..=1)));
    proxy.set(Fault::HoldRequests);
    let begun = Instant::now();
    unconfirmed(&log.append(&of_a(epoch), 1, records(2..=2)));
    assert!(begun.elapsed() >= SOON);
    let again = shared.claim("a", shard).unwrap();
    assert_eq!(again, Claimed { epoch: Epoch(2), last: 1 });
    proxy.set(Fault::None);
    thread::sleep(Duration::from_millis(200));
    assert_eq!(indexes(&shared.log(shard)), [1]);
    done(&log.append(&of_a(again.epoch), 1, records(2..=2)));
}

/// The server did it, and the node hears nothing.
#[test]
fn an_append_that_is_not_answered_in_time_is_unknown() {
    let (shared, shard) = (Cluster::shared(), Cluster::new_shard());
    let (near, proxy) = shared.behind_proxy();
    let Claimed { epoch, .. } = near.claim("a", shard).unwrap();
    let log = near.log(shard);
    done(&log.append(&of_a(epoch), 0, records(1..=1)));
    proxy.set(Fault::HoldAnswers);
    unconfirmed(&log.append(&of_a(epoch), 1, records(2..=2)));
    assert_eq!(shared.claim("a", shard).unwrap().last, 2);
    proxy.set(Fault::None);
    near.link.ready_blocking(PATIENCE).unwrap();
}

#[test]
fn an_append_without_a_connection_is_unavailable_and_nothing_is_written() {
    let (shared, shard) = (Cluster::shared(), Cluster::new_shard());
    let (near, proxy) = shared.behind_proxy();
    let Claimed { epoch, .. } = near.claim("a", shard).unwrap();
    let log = near.log(shard);
    done(&log.append(&of_a(epoch), 0, records(1..=1)));
    proxy.set(Fault::Refuse);
    while !matches!(near.link.ready_blocking(Duration::from_millis(1)), Err(CallError::Unavailable(_))) {}
    let appended = log.append(&of_a(epoch), 1, records(2..=2));
    assert!(matches!(appended, Appended::Unknown(StoreError::Unreachable { .. })), "{appended:?}");
    proxy.set(Fault::None);
    // The same owner may try again: it is known that nothing happened.
    near.link.ready_blocking(PATIENCE).unwrap();
    done(&log.append(&of_a(epoch), 1, records(2..=2)));
    assert_eq!(indexes(&log), [1, 2]);
}

#[test]
fn a_slow_network_is_only_slow() {
    let (shared, shard) = (Cluster::shared(), Cluster::new_shard());
    let (near, proxy) = shared.behind_proxy();
    let Claimed { epoch, .. } = near.claim("a", shard).unwrap();
    let log = near.log(shard);
    done(&log.append(&of_a(epoch), 0, records(1..=1)));
    proxy.set(Fault::Delay(Duration::from_millis(50)));
    let begun = Instant::now();
    done(&log.append(&of_a(epoch), 1, records(2..=40)));
    assert!(begun.elapsed() < Duration::from_millis(250), "one round trip: {:?}", begun.elapsed());
    let mut batch = Batch::default();
    batch.put(Space::Log, 41u64.to_be_bytes(), "41");
    batch.put(Space::Numbers, "ceiling", "5");
    proxy.set(Fault::None);
    done(&log.append(&of_a(epoch), 40, Change::of(&batch).unwrap()));
    proxy.set(Fault::Delay(Duration::from_millis(50)));
    let begun = Instant::now();
    let mut batch = Batch::default();
    batch.put(Space::Log, 42u64.to_be_bytes(), "42");
    batch.put(Space::Numbers, "ceiling", "6");
    done(&log.append(&of_a(epoch), 41, Change::of(&batch).unwrap()));
    assert!(begun.elapsed() < Duration::from_millis(250), "one round trip: {:?}", begun.elapsed());
}

/// A store that another node has taken over, or that does not know what became of a commit, takes no more.
#[test]
fn a_store_says_why_it_takes_no_more_commits() {
    let (shared, shard) = (Cluster::shared(), Cluster::new_shard());
    let (near, proxy) = shared.behind_proxy();
    let number = |value: &str| {
        let mut batch = Batch::default();
        batch.put(Space::Numbers, "n", value);
        batch
    };
    let found =
        |store: &Arc<dyn Store>| store.snapshot().get(Space::Numbers, b"n").unwrap().map(|v| v.to_vec());
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = near.open("a", shard, folder.path()).unwrap();
    store.commit(&number("1"), Durability::Synced).unwrap();
    // Paused: nothing gets through while another node claims the shard.
    proxy.set(Fault::HoldRequests);
    shared.claim("a", shard).unwrap();
    proxy.set(Fault::None);
    let error = store.commit(&number("2"), Durability::Synced).unwrap_err();
    assert!(matches!(error, StoreError::Fenced { epoch: 2 }), "{error}");
    assert!(matches!(store.poison(), Some(StoreError::Fenced { epoch: 2 })));
    assert!(store.is_poisoned());
    let error = store.commit(&number("2"), Durability::Buffered).unwrap_err();
    assert!(matches!(error, StoreError::Fenced { epoch: 2 }), "{error}");
    assert_eq!(found(&store).as_deref(), Some(&b"1"[..]));
    drop(store);

    let (store, _) = near.open("a", shard, folder.path()).unwrap();
    proxy.set(Fault::CutAnswers);
    let error = store.commit(&number("3"), Durability::Synced).unwrap_err();
    assert!(matches!(error, StoreError::Unconfirmed { .. } | StoreError::Unreachable { .. }), "{error}");
    assert_eq!(found(&store).as_deref(), Some(&b"1"[..]), "nothing that is not certain is shown");
    proxy.set(Fault::None);
    assert!(store.commit(&number("4"), Durability::Synced).is_err(), "even though the network is back");
    drop(store);

    let (store, _) = near.open("a", shard, folder.path()).unwrap();
    store.commit(&number("5"), Durability::Synced).unwrap();
    proxy.set(Fault::Refuse);
    while !matches!(near.link.ready_blocking(Duration::from_millis(1)), Err(CallError::Unavailable(_))) {}
    let error = store.commit(&number("6"), Durability::Synced).unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    proxy.set(Fault::None);
    drop(store);
    let (store, _) = near.open("a", shard, folder.path()).unwrap();
    assert_eq!(found(&store).as_deref(), Some(&b"5"[..]));
}

#[test]
fn a_link_connects_again_and_callers_wait_for_it() {
    let (near, proxy) = Cluster::shared().behind_proxy();
    near.link.ready_blocking(PATIENCE).unwrap();
    for _ in 0..3 {
        proxy.cut();
        near.link.ready_blocking(PATIENCE).or_else(|_| near.link.ready_blocking(PATIENCE)).unwrap();
    }
    assert!(near.link.connections() >= 3);
}

/// Callers block wherever they are, and others go on meanwhile.
#[test]
fn a_caller_may_block_on_a_worker_of_another_runtime() {
    let (cluster, shard) = (Cluster::shared(), Cluster::new_shard());
    let Claimed { epoch, .. } = cluster.claim("a", shard).unwrap();
    let log = cluster.log(shard);
    wait(async {
        done(&log.append(&of_a(epoch), 0, records(1..=1)));
        assert_eq!(cluster.directory().durability().await.unwrap().machines, 1);
        done(&log.append(&of_a(epoch), 1, records(2..=2)));
    });
}

#[test]
fn a_hint_tells_that_a_log_has_grown() {
    let (cluster, shard, other) = (Cluster::shared(), Cluster::new_shard(), Cluster::new_shard());
    let epoch = cluster.claim("a", shard).unwrap().epoch;
    let other_epoch = cluster.claim("a", other).unwrap().epoch;
    let mut hints = cluster.log(shard).hints();
    let (told, hinted) = mpsc::channel();
    let waiting = thread::spawn(move || {
        wait(hints.next());
        told.send(()).unwrap();
    });
    done(&cluster.log(other).append(&of_a(other_epoch), 0, records(1..=1)));
    assert!(hinted.recv_timeout(Duration::from_millis(150)).is_err(), "that was the log of another shard");
    done(&cluster.log(shard).append(&of_a(epoch), 0, records(1..=1)));
    hinted.recv_timeout(PATIENCE).unwrap();
    waiting.join().unwrap();
}

#[test]
fn pages_end_after_so_many_bytes() {
    let (cluster, shard) = (Cluster::shared(), Cluster::new_shard());
    let Claimed { epoch, .. } = cluster.claim("a", shard).unwrap();
    let log = cluster.log(shard);
    for index in 1..=5u64 {
        let mut batch = Batch::default();
        batch.put(Space::Log, index.to_be_bytes(), vec![index as u8; 3 << 20]);
        done(&log.append(&of_a(epoch), index - 1, Change::of(&batch).unwrap()));
    }
    assert_eq!(indexes(&log), [1, 2]);
    assert_eq!(log.read(5, 9).unwrap().len(), 1);
}

/// A commit that is cancelled while it waits for its standby is there and reported as done, but on one machine only.
#[test]
fn a_commit_that_is_not_replicated_is_unknown() {
    let server = Postgres::start(&["fsync=off"]);
    let cluster = Cluster::on("postgres", &server.socket("postgres"));
    wait(ensure_schema(&cluster.link)).unwrap();
    let Claimed { epoch, .. } = cluster.claim("a", 1).unwrap();
    let log = cluster.log(1);
    done(&log.append(&of_a(epoch), 0, records(1..=1)));
    let set_standby = |name: &str| {
        server.sql("postgres", &format!("alter system set synchronous_standby_names = '{name}'"));
        server.sql("postgres", "select pg_reload_conf()");
    };
    set_standby("nobody");
    while wait(cluster.directory().durability()).unwrap().machines != 2 {}
    // Commits wait from when the checkpointer has read the setting, which it does before it answers.
    server.sql("postgres", "checkpoint");
    thread::scope(|scope| {
        let append = scope.spawn(|| log.append(&of_a(epoch), 1, records(2..=2)));
        let cancel = "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'";
        let begun = Instant::now();
        while server.sql("postgres", cancel) != "t" {
            assert!(begun.elapsed() < PATIENCE, "the append does not wait for the standby");
        }
        unconfirmed(&append.join().unwrap());
    });
    set_standby("");
    assert_eq!(cluster.claim("a", 1).unwrap(), Claimed { epoch: Epoch(2), last: 2 });
}

#[test]
fn an_append_under_way_when_the_server_ends_the_session_is_unknown() {
    let (cluster, shard) = (Cluster::new(), Cluster::new_shard());
    let Claimed { epoch, .. } = cluster.claim("a", shard).unwrap();
    let log = cluster.log(shard);
    done(&log.append(&of_a(epoch), 0, records(1..=1)));
    thread::scope(|scope| {
        scope.spawn(|| {
            cluster.sql(&format!(
                "begin; select 1 from lockwood.shard where number = {shard} for update; select pg_sleep(2); commit"
            ))
        });
        thread::sleep(Duration::from_millis(500));
        let append = scope.spawn(|| log.append(&of_a(epoch), 1, records(2..=2)));
        let terminate = "select pg_terminate_backend(pid) from pg_stat_activity
            where wait_event_type = 'Lock' and datname = current_database()";
        while cluster.sql(terminate) != "t" {}
        unconfirmed(&append.join().unwrap());
    });
    assert_eq!(cluster.claim("a", shard).unwrap(), Claimed { epoch: Epoch(2), last: 1 });
}

#[test]
fn connections_are_encrypted_and_verified_as_the_address_says() {
    let server = Postgres::start(&["fsync=off", "ssl=on"]);
    let (port, authority) = (server.port(), Postgres::authority());
    let authority = authority.display();
    // No authority, and not the one that signed the server's certificate.
    let other = Postgres::authority().with_file_name("server.pem");
    let is_encrypted = |host: &str, settings: &str| {
        let address = format!("host={host} port={port} user=postgres dbname=postgres {settings}");
        let cluster = Cluster::within(SOON, "postgres", &address);
        let rows = cluster.link.call_blocking(Duration::from_secs(3), |call| async move {
            call.query("select ssl from pg_stat_ssl where pid = pg_backend_pid()", &[]).await
        });
        rows.map(|rows| rows[0].get::<_, bool>(0))
    };
    let verified = format!("sslrootcert={authority}");
    for (host, settings, expected) in [
        ("localhost", "sslmode=disable".to_owned(), Some(false)),
        ("localhost", String::new(), Some(true)),
        ("localhost", "sslmode=require".to_owned(), Some(true)),
        ("localhost", format!("sslmode=verify-full {verified}"), Some(true)),
        ("127.0.0.1", format!("sslmode=verify-full {verified}"), None),
        ("127.0.0.1", format!("sslmode=verify-ca {verified}"), Some(true)),
        ("127.0.0.1", format!("sslmode=require {verified}"), Some(true)),
        ("localhost", format!("sslmode=require sslrootcert={}", other.display()), None),
        ("localhost", format!("sslmode=verify-full sslrootcert={}", other.display()), None),
    ] {
        let found = is_encrypted(host, &settings);
        assert_eq!(found.clone().ok(), expected, "{host} {settings}: {found:?}");
    }
    let no_file: Address = "host=localhost sslmode=verify-full sslrootcert=/no/such/file".parse().unwrap();
    let error = Link::open(&no_file, SOON).map(drop).unwrap_err().to_string();
    assert!(error.contains("/no/such/file"), "{error}");
}

/// A home is moved by the owner of the shard that it leaves, and by no earlier owner of it.
#[test]
fn a_home_moves_while_its_mover_owns_the_shard_that_it_leaves() {
    let cluster = Cluster::new();
    let directory = cluster.directory();
    wait(directory.ensure_shards(&[1, 2])).unwrap();
    cluster.claim("a", 1).unwrap();
    let row = |home, spread, moved| HomeRow { home, spread, moved };
    for (name, home, spread) in [("spread", 1, true), ("other", 1, true), ("whole", 1, false)] {
        assert_eq!(wait(directory.home(name, row(home, spread, 0), 9)), Ok(Some(row(home, spread, 0))));
    }
    assert_eq!(wait(directory.home_changes()), Ok(0));
    assert_eq!(wait(directory.want_home("whole", 2)), Ok(None), "its documents are at its home");
    assert_eq!(wait(directory.want_home("nowhere", 2)), Ok(None));
    assert_eq!(wait(directory.want_home("spread", 2)), Ok(Some(1)));
    assert_eq!(wait(directory.want_home("other", 2)), Ok(Some(1)));
    assert_eq!(wait(directory.want_home("other", 1)), Ok(Some(1)), "it stays");
    assert_eq!(wait(directory.home_target("other")), Ok(None));
    assert_eq!(wait(directory.home_target("spread")), Ok(Some(2)));
    assert_eq!(wait(directory.shards_to_leave()), Ok(vec![1]));
    assert_eq!(wait(directory.homes_to_move(1, 9)), Ok(vec![("spread".into(), 2)]));
    assert_eq!(wait(directory.homes_at(&[1, 3], 9)), Ok(vec![("other".into(), 1)]));
    let wanted = wait(directory.home_changes()).unwrap();

    assert_eq!(wait(directory.move_home("spread", (1, Epoch(0)), 2)), Ok(None), "of an earlier owner");
    assert_eq!(wait(directory.move_home("spread", (2, Epoch(0)), 2)), Ok(None), "it is not there");
    assert_eq!(wait(directory.move_home("whole", (1, Epoch(1)), 2)), Ok(None));
    let moved = wait(directory.move_home("spread", (1, Epoch(1)), 2)).unwrap().unwrap();
    assert!(moved > wanted, "{moved}");
    assert_eq!(wait(directory.move_home("spread", (1, Epoch(1)), 2)), Ok(None), "it was moved");
    assert_eq!(wait(directory.find_home("spread")), Ok(Some(row(2, true, moved))));
    assert_eq!(wait(directory.moved_homes(wanted)), Ok(vec![("spread".into(), row(2, true, moved))]));
    assert_eq!(wait(directory.moved_homes(moved)), Ok(vec![]));
    assert_eq!(wait(directory.shards_to_leave()), Ok(vec![]));
    assert!(wait(directory.home_changes()).unwrap() >= moved, "a move that is refused may count");
}
