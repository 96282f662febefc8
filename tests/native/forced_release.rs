//! An operator's release: done, told and recorded.

use crate::{
    harness::Server,
    http::{self, Reply},
    metrics,
    peer::{Peer, assert_error},
};
use serde_json::{Value, json};

fn delete(server: &Server, lock: &Value, query: &str) -> Reply {
    http::request(server.native, "DELETE", &format!("/v1/default/locks/{lock}{query}"), &[])
}

fn log(server: &Server) -> Vec<Value> {
    http::get_json(server, "/v1/default/operator-log")["actions"].as_array().unwrap().clone()
}

#[test]
fn a_holder_is_told_and_the_next_one_gets_the_lock() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let held = ann.hold("write a");
    bob.queue("write a");
    let reply = delete(&server, &json!(held.lock), "?reason=it%20hangs");
    assert_eq!(reply.status, 200, "{reply:?}");
    let action = reply.json();
    assert_eq!((&action["namespace"], &action["reason"]), (&json!("default"), &json!("it hangs")));
    assert_eq!(action["lock"]["lock"], held.lock);
    assert_eq!(action["lock"]["owner"]["name"], "ann");
    assert!(bob.granted().token > held.token);
    let notice = ann.next_of("lost");
    assert_eq!((&notice["lock"], &notice["code"]), (&json!(held.lock), &json!("released_by_operator")));
    assert_error(&ann.ask(json!({ "type": "release", "lock": held.lock })), "unknown_lock");
    assert_eq!(metrics::value(&server, "lockwood_revoked_total"), 1.0);
}

#[test]
fn a_waiter_is_told_and_those_behind_pass() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let mut eve = Peer::open(&server, "eve");
    ann.hold("read a");
    let queued = bob.queue("write a");
    eve.queue("read a");
    assert_eq!(delete(&server, &queued["lock"], "").status, 200);
    let refusal = bob.next();
    assert_error(&refusal, "released_by_operator");
    assert_eq!((&refusal["id"], &refusal["lock"]), (&queued["id"], &queued["lock"]));
    eve.granted();
    bob.hold("write b");
}

#[test]
fn a_lock_that_is_converting_is_lost() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let (mine, _other) = (ann.hold("read a"), bob.hold("read a"));
    assert_eq!(ann.convert(&mine, "write", "forever")["type"], "queued");
    assert_eq!(delete(&server, &json!(mine.lock), "").status, 200);
    assert_eq!(ann.next_of("lost")["lock"], mine.lock);
}

#[test]
fn what_operators_did_is_recorded_the_latest_first() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    let (first, second) = (ann.hold("write a").lock, ann.hold("write b").lock);
    assert_eq!(delete(&server, &json!(first), "?reason=one").status, 200);
    assert_eq!(delete(&server, &json!(second), "").status, 200);
    let log = log(&server);
    let locks: Vec<_> = log.iter().map(|action| action["lock"]["lock"].as_u64().unwrap()).collect();
    assert_eq!(locks, [second, first]);
    assert_eq!((&log[0]["reason"], &log[1]["reason"]), (&Value::Null, &json!("one")));
    assert_eq!(log[1]["lock"]["resources"], json!([{ "path": ["a"], "mode": "write" }]));
    assert!(log[0]["at"].as_str() >= log[1]["at"].as_str());
    let other = http::get_json(&server, "/v1/other/operator-log");
    assert_eq!(other, json!({ "actions": [] }), "every namespace has a log of its own");
}

#[test]
fn the_record_survives_a_stop_and_a_crash() {
    let server = Server::start(&[]);
    let mut ann = Peer::open_for(&server, "ann", 0);
    let held = ann.hold("write a").lock;
    assert_eq!(delete(&server, &json!(held), "?reason=kept").status, 200);
    let before = log(&server);
    assert_eq!(before[0]["reason"], "kept");
    let server = server.stop().restart(&[]);
    assert_eq!(log(&server), before);
    let server = server.kill().restart(&[]);
    assert_eq!(log(&server), before);
}

#[test]
fn what_is_not_there_cannot_be_released_and_leaves_no_record() {
    let server = Server::start(&[]);
    delete(&server, &json!(1), "").assert_problem(404, "unknown_namespace");
    let _ann = Peer::open(&server, "ann");
    delete(&server, &json!(1), "").assert_problem(404, "unknown_lock");
    delete(&server, &json!("x"), "").assert_problem(404, "unknown_lock");
    assert_eq!(log(&server), Vec::<Value>::new());
}

#[test]
fn a_reason_has_a_limit() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    let held = json!(ann.hold("write a").lock);
    delete(&server, &held, &format!("?reason={}", "x".repeat(1025))).assert_problem(400, "bad_query");
    delete(&server, &held, "?raison=x").assert_problem(400, "bad_query");
    assert_eq!(delete(&server, &held, &format!("?reason={}", "x".repeat(1024))).status, 200);
}

#[test]
fn the_lock_of_a_lost_connection_can_be_released() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let held = ann.hold("write a");
    bob.queue("write a");
    let attach = ann.attach_message(&json!([]));
    drop(ann);
    assert_eq!(delete(&server, &json!(held.lock), "").status, 200);
    bob.granted();
    let welcome = Peer::connect(&server, "default").greet(attach);
    assert_eq!(welcome["locks"], json!([]));
}
