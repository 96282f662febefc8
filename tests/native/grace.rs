//! Grace periods: whom they concern, how long they last, what is said of them, and who can end them.

use crate::{
    harness::{self, Server, eventually},
    http::{self, Reply},
    leaseholder::Leaseholder,
    peer::{Peer, assert_error},
    store::Store,
};
use serde_json::{Value, json};
use std::process::{Command, Output};

/// Longer than any test takes.
const LONG_MS: u64 = 60_000;

/// A session in a namespace, with an abandon timeout, that holds a lock.
fn hold_in(server: &Server, namespace: &str, abandon_timeout_ms: u64) -> Peer {
    let mut peer = Peer::open_with(server, namespace, json!({ "abandon_timeout_ms": abandon_timeout_ms }));
    peer.hold("write a");
    peer
}

/// By namespace, how long nothing is granted there.
fn grace(server: &Server) -> Vec<(String, u64)> {
    let listed = http::get_json(server, "/v1/grace")["namespaces"].clone();
    assert_eq!(http::get_json(server, "/readyz")["grace"].as_array().map_or(0, Vec::len), len(&listed));
    let entry =
        |info: &Value| (info["namespace"].as_str().unwrap().into(), info["left_ms"].as_u64().unwrap());
    listed.as_array().unwrap().iter().map(entry).collect()
}

fn len(list: &Value) -> usize {
    list.as_array().unwrap().len()
}

fn left_ms(server: &Server) -> u64 {
    grace(server).first().map_or(0, |(_, left_ms)| *left_ms)
}

fn put(store: &Store, wait_ms: u64) -> Reply {
    store.send("PUT", &format!("documents/d/1?wait_ms={wait_ms}"), "{}")
}

fn run(server: &Server, args: &[&str]) -> Output {
    let mut command = Command::new(harness::BINARY);
    command.args(args).env("LOCKWOOD_SERVER", server.native.to_string()).output().unwrap()
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn end(server: &Server, namespace: &str) -> Reply {
    http::request(server.native, "DELETE", &format!("/v1/{namespace}/grace?reason=they%20are%20gone"), &[])
}

/// That a refusal says how long it is for, why, and nothing that is not true.
#[track_caller]
fn check(text: &str) {
    for part in [
        "grace_period: the namespace",
        "grants nothing for another ",
        " ms, because sessions held locks in it",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("others are in the way"), "{text}");
}

#[test]
fn session_without_locks_causes_no_grace_period() {
    let server = Server::start(&[]);
    let _idle = Peer::open_for(&server, "idle", LONG_MS);
    let server = server.kill().restart(&[]);
    assert_eq!(http::get_json(&server, "/readyz"), json!({ "status": "ready" }));
    assert_eq!(put(&Store::new(&server, "default"), 0).status, 200);
    Peer::open(&server, "bob").hold("write a");
}

#[test]
fn session_that_waited_in_vain_causes_no_grace_period() {
    let server = Server::start(&[]);
    let ann = Leaseholder::new(&server, "ann");
    ann.take("write a");
    let mut bob = Peer::open_for(&server, "bob", LONG_MS);
    bob.queue("write a");
    let server = server.kill().restart(&[]);
    assert_eq!(grace(&server), []);
    Peer::open(&server, "eve").hold("write b");
}

#[test]
fn grace_period_concerns_no_other_namespace() {
    let server = Server::start(&[]);
    let _ann = hold_in(&server, "a", LONG_MS);
    let server = server.kill().restart(&[]);
    assert!(server.greeting.contains("in namespace \"a\""), "{}", server.greeting);
    assert_eq!(grace(&server).into_iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a"]);
    put(&Store::new(&server, "a"), 0).assert_problem(503, "grace_period");
    assert_eq!(put(&Store::new(&server, "b"), 0).status, 200);
    Peer::open_with(&server, "b", json!({})).hold("write a");
}

#[test]
fn each_namespace_waits_for_its_own_time() {
    let server = Server::start(&[]);
    let _sessions = [hold_in(&server, "long", LONG_MS), hold_in(&server, "short", 200)];
    let server = server.kill().restart(&[]);
    assert_eq!(
        put(&Store::new(&server, "short"), 20_000).status,
        200,
        "a request can wait for the end of it"
    );
    put(&Store::new(&server, "long"), 0).assert_problem(503, "grace_period");
}

#[test]
fn lock_granted_after_a_wait_is_covered() {
    let server = Server::start(&[]);
    let mut ann = Peer::open_for(&server, "ann", 0);
    let held = ann.hold("write a");
    let mut bob = Peer::open_for(&server, "bob", LONG_MS);
    bob.queue("write a");
    ann.release(&held);
    bob.granted();
    let server = server.kill().restart(&[]);
    assert_eq!(grace(&server).len(), 1);
}

#[test]
fn holders_write_is_not_refused_for_one_who_queued_in_grace() {
    let server = Server::start(&[]);
    let _ann = hold_in(&server, "default", 3_000);
    let job = Leaseholder::new(&server, "job").take("write user/42");
    let server = server.kill().restart(&[]);
    assert_eq!(grace(&server).len(), 1);
    // It waits for the job, and for the end of grace.
    Leaseholder::new(&server, "bob").queue("write user");
    let by_token = format!("documents/user/42?wait_ms=30000&token={}", job.token);
    let written = Store::new(&server, "default").send("PUT", &by_token, "{}");
    assert_eq!(written.status, 200, "{}", written.body);
    Leaseholder::new(&server, "eve").is_refused("read user/42");
}

#[test]
fn lock_that_was_taken_up_again_is_covered_after_the_next_crash() {
    let server = Server::start(&[]);
    let mut ann = Peer::open_for(&server, "ann", 300);
    let held = ann.hold("write a");
    let server = server.kill().restart(&[]);
    let mut attach = ann.attach_message(&json!([held.reclaim("write a")]));
    attach["abandon_timeout_ms"] = LONG_MS.into();
    Peer::connect(&server, "default").greet(attach);
    let server = server.kill().restart(&[]);
    assert!(left_ms(&server) > 1000);
}

#[test]
fn locktopus_client_that_holds_a_lock_is_covered() {
    let server = Server::start(&[]);
    let url = format!("ws://{}/v1?namespace=default&abandon-timeout-ms={LONG_MS}", server.locktopus);
    let tcp = std::net::TcpStream::connect(server.locktopus).unwrap();
    let (mut socket, _) = tokio_tungstenite::tungstenite::client(url, tcp).unwrap();
    let lock = r#"{"action":"lock","resources":[{"type":"write","path":["a"]}]}"#;
    socket.send(lock.into()).unwrap();
    assert!(socket.read().unwrap().to_text().unwrap().contains("acquired"));
    let server = server.kill().restart(&[]);
    assert_eq!(grace(&server).len(), 1);
}

/// Its protocol has no word for grace periods: a lock is enqueued, as behind a holder, and acquired afterwards.
#[test]
fn locktopus_client_is_enqueued_until_the_grace_period_is_over() {
    let server = Server::start(&[]);
    let _ann = hold_in(&server, "default", LONG_MS);
    let server = server.kill().restart(&[]);
    let connect = |namespace: &str| {
        let url = format!("ws://{}/v1?namespace={namespace}", server.locktopus);
        let tcp = std::net::TcpStream::connect(server.locktopus).unwrap();
        tokio_tungstenite::tungstenite::client(url, tcp).unwrap().0
    };
    let lock = r#"{"action":"lock","resources":[{"type":"read","path":["free"]}]}"#;
    let mut bob = connect("default");
    bob.send(lock.into()).unwrap();
    assert_eq!(
        bob.read().unwrap().to_text().unwrap(),
        "{\"id\":\"1\",\"action\":\"lock\",\"state\":\"enqueued\"}\n"
    );
    let mut elsewhere = connect("other");
    elsewhere.send(lock.into()).unwrap();
    assert!(elsewhere.read().unwrap().to_text().unwrap().contains("acquired"));
    assert_eq!(end(&server, "default").status, 200);
    assert_eq!(
        bob.read().unwrap().to_text().unwrap(),
        "{\"id\":\"1\",\"action\":\"lock\",\"state\":\"acquired\"}\n"
    );
}

#[test]
fn cover_is_lowered_after_the_last_lock_is_released() {
    let server = Server::start(&[]);
    let mut ann = Peer::open_for(&server, "ann", LONG_MS);
    let held = ann.hold("write a");
    let cover = "lockwood_grace_cover_seconds{namespace=\"default\"} 60\n";
    assert!(http::get(&server, "/metrics").body.contains(cover));
    ann.release(&held);
    eventually("it is lowered", || !http::get(&server, "/metrics").body.contains(cover));
    let server = server.kill().restart(&[]);
    assert_eq!(grace(&server), []);
}

#[test]
fn stop_during_grace_keeps_what_is_left() {
    let server = Server::start(&[]);
    let _ann = hold_in(&server, "default", LONG_MS);
    let server = server.kill().restart(&[]);
    eventually("a part of it is over", || left_ms(&server) < LONG_MS - 1500);
    let server = server.kill().restart(&[]);
    let left = left_ms(&server);
    assert!((LONG_MS / 2..LONG_MS - 300).contains(&left), "after a kill: {left}");
    eventually("more of it is over", || left_ms(&server) < left - 300);
    let server = server.stop().restart(&[]);
    let left = left_ms(&server);
    assert!((LONG_MS / 2..LONG_MS - 600).contains(&left), "after a stop: {left}");
}

#[test]
fn refusal_says_how_long_and_why_on_every_interface() {
    let flags = [
        ["--elasticsearch", "127.0.0.1:0"],
        ["--openslides", "127.0.0.1:0,127.0.0.1:0"],
        ["--schema-registry", "127.0.0.1:0"],
        ["--wait", "10ms"],
    ]
    .concat();
    let server = Server::start(&flags);
    let _sessions = ["default", "fs", "openslides"].map(|namespace| hold_in(&server, namespace, LONG_MS));
    let server = server.kill().restart(&flags);
    for wait in [0, 50] {
        let reply = put(&Store::new(&server, "default"), wait);
        let problem = reply.assert_problem(503, "grace_period");
        check(problem["detail"].as_str().unwrap());
        assert!(problem["grace_ms"].as_u64().is_some_and(|left| left > LONG_MS / 2), "{problem}");
        assert!(
            reply.header("retry-after").is_some_and(|after| after.parse::<u64>().unwrap() > 30),
            "{reply:?}"
        );
        let lease = Leaseholder::new(&server, "ann").ask("write b", LONG_MS, wait);
        check(lease.assert_problem(503, "grace_period")["detail"].as_str().unwrap());
        let mut peer = Peer::open(&server, "bob");
        let answer = peer.lock("write b", wait);
        let refusal = if wait == 0 { answer } else { peer.next() };
        assert_error(&refusal, "grace_period");
        check(refusal["message"].as_str().unwrap());
    }
    let read = Store::new(&server, "default").send("GET", "documents/d/1?isolation=locked&wait_ms=0", "");
    check(read.assert_problem(503, "grace_period")["detail"].as_str().unwrap());

    let indexed = http::send(server.elasticsearch(), "PUT", "/fs/file/1", &[], b"{}");
    assert_eq!(indexed.status, 503, "{indexed:?}");
    check(indexed.json()["error"]["reason"].as_str().unwrap());
    let created = http::send(server.elasticsearch(), "PUT", "/fs/lock/1/_create", &[], b"{}");
    assert_eq!(created.status, 503, "{created:?}");
    check(created.json()["error"]["reason"].as_str().unwrap());

    let body = json!({ "user_id": 1, "information": {}, "locked_fields": {},
        "events": [{ "type": "create", "fqid": "a/1", "fields": { "f": 1 } }] });
    let path = "/internal/datastore/writer/write";
    let written = http::send(server.openslides_writer(), "POST", path, &[], body.to_string().as_bytes());
    assert_eq!(written.status, 503, "{written:?}");
    check(written.json()["error"].as_str().unwrap());

    let body = json!({ "schemaType": "JSON", "schema": "{\"type\":\"object\"}" }).to_string();
    let registered =
        http::send(server.schema_registry(), "POST", "/subjects/s/versions", &[], body.as_bytes());
    assert_eq!(registered.status, 503, "{registered:?}");
    check(registered.json()["message"].as_str().unwrap());

    let output = run(&server, &["put", "d/1", "{}", "--wait", "0"]);
    assert!(!output.status.success(), "{output:?}");
    check(&String::from_utf8_lossy(&output.stderr));
    let output = run(&server, &["lock", "--write", "b", "--wait", "0", "--", "true"]);
    assert!(!output.status.success(), "{output:?}");
    check(&String::from_utf8_lossy(&output.stderr));
}

#[test]
fn operator_ends_it_and_that_is_recorded() {
    let server = Server::start(&[]);
    let _ann = hold_in(&server, "default", LONG_MS);
    let server = server.kill().restart(&[]);
    let mut bob = Peer::open_for(&server, "bob", 0);
    bob.queue("write a");
    let said = printed(&run(&server, &["grace", "end", "default", "--reason", "they are gone"]));
    assert!(said.starts_with("ended the grace period of namespace default, "), "{said}");
    bob.granted();
    assert_eq!(grace(&server), []);
    let action = http::get_json(&server, "/v1/default/operator-log")["actions"][0].clone();
    assert_eq!((&action["action"], &action["reason"]), (&json!("end_grace"), &json!("they are gone")));
    assert!(action["grace_ms"].as_u64().unwrap() > LONG_MS / 2, "{action}");
    end(&server, "default").assert_problem(409, "no_grace_period");
    let server = server.kill().restart(&[]);
    assert_eq!(grace(&server), [], "it is over for good");
}

#[test]
fn operator_ends_it_in_one_namespace_only() {
    let server = Server::start(&[]);
    let _sessions = [hold_in(&server, "a", LONG_MS), hold_in(&server, "b", LONG_MS)];
    let server = server.kill().restart(&[]);
    assert_eq!(end(&server, "a").status, 200);
    assert_eq!(put(&Store::new(&server, "a"), 0).status, 200);
    put(&Store::new(&server, "b"), 0).assert_problem(503, "grace_period");
    let server = server.kill().restart(&[]);
    assert_eq!(grace(&server).into_iter().map(|(name, _)| name).collect::<Vec<_>>(), ["b"]);
}

#[test]
fn command_line_shows_where_it_lasts() {
    let server = Server::start(&[]);
    assert_eq!(printed(&run(&server, &["grace"])), "no namespace is in a grace period\n");
    let _ann = hold_in(&server, "a", LONG_MS);
    let server = server.kill().restart(&[]);
    let line = "namespace a is in a grace period for another ";
    assert!(printed(&run(&server, &["grace"])).starts_with(line));
    let listed: Value = serde_json::from_str(&printed(&run(&server, &["grace", "--json"]))).unwrap();
    assert_eq!(listed[0]["namespace"], "a");
    for args in [&["locks", "-n", "a"][..], &["locks", "--all"]] {
        let shown = printed(&run(&server, args));
        assert!(shown.starts_with(line), "{shown}");
    }
    let other = printed(&run(&server, &["locks", "-n", "b"]));
    assert_eq!(other, "no locks in namespace b\n");
}

#[test]
fn longest_abandon_timeout_is_ten_minutes_by_default() {
    let server = Server::start(&[]);
    let ask = |abandon_timeout_ms: u64| {
        let hello = json!({ "type": "hello", "abandon_timeout_ms": abandon_timeout_ms });
        Peer::connect(&server, "default").ask(hello)
    };
    assert_eq!(ask(600_000)["type"], "welcome");
    assert_error(&ask(600_001), "over_limit");
}
