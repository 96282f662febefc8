//! Locktopus and the native interface work on the same locks.

use crate::{
    client::{Client, check_usable, groups, lock},
    harness::Server,
    raw::{Raw, get, request, send},
};
use serde_json::{Value, json};

/// A native session, as bare as it gets.
struct Session {
    raw: Raw,
    id: u64,
}

impl Session {
    fn open(server: &Server, namespace: &str) -> Session {
        let raw = Raw::open(server.native, &format!("/v1/{namespace}/session"), "");
        let mut session = Session { raw, id: 0 };
        assert_eq!(session.say(json!({ "type": "hello", "name": "native" }))["type"], "welcome");
        session
    }

    fn say(&mut self, mut message: Value) -> Value {
        self.id += 1;
        message["id"] = self.id.into();
        self.raw.send(&message.to_string());
        self.hear()
    }

    fn hear(&mut self) -> Value {
        serde_json::from_str(&self.raw.text()).unwrap()
    }

    fn lock(&mut self, path: &str, mode: &str, wait: &Value) -> Value {
        self.say(json!({ "type": "lock", "resources": [{ "path": path, "mode": mode }], "wait": wait }))
    }

    #[track_caller]
    fn release(&mut self, lock: &Value) {
        let answer = self.say(json!({ "type": "release", "lock": lock }));
        assert_eq!(answer["type"], "released", "{answer}");
    }
}

fn locks(server: &Server) -> Vec<Value> {
    let response = get(server.native, "/v1/n/locks");
    assert_eq!(response.status, 200, "{response:?}");
    let list: Value = serde_json::from_str(&response.body).unwrap();
    list["locks"].as_array().unwrap().clone()
}

#[test]
fn native_listings_show_locktopus_locks() {
    let server = Server::start(&[]);
    let mut holder = Client::connect(&server, "n");
    let mut waiter = Client::connect(&server, "n");
    assert_eq!(holder.lock("w a/b, r c"), "acquired");
    assert_eq!(waiter.lock("r a"), "enqueued");
    let listed = locks(&server);
    let summary: Vec<Value> = listed
        .iter()
        .map(|lock| {
            json!([lock["state"], lock["owner"]["via"], lock["owner"]["connected"], lock["resources"]])
        })
        .collect();
    let held = json!([{ "path": ["a", "b"], "mode": "write" }, { "path": ["c"], "mode": "read" }]);
    assert_eq!(
        summary,
        [
            json!(["granted", "locktopus", true, held]),
            json!(["waiting", "locktopus", true, [{ "path": ["a"], "mode": "read" }]]),
        ]
    );
    assert_eq!(listed[1]["blockers"], json!([listed[0]["lock"]]));
    holder.release();
    waiter.granted();
    waiter.release();
    assert_eq!(locks(&server), Vec::<Value>::new());
}

#[test]
fn an_abandoned_lock_is_listed_as_such() {
    let server = Server::start(&[]);
    let mut holder = Client::connect_for(&server, "n", 3_600_000);
    assert_eq!(holder.lock("w a"), "acquired");
    holder.close(1000);
    crate::harness::eventually("the server notices", || locks(&server)[0]["owner"]["connected"] == false);
    assert!(locks(&server)[0]["abandoned_in_ms"].is_u64(), "{:?}", locks(&server));
}

#[test]
fn a_locktopus_lock_blocks_a_native_one() {
    let server = Server::start(&[]);
    let mut locktopus = Client::connect(&server, "n");
    let mut native = Session::open(&server, "n");
    assert_eq!(locktopus.lock("w a"), "acquired");
    let answer = native.lock("a/b", "read", &json!(0));
    assert_eq!((&answer["type"], &answer["code"]), (&json!("error"), &json!("locked")), "{answer}");
    assert_eq!(answer["blockers"][0]["resources"][0]["path"], json!(["a"]), "{answer}");
    let answer = native.lock("b", "write", &json!(0));
    assert_eq!(answer["type"], "granted", "{answer}");
    let answer = native.lock("a/b", "read", &json!("forever"));
    assert_eq!(answer["type"], "queued", "{answer}");
    locktopus.release();
    let answer = native.hear();
    assert_eq!(answer["type"], "granted", "{answer}");
}

#[test]
fn a_native_lock_blocks_a_locktopus_one() {
    let server = Server::start(&[]);
    let mut locktopus = Client::connect(&server, "n");
    let mut native = Session::open(&server, "n");
    let held = native.lock("a", "write", &json!(0));
    assert_eq!(held["type"], "granted", "{held}");
    assert_eq!(locktopus.lock("r a/b"), "enqueued");
    native.release(&held["lock"]);
    locktopus.granted();
    locktopus.release();
    // An update lock lets readers of the other interface in, and no writers.
    let held = native.lock("a", "update", &json!(0));
    assert_eq!(held["type"], "granted", "{held}");
    assert_eq!(locktopus.lock("r a"), "acquired");
    locktopus.release();
    assert_eq!(locktopus.lock("w a"), "enqueued");
    native.release(&held["lock"]);
    locktopus.granted();
}

/// Numbers are shared, so a client that uses only Locktopus may see gaps, but never the same number twice.
#[test]
fn numbers_are_shared() {
    let server = Server::start(&[]);
    let mut locktopus = Client::connect(&server, "n");
    let mut native = Session::open(&server, "n");
    let mut last = 0;
    for _ in 0..10 {
        assert_eq!(native.lock("a", "read", &json!(0))["type"], "granted");
        assert_eq!(locktopus.lock("r a"), "acquired");
        assert!(locktopus.id() > last);
        last = locktopus.id();
        locktopus.release();
    }
}

fn operator_release(server: &Server, state: &str) {
    let listed = locks(server);
    let lock = listed.iter().find(|lock| lock["state"] == state).unwrap();
    let response = request(server.native, "DELETE", &format!("/v1/n/locks/{}", lock["lock"]), "");
    assert_eq!(response.status, 200, "{response:?}");
}

#[test]
fn an_operator_ends_a_held_lock() {
    let server = Server::start(&[]);
    let mut holder = Client::connect_for(&server, "n", 3_600_000);
    let mut next = Client::connect(&server, "n");
    assert_eq!(holder.lock("w a"), "acquired");
    assert_eq!(next.lock("w a"), "enqueued");
    operator_release(&server, "granted");
    let reason = holder.given_up();
    assert!(reason.contains("operator"), "{reason}");
    next.granted();
    assert_eq!(groups(&server, "n"), (1, 0));
    check_usable(&server, "n");
}

#[test]
fn an_operator_ends_a_wait() {
    let server = Server::start(&[]);
    let [mut holder, mut waiter, mut next] = [0; 3].map(|_| Client::connect_for(&server, "n", 3_600_000));
    assert_eq!(holder.lock("r a"), "acquired");
    assert_eq!(waiter.lock("w a"), "enqueued");
    assert_eq!(next.lock("r a"), "enqueued");
    operator_release(&server, "waiting");
    let reason = waiter.given_up();
    assert!(reason.contains("operator"), "{reason}");
    next.granted();
    holder.release();
    assert_eq!(groups(&server, "n"), (1, 0));
}

#[test]
fn a_locktopus_lock_guards_documents_and_leases() {
    let server = Server::start(&[]);
    let mut holder = Client::connect(&server, "n");
    assert_eq!(holder.lock("w user/42"), "acquired");
    let put = || request(server.native, "DELETE", "/v1/n/documents/user/42?wait_ms=0", "");
    let refused = put();
    assert_eq!(refused.status, 423, "{refused:?}");
    let problem: Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(problem["code"], "locked");
    assert_eq!(problem["blockers"][0]["lock"], locks(&server)[0]["lock"]);
    assert_eq!(problem["blockers"][0]["session"], locks(&server)[0]["owner"]["session"]);
    holder.release();
    // There is nothing to delete, but nobody is in the way.
    assert_eq!(put().status, 404);
}

/// A lock that would wait behind another one is refused at once: its name is looked at first.
#[test]
fn a_lock_on_a_field_the_schema_does_not_know_is_refused_before_it_waits() {
    let server = Server::start(&[]);
    let mut early = Client::connect(&server, "n");
    assert_eq!(early.lock("r user/1/nmae"), "acquired");
    early.release();
    let address = json!({ "type": "object", "properties": { "zip": { "type": "string" } } });
    let properties = json!({ "name": { "type": "string" }, "address": address });
    let schema = json!({ "schema": { "type": "object", "properties": properties } }).to_string();
    let registered = send(server.native, "POST", "/v1/n/schemas/user", &schema);
    assert_eq!(registered.status, 200, "{registered:?}");
    let mut holder = Client::connect(&server, "n");
    assert_eq!(holder.lock("w user"), "acquired");
    assert_eq!(early.lock("r user/1/name, r user/2/address/zip"), "enqueued");
    for (path, nearest) in [("user/1/nmae", "name"), ("user/1/address/zpi", "zip")] {
        let mut client = Client::connect(&server, "n");
        client.send(&lock(&format!("w {path}")));
        let reason = client.given_up();
        assert!(reason.contains(&format!("did you mean {nearest}?")), "{reason}");
    }
    // What the namespace has is unchanged, and so are collections without a schema and other namespaces.
    assert_eq!(groups(&server, "n"), (1, 1));
    assert_eq!(Client::connect(&server, "n").lock("w other/1/nmae"), "acquired");
    assert_eq!(Client::connect(&server, "m").lock("w user/1/nmae"), "acquired");
    holder.release();
    early.granted();
    early.release();
    let lenient = json!({ "policy": "LENIENT" }).to_string();
    let settings = send(server.native, "PUT", "/v1/n/schemas/user/settings", &lenient);
    assert_eq!(settings.status, 200, "{settings:?}");
    assert_eq!(early.lock("w user/1/nmae"), "acquired");
}
