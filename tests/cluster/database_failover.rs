//! The primary of the database is killed while clients work, and its synchronous standby takes its place: what was acknowledged
//! is there, locks stay with their holders, and sessions go on.

use crate::{
    faults::Clients,
    harness::{eventually, eventually_is},
    http,
    leaseholder::{Leased, Leaseholder},
    nodes::Nodes,
    peer::{Held, Peer},
    store::Store,
    storm_clients::send,
};
use lockwood_test_support::Postgres;
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

const WRITERS: u64 = 4;
const SHARDS: usize = 2;
/// Of leases; long enough not to end within a test.
const KEPT_MS: u64 = 60_000;
/// How long a session outlives its connection, and the grace period after a takeover.
const ABANDON_MS: u64 = 4_000;
/// In one of so many failovers ownership goes on.
const ATTEMPTS_MAX: u64 = 4;

/// A standby is promoted before ownership ends, unless this machine is slow. Then no session notices.
#[test]
fn sessions_stay_attached_while_the_database_fails_over() {
    let is_noticed = (0..ATTEMPTS_MAX).all(|_| fail_over(Duration::ZERO) == Ownership::Ended);
    assert!(!is_noticed, "ownership ended {ATTEMPTS_MAX} times");
}

#[test]
fn a_failover_of_the_database_that_outlasts_ownership_loses_nothing() {
    fail_over(Duration::from_secs(5));
}

#[test]
fn standbys_are_shown_to_a_role_that_may_see_them() {
    let pair = Pair::start();
    for script in ["create role plain login password 'secret'", "create database plain owner plain"] {
        pair.primary.sql("postgres", script);
    }
    let standbys = |url: &str| Nodes::start_on(url, 1).status(1)["database"]["standbys"].clone();
    let shown = standbys(&pair.url());
    assert_eq!(shown.as_array().map(Vec::len), Some(1), "{shown}");
    assert_eq!(
        (&shown[0]["sync_state"], &shown[0]["state"]),
        (&json!("sync"), &json!("streaming")),
        "{shown}"
    );
    let plain = format!("postgres://plain:secret@127.0.0.1:{}/plain", pair.primary.port());
    assert_eq!(standbys(&plain), Value::Null, "the role may not see them");
    pair.primary.sql("postgres", "grant pg_monitor to plain");
    assert_eq!(standbys(&plain)[0]["sync_state"], "sync");
}

/// A primary that waits for its standby, and a database there.
struct Pair {
    primary: Postgres,
    standby: Postgres,
    database: String,
}

impl Pair {
    fn start() -> Pair {
        let primary = Postgres::start(&["fsync=off"]);
        let standby = primary.standby(&["fsync=off"]);
        primary.sql("postgres", "alter system set synchronous_standby_names = '*'");
        primary.sql("postgres", "select pg_reload_conf()");
        eventually("the standby is waited for", || {
            primary.sql("postgres", "select count(*) from pg_stat_replication where sync_state = 'sync'")
                == "1"
        });
        let database = primary.create_database();
        Pair { primary, standby, database }
    }

    fn url(&self) -> String {
        let (first, second) = (self.primary.port(), self.standby.port());
        format!("postgres://postgres@127.0.0.1:{first},127.0.0.1:{second}/{}", self.database)
    }

    /// A namespace whose home is this shard.
    fn namespace(&self, nodes: &Nodes, shard: usize) -> String {
        let question = format!("select min(name) from lockwood.namespace where home = {shard}");
        for number in 0..100 {
            let found = self.primary.sql(&self.database, &question);
            if !found.is_empty() {
                return found;
            }
            nodes.store_of(1, &format!("n{number}")).create("user", 1, json!({}));
        }
        panic!("no namespace is at home on {shard}");
    }
}

/// What clients saw.
#[derive(Default)]
struct Seen {
    /// By writer, the numbers whose write was acknowledged.
    acknowledged: Mutex<Vec<(u64, u64)>>,
    /// What the holder of the lease wrote last, as far as that was acknowledged.
    held: AtomicU64,
    /// So often the session was answered.
    heard: AtomicU64,
    /// So often it had to attach again.
    attached: AtomicU64,
    violations: Mutex<Vec<String>>,
}

impl Seen {
    fn violation(&self, violation: String) {
        self.violations.lock().unwrap().push(violation);
    }

    /// So far, of all kinds.
    fn progress(&self) -> [u64; 3] {
        let written = self.acknowledged.lock().unwrap().len() as u64;
        [written, self.held.load(Ordering::SeqCst), self.heard.load(Ordering::SeqCst)]
    }
}

/// Of the shard that is home to the namespace in which nothing happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ownership {
    WentOn,
    Ended,
}

/// The database is away for so long, and as long as a standby takes to be promoted.
fn fail_over(gap: Duration) -> Ownership {
    let mut pair = Pair::start();
    let nodes = Nodes::start_with(&pair.url(), 2, &["--shards", &SHARDS.to_string()]);
    nodes.await_balance(SHARDS);
    let durability = nodes.status(1)["database"]["durability"].as_str().unwrap().to_owned();
    assert!(durability.contains("on 2 machines"), "{durability}");
    let (busy, quiet) = (pair.namespace(&nodes, 1), pair.namespace(&nodes, 2));
    let (seen, mut clients) = (Arc::new(Seen::default()), Clients::default());
    let lease = work(&nodes, &busy, &seen, &mut clients);
    let mut rest = Quiet::start(&nodes, &quiet);
    thread::sleep(Duration::from_secs(1));

    pair.primary.kill();
    thread::sleep(gap);
    pair.standby.promote();
    let before = seen.progress();
    eventually_is(
        "all clients get on",
        || seen.progress(),
        |now| now.iter().zip(before).all(|(now, before)| *now >= before + 20),
    );
    clients.stop();
    assert_eq!(*seen.violations.lock().unwrap(), Vec::<String>::new());
    check(&nodes, &busy, lease, &seen);
    rest.check(&nodes)
}

/// Has clients work in a namespace; gives the lease that one of them holds.
fn work(nodes: &Nodes, namespace: &str, seen: &Arc<Seen>, clients: &mut Clients) -> Leased {
    let stores: Vec<Store> = (1..=2).map(|number| nodes.store_of(number, namespace)).collect();
    for writer in 0..WRITERS {
        let (seen, store) = (Arc::clone(seen), stores[writer as usize % 2].clone());
        clients.start(move |number| write(&store, writer, number, &seen));
    }
    let holder = Leaseholder { store: stores[0].clone(), owner: "job".to_owned() };
    let lease = holder.take_for("write guarded/1", KEPT_MS);
    let (own, store) = (Arc::clone(seen), stores[1].clone());
    clients.start(move |number| hold(&store, lease, number + 1, &own));
    let mut session = Attached::open(nodes, namespace, "write guarded/2");
    let own = Arc::clone(seen);
    clients.start(move |turn| session.ask(turn, &own));
    for store in stores {
        let seen = Arc::clone(seen);
        clients.start(move |turn| intrude(&store, turn % 2 + 1, &seen));
    }
    lease
}

/// Each number is created by one request, which is sent once: nothing but this request can have created it.
fn write(store: &Store, writer: u64, number: u64, seen: &Seen) {
    let event = json!([{ "type": "create", "collection": "w", "key": [writer, number], "fields": {} }]);
    match send(store, "POST", "write", &json!({ "events": event })) {
        Some((200, _)) => seen.acknowledged.lock().unwrap().push((writer, number)),
        None | Some((503, _)) => {}
        Some(other) => seen.violation(format!("{writer}:{number} is answered with {other:?}")),
    }
}

/// Renews a lease and writes under its token, which is never refused.
fn hold(store: &Store, lease: Leased, number: u64, seen: &Seen) {
    let renew = json!({ "token": lease.token, "ttl_ms": KEPT_MS });
    let renewed = send(store, "POST", &format!("locks/{}/renew", lease.lock), &renew);
    let target = format!("documents/guarded/1?wait_ms=0&token={}", lease.token);
    let written = send(store, "PUT", &target, &json!({ "n": number }));
    if let Some((200, _)) = written {
        seen.held.store(number, Ordering::SeqCst);
    }
    for answer in [renewed, written].into_iter().flatten().filter(|(status, _)| ![200, 503].contains(status))
    {
        seen.violation(format!("the holder of the lease is answered with {answer:?}"));
    }
}

/// Tries to write what is locked, and to lock it.
fn intrude(store: &Store, key: u64, seen: &Seen) {
    let wrote =
        send(store, "PUT", &format!("documents/guarded/{key}?wait_ms=0"), &json!({ "by": "intruder" }));
    let wanted = json!({ "owner": "intruder", "ttl_ms": 1000, "wait_ms": 0,
        "resources": [{ "path": format!("guarded/{key}"), "mode": "write" }] });
    let took = send(store, "POST", "locks", &wanted);
    for answer in [wrote, took].into_iter().flatten().filter(|(status, _)| ![423, 503].contains(status)) {
        seen.violation(format!("an intruder at {key} is answered with {answer:?}"));
    }
    thread::sleep(Duration::from_millis(5));
}

/// A session with a lock, which attaches again whenever its connection ends.
struct Attached {
    namespace: String,
    nodes: Vec<SocketAddr>,
    peer: Peer,
    is_connected: bool,
    held: Held,
    locks: Value,
}

impl Attached {
    fn open(nodes: &Nodes, namespace: &str, what: &str) -> Attached {
        let fields = json!({ "name": what, "abandon_timeout_ms": ABANDON_MS });
        let mut peer = Peer::open_with(nodes.server(2), namespace, fields);
        let held = peer.hold(what);
        let locks = json!([held.reclaim(what)]);
        let nodes = nodes.running().map(|number| nodes.server(number).native).collect();
        Attached { namespace: namespace.to_owned(), nodes, peer, is_connected: true, held, locks }
    }

    /// Asks how its lock stands: it is held, whenever there is an answer.
    fn ask(&mut self, turn: u64, seen: &Seen) {
        thread::sleep(Duration::from_millis(5));
        if !self.is_connected {
            return self.attach(turn, seen);
        }
        match self.place() {
            Some(answer) if answer["place"] == 0 => drop(seen.heard.fetch_add(1, Ordering::SeqCst)),
            Some(answer) => seen.violation(format!("the session is answered with {answer}")),
            None => self.is_connected = false,
        }
    }

    fn place(&mut self) -> Option<Value> {
        self.peer.try_ask(json!({ "type": "place", "lock": self.held.lock }))
    }

    /// Another connection of the session, and its welcome; none if a node has none to give yet.
    fn try_attach(&self, native: SocketAddr) -> Option<(Peer, Value)> {
        let mut peer = Peer::try_connect_to(native, &self.namespace).ok()?;
        let mut attach = self.peer.attach_message(&self.locks);
        attach["abandon_timeout_ms"] = ABANDON_MS.into();
        let welcome = peer.try_ask(attach)?;
        (peer.session, peer.secret) = (self.peer.session.clone(), self.peer.secret.clone());
        (welcome["type"] == "welcome").then_some((peer, welcome))
    }

    fn attach(&mut self, turn: u64, seen: &Seen) {
        let native = self.nodes[turn as usize % self.nodes.len()];
        let Some((peer, welcome)) = self.try_attach(native) else { return };
        let lock = &welcome["locks"][0];
        if lock["token"] != json!(self.held.token) {
            seen.violation(format!("the session attaches, and has {welcome}"));
        }
        // A lock has another number at another owner.
        self.held.lock = lock["lock"].as_u64().unwrap_or_default();
        self.locks[0]["lock"] = self.held.lock.into();
        (self.peer, self.is_connected) = (peer, true);
        seen.attached.fetch_add(1, Ordering::SeqCst);
    }
}

/// A namespace in which nothing happens meanwhile, and two sessions with locks there, one through each node.
struct Quiet {
    store: Store,
    epoch: u64,
    sessions: Vec<Attached>,
    lease: Leased,
}

impl Quiet {
    fn start(nodes: &Nodes, namespace: &str) -> Quiet {
        let sessions = (1..=2).map(|key| Attached::open(nodes, namespace, &format!("write user/{key}")));
        let (sessions, store) = (sessions.collect(), nodes.store_of(1, namespace));
        let holder = Leaseholder { store: store.clone(), owner: "job".to_owned() };
        let lease = holder.take_for("write user/7", KEPT_MS);
        Quiet { store, epoch: epoch(nodes, 2), sessions, lease }
    }

    /// Sessions are attached if the ownership is the same, and can attach if it is not. All locks are held.
    fn check(&mut self, nodes: &Nodes) -> Ownership {
        is_held(&self.store, self.lease);
        let is_same = epoch(nodes, 2) == self.epoch;
        let ownership = if is_same { Ownership::WentOn } else { Ownership::Ended };
        println!("ownership of the quiet shard: {ownership:?}");
        let seen = Seen::default();
        for session in &mut self.sessions {
            if !is_same {
                eventually("the session attaches again", || {
                    session.attach(0, &seen);
                    seen.attached.swap(0, Ordering::SeqCst) > 0
                });
            }
            let answer = session.place();
            assert_eq!(answer.map(|answer| answer["place"].clone()), Some(json!(0)), "is_same: {is_same}");
        }
        assert_eq!(*seen.violations.lock().unwrap(), Vec::<String>::new());
        // Nothing is in grace any more, and locks are in the way of others only.
        for session in &self.sessions {
            let key = session.locks[0]["resources"][0]["path"].as_str().unwrap();
            let put =
                |token: &str| self.store.send("PUT", &format!("documents/{key}?wait_ms=0{token}"), "{}");
            eventually("the lock is enforced", || put("").status == 423);
            assert_eq!(put(&format!("&token={}", session.held.token)).status, 200);
        }
        ownership
    }
}

fn epoch(nodes: &Nodes, shard: usize) -> u64 {
    nodes.status(1)["shards"][shard - 1]["epoch"].as_u64().unwrap()
}

fn is_held(store: &Store, lease: Leased) {
    let found = http::request(store.native, "GET", &store.target(&format!("locks/{}", lease.lock)), &[]);
    assert_eq!((found.status, &found.json()["token"]), (200, &json!(lease.token)), "{}", found.body);
}

/// What was acknowledged is there, and the holder of the lease has it.
fn check(nodes: &Nodes, namespace: &str, lease: Leased, seen: &Seen) {
    let [written, held, heard] = seen.progress();
    println!(
        "{written} writes, {held} under the lease, the session was heard {heard} times and attached {:?} times",
        seen.attached
    );
    let store = nodes.store_of(1, namespace);
    for (writer, number) in &*seen.acknowledged.lock().unwrap() {
        let found = store.send("GET", &format!("documents/w/{writer}:{number}"), "");
        assert_eq!(found.status, 200, "{writer}:{number} was acknowledged: {}", found.body);
    }
    is_held(&store, lease);
    let last = store.get("documents/guarded/1")["document"]["value"]["n"].as_u64().unwrap();
    assert!(last >= held, "{last} is there, and {held} was acknowledged");
}
