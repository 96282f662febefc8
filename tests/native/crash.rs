//! What a server that was killed may and may not do when it is back.

use crate::{
    harness::{Ended, Server, eventually},
    http, metrics,
    peer::{Held, Peer, assert_error, resources},
};
use serde_json::json;
use std::{
    thread,
    time::{Duration, Instant},
};

/// Longer than any test takes.
const LONG_MS: u64 = 60_000;

/// How long nothing is granted yet in the namespace `default`.
fn grace_left_ms(server: &Server) -> Option<u64> {
    http::get_json(server, "/readyz")["grace"][0]["left_ms"].as_u64()
}

/// `ann` holds `a`, and the server is killed.
fn crashed(abandon_timeout_ms: u64) -> (Ended, Peer, Held) {
    let server = Server::start(&[]);
    let mut ann = Peer::open_for(&server, "ann", abandon_timeout_ms);
    let held = ann.hold("write a");
    (server.kill(), ann, held)
}

#[test]
fn nothing_is_granted_before_the_grace_period_is_over() {
    let (ended, _ann, held) = crashed(1500);
    let killed_at = Instant::now();
    let server = ended.restart(&[]);
    assert!(server.greeting.contains("did not end cleanly"), "{}", server.greeting);
    let mut bob = Peer::open(&server, "bob");
    let refusal = bob.lock("write b", 0);
    assert_error(&refusal, "grace_period");
    assert!(refusal["message"].as_str().unwrap().contains(" ms"), "{refusal}");
    let queued = bob.queue("write b");
    assert_eq!(queued["blockers_len"], 0, "nobody is in the way but the past: {queued}");
    let granted = bob.granted();
    assert!(killed_at.elapsed() >= Duration::from_millis(1500), "too early: {:?}", killed_at.elapsed());
    assert!(granted.token > held.token);
    eventually("it is ready", || http::get_json(&server, "/readyz") == json!({ "status": "ready" }));
}

#[test]
fn readiness_and_welcome_tell_of_the_grace_period() {
    let (ended, _ann, _) = crashed(LONG_MS);
    let server = ended.restart(&[]);
    let reply = http::get(&server, "/readyz");
    assert_eq!(reply.status, 200, "sessions can be taken up again now");
    let readiness = reply.json();
    assert_eq!(readiness["status"], "ready", "other namespaces are");
    assert_eq!(readiness["grace"][0]["namespace"], "default");
    assert!(readiness["grace"][0]["left_ms"].as_u64().unwrap() <= LONG_MS, "{readiness}");
    let metrics = http::get(&server, "/metrics").body;
    assert!(metrics.contains("\nlockwood_ready 1\n"), "{metrics}");
    assert!(metrics.contains("\nlockwood_grace_seconds{namespace=\"default\"} "), "{metrics}");
    let welcome = Peer::connect(&server, "default").ask(json!({ "type": "hello" }));
    let left = welcome["grace_ms"].as_u64().unwrap();
    assert!(0 < left && left <= LONG_MS, "{welcome}");
}

#[test]
fn the_grace_period_is_as_long_as_the_longest_abandon_timeout_in_use() {
    let server = Server::start(&[]);
    let mut short = Peer::open_for(&server, "short", 100);
    let mut long = Peer::open_for(&server, "long", LONG_MS);
    short.hold("write a");
    long.hold("write b");
    short.hold("write c");
    let server = server.kill().restart(&[]);
    assert!(grace_left_ms(&server).unwrap() > 1000);
}

#[test]
fn a_wait_that_runs_out_in_the_grace_period_says_so() {
    let (ended, _ann, _) = crashed(LONG_MS);
    let server = ended.restart(&[]);
    let mut bob = Peer::open(&server, "bob");
    assert_eq!(bob.lock("write a", 100)["type"], "queued");
    let refusal = bob.next();
    assert_error(&refusal, "grace_period");
    assert!(refusal["message"].as_str().unwrap().contains("lockwood grace end"), "{refusal}");
}

#[test]
fn a_session_gets_its_lock_back_with_the_same_token() {
    let (ended, ann, held) = crashed(LONG_MS);
    let server = ended.restart(&[]);
    let mut attach = ann.attach_message(&json!([held.reclaim("write a")]));
    attach["name"] = "ann".into();
    attach["abandon_timeout_ms"] = LONG_MS.into();
    let mut again = Peer::connect(&server, "default");
    let welcome = again.greet(attach);
    assert_eq!(welcome["session"], ann.session);
    assert_eq!(welcome["secret"], ann.secret);
    assert_eq!(welcome["abandon_timeout_ms"], LONG_MS);
    let lock = &welcome["locks"][0];
    assert_eq!(lock["token"], held.token, "{welcome}");
    assert_eq!(lock["was"], held.lock);
    assert_eq!(lock["resources"], json!([{ "path": ["a"], "mode": "write" }]));
    assert!(lock["lock"].as_u64().unwrap() > held.lock, "its number is a new one");
    let listed = &http::get_json(&server, "/v1/default/locks")["locks"][0];
    assert_eq!((&listed["token"], &listed["owner"]["name"]), (&json!(held.token), &json!("ann")));
}

#[test]
fn a_lock_that_came_back_is_held_after_the_grace_period() {
    let (ended, ann, held) = crashed(500);
    let server = ended.restart(&[]);
    let (mut again, welcome) = ann.attach(&server, &json!([held.reclaim("write a")]));
    let mut bob = Peer::open(&server, "bob");
    let queued = bob.queue("write a");
    assert_eq!(queued["blockers"][0]["session"], ann.session, "{queued}");
    let mut eve = Peer::open(&server, "eve");
    eve.queue("write b");
    eve.granted();
    bob.still_waits(&queued["lock"]);
    again.release(&Held { lock: welcome["locks"][0]["lock"].as_u64().unwrap(), token: held.token });
    assert!(bob.granted().token > held.token);
}

#[test]
fn a_second_claimant_of_the_same_resources_gets_nothing() {
    let server = Server::start(&[]);
    let mut ann = Peer::open_for(&server, "ann", LONG_MS);
    let bob = Peer::open_for(&server, "bob", LONG_MS);
    let held = ann.hold("write a");
    let server = server.kill().restart(&[]);
    let (_ann, welcome) = ann.attach(&server, &json!([held.reclaim("write a")]));
    assert_eq!(welcome["locks"][0]["was"], held.lock);
    let claim = Held { lock: held.lock + 1, token: held.token + 1 };
    let (_bob, welcome) = bob.attach(&server, &json!([claim.reclaim("write a/b")]));
    assert_eq!(welcome["locks"], json!([]));
}

#[test]
fn a_second_attempt_to_attach_finds_what_the_first_brought_back() {
    let (ended, ann, held) = crashed(LONG_MS);
    let server = ended.restart(&[]);
    let claims = json!([held.reclaim("write a")]);
    let (mut first, welcome) = ann.attach(&server, &claims);
    assert_eq!(welcome["locks"][0]["was"], held.lock);
    let (_second, again) = ann.attach(&server, &claims);
    assert_eq!(again["locks"], welcome["locks"]);
    assert_error(&first.next_of("error"), "replaced");
    let namespaces = http::get_json(&server, "/v1/namespaces");
    assert_eq!(namespaces["namespaces"][0]["sessions"], 1, "{namespaces}");
    assert_eq!(namespaces["namespaces"][0]["locks_granted"], 1, "{namespaces}");
}

#[test]
fn a_token_that_was_never_given_out_brings_nothing_back() {
    let (ended, ann, held) = crashed(LONG_MS);
    let server = ended.restart(&[]);
    let claim = Held { lock: held.lock, token: u64::MAX };
    let (_again, welcome) = ann.attach(&server, &json!([claim.reclaim("write a")]));
    assert_eq!(welcome["locks"], json!([]));
}

#[test]
fn a_stranger_cannot_claim_locks() {
    let (ended, ann, held) = crashed(LONG_MS);
    let server = ended.restart(&[]);
    let mut attach = ann.attach_message(&json!([held.reclaim("write a")]));
    attach["secret"] = "0".repeat(64).into();
    assert_error(&Peer::connect(&server, "default").ask(attach), "wrong_secret");
    assert_eq!(http::get_json(&server, "/v1/default/locks")["locks"], json!([]));
}

#[test]
fn after_the_grace_period_a_session_of_before_is_unknown() {
    let (ended, ann, held) = crashed(100);
    let server = ended.restart(&[]);
    eventually("it is over", || grace_left_ms(&server).is_none());
    let attach = ann.attach_message(&json!([held.reclaim("write a")]));
    assert_error(&Peer::connect(&server, "default").ask(attach), "unknown_session");
}

#[test]
fn a_clean_stop_in_the_grace_period_does_not_end_it() {
    let (ended, ann, held) = crashed(LONG_MS);
    let ended = ended.restart(&[]).stop();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    let server = ended.restart(&[]);
    assert!(grace_left_ms(&server).is_some());
    let (_again, welcome) = ann.attach(&server, &json!([held.reclaim("write a")]));
    assert_eq!(welcome["locks"][0]["token"], held.token, "{welcome}");
}

#[test]
fn a_second_crash_in_the_grace_period_does_not_shorten_it() {
    let (ended, _ann, _) = crashed(LONG_MS);
    let server = ended.restart(&[]);
    let _bob = Peer::open_for(&server, "bob", 100);
    let server = server.kill().restart(&[]);
    assert!(grace_left_ms(&server).unwrap() > 1000);
}

#[test]
fn tokens_only_ever_grow_however_often_a_server_is_killed() {
    let mut server = Server::start(&[]);
    let mut largest = 0;
    for _ in 0..10 {
        let tokens = thread::scope(|scope| {
            let server = &server;
            let clients = [0, 1].map(|client| scope.spawn(move || take_locks(server, client)));
            eventually("locks are granted", || metrics::value(server, "lockwood_grants_total") > 10.0);
            server.signal("-KILL");
            clients.map(|client| client.join().unwrap()).concat()
        });
        let least = tokens.iter().min().unwrap();
        assert!(*least > largest, "{least} after {largest}");
        largest = *tokens.iter().max().unwrap();
        server = server.wait().restart(&[]);
    }
}

/// Takes and releases locks until the server is gone; returns the tokens.
fn take_locks(server: &Server, client: usize) -> Vec<u64> {
    let mut peer = Peer::open_for(server, "taker", 50);
    let mut tokens = Vec::new();
    let wanted = json!({ "type": "lock", "resources": resources(&format!("write a/{client}")) });
    while let Some(answer) = peer.try_ask(wanted.clone()) {
        let granted = match answer["type"].as_str() {
            Some("granted") => Some(answer),
            Some("queued") => peer.try_next(),
            _ => panic!("{answer}"),
        };
        let Some(granted) = granted else { break };
        tokens.push(granted["token"].as_u64().unwrap());
        if peer.try_ask(json!({ "type": "release", "lock": granted["lock"] })).is_none() {
            break;
        }
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    tokens
}

#[test]
fn a_waiter_of_before_is_not_remembered() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open_for(&server, "ann", LONG_MS), Peer::open(&server, "bob"));
    ann.hold("write a");
    bob.queue("write a");
    let server = server.kill().restart(&[]);
    let (_again, welcome) = bob.attach(&server, &json!([]));
    assert_eq!(welcome["locks"], json!([]));
}

#[test]
fn a_claim_without_resources_is_refused() {
    let (ended, ann, held) = crashed(LONG_MS);
    let server = ended.restart(&[]);
    let claim = json!([{ "lock": held.lock, "token": held.token, "resources": [] }]);
    assert_error(&Peer::connect(&server, "default").ask(ann.attach_message(&claim)), "no_resources");
}
