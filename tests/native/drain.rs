//! How a server stops: holders are told, waiters are sent away, and the exit code says what was left.

use crate::{
    harness::{Server, eventually},
    http,
    peer::{Held, Peer, assert_error, resources},
};
use serde_json::{Value, json};

/// A server that was told to stop while `ann` holds `a`; she has been told.
fn draining(flags: &[&str]) -> (Server, Peer, Held) {
    let server = Server::start(flags);
    let mut ann = Peer::open(&server, "ann");
    let held = ann.hold("write a");
    server.signal("-TERM");
    let notice = ann.next_of("draining");
    assert!(notice["timeout_ms"].is_u64() && notice["message"].is_string(), "{notice}");
    (server, ann, held)
}

#[test]
fn a_server_without_locks_stops_at_once() {
    let server = Server::start(&["--drain-timeout", "1h"]);
    let ann = Peer::open(&server, "ann");
    let ended = server.stop();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    drop(ann);
}

#[test]
fn a_server_stops_when_the_last_lock_is_released() {
    let (server, mut ann, held) = draining(&["--drain-timeout", "1h"]);
    ann.release(&held);
    assert_error(&ann.next(), "draining");
    assert_eq!(ann.closed(), 1001);
    let ended = server.wait();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
}

#[test]
fn an_interrupt_stops_a_server_as_well() {
    let server = Server::start(&[]);
    server.signal("-INT");
    assert_eq!(server.wait().status.code(), Some(0));
}

#[test]
fn waiters_are_sent_away_and_holders_keep_their_locks() {
    let server = Server::start(&["--drain-timeout", "1h"]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let mut eve = Peer::open(&server, "eve");
    let held = ann.hold("read a");
    let queued = bob.queue("write a");
    // Behind bob, and not to be granted when he goes.
    eve.queue("read a");
    server.signal("-TERM");
    let refusal = bob.next();
    assert_error(&refusal, "draining");
    assert_eq!((&refusal["id"], &refusal["lock"]), (&queued["id"], &queued["lock"]));
    assert_error(&eve.next(), "draining");
    ann.next_of("draining");
    assert_eq!(ann.place(&json!(held.lock))["place"], 0);
    ann.release(&held);
    drop((ann, bob, eve));
    assert_eq!(server.wait().status.code(), Some(0));
}

#[test]
fn a_waiting_conversion_is_sent_away_and_its_lock_kept() {
    let server = Server::start(&["--drain-timeout", "1h"]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let (mine, other) = (ann.hold("read a"), bob.hold("read a"));
    let queued = ann.convert(&mine, "write", "forever");
    assert_eq!(queued["type"], "queued");
    server.signal("-TERM");
    bob.next_of("draining");
    bob.release(&other);
    // Either way it gets an answer, and the lock is there to be released.
    let (one, two) = (ann.next(), ann.next());
    let answer = if one["type"] == "draining" { two } else { one };
    assert_eq!(answer["id"], queued["id"], "{answer}");
    ann.release(&mine);
    drop((ann, bob));
    assert_eq!(server.wait().status.code(), Some(0));
}

#[test]
fn new_locks_and_sessions_are_refused() {
    let (server, mut ann, held) = draining(&["--drain-timeout", "1h"]);
    assert_error(&ann.lock("write b", 0), "draining");
    let mut bob = Peer::connect(&server, "default");
    assert_error(&bob.ask(json!({ "type": "hello" })), "draining");
    ann.release(&held);
}

#[test]
fn a_holder_can_take_up_its_session_again_to_release_its_lock() {
    let (server, ann, held) = draining(&["--drain-timeout", "1h"]);
    let attach = ann.attach_message(&json!([]));
    drop(ann);
    let mut again = Peer::connect(&server, "default");
    let welcome = again.greet(attach);
    assert_eq!(welcome["locks"][0]["token"], held.token, "{welcome}");
    again.next_of("draining");
    again.release(&held);
    drop(again);
    assert_eq!(server.wait().status.code(), Some(0));
}

#[test]
fn readiness_says_that_the_server_is_about_to_stop() {
    let (server, mut ann, held) = draining(&["--drain-timeout", "1h"]);
    let reply = http::get(&server, "/readyz");
    assert_eq!((reply.status, &reply.json()["status"]), (503, &json!("draining")));
    assert_eq!(http::get(&server, "/healthz").status, 200);
    assert!(http::get(&server, "/metrics").body.contains("\nlockwood_ready 0\n"));
    ann.release(&held);
}

#[test]
fn a_stubborn_holder_is_not_waited_for_longer_than_the_drain_timeout() {
    let (server, ann, _) = draining(&["--drain-timeout", "300ms"]);
    let ended = server.wait();
    assert_eq!(ended.status.code(), Some(3), "{}", ended.log);
    assert!(ended.log.contains("stopped while 1 locks were held"), "{}", ended.log);
    drop(ann);
}

#[test]
fn a_second_signal_stops_a_server_at_once() {
    let (server, ann, _) = draining(&["--drain-timeout", "1h"]);
    server.signal("-TERM");
    let ended = server.wait();
    assert_eq!(ended.status.code(), Some(3), "{}", ended.log);
    drop(ann);
}

#[test]
fn after_a_stop_with_locks_held_there_is_a_grace_period() {
    let server = Server::start(&["--drain-timeout", "0"]);
    let mut ann = Peer::open_for(&server, "ann", 60_000);
    let held = ann.hold("write a");
    server.signal("-TERM");
    let ended = server.wait();
    assert_eq!(ended.status.code(), Some(3), "{}", ended.log);
    let server = ended.restart(&[]);
    assert_eq!(http::get_json(&server, "/readyz")["grace"][0]["namespace"], "default");
    let (_again, welcome) = ann.attach(&server, &json!([held.reclaim("write a")]));
    assert_eq!(welcome["locks"][0]["token"], held.token, "{welcome}");
}

#[test]
fn after_a_clean_stop_there_is_no_grace_period() {
    let server = Server::start(&[]);
    let mut ann = Peer::open_for(&server, "ann", 60_000);
    let held = ann.hold("write a");
    ann.release(&held);
    drop(ann);
    let ended = server.stop();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    let server = ended.restart(&[]);
    assert_eq!(http::get_json(&server, "/readyz"), json!({ "status": "ready" }));
    assert!(Peer::open(&server, "bob").hold("write a").token > held.token);
}

#[test]
fn a_lock_whose_session_is_away_is_waited_for() {
    let server = Server::start(&["--drain-timeout", "1h"]);
    let mut ann = Peer::open_for(&server, "ann", 300);
    ann.hold("write a");
    drop(ann);
    eventually("the connection is gone", || {
        http::get_json(&server, "/v1/default/locks")["locks"][0]["owner"]["connected"] == false
    });
    assert_eq!(server.stop().status.code(), Some(0), "it ended with the abandon timeout");
}

#[test]
fn a_lock_in_a_burst_is_granted_or_refused_but_answered() {
    let server = Server::start(&["--drain-timeout", "1h"]);
    let mut ann = Peer::open(&server, "ann");
    let held = ann.hold("write a");
    let resources = resources("write b");
    server.signal("-TERM");
    // What is granted before the server has heard the signal must be released as ever.
    let mut ask = |message: Value| {
        let id = ann.send(message);
        let answer = match ann.next() {
            notice if notice["type"] == "draining" => ann.next(),
            answer => answer,
        };
        assert_eq!(answer["id"], id, "{answer}");
        answer
    };
    eventually("a lock is refused", || {
        let answer = ask(json!({ "type": "lock", "resources": resources, "wait": 0 }));
        if answer["type"] == "granted" {
            let released = ask(json!({ "type": "release", "lock": answer["lock"] }));
            assert_eq!(released["type"], "released", "{released}");
        }
        answer["code"] == "draining"
    });
    ann.send(json!({ "type": "release", "lock": held.lock }));
    drop(ann);
    assert_eq!(server.wait().status.code(), Some(0));
}

#[test]
fn a_conversion_that_would_have_to_wait_is_refused() {
    let server = Server::start(&["--drain-timeout", "1h"]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let (read, other) = (ann.hold("read a"), bob.hold("read a"));
    server.signal("-TERM");
    ann.next_of("draining");
    assert_error(&ann.convert(&read, "write", "forever"), "draining");
    bob.next_of("draining");
    bob.release(&other);
    assert_eq!(ann.convert(&read, "write", "forever")["type"], "converted");
}
