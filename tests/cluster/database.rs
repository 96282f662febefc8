//! The database under the nodes: restarted, away, cut off from one of them. What was acknowledged is there, leases are held,
//! and sessions come back.

use crate::{
    faults::Clients,
    harness::{eventually, eventually_is},
    http,
    leaseholder::{Leased, Leaseholder},
    nodes::Nodes,
    peer::Peer,
};
use lockwood_test_support::{Fault, Postgres, Proxy};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// What has to be there when the database is back.
struct Held {
    documents: u64,
    leased: Leased,
    session: Peer,
    lock: Value,
}

impl Held {
    fn take(nodes: &Nodes) -> Held {
        let store = nodes.store(1);
        let documents = 25;
        for key in 1..=documents {
            store.create("user", key, json!({ "n": key }));
        }
        let leased = Leaseholder::new(nodes.server(2), "job").take_for("write user/7", 60_000);
        let mut session = Peer::open_for(nodes.server(2), "ann", 60_000);
        let held =
            session.ask(json!({ "type": "lock", "resources": [{ "path": "user/8", "mode": "write" }] }));
        let lock = json!([{ "lock": held["lock"], "token": held["token"],
            "resources": [{ "path": ["user", "8"], "mode": "write" }] }]);
        Held { documents, leased, session, lock }
    }

    /// Everything is there, and goes on.
    fn is_there(&self, nodes: &Nodes) {
        let store = nodes.store(1);
        eventually_is(
            "documents can be read",
            || store.send("POST", "count", r#"{"collection":"user"}"#),
            |reply| reply.status == 200,
        );
        assert_eq!(store.post("count", &json!({ "collection": "user" }))["count"], self.documents);
        let target = store.target(&format!("locks/{}", self.leased.lock));
        let lease = http::request(store.native, "GET", &target, &[]);
        assert_eq!(
            (lease.status, &lease.json()["token"]),
            (200, &json!(self.leased.token)),
            "{}",
            lease.body
        );
        let (_session, welcome) = self.session.attach(nodes.server(1), &self.lock);
        assert_eq!(welcome["locks"][0]["token"], self.lock[0]["token"], "{welcome}");
        let by_token = format!("documents/user/7?token={}", self.leased.token);
        eventually_is(
            "the holder writes",
            || store.send("PUT", &by_token, r#"{"n":77}"#),
            |reply| reply.status == 200,
        );
    }
}

#[test]
fn a_crash_of_the_database_loses_nothing() {
    let mut postgres = Postgres::start(&[]);
    let database = postgres.create_database();
    let nodes = Nodes::start_on(&postgres.url(&database, postgres.port()), 2);
    let held = Held::take(&nodes);
    postgres.crash();
    let refused = nodes.store(1).send("POST", "write?wait_ms=0", r#"{"events":[]}"#);
    assert_ne!(refused.status, 500, "{}", refused.body);
    let _postgres = postgres.recover(&[]);
    held.is_there(&nodes);
}

/// No other node takes the shard, and nothing is on its way to the log: the owner resumes, and tells its clients nothing.
#[test]
fn a_session_keeps_its_connection_while_the_database_is_away() {
    let mut postgres = Postgres::start(&[]);
    let database = postgres.create_database();
    let nodes = Nodes::start_on(&postgres.url(&database, postgres.port()), 1);
    let mut session = Peer::open(nodes.server(1), "ann");
    let held = session.hold("write user/8");
    let is_ready = || http::get(nodes.server(1), "/readyz").status == 200;
    let epoch = || nodes.status(1)["shards"][0]["epoch"].clone();
    let before = epoch();
    postgres.crash();
    // Longer than ownership lasts.
    eventually("the node notices", || !is_ready());
    thread::sleep(Duration::from_secs(3));
    let _postgres = postgres.recover(&[]);
    eventually("the node is ready again", is_ready);
    assert_eq!(session.place(&json!(held.lock))["place"], 0);
    let put =
        |token: &str| nodes.store(1).send("PUT", &format!("documents/user/8?wait_ms=0{token}"), "{}").status;
    eventually_is("the shard is served again", || put(""), |status| *status != 503);
    assert_eq!((put(""), put(&format!("&token={}", held.token))), (423, 200));
    session.release(&held);
    assert_eq!(put(""), 200);
    assert_eq!(epoch(), before, "it is the same ownership");
}

/// One node loses the database and the other one does not: the shard goes to the one that can renew. From then on the first
/// one answers by the other one, or not at all.
#[test]
fn an_owner_that_is_cut_off_from_the_database_answers_no_stale_read() {
    let postgres = Postgres::shared();
    let database = postgres.create_database();
    let proxy = Proxy::start(postgres.port());
    let mut nodes = Nodes::start_on(&postgres.url(&database, proxy.port()), 1);
    nodes.add_on(&postgres.url(&database, postgres.port()));
    let (cut_off, other) = (nodes.store(1), nodes.store(2));
    other.create("user", 1, json!({ "n": 0 }));
    assert_eq!(nodes.owner(), Some(1));
    // What was acknowledged; every read that begins later finds at least that.
    let acknowledged = Arc::new(AtomicU64::new(0));
    let (answers, refusals) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut readers = Clients::default();
    for _ in 0..4 {
        let (store, acknowledged) = (cut_off.clone(), Arc::clone(&acknowledged));
        let (answers, refusals) = (Arc::clone(&answers), Arc::clone(&refusals));
        readers.start(move |_| {
            let least = acknowledged.load(Ordering::SeqCst);
            let reply = store.send("GET", "documents/user/1", "");
            if reply.status == 503 {
                reply.assert_problem(503, "shard_unreachable");
                refusals.fetch_add(1, Ordering::SeqCst);
                return;
            }
            assert_eq!(reply.status, 200, "{}", reply.body);
            let found = reply.json()["document"]["value"]["n"].as_u64().unwrap();
            assert!(found >= least, "{found} was read when {least} was acknowledged");
            answers.fetch_add(1, Ordering::SeqCst);
        });
    }
    let write = |n: u64| {
        let body = json!({ "n": n }).to_string();
        eventually_is(
            "it is written",
            || other.send("PUT", "documents/user/1", &body),
            |reply| reply.status == 200,
        );
        acknowledged.store(n, Ordering::SeqCst);
    };
    write(1);
    proxy.set(Fault::Refuse);
    eventually("the other node takes over", || nodes.owner_by(2) == Some(2));
    (2..=100).for_each(write);
    let (before, told) = (answers.load(Ordering::SeqCst), refusals.load(Ordering::SeqCst));
    eventually("the readers are told something", || {
        answers.load(Ordering::SeqCst) > before + 3 || refusals.load(Ordering::SeqCst) > told + 3
    });
    proxy.set(Fault::None);
    eventually("the first one forwards again", || cut_off.send("GET", "documents/user/1", "").status == 200);
    (101..=120).for_each(write);
    readers.stop();
    println!("{answers:?} answers, {refusals:?} refusals");
}
