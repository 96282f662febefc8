//! The database under the nodes: restarted, cut off, failed over to its standby. What was acknowledged is there, leases are
//! held, and sessions come back.

use crate::{
    harness::{eventually, eventually_is},
    http,
    leaseholder::{Leased, Leaseholder},
    nodes::Nodes,
    peer::Peer,
};
use lockwood_test_support::{Fault, Postgres, Proxy};
use serde_json::{Value, json};

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

#[test]
fn the_database_fails_over_to_its_synchronous_standby() {
    let mut primary = Postgres::start(&["fsync=off"]);
    let standby = primary.standby(&["fsync=off"]);
    primary.sql("postgres", "alter system set synchronous_standby_names = '*'");
    primary.sql("postgres", "select pg_reload_conf()");
    eventually("the standby is waited for", || {
        primary.sql("postgres", "select count(*) from pg_stat_replication where sync_state = 'sync'") == "1"
    });
    let database = primary.create_database();
    let (first, second) = (primary.port(), standby.port());
    let url = format!("postgres://postgres@127.0.0.1:{first},127.0.0.1:{second}/{database}");
    let nodes = Nodes::start_on(&url, 2);
    let status = http::request(nodes.server(1).native, "GET", "/v1/cluster", &[]).json();
    let durability = status["database"]["durability"].as_str().unwrap();
    assert!(durability.contains("on 2 machines"), "{durability}");
    let held = Held::take(&nodes);
    primary.crash();
    standby.promote();
    held.is_there(&nodes);
}

/// One node loses the database and the other one does not: the shard goes to the one that can renew.
#[test]
fn an_owner_that_is_cut_off_from_the_database_is_replaced() {
    let postgres = Postgres::shared();
    let database = postgres.create_database();
    let proxy = Proxy::start(postgres.port());
    let mut nodes = Nodes::start_on(&postgres.url(&database, proxy.port()), 1);
    nodes.add_on(&postgres.url(&database, postgres.port()));
    nodes.store(2).create("user", 1, json!({ "n": 1 }));
    assert_eq!(nodes.owner(), Some(1));
    proxy.set(Fault::Refuse);
    eventually("the other node takes over", || nodes.owner_by(2) == Some(2));
    nodes.store(2).create("user", 2, json!({ "n": 2 }));
    // Cut off from the database, the first one knows nothing of that; it must not answer for itself.
    let stale = nodes.store(1).send("GET", "documents/user/2", "");
    assert!([200, 503].contains(&stale.status), "{}", stale.body);
    proxy.set(Fault::None);
    eventually("the first one forwards again", || {
        nodes.store(1).send("GET", "documents/user/2", "").status == 200
    });
}
