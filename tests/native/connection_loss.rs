//! What becomes of locks when connections are lost, replaced or dead.

use crate::{
    harness::Server,
    http::get_json,
    peer::{Peer, assert_error, resources},
};
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

#[test]
fn a_lock_outlives_its_connection_by_the_abandon_timeout() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open_for(&server, "ann", 400), Peer::open(&server, "bob"));
    let held = ann.hold("write a");
    bob.queue("write a");
    let lost_at = Instant::now();
    drop(ann);
    let next = bob.granted();
    assert!(lost_at.elapsed() >= Duration::from_millis(400), "too early: {:?}", lost_at.elapsed());
    assert!(next.token > held.token);
}

#[test]
fn a_session_without_an_abandon_timeout_ends_with_its_connection() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open_for(&server, "ann", 0), Peer::open(&server, "bob"));
    ann.hold("write a");
    bob.queue("write a");
    drop(ann);
    bob.granted();
}

#[test]
fn a_session_that_is_taken_up_again_keeps_its_locks_and_tokens() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open_for(&server, "ann", 500), Peer::open(&server, "bob"));
    ann.send(json!({ "type": "lock", "id": 900, "resources": crate::peer::resources("write a") }));
    let held = ann.granted();
    let queued = bob.queue("write a");
    let (mut ann, welcome) = lose_and_attach(ann, &server);
    assert_eq!(welcome["abandon_timeout_ms"], 500);
    assert_eq!(
        welcome["locks"],
        json!([{
            "lock": held.lock,
            "request": 900,
            "token": held.token,
            "resources": [{ "path": ["a"], "mode": "write" }],
        }])
    );
    // Twice its time later it is still held.
    let mut eve = Peer::open(&server, "eve");
    eve.hold("write b");
    assert_eq!(ann.lock("write b", 1000)["type"], "queued");
    assert_error(&ann.next(), "timeout");
    bob.still_waits(&queued["lock"]);
}

/// Loses the connection of `peer` and takes up its session on another one.
fn lose_and_attach(peer: Peer, server: &Server) -> (Peer, Value) {
    let message = peer.attach_message(&json!([]));
    drop(peer);
    let mut again = Peer::connect(server, "default");
    let welcome = again.greet(message);
    (again, welcome)
}

#[test]
fn the_wrong_secret_takes_up_nothing() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    let bob = Peer::open(&server, "bob");
    let held = ann.hold("write a");
    for secret in ["", "00", "zz", &bob.secret, &ann.secret[1..], &"0".repeat(64)] {
        let mut attach = ann.attach_message(&json!([]));
        attach["secret"] = (*secret).into();
        let mut thief = Peer::connect(&server, "default");
        assert_error(&thief.ask(attach), "wrong_secret");
        assert_eq!(thief.closed(), 4000);
    }
    ann.release(&held);
}

#[test]
fn a_secret_is_good_for_its_own_namespace_only() {
    let server = Server::start(&[]);
    let ann = Peer::open(&server, "ann");
    let mut other = Peer::connect(&server, "other");
    assert_error(&other.ask(ann.attach_message(&json!([]))), "wrong_secret");
}

#[test]
fn a_second_connection_replaces_the_first() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    let held = ann.hold("write a");
    let (mut again, welcome) = ann.attach(&server, &json!([]));
    assert_eq!(welcome["locks"][0]["token"], held.token);
    assert_error(&ann.next(), "replaced");
    assert_eq!(ann.closed(), 4001);
    drop(ann);
    again.release(&held);
    again.hold("write a");
}

#[test]
fn a_replaced_connection_does_not_take_waiters_with_it() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let held = ann.hold("write a");
    let queued = bob.queue("write a");
    let (mut again, welcome) = bob.attach(&server, &json!([]));
    assert_eq!(welcome["locks"][0]["lock"], queued["lock"], "{welcome}");
    assert_eq!(welcome["locks"][0]["request"], queued["id"], "{welcome}");
    assert_eq!(welcome["locks"][0]["token"], Value::Null, "{welcome}");
    assert_error(&bob.next(), "replaced");
    assert_eq!(bob.closed(), 4001);
    drop(bob);
    ann.release(&held);
    let granted = again.next_of("granted");
    assert_eq!((&granted["id"], &granted["lock"]), (&queued["id"], &queued["lock"]));
}

#[test]
fn a_waiter_that_loses_its_connection_leaves_the_queue_at_once() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let mut eve = Peer::open(&server, "eve");
    ann.hold("read a");
    bob.queue("write a");
    eve.queue("read a");
    drop(bob);
    eve.granted();
}

#[test]
fn a_waiting_conversion_ends_with_the_connection_and_the_lock_stays() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let (mine, other) = (ann.hold("read a"), bob.hold("read a"));
    assert_eq!(ann.convert(&mine, "write", "forever")["type"], "queued");
    let (mut eve, session) = (Peer::open(&server, "eve"), ann.attach_message(&json!([])));
    eve.queue("read a");
    drop(ann);
    eve.granted();
    bob.release(&other);
    let mut ann = Peer::connect(&server, "default");
    let welcome = ann.greet(session);
    assert_eq!(welcome["locks"][0]["token"], mine.token, "{welcome}");
    assert_eq!(welcome["locks"][0]["resources"][0]["mode"], "read", "{welcome}");
}

#[test]
fn after_the_abandon_timeout_a_session_is_unknown() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open_for(&server, "ann", 50), Peer::open(&server, "bob"));
    ann.hold("write a");
    bob.queue("write a");
    let attach = ann.attach_message(&json!([]));
    drop(ann);
    bob.granted();
    let mut late = Peer::connect(&server, "default");
    assert_error(&late.ask(attach), "unknown_session");
    assert_eq!(late.closed(), 4000);
}

#[test]
fn a_session_without_locks_can_be_taken_up_again_too() {
    let server = Server::start(&[]);
    let ann = Peer::open(&server, "ann");
    let session = ann.session.clone();
    let (again, welcome) = lose_and_attach(ann, &server);
    assert_eq!(again.session, session);
    assert_eq!(welcome["locks"], json!([]));
}

const QUICK_PINGS: [&str; 4] = ["--ping-interval", "200ms", "--silence-max", "600ms"];

#[test]
fn a_peer_that_never_answers_is_dropped_and_its_lock_released() {
    let server = Server::start(&QUICK_PINGS);
    let mut dead = Peer::open_for(&server, "dead", 100);
    // Before its last message, so that the server cannot have heard of it later than the test counts from.
    let silent_since = Instant::now();
    dead.hold("write a");
    let mut bob = Peer::open(&server, "bob");
    bob.queue("write a");
    bob.granted();
    let least = Duration::from_millis(600 + 100);
    assert!(silent_since.elapsed() >= least, "too early: {:?}", silent_since.elapsed());
    // Only now, so that its socket was open all the time.
    drop(dead);
}

#[test]
fn a_peer_that_takes_nothing_in_is_dropped_and_its_lock_released() {
    let server = Server::start(&QUICK_PINGS);
    let mut stuck = Peer::open_for(&server, "stuck", 100);
    stuck.hold("write a");
    let mut bob = Peer::open(&server, "bob");
    bob.queue("write a");
    // Answers pile up until neither side's buffers take more.
    let nothing = json!({ "type": "release", "id": 1, "lock": 1 }).to_string();
    stuck.flood(&nothing);
    bob.granted();
    drop(stuck);
}

#[test]
fn a_quiet_peer_that_answers_is_not_dropped() {
    let server = Server::start(&QUICK_PINGS);
    let mut ann = Peer::open_for(&server, "ann", 0);
    let held = ann.hold("write a");
    // More than the longest silence allowed.
    ann.answer_pings(6);
    ann.release(&held);
}

#[test]
fn a_connection_that_is_cut_off_in_the_middle_of_a_frame_is_lost() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open_for(&server, "ann", 0), Peer::open(&server, "bob"));
    ann.hold("write a");
    bob.queue("write a");
    ann.send_bytes(&[0x81, 0xfe, 0x10]);
    drop(ann);
    bob.granted();
}

#[test]
fn a_frame_that_breaks_the_rules_ends_the_connection_with_a_word() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    // A client must mask what it sends.
    ann.send_bytes(&[0x81, 0x02, b'{', b'}']);
    assert_error(&ann.next(), "bad_message");
    assert_eq!(ann.closed(), 1002);
}

#[test]
fn a_connection_that_says_nothing_useful_disturbs_nobody() {
    let server = Server::start(&[]);
    let mut noise = TcpStream::connect(server.native).unwrap();
    noise.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 not http at all\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = noise.read_to_end(&mut answer);
    Peer::open(&server, "ann").hold("write a");
}

#[test]
fn what_a_replaced_connection_had_already_said_does_not_count() {
    let server = Server::start(&[]);
    let _witness = Peer::open(&server, "witness");
    let mut old = Peer::open(&server, "ann");
    // So much is asked for, and nothing read, that the old connection is stuck in the middle of it.
    old.flood(&json!({ "type": "lock", "id": 2, "resources": resources("read a") }).to_string());
    let (new, _) = old.attach(&server, &json!([]));
    new.bye();
    while old.try_next().is_some() {}
    assert_eq!(get_json(&server, "/v1/default/locks")["locks"], json!([]));
}
